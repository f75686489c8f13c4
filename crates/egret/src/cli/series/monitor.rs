//! `egret series targets`, `rules`, `alerts` and `reload`.

use clap::Subcommand;

/// Commands about scrapes, rules and alerts.
#[derive(Debug, Subcommand)]
pub enum Monitor {
    /// List scrape targets and the result of their last scrape
    #[command(after_help = "Example: egret series targets --job node")]
    Targets {
        /// Only targets of this job
        #[arg(long)]
        job: Option<String>,
    },
    /// List recording and alerting rules and the result of their last evaluation
    #[command(after_help = "Example: egret series rules --group node")]
    Rules {
        /// Only rules of this group; may be repeated [default: all groups]
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// List alerts that are pending or firing
    #[command(after_help = "Example: egret series alerts")]
    Alerts,
    /// Reload the files of rules and targets
    #[command(after_help = "Example: egret series reload")]
    Reload,
}
