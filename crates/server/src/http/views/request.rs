//! What callers ask of views, as JSON.

use egret_base::settings::{Span, Value};
use egret_views::model::{Alteration, Following, MakerRights, Mode, NewView, Schedule, ViewName};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;
use utoipa::openapi::Object;

use crate::extract::by_text;
use crate::http::sql_text::sql_text;
use crate::openapi::one_of;

/// A new view.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewRequest {
    /// Where it will be read: a name in schema `public`, or `schema.name`.
    #[serde(deserialize_with = "by_text")]
    #[schema(value_type = String, example = "late_by_carrier")]
    pub(super) name: ViewName,
    /// Its query, one SELECT.
    #[serde(deserialize_with = "sql_text")]
    #[schema(
        example = "select carrier, count(*) as flights from flights where arr_delay > 60 group by carrier"
    )]
    query: String,
    /// The database; may be left out where there is one only.
    database: Option<String>,
    /// How it is brought up to date; `auto` when absent.
    #[serde(default, deserialize_with = "by_text")]
    #[schema(schema_with = mode_schema)]
    mode: Mode,
    /// When: the lag that is allowed (`5s`), a cron expression of five fields in UTC, or `manual`. When absent, it is
    /// refreshed with the views that read it, or after `views.default_lag` where there are none.
    #[serde(default, deserialize_with = "maybe_schedule")]
    #[schema(value_type = Option<String>, example = "5s")]
    schedule: Option<Schedule>,
    /// Lists of its columns, for each of which there will be an index.
    #[serde(default, deserialize_with = "sql_text")]
    #[schema(example = json!([["carrier"]]))]
    indexes: Vec<Vec<String>>,
    /// For how long what changes in it is kept for those who follow it: `1d`. When absent, it is not before somebody follows it.
    #[serde(default, deserialize_with = "maybe_span")]
    #[schema(value_type = Option<String>, example = "1d")]
    keep_changes: Option<Span>,
    /// The queue that gets a task for every change; changes are kept then, for `views.change_sets_kept` where nothing else is said.
    #[schema(example = "late")]
    pub(super) on_change_enqueue: Option<String>,
    /// The role whose rights its query has; the one that Egret connects as when absent. Takes an admin.
    #[serde(default, deserialize_with = "sql_text")]
    pub(super) owner: Option<String>,
}

impl ViewRequest {
    /// The database, and what the engine is asked to make there.
    pub(super) fn into_view(self, rights: MakerRights) -> (Option<String>, NewView) {
        let view = NewView {
            name: self.name,
            query: self.query,
            mode: self.mode,
            schedule: self.schedule,
            indexes: self.indexes,
            owner: self.owner,
            rights,
            following: Following {
                kept: self.keep_changes,
                queue: self.on_change_enqueue,
            },
        };
        (self.database, view)
    }
}

/// A query that may become a view.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Validation {
    /// The query, one SELECT.
    #[serde(deserialize_with = "sql_text")]
    #[schema(example = "select carrier, count(*) as flights from flights group by carrier")]
    pub(super) query: String,
    /// The database; may be left out where there is one only.
    pub(super) database: Option<String>,
}

/// How a view is refreshed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RefreshRequest {
    /// Whether the plans of its statements are kept, each of which is done twice for that, and once undone.
    #[serde(default)]
    pub(super) explain: bool,
}

/// Who may ask for views from SQL.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewGrantRequest {
    /// Roles, one at least; `public` is every role.
    #[serde(deserialize_with = "sql_text")]
    #[schema(example = json!(["app"]))]
    pub(super) roles: Vec<String>,
    /// The database; may be left out where there is one only.
    pub(super) database: Option<String>,
}

/// A change to a view; what is absent stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewChange {
    /// How it is brought up to date.
    #[serde(default, deserialize_with = "maybe_mode")]
    #[schema(schema_with = mode_schema)]
    mode: Option<Mode>,
    /// When: the lag that is allowed (`5s`), a cron expression of five fields in UTC, or `manual`; null for when the views
    /// that read it are refreshed, or after `views.default_lag`.
    #[serde(default, deserialize_with = "present_schedule")]
    #[schema(value_type = Option<String>, example = "1min")]
    schedule: Option<Option<Schedule>>,
    /// Whether it is kept fresh: false suspends it, true ends any suspension.
    active: Option<bool>,
    /// For how long what changes in it is kept for those who follow it; null: it is not.
    #[serde(default, deserialize_with = "present_span")]
    #[schema(value_type = Option<String>, example = "1d")]
    keep_changes: Option<Option<Span>>,
    /// The queue that gets a task for every change; null: none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, example = "late")]
    pub(super) on_change_enqueue: Option<Option<String>>,
}

impl ViewChange {
    pub(super) fn into_alteration(self) -> Alteration {
        Alteration {
            mode: self.mode,
            schedule: self.schedule,
            is_active: self.active,
            kept: self.keep_changes,
            queue: self.on_change_enqueue,
        }
    }
}

fn maybe_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mode>, D::Error> {
    by_text(deserializer).map(Some)
}

fn maybe_schedule<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Schedule>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    let schedule = text.map(|text| text.parse()).transpose();
    schedule.map_err(serde::de::Error::custom)
}

fn present_schedule<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Schedule>>, D::Error> {
    maybe_schedule(deserializer).map(Some)
}

fn maybe_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    let span = text.map(|text| Span::read(&text)).transpose();
    span.map_err(serde::de::Error::custom)
}

fn present_span<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Span>>, D::Error> {
    maybe_span(deserializer).map(Some)
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The ways in which a view is brought up to date.
fn mode_schema() -> Object {
    let description = "`incremental`: by what changed. `full`: by computing all of it anew, of which only what differs is \
                       written. `auto`: whichever takes less, each time. `immediate`: within the transactions that write to what it reads.";
    one_of(&["auto", "incremental", "full", "immediate"], description)
}
