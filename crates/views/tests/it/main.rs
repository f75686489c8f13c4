//! Views on real servers.

mod capture;
mod open;
mod oracle;
mod refused;
mod several;
