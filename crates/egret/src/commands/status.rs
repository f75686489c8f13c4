//! `egret status`: what runs and what does not.

use std::fmt::Write;

use crate::answers::Status;
use crate::api::Api;
use crate::failure::Failure;
use crate::output::{Output, bytes, duration, facts, listing};

pub(crate) async fn show(api: &Api, output: Output) -> Result<(), Failure> {
    let answer = api.get(&["status"], &[]).await?;
    output.answer(&answer, text)
}

fn text(status: Status) -> String {
    let by_state: Vec<String> = status
        .branches
        .by_state
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let mut branches = status.branches.total.to_string();
    if !by_state.is_empty() {
        write!(branches, " ({})", by_state.join(", ")).expect("writing to a string works");
    }
    let summary = facts(&[
        (
            "egret",
            format!("{}, up {}", status.version, duration(status.uptime_ms)),
        ),
        (
            "postgres",
            format!(
                "{}, {}, port {}",
                status.postgres.version, status.postgres.state, status.postgres.port
            ),
        ),
        ("proxy", status.proxy.address),
        (
            "volume",
            format!(
                "{} at {}, {} of {} free",
                status.volume.driver,
                status.volume.path,
                bytes(status.volume.free_bytes),
                bytes(status.volume.size_bytes)
            ),
        ),
        ("branches", branches),
    ]);
    let services = status.services.into_iter().map(|service| {
        let state = if service.ready { "ready" } else { "not ready" };
        vec![
            service.name,
            state.to_owned(),
            service.reason.unwrap_or_default(),
        ]
    });
    format!(
        "{summary}\n{}",
        listing(&["service", "state", "reason"], services)
    )
}
