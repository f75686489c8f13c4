//! What may be typed behind `egret bench documents`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{EXIT_CODES, RunArgs, rate, seconds};

/// `egret bench documents …`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct DocumentsArgs {
    /// What is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: DocumentsScenario,
    /// Connections, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub clients: u32,
    /// How long the load lasts [default: 60; with soak 1800]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// End the warm-up after this time even if the load is not steady
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    pub warmup_max: Duration,
    /// Other documents that a document refers to
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub references: u32,
    /// Bytes of a document
    #[arg(long, value_name = "BYTES", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(200..=1_000_000))]
    pub body_bytes: u32,
    /// Requests that are due per second, whether or not others have ended [default: as many as go]
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Whether writes that come at a time are one transaction; off: each is its own. Of a private Egret
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t)]
    pub grouping: Switch,
    /// Documents that are there beforehand
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub documents: u32,
    /// How it is run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DocumentsScenario {
    /// Documents with what they refer to made, changed and deleted: 41, 18 and 41 of a hundred requests; then what one write and one read cost
    #[default]
    Volume,
    /// Documents read by id
    Get,
    /// The first page of those that refer to a document, of 100,000 that do
    Referrers,
    /// Lines put in
    Import,
    /// Documents written as they are already
    Unchanged,
    /// One document written by all
    HotKey,
    /// Documents all of whose references are to one
    DuplicateReferences,
    /// Documents that refer to what is not there
    Unresolved,
    /// As volume, for long, without what follows it
    Soak,
}

impl DocumentsScenario {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Get => "get",
            Self::Referrers => "referrers",
            Self::Import => "import",
            Self::Unchanged => "unchanged",
            Self::HotKey => "hot-key",
            Self::DuplicateReferences => "duplicate-references",
            Self::Unresolved => "unresolved",
            Self::Soak => "soak",
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On
    #[default]
    On,
    /// Off
    Off,
}
