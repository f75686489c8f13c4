//! Another user of the same machine: files, variables, programs, process lists.
