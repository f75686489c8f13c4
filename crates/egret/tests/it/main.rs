//! The binary's integration tests: the demo against a real PostgreSQL, the command line as a user
//! meets it, and the commands that the documentation shows.

mod addresses;
mod attack;
mod bench;
mod bench_branches;
mod bench_queue;
mod bench_views;
mod clients;
mod command_line;
mod demo;
mod documentation;
mod documents;
mod external_server;
mod full_disk;
mod idle;
mod outbox;
mod place;
mod pools;
mod published;
mod queue;
mod queue_clients;
mod queue_crash;
mod reload;
mod series;
mod series_admin;
mod series_crash;
mod series_histograms;
mod series_hostile;
mod series_monitor;
mod series_senders;
mod serve;
mod server;
mod views;
mod views_crash;
mod views_follow;
