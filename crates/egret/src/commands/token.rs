//! `egret token …`: make, list and revoke tokens.

use std::collections::{BTreeMap, BTreeSet};

use egret_base::settings::ConfigDuration;
use serde_json::json;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, listing};
use crate::responses::{Items, Token};

pub(crate) async fn run(
    command: cli::TokenCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match command {
        cli::TokenCommand::Create { name, scopes, claims, tenant, ttl } => {
            let mut body = json!({"name": name, "scopes": scopes});
            if !claims.is_empty() {
                let mut values_by_claim: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
                for (name, value) in claims {
                    values_by_claim.entry(name).or_default().insert(value);
                }
                body["claims"] = json!(values_by_claim);
            }
            if let Some(tenant) = tenant {
                body["tenant"] = tenant.into();
            }
            if let Some(ConfigDuration(ttl_ms)) = ttl {
                body["ttl_ms"] = ttl_ms.into();
            }
            let answer = api.post(&["tokens"], body).await?;
            // The secret alone on standard output, so that it can be put into a file.
            output.print_answer(&answer, |token: Token| {
                output.print_remark(&format!(
                    "token {} ({}), shown this once:",
                    token.name, token.id
                ));
                token.token.unwrap_or_default()
            })
        }
        cli::TokenCommand::List => {
            let answer = api.get(&["tokens"], &[]).await?;
            output.print_answer(&answer, table)
        }
        cli::TokenCommand::Revoke { id, force } => {
            let query: &[(&str, &str)] = if force { &[("force", "true")] } else { &[] };
            let revoked = api.delete(&["tokens", &id], query).await;
            revoked.map_err(|failure| match failure.code.as_str() {
                "token_last_admin" => failure.with_hint("--force revokes it anyway"),
                "token_not_found" => failure.with_hint("`egret token list` lists the tokens"),
                _ => failure,
            })?;
            if output.is_json() {
                return output.print_json(&json!({"id": id, "revoked": true}));
            }
            output.print_text(&format!("token {id} revoked"))
        }
    }
}

fn table(tokens: Items<Token>) -> String {
    let rows = tokens.items.into_iter().map(|token| {
        vec![
            token.id,
            token.name,
            token.tenant,
            token.scopes.join(" "),
            token.expires_at.unwrap_or_else(|| "never".to_owned()),
            token.last_used_at.unwrap_or_else(|| "never".to_owned()),
        ]
    });
    listing(&["id", "name", "tenant", "scopes", "expires", "last used"], rows)
}
