//! Arguments of `egret bench documents`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{EXIT_CODES, RunArgs, rate, seconds};

/// `egret bench documents …`
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = format!("{EXIT_CODES}\n\nExample: egret bench documents --private --clients 8 --seconds 30 --out documents.json"))]
pub struct DocumentsArgs {
    /// Scenario that is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: DocumentsScenario,
    /// Number of connections, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub clients: u32,
    /// Duration of the measurement [default: 60; with soak 1800]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Maximum duration of the warm-up, which ends when the load is steady
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    pub warmup_max: Duration,
    /// Number of references of a document
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub references: u32,
    /// Size of a document, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(200..=1_000_000))]
    pub body_bytes: u32,
    /// Rate of an open loop, in requests per second, independent of earlier requests [default:
    /// closed loop]
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Group commit of the private server: one transaction for concurrent writes; off: one for each
    /// write
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t)]
    pub grouping: Switch,
    /// Number of documents written before the measurement
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub documents: u32,
    /// Options of every scenario.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Scenarios of `egret bench documents`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum DocumentsScenario {
    /// Creations, changes and deletions of documents with references (41%, 18% and 41% of
    /// requests), then the cost of one write and one read
    #[default]
    Volume,
    /// Reads of documents by id
    Get,
    /// First page of the 100,000 documents that refer to one document
    Referrers,
    /// Bulk imports of lines
    Import,
    /// Writes that do not change the document
    Unchanged,
    /// Writes of all connections to one document
    HotKey,
    /// Documents whose references all have the same target
    DuplicateReferences,
    /// Writes that are refused because a reference has no target
    Unresolved,
    /// The load of volume for a long time, without the costs of single requests
    Soak,
}

impl DocumentsScenario {
    /// Name of the scenario on the command line.
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

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Switch {
    /// Switched on
    #[default]
    On,
    /// Switched off
    Off,
}
