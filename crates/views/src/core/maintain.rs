//! The statements that maintain the table of a stage.
//!
//! Rows with a key are stored once each; without a key, each distinct row is stored once with a
//! count. A stage of groups has one row for each group, with the aggregates and the columns from
//! which they are maintained. A stage of partitions stores rows as a stage of rows does, and finds
//! those of a partition. A recursion stores rows without a key, each with the number of its
//! derivations.

mod aggregates;
pub(crate) mod delta;
mod groups;
pub(crate) mod key;
mod partitions;
mod recursion;
mod rows;
pub(crate) mod statement;
pub(crate) mod table;
mod top;

pub use self::aggregates::AggregateMaintenance;
pub(crate) use self::aggregates::choose_maintenance;
pub use self::groups::ReduceStage;
pub use self::partitions::WindowStage;
pub(crate) use self::partitions::input_columns;
pub(crate) use self::partitions::select_with_windows;
pub use self::recursion::RecursionStage;
pub(crate) use self::recursion::recursion_side;
pub use self::rows::RowStage;
pub use self::top::TopKStage;
