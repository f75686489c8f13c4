//! Clients that are slow, silent, or many: no one else is kept out.
