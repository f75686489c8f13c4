//! The PostgreSQL underneath, against real servers of every supported version.

mod databases;
mod embedded;
mod external;
mod failover;
mod listening;
mod lock_owner;
mod managed;
mod migrating;
mod postmaster;
mod traps;
mod wire;
