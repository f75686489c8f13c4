//! Blocks: samples of many series over some time, sealed. Here are their encodings, byte by byte,
//! and what is to be done with them ([`plan`]); what touches a disk is in `store`.
//!
//! # Format, version 1
//!
//! Little endian; *varint* is LEB128, *signed* a varint in zigzag. *Checked* bytes have their
//! CRC-32C before them, a *frame* is checked bytes that may be compressed ([`frame`]). Series are
//! numbered from 0 in the order of their labels, and described in pages of at most [`PAGE_SERIES`].
//!
//! - header: [`layout::Header`]
//! - data: for each page of series: their chunks and columns of times, each checked, then the page,
//!   a frame ([`page`])
//! - label values: for each label: pages of sorted values with the series that have them
//!   ([`terms`]), frames; before them the lists of series that are too long for a page, checked
//!   ([`postings`])
//! - label names: a frame: for each the directory of its pages of values ([`names`])
//! - page directory: a frame: where each page of series is ([`layout::PageDirectory`])
//! - meta: a frame: what is in the block ([`meta::BlockMeta`])
//! - footer: where the four before it are ([`layout::Footer`])
//!
//! A chunk has at most [`CHUNK_SAMPLES_MAX`] samples. Its times are a column that other chunks may
//! share, as series that are scraped together have the same times; its numbers are encoded by
//! whatever takes least ([`values`]), over columns of integers ([`ints`]); its histograms as the
//! difference to the one before ([`histograms`]). What has the same bytes is there once.

pub(crate) mod cut;
pub mod frame;
pub mod histograms;
pub mod ints;
pub(crate) mod layout;
pub mod merge;
pub mod meta;
pub(crate) mod names;
mod pack;
pub mod page;
pub(crate) mod pattern;
mod pco_bytes;
pub mod plan;
pub(crate) mod postings;
pub(crate) mod terms;
pub mod tombstones;
pub mod values;
pub mod window;

pub use meta::{BlockId, BlockMeta};

/// The most samples of a chunk: a day of one every ten seconds.
pub(crate) const CHUNK_SAMPLES_MAX: usize = 8640;

/// The most series of a page…
pub(crate) const PAGE_SERIES: usize = 128;

/// …and the bytes with which it is full, however few it has: labels may be long.
pub const PAGE_BYTES: usize = 256 << 10;

/// How much work a writer does to make blocks small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// What is cheap: blocks that will soon be merged.
    Quick,
    /// Every encoding is tried.
    #[default]
    Thorough,
}
