//! Pure decisions: what a query computes, and the SQL that keeps it fresh.

pub mod analyse;
pub mod capture;
pub mod compile;
pub mod expression;
pub mod functions;
pub mod maintain;
pub mod refusal;
pub mod sql;
pub mod tree;
