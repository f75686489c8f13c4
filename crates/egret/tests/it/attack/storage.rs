//! Damaged, missing and full storage: what stops, what goes on, and what is said of it.
