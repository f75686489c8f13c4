//! Memory of the functions of ranges.

use super::blocks::Blocks;

/// Memory that is used again for each series.
#[derive(Default)]
pub(crate) struct Workspace {
    pub(super) indices: Vec<usize>,
    pub(super) values: Vec<f64>,
    pub(super) blocks: Blocks,
}
