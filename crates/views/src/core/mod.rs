//! Pure decisions: what a query computes, and the SQL that keeps it fresh.

pub mod analyse;
pub mod capture;
pub mod choose;
pub mod compile;
pub mod expression;
pub mod functions;
pub mod immediate;
pub mod keys;
pub mod locate;
pub mod lookups;
pub mod maintain;
pub mod memory;
pub mod pace;
pub mod refusal;
pub mod renumber;
pub mod scales;
pub mod show;
pub mod size;
pub mod sql;
pub mod tree;
