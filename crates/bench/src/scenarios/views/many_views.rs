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
    pub(super) async fn create(
        schema: &ScenarioSchema,
        client: &Client,
        count: u32,
        rows: u32,
        salt: u32,
    ) -> Result<Self> {
        let mut views = Vec::new();
        for (number, shape) in (0..count).zip(SHAPES.into_iter().cycle()) {
            let suffix = number.to_string();
            let tables = Tables::create(schema, client, &suffix, rows, salt).await?;
            schema.vacuum_and_checkpoint(client, &[&tables.source, &tables.dimension]).await?;
            views.push(SmallView {
                view: schema.qualified_name(&format!("view_{number}")),
                query: Definition::for_shape(shape, &tables.source, &tables.dimension).query,
                tables,
            });
        }
        Ok(Self(views))
    }

    /// Makes the views by this schedule.
    pub(super) async fn create_views(&self, schema: &ScenarioSchema, schedule: &str) -> Result<()> {
        for small_view in &self.0 {
            let new = NewView {
                name: &small_view.view,
                query: &small_view.query,
                mode: "auto",
                schedule,
            };
            schema.api.create(&new).await?;
        }
        Ok(())
    }

    pub(super) fn views(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|small_view| small_view.view.as_str())
    }

    /// Changes rows of all sources.
    pub(super) async fn change_rows(
        &self,
        client: &Client,
        changes: Changes,
        salt: u32,
    ) -> Result<()> {
        for small_view in &self.0 {
            small_view.tables.change(client, changes, salt).await?;
        }
        Ok(())
    }

    /// Compares all views with their queries, and drops them with their tables.
    pub(super) async fn compare_and_drop(
        self,
        schema: &ScenarioSchema,
        client: &Client,
        findings: &mut Findings,
    ) -> Result<()> {
        for small_view in &self.0 {
            findings.compare_view(schema, client, &small_view.view, &small_view.query).await?;
            schema.api.drop(&small_view.view).await?;
            small_view.tables.drop(client).await?;
        }
        Ok(())
    }
}
