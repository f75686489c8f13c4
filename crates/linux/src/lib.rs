//! The few things Egret asks of Linux that no safe, well-kept crate offers: btrfs subvolume
//! ioctls, and starting a child in its own session.
//!
//! This is the only crate of the workspace that holds `unsafe` code. Each use is a few lines with
//! the reason why it is sound; nothing here makes decisions.

pub mod session;
pub mod subvolume;
