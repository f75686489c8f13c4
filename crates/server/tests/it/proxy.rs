//! The PostgreSQL proxy, between real clients and a real server.

mod garbage;
mod node;
mod psql;
mod psycopg;
mod raw;
pub mod running_proxy;
mod sessions;
mod stopping;
mod tls;
