//! Many views that do not know each other: each is of tables of its own, and one of five shapes.

use anyhow::Result;
use egret_bench_cli::ViewsShape;
use tokio_postgres::Client;

use super::api::NewView;
use super::findings::Findings;
use super::schema::ScenarioSchema;
use super::shape::Definition;
use super::tables::{Changes, Tables};

/// What the views compute, in turn.
const SHAPES: [ViewsShape; 5] = [
    ViewsShape::Scan,
    ViewsShape::Filter,
    ViewsShape::Aggregate,
    ViewsShape::Join,
    ViewsShape::JoinAggregate,
];

struct SmallView {
    view: String,
    tables: Tables,
    query: String,
}

pub(super) struct SmallViews(Vec<SmallView>);

impl SmallViews {
    /// Makes tables with rows, not views yet.
    pub(super) async fn make(
        site: &ScenarioSchema,
        client: &Client,
        count: u32,
        rows: u32,
        salt: u32,
    ) -> Result<Self> {
        let mut many = Vec::new();
        for (number, shape) in (0..count).zip(SHAPES.into_iter().cycle()) {
            let ending = number.to_string();
            let tables = Tables::make(site, client, &ending, rows, salt).await?;
            site.settle(client, &[&tables.source, &tables.dimension])
                .await?;
            many.push(SmallView {
                view: site.named(&format!("view_{number}")),
                query: Definition::of(shape, &tables.source, &tables.dimension).query,
                tables,
            });
        }
        Ok(Self(many))
    }

    /// Makes the views by this schedule.
    pub(super) async fn view(&self, site: &ScenarioSchema, schedule: &str) -> Result<()> {
        for one in &self.0 {
            let new = NewView {
                name: &one.view,
                query: &one.query,
                mode: "auto",
                schedule,
            };
            site.api.create(&new).await?;
        }
        Ok(())
    }

    pub(super) fn views(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|one| one.view.as_str())
    }

    /// Changes rows of all sources.
    pub(super) async fn change(&self, client: &Client, changes: Changes, salt: u32) -> Result<()> {
        for one in &self.0 {
            one.tables.change(client, changes, salt).await?;
        }
        Ok(())
    }

    /// Compares all views with their queries, and drops them with their tables.
    pub(super) async fn finish(
        self,
        site: &ScenarioSchema,
        client: &Client,
        findings: &mut Findings,
    ) -> Result<()> {
        for one in &self.0 {
            findings
                .compare(site, client, &one.view, &one.query)
                .await?;
            site.api.drop(&one.view).await?;
            one.tables.drop(client).await?;
        }
        Ok(())
    }
}
