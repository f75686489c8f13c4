//! `egret.enqueue` and its reader on real PostgreSQL.

mod bounds;
mod chains;
mod crashes;
mod held;
mod reading;
mod restoring;
mod rig;
mod upgrading;
mod writing;
