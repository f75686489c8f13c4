//! Keeps views fresh: finds the databases with views, and refreshes what is due in each of them.

mod catalog_cache;
mod change_log_gc;
mod change_log_task;
pub(crate) mod change_notifier;
mod change_reader;
mod component;
pub(crate) mod context;
pub(crate) mod create;
mod failures;
mod follow_up;
mod idle;
mod refresh;
mod refresh_loop;
pub(crate) mod refresh_result;
pub(crate) mod refresh_worker;
pub(crate) mod refresh_workers;
mod requests;
pub(crate) mod session;
mod task_publisher;
mod view_faults;
pub(crate) mod watch;
