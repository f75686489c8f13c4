//! The binary's parts: command line, configuration, the HTTP client, the demo's data, wiring.

pub mod demo;
