//! `egret branch pool …`: branches that are made before they are asked for.

use serde_json::json;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, listing};
use crate::responses::{Items, Pool};

pub(crate) async fn run(
    command: cli::PoolCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let answer = match command {
        cli::PoolCommand::Status { filled: false } => api.get(&["pools"], &[]).await?,
        cli::PoolCommand::Status { filled: true } => {
            let filled = api.get(&["pools"], &[("filled", "true")]);
            output.wait_with_spinner("filling the pools", filled).await?
        }
        cli::PoolCommand::Resize { preset, size } => {
            let size = match size {
                cli::PoolSize::Demand => None,
                cli::PoolSize::Branches(size) => Some(size),
            };
            let path = ["pools", &preset];
            let resized = api.put(&path, json!({"size": size}));
            output.wait_with_spinner("resizing the pool", resized).await?
        }
    };
    output.print_answer(&answer, table)
}

fn table(pools: Items<Pool>) -> String {
    let rows = pools.items.into_iter().map(|pool| {
        let wanted = if pool.chosen {
            pool.target.to_string()
        } else {
            format!("{} (by demand)", pool.target)
        };
        vec![
            pool.preset,
            wanted,
            pool.hot.to_string(),
            pool.filling.to_string(),
            pool.template.unwrap_or_else(|| "none yet".to_owned()),
        ]
    });
    listing(&["preset", "target", "hot", "filling", "template"], rows)
}
