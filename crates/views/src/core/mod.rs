//! Pure decisions: what a query computes, and the SQL that keeps it fresh.

pub(crate) mod analyse;
pub mod capture;
pub(crate) mod column_types;
pub mod compile;
pub mod display;
pub mod expression;
pub mod functions;
pub mod immediate;
pub mod keys;
pub mod locate;
pub mod lookups;
pub(crate) mod maintain;
pub mod memory;
pub(crate) mod prune;
pub mod refusal;
pub mod renumber;
pub(crate) mod rule_tree;
pub(crate) mod scales;
pub(crate) mod scheduling;
pub mod size;
pub mod sql;
pub mod strategy;
pub mod tree;
