//! `egret branch pool …`: branches that are ready before anybody asks for them.

use serde_json::json;

use crate::answers::{Items, Pool};
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, listing};

pub(crate) async fn run(command: cli::Pool, api: &Api, output: Output) -> Result<(), Failure> {
    let answer = match command {
        cli::Pool::Status { filled: false } => api.get(&["pools"], &[]).await?,
        cli::Pool::Status { filled: true } => {
            let filled = api.get(&["pools"], &[("filled", "true")]);
            output.waiting("filling the pools", filled).await?
        }
        cli::Pool::Resize { preset, size } => {
            let size = match size {
                cli::PoolSize::Demand => None,
                cli::PoolSize::Branches(size) => Some(size),
            };
            let path = ["pools", &preset];
            let resized = api.put(&path, json!({"size": size}));
            output.waiting("resizing the pool", resized).await?
        }
    };
    output.answer(&answer, table)
}

fn table(pools: Items<Pool>) -> String {
    let rows = pools.items.into_iter().map(|pool| {
        let wanted = match pool.chosen {
            true => pool.target.to_string(),
            false => format!("{} (by demand)", pool.target),
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
