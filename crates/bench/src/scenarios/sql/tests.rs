//! Workload files, statements, expressions and distributions.
