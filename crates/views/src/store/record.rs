//! A row of the registry of views.

use egret_postgres::tokio_postgres::GenericClient;

use crate::core::scheduling::Member;
use crate::error::ViewsError;
use crate::model::{Mode, Schedule, State, ViewName};

/// A view's row in the registry.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number of the view.
    pub id: i64,
    /// Schema and name under which users read the view.
    pub name: ViewName,
    /// The query as the caller wrote it.
    pub query: String,
    /// The query with every name resolved.
    pub definition: String,
    /// Statements that restore the settings of the session that created the view. The definition is
    /// only parsed under these, as they decide what its constants mean.
    pub settings: String,
    /// Role whose rights the query has.
    pub owner: String,
    /// Whether the owner is another role than the one that refreshes.
    pub has_other_owner: bool,
    /// How the view is refreshed.
    pub mode: Mode,
    /// When it is refreshed, if it has a schedule of its own.
    pub schedule: Option<Schedule>,
    /// Indexes on the view, each a list of column names.
    pub indexes: Vec<Vec<String>>,
    /// The tables of its stages as text, to detect changes.
    pub storage_definition: String,
    /// State of the view's maintenance.
    pub state: State,
    /// Why the view fails or is suspended.
    pub reason: Option<String>,
    /// Failed refreshes since the last successful one.
    pub failures: u32,
    /// Snapshot that the view shows; none if it must be rebuilt or the snapshot is of another
    /// server.
    pub snapshot: Option<String>,
    /// Whether the query depends on the clock.
    pub has_clock: bool,
    /// Last moment at which the view was known to be fresh, in milliseconds of Unix time.
    pub fresh_at_ms: Option<i64>,
    /// Retention of its change sets in milliseconds; none: it is not followed.
    pub retention_ms: Option<i64>,
    /// Number of its latest change set.
    pub sequence: i64,
    /// Queue that gets a task for each change set.
    pub queue: Option<String>,
    /// Its sources in order: the name, and for a view of Egret's its number.
    pub reads: Vec<(String, Option<i64>)>,
}

impl Record {
    /// Applies the settings of the session that created the view, until the end of the transaction.
    ///
    /// # Errors
    /// [`ViewsError::SourceGone`] where the server refuses a setting, such as one that names an
    /// object that is gone.
    pub(crate) async fn apply_settings(
        &self,
        client: &impl GenericClient,
    ) -> Result<(), ViewsError> {
        let applied = client.batch_execute(&self.settings).await;
        // Refusals of values, names, privileges and missing objects persist; other errors, such as
        // a cancellation, do not.
        let is_refusal = |code: &str| ["0A", "22", "3F", "42"].contains(&&code[..2]);
        applied.map_err(|error| match error.as_db_error() {
            Some(refused) if is_refusal(refused.code().code()) => ViewsError::SourceGone {
                reason: format!(
                    "a setting of the session that created it is refused: {}",
                    refused.message()
                ),
            },
            _ => error.into(),
        })
    }

    /// Number of the capture's view if the view is in mode immediate, and applies changes within
    /// the writing transaction.
    pub(crate) fn immediate_view(&self) -> Option<i64> {
        (self.mode == Mode::Immediate).then_some(self.id)
    }

    /// Whether change sets of the view are retained.
    pub(crate) fn is_followed(&self) -> bool {
        self.retention_ms.is_some()
    }

    /// The fields that decide its component.
    pub(crate) fn component_member(&self) -> Member {
        Member {
            view: self.id,
            reads: self.reads.iter().filter_map(|(_, view)| *view).collect(),
            schedule: self.schedule.clone(),
        }
    }
}
