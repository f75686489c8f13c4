//! Scraping: which targets there are, and what becomes of what they show.
//!
//! Files have the shape of Prometheus's `scrape_config`. Everything here is told the time and given
//! the text that a target showed; the loops that fetch it are in `worker`.

mod collect;
mod config;
mod intake;
mod status;
mod target;

pub use collect::{Collect, Exposition};
pub use config::{
    Credentials, FileDiscovery, ScrapeConfig, ScrapeDefaults, ScrapeFileError, ScrapeLimits,
    Secret, SecretSource, TargetGroup, parse, parse_groups,
};
pub use intake::{Intake, ScrapePage, ScrapeResult};
pub use status::{DroppedStatus, TargetHealth, TargetStatus, TargetsStatus};
pub(crate) use target::find_targets;
pub use target::{ScrapeTarget, Targets};
