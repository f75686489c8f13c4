//! Single rules; the simulator in `tests/it` has the rest.
