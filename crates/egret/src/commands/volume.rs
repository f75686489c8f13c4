//! `egret branch volume …` and `egret branch template …`: what branches stand on.

use serde_json::json;

use crate::api::Api;
use crate::cli;
use crate::commands::branch::phases;
use crate::failure::Failure;
use crate::output::{Output, bytes, duration, facts, listing};
use crate::responses::{Items, Template, Volume};

pub(crate) async fn volume(
    command: cli::VolumeCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let answer = match command {
        cli::VolumeCommand::Create { size } => {
            let body = json!({"size_bytes": size.bytes()});
            output
                .waiting("creating the volume", api.post(&["volume"], body))
                .await?
        }
        cli::VolumeCommand::Show => api.get(&["volume"], &[]).await?,
    };
    output.answer(&answer, |volume: Volume| {
        facts(&[
            ("driver", volume.driver),
            ("path", volume.path),
            ("image", volume.image.unwrap_or_default()),
            ("size", bytes(volume.size_bytes)),
            (
                "free",
                format!(
                    "{}, of which {} stay free for the source",
                    bytes(volume.free_bytes),
                    bytes(volume.free_bytes_min)
                ),
            ),
            ("note", volume.note),
            ("isolation", volume.isolation),
            ("limits", volume.limits),
        ])
    })
}

pub(crate) async fn template(
    command: cli::TemplateCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match command {
        cli::TemplateCommand::Refresh => {
            let work = api.post(&["templates"], json!({}));
            let answer = output.waiting("taking a template", work).await?;
            output.answer(&answer, |template: Template| {
                format!(
                    "template {} holds the source as of LSN {}\n\n{}",
                    template.id,
                    template.lsn,
                    phases(&template.phases)
                )
            })
        }
        cli::TemplateCommand::List => {
            let answer = api.get(&["templates"], &[]).await?;
            output.answer(&answer, list)
        }
    }
}

fn list(templates: Items<Template>) -> String {
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
            duration(template.age_ms),
            template.branches.to_string(),
        ]
    });
    listing(&["id", "state", "of", "lsn", "age", "branches"], rows)
}
