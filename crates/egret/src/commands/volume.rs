//! `egret branch volume …` and `egret branch template …`: what branches stand on.

use serde_json::json;

use crate::api::Api;
use crate::cli;
use crate::commands::branch::phase_table;
use crate::failure::Failure;
use crate::output::{Output, format_bytes, format_duration, format_fields, listing};
use crate::responses::{Items, Template, Volume};

pub(crate) async fn run_volume(
    command: cli::VolumeCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let answer = match command {
        cli::VolumeCommand::Create { size } => {
            let body = json!({"size_bytes": size.bytes()});
            output.wait_with_spinner("creating the volume", api.post(&["volume"], body)).await?
        }
        cli::VolumeCommand::Show => api.get(&["volume"], &[]).await?,
    };
    output.print_answer(&answer, |volume: Volume| {
        format_fields(&[
            ("driver", volume.driver),
            ("path", volume.path),
            ("image", volume.image.unwrap_or_default()),
            ("size", format_bytes(volume.size_bytes)),
            (
                "free",
                format!(
                    "{}, of which {} stay free for the source",
                    format_bytes(volume.free_bytes),
                    format_bytes(volume.free_bytes_min)
                ),
            ),
            ("note", volume.note),
            ("isolation", volume.isolation),
            ("limits", volume.limits),
        ])
    })
}

pub(crate) async fn run_template(
    command: cli::TemplateCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match command {
        cli::TemplateCommand::Refresh => {
            let work = api.post(&["templates"], json!({}));
            let answer = output.wait_with_spinner("taking a template", work).await?;
            output.print_answer(&answer, |template: Template| {
                format!(
                    "template {} holds the source as of LSN {}\n\n{}",
                    template.id,
                    template.lsn,
                    phase_table(&template.phases)
                )
            })
        }
        cli::TemplateCommand::List => {
            let answer = api.get(&["templates"], &[]).await?;
            output.print_answer(&answer, table)
        }
    }
}

fn table(templates: Items<Template>) -> String {
    if templates.items.is_empty() {
        return "no templates: the first branch takes one, or `egret branch template refresh`"
            .to_owned();
    }
    let rows = templates.items.into_iter().map(|template| {
        vec![
            template.id,
            template.state,
            template
                .origin
                .branch
                .map_or(template.origin.source, |branch| format!("branch {branch}")),
            template.lsn,
            format_duration(template.age_ms),
            template.branches.to_string(),
        ]
    });
    listing(&["id", "state", "of", "lsn", "age", "branches"], rows)
}
