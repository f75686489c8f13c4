//! Attacks on a running Egret, one module for each section of docs/security.md.

mod branch_user;
mod clock;
mod database_owner;
mod doors;
mod identity;
mod local_user;
mod outgoing;
mod queue;
mod registry;
mod repair;
mod replaced;
mod rights;
mod routes;
mod sessions;
mod storage;
mod streams;
mod tokens;
