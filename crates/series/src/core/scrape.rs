//! Scraping.
