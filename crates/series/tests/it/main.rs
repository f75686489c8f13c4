//! The series engine as its users meet it.

mod damage;
mod engine;
mod golden;
mod keeping;
mod looking;
mod metadata;
mod refused;
mod replicas;
mod rules;
mod scraping;
mod web;
