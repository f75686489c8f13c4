//! The series engine as its users meet it.

mod blocks;
mod engine;
mod hostile;
mod metadata;
mod promql;
mod rules;
mod scraping;
mod web;
