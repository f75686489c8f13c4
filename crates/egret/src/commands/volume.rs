//! `egret branch volume …` and `egret branch template …`: what branches stand on.

use serde_json::json;

use crate::answers::{Items, Template, Volume};
use crate::api::Api;
use crate::cli;
use crate::commands::branch::phases;
use crate::failure::Failure;
use crate::output::{Output, bytes, duration, facts, listing};

pub(crate) async fn volume(command: cli::Volume, api: &Api, output: Output) -> Result<(), Failure> {
    let answer = match command {
        cli::Volume::Create { size } => {
            let body = json!({"size_bytes": size.bytes()});
            output
                .waiting("making the volume", api.post(&["volume"], body))
                .await?
        }
        cli::Volume::Show => api.get(&["volume"], &[]).await?,
    };
    output.answer(&answer, |volume: Volume| {
        facts(&[
            ("driver", volume.driver),
            ("path", volume.path),
            ("image", volume.image.unwrap_or_default()),
            ("size", bytes(volume.size_bytes)),
            ("free", bytes(volume.free_bytes)),
            ("note", volume.note.unwrap_or_default()),
        ])
    })
}

pub(crate) async fn template(
    command: cli::Template,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match command {
        cli::Template::Refresh => {
            let work = api.post(&["templates"], json!({}));
            let answer = output.waiting("taking a template", work).await?;
            output.answer(&answer, |template: Template| {
                format!(
                    "template {} at {}, {}{}",
                    template.id,
                    template.lsn,
                    bytes(template.size_bytes),
                    phases(&template.phases)
                )
            })
        }
        cli::Template::List => {
            let answer = api.get(&["templates"], &[]).await?;
            output.answer(&answer, list)
        }
    }
}

fn list(templates: Items<Template>) -> String {
    let rows = templates.items.into_iter().map(|template| {
        vec![
            template.id,
            template.origin.branch.unwrap_or(template.origin.source),
            template.lsn,
            duration(template.age_ms),
            bytes(template.size_bytes),
            template.branches.to_string(),
        ]
    });
    listing(&["id", "of", "lsn", "age", "size", "branches"], rows)
}
