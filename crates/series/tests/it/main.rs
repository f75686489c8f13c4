//! The series engine as its users meet it.

mod hostile;
mod promql;
mod rules;
mod scraping;
mod web;
