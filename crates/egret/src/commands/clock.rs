//! `egret clock …`: how Egret's time follows the machine's, and accepting a wall clock that has
//! jumped.

use serde_json::json;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, format_duration, format_fields};
use crate::responses::{Clock, ClockRelease};

pub(crate) async fn run(
    command: cli::ClockCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match command {
        cli::ClockCommand::Show => {
            let answer = api.get(&["clock"], &[]).await?;
            output.print_answer(&answer, show)
        }
        cli::ClockCommand::Release => {
            let answer = api.post(&["clock", "release"], json!({})).await?;
            output.print_answer(&answer, |release: ClockRelease| {
                format!(
                    "the wall clock is accepted: Egret's time has moved by {}\n\n{}",
                    signed_duration(release.moved_ms),
                    show(release.clock)
                )
            })
        }
    }
}

fn show(clock: Clock) -> String {
    let (accepted, offset) = (clock.accepted_at.to_string(), describe_offset(clock.offset_ms));
    format_fields(&[
        ("state", clock.state),
        ("egret's time", accepted),
        ("wall clock", format!("{}, {offset}", clock.wall_at)),
    ])
}

/// One line for `egret status`.
pub(crate) fn summary_line(clock: &Clock) -> String {
    let offset = describe_offset(clock.offset_ms);
    format!("{}, the wall clock is {offset}", clock.state)
}

fn describe_offset(offset_ms: i64) -> String {
    let difference = format_duration(offset_ms.unsigned_abs());
    if offset_ms == 0 {
        "in step".to_owned()
    } else if offset_ms > 0 {
        format!("{difference} ahead")
    } else {
        format!("{difference} behind")
    }
}

fn signed_duration(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    format!("{sign}{}", format_duration(ms.unsigned_abs()))
}
