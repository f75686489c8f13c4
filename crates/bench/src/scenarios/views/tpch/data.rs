//! The eight TPC-H tables: made, filled by `COPY`, and changed as the refresh functions of the
//! specification do.
//!
//! Orders that come have keys that were left free in the beginning; those that go are drawn from
//! all that are there.

use anyhow::Result;
use bytes::Bytes;
use futures_util::SinkExt;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use tokio_postgres::Client;

use super::rows::{Rows, first_key, later_key};
use crate::scenarios::views::schema::ScenarioSchema;
use crate::schedule::random;

/// What queries and statements write for the schema.
const SCHEMA: &str = "tpch.";

/// Orders that come and go with a batch: one in so many.
const SHARE: u32 = 1_000;

/// Bytes that are sent at a time.
const CHUNK_BYTES: usize = 1 << 18;

/// The tables in the order in which they are filled.
pub(super) const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem",
];

/// The tables, and which orders are in them.
pub(super) struct TpchTables<'a> {
    site: &'a ScenarioSchema,
    rows: Rows,
    keys: Vec<u64>,
    /// Orders that came later.
    later: u64,
    random: Xoshiro256PlusPlus,
}

impl<'a> TpchTables<'a> {
    /// Makes and fills the tables.
    pub(super) async fn make(
        site: &'a ScenarioSchema,
        client: &Client,
        scale: f64,
        seed: u64,
    ) -> Result<Self> {
        let rows = Rows::new(scale, seed);
        let data = Self {
            site,
            keys: (0..u64::from(rows.sizes.orders)).map(first_key).collect(),
            rows,
            later: 0,
            random: random(seed, u64::MAX),
        };
        client
            .batch_execute(&data.sql(include_str!("tables.sql")))
            .await?;
        data.fill(client).await?;
        client
            .batch_execute(&data.sql(include_str!("keys.sql")))
            .await?;
        let tables = TABLES.map(|table| site.named(table));
        site.settle(client, &tables.each_ref().map(String::as_str))
            .await?;
        Ok(data)
    }

    /// Replaces placeholders of a statement by this schema.
    pub(super) fn sql(&self, text: &str) -> String {
        text.replace(SCHEMA, &self.site.named(""))
    }

    async fn fill(&self, client: &Client) -> Result<()> {
        let rows = &self.rows;
        let sizes = rows.sizes;
        for (table, text) in ["region", "nation"].into_iter().zip(rows.fixed()) {
            self.copy(client, table, 0..1, |_, into| into.push_str(&text))
                .await?;
        }
        let (suppliers, parts) = (1..sizes.suppliers + 1, 1..sizes.parts + 1);
        self.copy(client, "supplier", suppliers, |key, into| {
            rows.supplier(key, into);
        })
        .await?;
        self.copy(client, "part", parts.clone(), |key, into| {
            rows.part(key, into);
        })
        .await?;
        self.copy(client, "partsupp", parts, |part, into| {
            rows.supplies(part, into);
        })
        .await?;
        self.copy(client, "customer", 1..sizes.customers + 1, |key, into| {
            rows.customer(key, into);
        })
        .await?;
        self.copy_orders(client, &self.keys).await
    }

    /// Copies orders, then their lines.
    async fn copy_orders(&self, client: &Client, keys: &[u64]) -> Result<()> {
        let (rows, all) = (&self.rows, keys.iter().copied());
        self.copy(client, "orders", all.clone(), |key, into| {
            rows.order(key, into, &mut String::new());
        })
        .await?;
        self.copy(client, "lineitem", all, |key, into| {
            rows.order(key, &mut String::new(), into);
        })
        .await
    }

    /// Copies what is written of each of some things.
    async fn copy<T>(
        &self,
        client: &Client,
        table: &str,
        all: impl IntoIterator<Item = T>,
        write: impl Fn(T, &mut String),
    ) -> Result<()> {
        let copy = format!("COPY {} FROM STDIN", self.site.named(table));
        let sink = client.copy_in::<_, Bytes>(&copy).await?;
        let mut sink = std::pin::pin!(sink);
        let mut chunk = String::new();
        for one in all {
            write(one, &mut chunk);
            if chunk.len() >= CHUNK_BYTES {
                sink.send(std::mem::take(&mut chunk).into()).await?;
            }
        }
        sink.send(chunk.into()).await?;
        sink.finish().await?;
        Ok(())
    }

    /// Inserts a thousandth of all orders with their lines, and deletes as many with theirs: a
    /// transaction each.
    pub(super) async fn change(&mut self, client: &Client) -> Result<()> {
        let count = u64::from((self.rows.sizes.orders / SHARE).max(1));
        let come: Vec<u64> = (self.later..self.later + count).map(later_key).collect();
        self.later += count;
        client.batch_execute("BEGIN").await?;
        self.copy_orders(client, &come).await?;
        client.batch_execute("COMMIT").await?;
        let go: Vec<i64> = (0..count)
            .map(|_| {
                let place = self.random.random_range(0..self.keys.len());
                self.keys.swap_remove(place) as i64
            })
            .collect();
        self.keys.extend(come);
        client.batch_execute("BEGIN").await?;
        for (table, key) in [("lineitem", "l_orderkey"), ("orders", "o_orderkey")] {
            let table = self.site.named(table);
            let delete = format!("DELETE FROM {table} WHERE {key} = ANY($1)");
            client.execute(&delete, &[&go]).await?;
        }
        Ok(client.batch_execute("COMMIT").await?)
    }

    /// Drops all tables of the schema.
    pub(super) async fn drop(&self, client: &Client) -> Result<()> {
        let tables = TABLES.map(|table| self.site.named(table)).join(", ");
        Ok(client
            .batch_execute(&format!("DROP TABLE {tables}"))
            .await?)
    }
}
