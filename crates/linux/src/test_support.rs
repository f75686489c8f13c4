//! What tests of this crate share.

use std::io::Write;

/// Says that a test leaves out what it is for, past what captures the output of tests that pass.
pub fn not_checked(reason: impl std::fmt::Display) {
    // Without standard error nobody reads it.
    let _ = std::io::stderr().write_all(format!("NOT CHECKED: {reason}\n").as_bytes());
}
