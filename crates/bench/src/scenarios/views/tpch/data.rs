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

use super::rows::{Rows, initial_key, inserted_key};
use crate::scenarios::views::schema::ScenarioSchema;
use crate::schedule::seeded_random;

/// What queries and statements write for the schema.
const SCHEMA_PLACEHOLDER: &str = "tpch.";

/// Orders that come and go with a batch: one in so many.
const BATCH_ONE_IN: u32 = 1_000;

/// Bytes that are sent at a time.
const CHUNK_BYTES: usize = 1 << 18;

/// The tables in the order in which they are filled.
pub(super) const TABLE_NAMES: [&str; 8] =
    ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"];

/// The tables, and which orders are in them.
pub(super) struct TpchTables<'a> {
    schema: &'a ScenarioSchema,
    rows: Rows,
    order_keys: Vec<u64>,
    /// Orders that came later.
    inserted_count: u64,
    random: Xoshiro256PlusPlus,
}

impl<'a> TpchTables<'a> {
    /// Makes and fills the tables.
    pub(super) async fn create(
        schema: &'a ScenarioSchema,
        client: &Client,
        scale: f64,
        seed: u64,
    ) -> Result<Self> {
        let rows = Rows::new(scale, seed);
        let data = Self {
            schema,
            order_keys: (0..u64::from(rows.sizes.orders)).map(initial_key).collect(),
            rows,
            inserted_count: 0,
            random: seeded_random(seed, u64::MAX),
        };
        client.batch_execute(&data.qualify(include_str!("tables.sql"))).await?;
        data.fill(client).await?;
        client.batch_execute(&data.qualify(include_str!("keys.sql"))).await?;
        let tables = TABLE_NAMES.map(|table| schema.qualified_name(table));
        schema.vacuum_and_checkpoint(client, &tables.each_ref().map(String::as_str)).await?;
        Ok(data)
    }

    /// Replaces placeholders of a statement by this schema.
    pub(super) fn qualify(&self, text: &str) -> String {
        text.replace(SCHEMA_PLACEHOLDER, &self.schema.qualified_name(""))
    }

    async fn fill(&self, client: &Client) -> Result<()> {
        let rows = &self.rows;
        let sizes = rows.sizes;
        for (table, text) in ["region", "nation"].into_iter().zip(rows.regions_and_nations()) {
            self.copy(client, table, 0..1, |_, into| into.push_str(&text)).await?;
        }
        let (suppliers, parts) = (1..sizes.suppliers + 1, 1..sizes.parts + 1);
        self.copy(client, "supplier", suppliers, |key, into| {
            rows.write_supplier(key, into);
        })
        .await?;
        self.copy(client, "part", parts.clone(), |key, into| {
            rows.write_part(key, into);
        })
        .await?;
        self.copy(client, "partsupp", parts, |part, into| {
            rows.write_part_suppliers(part, into);
        })
        .await?;
        self.copy(client, "customer", 1..sizes.customers + 1, |key, into| {
            rows.write_customer(key, into);
        })
        .await?;
        self.copy_orders(client, &self.order_keys).await
    }

    /// Copies orders, then their lines.
    async fn copy_orders(&self, client: &Client, keys: &[u64]) -> Result<()> {
        let (rows, order_keys) = (&self.rows, keys.iter().copied());
        self.copy(client, "orders", order_keys.clone(), |key, into| {
            rows.write_order(key, into, &mut String::new());
        })
        .await?;
        self.copy(client, "lineitem", order_keys, |key, into| {
            rows.write_order(key, &mut String::new(), into);
        })
        .await
    }

    /// Copies what is written of each of some things.
    async fn copy<T>(
        &self,
        client: &Client,
        table: &str,
        items: impl IntoIterator<Item = T>,
        write_row: impl Fn(T, &mut String),
    ) -> Result<()> {
        let copy = format!("COPY {} FROM STDIN", self.schema.qualified_name(table));
        let sink = client.copy_in::<_, Bytes>(&copy).await?;
        let mut sink = std::pin::pin!(sink);
        let mut chunk = String::new();
        for item in items {
            write_row(item, &mut chunk);
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
    pub(super) async fn apply_batch(&mut self, client: &Client) -> Result<()> {
        let count = u64::from((self.rows.sizes.orders / BATCH_ONE_IN).max(1));
        let inserted_keys: Vec<u64> =
            (self.inserted_count..self.inserted_count + count).map(inserted_key).collect();
        self.inserted_count += count;
        client.batch_execute("BEGIN").await?;
        self.copy_orders(client, &inserted_keys).await?;
        client.batch_execute("COMMIT").await?;
        let deleted_keys: Vec<i64> = (0..count)
            .map(|_| {
                let index = self.random.random_range(0..self.order_keys.len());
                self.order_keys.swap_remove(index) as i64
            })
            .collect();
        self.order_keys.extend(inserted_keys);
        client.batch_execute("BEGIN").await?;
        for (table, key) in [("lineitem", "l_orderkey"), ("orders", "o_orderkey")] {
            let table = self.schema.qualified_name(table);
            let delete = format!("DELETE FROM {table} WHERE {key} = ANY($1)");
            client.execute(&delete, &[&deleted_keys]).await?;
        }
        Ok(client.batch_execute("COMMIT").await?)
    }

    /// Drops all tables of the schema.
    pub(super) async fn drop(&self, client: &Client) -> Result<()> {
        let tables = TABLE_NAMES.map(|table| self.schema.qualified_name(table)).join(", ");
        Ok(client.batch_execute(&format!("DROP TABLE {tables}")).await?)
    }
}
