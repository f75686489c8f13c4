//! `egret bench sql`: the transactions of a workload file against any PostgreSQL.

mod causes;
mod connection;
mod draw;
mod expression;
mod statement;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use egret_bench_cli::SqlArgs;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_postgres::Client;

use crate::environment::to_hex;
use crate::load::{self, Load};
use crate::postgres::ConnectionTarget;
use crate::refusal;
use crate::scenario::{Measurement, Plans, Scenario};
use crate::stage::Stage;
use connection::{Job, SqlConnection};
use expression::Variables;
use statement::Statement;
use workload::{Variable, Workload};

/// One row per column of a table on the search path.
const COLUMNS_QUERY: &str = "
    SELECT pg_catalog.format('%s.%s %s %s', c.relname, a.attname,
                             pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull)
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE c.relkind IN ('r', 'p', 'm', 'f')
      AND n.nspname = ANY (pg_catalog.current_schemas(false))
      AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY n.nspname, c.relname, a.attnum";

/// A hash is told from another one by so many of its digits.
const HASH_LENGTH: usize = 16;

/// State of the scenario `sql`.
pub struct Sql {
    workload: Workload,
    load: Load,
    /// The server of the command line; without it the private one.
    target: Option<ConnectionTarget>,
    job: Option<Arc<Job>>,
    variables: Variables,
    workload_hash: String,
    file: String,
    is_set_up: bool,
}

impl Sql {
    /// Reads the workload and the connection string.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(args: &SqlArgs) -> Result<Self> {
        let mut workload = Workload::load(&args.file)?;
        for (name, value) in &args.variables {
            workload
                .set_variable(name, value)
                .map_err(|reason| refusal::usage(format!("--variable {name}={value}: {reason}")))?;
        }
        if args.run.private && args.postgres.is_some() {
            return Err(refusal::usage("--private starts a PostgreSQL of its own: omit --url"));
        }
        let file = args.file.file_name().unwrap_or_default();
        Ok(Self {
            workload_hash: to_hex(&Sha256::digest(workload.text.as_bytes())),
            workload,
            load: Load::new(&args.load),
            target: args.postgres.as_deref().map(ConnectionTarget::parse).transpose()?,
            job: None,
            variables: Variables::new(),
            file: file.to_string_lossy().into_owned(),
            is_set_up: false,
        })
    }

    fn target(&self) -> Result<&ConnectionTarget> {
        self.target
            .as_ref()
            .ok_or_else(|| refusal::usage("no PostgreSQL to measure: give --url or --private"))
    }

    /// Runs statements of the file, in order, each by itself.
    async fn execute(&self, statements: &[Statement], section: &str) -> Result<()> {
        if statements.is_empty() {
            return Ok(());
        }
        let client = self.target()?.connect_client().await?;
        for sql in self.substitute_all(statements) {
            client.batch_execute(&sql).await.map_err(|error| {
                anyhow!("{section}: `{sql}`: {}", crate::postgres::error_chain(&error))
            })?;
        }
        Ok(())
    }

    /// Statements with the variables in them.
    fn substitute_all(&self, statements: &[Statement]) -> Vec<String> {
        let values: BTreeMap<&str, String> =
            self.variables.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect();
        let substitute = |statement: &Statement| {
            statement.with_literals(|name| values.get(name).map_or("", String::as_str))
        };
        statements.iter().map(substitute).collect()
    }

    /// What identifies the data: the workload's name, the variables, and a hash over what made them
    /// and the definitions of the tables they are in. How many rows a table has is not in it: a
    /// load that inserts would make other data of it in every run.
    async fn data_set(&self, client: &Client, is_private: bool) -> Result<String> {
        let mut hash = Sha256::new();
        let mut update_hash = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        if is_private {
            for sql in self.substitute_all(&self.workload.private_setup) {
                update_hash(&sql);
            }
        }
        for sql in self.substitute_all(&self.workload.setup) {
            update_hash(&sql);
        }
        let tables = client.query(COLUMNS_QUERY, &[]).await;
        for row in tables.context("read the definitions of the tables")? {
            update_hash(row.get(0));
        }
        let mut text = self.workload.name.clone();
        for (name, value) in &self.variables {
            text.push_str(&format!(" {name}={value}"));
        }
        let hash = to_hex(&hash.finalize());
        Ok(format!("{text} sha256:{}", &hash[..HASH_LENGTH]))
    }

    async fn query_variables(&self) -> Result<Variables> {
        let client = self.target()?.connect_client().await?;
        let mut values = Variables::new();
        for (name, variable) in &self.workload.variables {
            let Variable::Query(query) = variable else {
                continue;
            };
            let variable_error = |reason: String| anyhow!("variable `{name}`: `{query}`: {reason}");
            let rows = client
                .simple_query(query)
                .await
                .map_err(|error| variable_error(crate::postgres::error_chain(&error)))?;
            let first = rows.iter().find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            let value = first
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| variable_error(format!("{first:?} is not a number")))?;
            values.insert(name.clone(), value);
        }
        self.workload.evaluate(&values).map_err(|reason| anyhow!(reason))
    }
}

impl Scenario for Sql {
    const NAME: &'static str = "sql";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let mut all: BTreeMap<String, Value> = self
            .load
            .parameters()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        all.insert("file".to_owned(), self.file.clone().into());
        all.insert("workload_sha256".to_owned(), self.workload_hash.clone().into());
        all.insert("variables".to_owned(), json!(self.variables));
        all
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        // This scenario makes no branches, so no volume for them is made either.
        vec![("branches.volume".to_owned(), "copy".to_owned())]
    }

    fn ranking_metric(&self) -> &str {
        self.load.rate_metric()
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let private = stage.private_server.as_ref().map(|private| private.postgres_url());
        let is_private = private.is_some();
        if let Some(url) = &private.transpose()? {
            self.target = Some(ConnectionTarget::parse(url)?);
        }
        stage.generator_cores = self.load.threads;
        let target = self.target()?.clone();
        let client = target.connect_client().await?;
        stage.subject.add_postgres_facts(&client, target.is_local()).await?;
        if is_private {
            stage.progress.show("creating the tables");
            self.execute(&self.workload.private_setup, "private_setup").await?;
        }
        self.variables = self.query_variables().await?;
        let draws = self
            .workload
            .bind_parameters(&self.variables)
            .map_err(|reason| refusal::usage(format!("workload {}: {reason}", self.file)))?;
        self.is_set_up = true;
        self.execute(&self.workload.setup, "setup").await?;
        stage.subject.data_set = self.data_set(&client, is_private).await?;
        self.job = Some(Arc::new(Job::new(target, &self.workload, draws)));
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let job = self.job.clone().context("the scenario is not prepared")?;
        let make_worker = move |_: u32| {
            let job = job.clone();
            async move { SqlConnection::open(job).await }
        };
        let mut measurement = load::run_load(stage, &self.load, make_worker).await?;
        if self.workload.transactions.len() > 1
            && let Some(combined) = measurement.recording.combined_metric()
        {
            measurement.metrics.insert("all".to_owned(), combined);
        }
        Ok(measurement)
    }

    const CAN_EXPLAIN: bool = true;

    async fn explain(&mut self, stage: &mut Stage) -> Result<Plans> {
        let job = self.job.clone().context("the scenario is not prepared")?;
        connection::explain(&job, stage.seed, stage.operations_begun).await
    }

    async fn clean(&mut self, _stage: &mut Stage) -> Result<()> {
        // What was never set up is not torn down.
        if !self.is_set_up {
            return Ok(());
        }
        self.execute(&self.workload.teardown, "teardown").await
    }
}

#[cfg(test)]
mod tests;
