//! Request bodies of views, as JSON.

use egret_base::settings::{ConfigDuration, Value};
use egret_views::model::{
    Alteration, FollowSettings, MakerRights, Mode, NewView, Schedule, ViewName,
};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;
use utoipa::openapi::Object;

use crate::extract::by_text;
use crate::http::sql_text::sql_text;
use crate::openapi::string_enum;

/// A request for a view.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewRequest {
    /// The name of the view: a name in schema `public`, or `schema.name`.
    #[serde(deserialize_with = "by_text")]
    #[schema(value_type = String, example = "late_by_carrier")]
    pub(super) name: ViewName,
    /// The query, one SELECT.
    #[serde(deserialize_with = "sql_text")]
    #[schema(
        example = "select carrier, count(*) as flights from flights where arr_delay > 60 group by carrier"
    )]
    query: String,
    /// The database; it may be omitted if there is only one.
    database: Option<String>,
    /// How the view is refreshed; `auto` when absent.
    #[serde(default, deserialize_with = "by_text")]
    #[schema(schema_with = mode_schema)]
    mode: Mode,
    /// When the view is refreshed: the maximum lag (`5s`), a cron expression of five fields in UTC,
    /// or `manual`. When absent, it is refreshed with the views that read it, or after
    /// `views.default_lag` if there are none.
    #[serde(default, deserialize_with = "maybe_schedule")]
    #[schema(value_type = Option<String>, example = "5s")]
    schedule: Option<Schedule>,
    /// Lists of columns, each of which gets an index.
    #[serde(default, deserialize_with = "sql_text")]
    #[schema(example = json!([["carrier"]]))]
    indexes: Vec<Vec<String>>,
    /// How long its changes are kept for followers, such as `1d`. When absent, they are kept from
    /// the first follower on.
    #[serde(default, deserialize_with = "maybe_span")]
    #[schema(value_type = Option<String>, example = "1d")]
    keep_changes: Option<ConfigDuration>,
    /// The queue that gets a task for every change set. Changes are then kept, for
    /// `views.change_sets_kept` unless `keep_changes` is given.
    #[schema(example = "late")]
    pub(super) on_change_enqueue: Option<String>,
    /// The owner, with whose rights the query runs; when absent, `egret_views`, or the role that
    /// Egret connects as if that is not a superuser. Only an admin may name one.
    #[serde(default, deserialize_with = "sql_text")]
    pub(super) owner: Option<String>,
}

impl ViewRequest {
    /// The database, and what the engine is asked to make there.
    pub(super) fn into_new_view(self, rights: MakerRights) -> (Option<String>, NewView) {
        let view = NewView {
            name: self.name,
            query: self.query,
            mode: self.mode,
            schedule: self.schedule,
            indexes: self.indexes,
            owner: self.owner,
            rights,
            follow_settings: FollowSettings {
                retention: self.keep_changes,
                queue: self.on_change_enqueue,
            },
        };
        (self.database, view)
    }
}

/// A query to be validated for a view.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Validation {
    /// The query, one SELECT.
    #[serde(deserialize_with = "sql_text")]
    #[schema(example = "select carrier, count(*) as flights from flights group by carrier")]
    pub(super) query: String,
    /// The database; it may be omitted if there is only one.
    pub(super) database: Option<String>,
}

/// How a view is refreshed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RefreshRequest {
    /// Whether to return the plans of its statements. Each statement is then executed twice, and
    /// rolled back once.
    #[serde(default)]
    pub(super) explain: bool,
}

/// Roles that may request views from SQL.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewGrantRequest {
    /// The roles, at least one; `public` stands for all roles.
    #[serde(deserialize_with = "sql_text")]
    #[schema(example = json!(["app"]))]
    pub(super) roles: Vec<String>,
    /// The database; it may be omitted if there is only one.
    pub(super) database: Option<String>,
}

/// A change to a view; absent fields are unchanged.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewChange {
    /// How the view is refreshed.
    #[serde(default, deserialize_with = "maybe_mode")]
    #[schema(schema_with = mode_schema)]
    mode: Option<Mode>,
    /// When the view is refreshed: the maximum lag (`5s`), a cron expression of five fields in UTC,
    /// or `manual`; null: with the views that read it, or after `views.default_lag`.
    #[serde(default, deserialize_with = "present_schedule")]
    #[schema(value_type = Option<String>, example = "1min")]
    schedule: Option<Option<Schedule>>,
    /// Whether the view is refreshed: false suspends it, true ends a suspension.
    active: Option<bool>,
    /// How long its changes are kept for followers; null: they are not kept.
    #[serde(default, deserialize_with = "present_span")]
    #[schema(value_type = Option<String>, example = "1d")]
    keep_changes: Option<Option<ConfigDuration>>,
    /// The queue that gets a task for every change set; null: none.
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
            retention: self.keep_changes,
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

fn maybe_span<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ConfigDuration>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    let span = text.map(|text| ConfigDuration::read(&text)).transpose();
    span.map_err(serde::de::Error::custom)
}

fn present_span<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<ConfigDuration>>, D::Error> {
    maybe_span(deserializer).map(Some)
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The modes of refreshing a view.
fn mode_schema() -> Object {
    let description = "`incremental`: from the changes of its tables. `full`: by recomputing it \
                       and writing only the differences. `auto`: by the cheaper of the two, \
                       chosen for each refresh. `immediate`: within the transactions that write \
                       to its tables.";
    string_enum(&["auto", "incremental", "full", "immediate"], description)
}
