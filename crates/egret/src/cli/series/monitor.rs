//! `egret series targets`, `rules`, `alerts` and `reload`.

use clap::Subcommand;

/// What Egret does with series of its own accord.
#[derive(Debug, Subcommand)]
pub enum Monitor {
    /// List what is scraped, and how it went
    Targets {
        /// Only those of this job
        #[arg(long)]
        job: Option<String>,
    },
    /// List recording and alerting rules, and how they went
    Rules {
        /// Only those of this group; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// List the alerts that are pending or firing
    Alerts,
    /// Read the files of rules and targets again
    Reload,
}
