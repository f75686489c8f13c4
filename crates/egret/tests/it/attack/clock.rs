//! Clocks that jump: nothing is lost, repeated or brought forward.
