//! The PostgreSQL proxy, between real clients and a real server.

pub mod door;
mod garbage;
mod node;
mod psql;
mod psycopg;
mod raw;
mod sessions;
mod stopping;
mod tls;
