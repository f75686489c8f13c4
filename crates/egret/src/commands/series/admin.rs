//! `egret series delete` and `snapshot`.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::Success;
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{self, Output};

/// Series are counted up to here.
const COUNTED_MAX: usize = 10_000;

pub(super) async fn delete(delete: &cli::Delete, api: &Api, output: Output) -> Result<(), Failure> {
    let selectors = delete.selectors.iter();
    let mut form: Vec<(&str, &str)> =
        selectors.map(|selector| ("match[]", selector.as_str())).collect();
    form.extend(delete.start.iter().map(|start| ("start", start.as_str())));
    form.extend(delete.end.iter().map(|end| ("end", end.as_str())));
    let limit = (COUNTED_MAX + 1).to_string();
    let count_form = [&form[..], &[("limit", limit.as_str())]].concat();
    let answer = api.post_prometheus_form(&["series"], &count_form).await?;
    let matching: Success<Vec<Json>> = output::decode(&answer)?;
    let count = matching.data.len();
    let subject = match count {
        0..=COUNTED_MAX => format!("samples of {count} series"),
        _ => format!("samples of more than {COUNTED_MAX} series"),
    };
    if !delete.yes {
        let answer = json!({"series": 0, "would_delete": count});
        return output.print_answer(&answer, |_: Json| match count {
            0 => "there is nothing to delete".to_owned(),
            _ => format!("nothing is deleted: --yes would delete {subject}"),
        });
    }
    let path = ["admin", "tsdb", "delete_series"];
    let deleting = api.post_prometheus_form(&path, &form);
    output.wait_with_spinner("deleting", deleting).await?;
    let answer = json!({"series": count});
    output.print_answer(&answer, |_: Json| format!("{subject} are deleted"))
}

#[derive(Deserialize)]
struct Snapshot {
    name: String,
}

pub(super) async fn snapshot(skip_head: bool, api: &Api, output: Output) -> Result<(), Failure> {
    let form: &[(&str, &str)] = if skip_head { &[("skip_head", "true")] } else { &[] };
    let writing = api.post_prometheus_form(&["admin", "tsdb", "snapshot"], form);
    let answer = output.wait_with_spinner("writing a snapshot", writing).await?;
    let created: Success<Snapshot> = output::decode(&answer)?;
    let directory = format!("series/snapshots/{}", created.data.name);
    let answer = json!({"name": created.data.name, "directory": directory});
    output.print_answer(&answer, |_: Json| {
        format!("the snapshot is {directory} in the server's data directory")
    })
}
