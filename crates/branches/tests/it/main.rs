//! The branches engine on a real embedded PostgreSQL and real file systems.

mod bounds;
mod confined;
mod crashes;
mod deletions;
mod faults;
mod home;
mod hostile;
mod isolation;
mod lifecycle;
mod logs;
mod losses;
mod manifests;
mod pool;
mod pool_faults;
mod resets;
mod resident;
mod rights;
mod starts;
mod tenant_disk;
mod unanswered;
mod unfinished_resets;
mod unrecorded;
mod volumes;
