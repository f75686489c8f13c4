//! Client of Egret's API of views, over HTTP. Only this file knows its JSON.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::Url;
use serde_json::{Value, json};

use crate::server::Server;

/// The views in one database.
#[derive(Clone)]
pub(super) struct Api {
    server: Server,
    database: String,
    /// Behind a path, what names the database.
    query: String,
}

/// A view to be made.
pub(super) struct NewView<'a> {
    /// Schema and name of the view.
    pub(super) name: &'a str,
    pub(super) query: &'a str,
    /// `incremental`, `full` or `auto`.
    pub(super) mode: &'a str,
    /// `manual`, or the lag that is allowed.
    pub(super) schedule: &'a str,
}

/// Result of a refresh, as Egret reports it.
pub(super) struct RefreshResult {
    /// Duration measured by the server.
    pub(super) duration: Duration,
    /// `nothing`, `incremental` or `full`.
    pub(super) outcome: String,
}

impl Api {
    /// In this database of an Egret.
    ///
    /// # Errors
    /// When Egret's address is none.
    pub(super) fn new(server: Server, database: String) -> Result<Self> {
        let mut address = Url::parse(&server.endpoint().url).context("the address of Egret")?;
        address.query_pairs_mut().clear().append_pair("database", &database);
        let query = address.query().unwrap_or_default().to_owned();
        Ok(Self { server, database, query })
    }

    /// Makes a view; it is filled then.
    ///
    /// # Errors
    /// When Egret refuses.
    pub(super) async fn create(&self, view: &NewView<'_>) -> Result<()> {
        let request = json!({
            "name": view.name,
            "query": view.query,
            "mode": view.mode,
            "schedule": view.schedule,
            "database": self.database,
        });
        let reply = self.server.post("v1/views", &request).await;
        reply.with_context(|| format!("create the view {}", view.name)).map(drop)
    }

    /// Refreshes a view.
    ///
    /// # Errors
    /// When Egret refuses, or the refresh fails.
    pub(super) async fn refresh(&self, name: &str) -> Result<RefreshResult> {
        let path = self.path(name, "/refresh");
        let reply = self.server.post(&path, &json!({})).await;
        parse_refresh(&reply.with_context(|| format!("refresh the view {name}"))?)
    }

    /// Drops the views of a schema.
    ///
    /// # Errors
    /// When Egret refuses.
    pub(super) async fn drop_all(&self, schema: &str) -> Result<()> {
        let list = self.server.get(&format!("v1/views?{}", self.query)).await?;
        let views = list["items"].as_array().into_iter().flatten();
        let names = views.filter_map(|view| view["name"].as_str());
        for name in names.filter(|name| name.starts_with(&format!("{schema}."))) {
            self.drop(name).await?;
        }
        Ok(())
    }

    /// Drops a view.
    ///
    /// # Errors
    /// When Egret refuses.
    pub(super) async fn drop(&self, name: &str) -> Result<()> {
        let reply = self.server.delete(&self.path(name, "")).await;
        reply.with_context(|| format!("drop the view {name}")).map(drop)
    }

    fn path(&self, name: &str, suffix: &str) -> String {
        format!("v1/views/{name}{suffix}?{}", self.query)
    }
}

/// Reads what is said of a refresh.
fn parse_refresh(reply: &Value) -> Result<RefreshResult> {
    let outcome = reply["outcome"].as_str().context("a refresh without an outcome")?;
    if let Some(error) = reply["error"].as_str() {
        bail!("the refresh failed: {error}");
    }
    let took_ms = reply["took_ms"].as_f64().context("a refresh without a time")?;
    Ok(RefreshResult {
        duration: Duration::from_secs_f64(took_ms.max(0.0) / 1_000.0),
        outcome: outcome.to_owned(),
    })
}
