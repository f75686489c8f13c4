//! Views on real servers.

mod capture;
mod engine;
mod open;
mod oracle;
mod refused;
mod several;
mod shapes;
mod traps;
mod world;
