//! Loops with workers made up.
