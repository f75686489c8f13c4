//! The series engine as its users meet it.

mod damage;
mod engine;
mod golden;
mod label_queries;
mod metadata;
mod rejections;
mod replicas;
mod retention;
mod rules;
mod scraping;
mod web;
