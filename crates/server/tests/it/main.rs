//! Real servers on free ports, spoken to by real clients.

mod branches;
mod client_certificates;
mod forwarded;
mod http;
mod limits;
mod oidc;
mod openapi;
mod proxy;
mod queues;
mod quotas;
mod system;
mod test_server;
mod tokens;
mod transport;
mod views;
