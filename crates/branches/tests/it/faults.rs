//! Crashes, strangers and losses.
