//! Branches through their frontends: the engine on a real PostgreSQL, over HTTP and through the
//! proxy.

mod changing;
mod connecting;
mod faults;
mod making;
mod pools;
mod querying;
mod rig;
mod suspending;
mod tenants;
