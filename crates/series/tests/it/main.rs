//! The series engine as its users meet it.

mod blocks;
mod damage;
mod engine;
mod golden;
mod hostile;
mod keeping;
mod looking;
mod metadata;
mod promql;
mod refused;
mod replicas;
mod rules;
mod scraping;
mod web;
