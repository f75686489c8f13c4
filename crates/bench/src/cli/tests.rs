//! Durations and rates as they are typed.
