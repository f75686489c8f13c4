//! The protocols as a sender that means harm uses them.

mod hostile;
