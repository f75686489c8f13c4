//! Integration tests of the documents engine on a real PostgreSQL.

mod batches;
mod bulk;
mod changes;
mod declarations;
mod indexes;
mod kept;
mod model;
mod once;
mod ownership;
mod queries;
mod races;
mod renames;
mod repairs;
mod rights;
mod shares;
mod stops;
mod strict;
mod told;
mod world;
mod writes;
