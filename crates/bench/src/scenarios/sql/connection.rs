//! One connection that does transactions, one round trip per statement as pgbench does them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type};
use tokio_postgres::{Client, Error};

use super::causes::cause;
use super::draw::Draw;
use super::statement::{Role, Statement};
use super::workload::{BoundParameters, QueryProtocol, Workload};
use crate::load::{Operation, Worker};
use crate::postgres::{ConnectionTarget, Fault, Wire, error_chain};
use crate::scenario::Plans;
use crate::schedule::seeded_random;

/// Work of all connections.
pub(super) struct Job {
    target: ConnectionTarget,
    protocol: QueryProtocol,
    reconnect: bool,
    weights: super::draw::Weights,
    transactions: Vec<BoundTransaction>,
}

struct BoundTransaction {
    name: Arc<str>,
    draws: Vec<Draw>,
    steps: Vec<Step>,
    has_begin: bool,
}

struct Step {
    /// Under which it is prepared.
    name: String,
    statement: Statement,
    role: Role,
    numbered_sql: String,
    /// Which of the transaction's values are its parameters.
    value_indexes: Vec<usize>,
    /// The same, by name: for the simple protocol.
    value_names: Vec<String>,
}

impl Job {
    pub(super) fn new(
        target: ConnectionTarget,
        workload: &Workload,
        bound_parameters: Vec<BoundParameters>,
    ) -> Self {
        let transactions = workload
            .transactions
            .iter()
            .zip(bound_parameters)
            .enumerate()
            .map(|(number, (transaction, parameters))| {
                let draw_index = |name: &str| {
                    let index = parameters.draws.iter().position(|(known, _)| known == name);
                    index.expect("the workload was checked: every name is declared")
                };
                let steps: Vec<Step> = transaction
                    .statements
                    .iter()
                    .enumerate()
                    .map(|(at, statement)| Step {
                        name: format!("bench_{number}_{at}"),
                        role: statement.role(),
                        numbered_sql: statement.with_placeholders(),
                        value_indexes: statement.names().into_iter().map(draw_index).collect(),
                        value_names: statement.names().into_iter().map(str::to_owned).collect(),
                        statement: statement.clone(),
                    })
                    .collect();
                BoundTransaction {
                    name: transaction.name.as_str().into(),
                    has_begin: steps.iter().any(|step| step.role == Role::Begin),
                    draws: parameters.draws.into_iter().map(|(_, draw)| draw).collect(),
                    steps,
                }
            })
            .collect();
        Self {
            target,
            protocol: workload.protocol,
            reconnect: workload.reconnect,
            weights: workload.weights.clone(),
            transactions,
        }
    }
}

pub(super) struct SqlConnection {
    job: Arc<Job>,
    wire: Option<Wire>,
    /// The values of one transaction, kept for their memory.
    values: Vec<String>,
}

/// A value as text: the server reads it as the type it wants, as it does for pgbench.
#[derive(Debug)]
struct Text<'a>(&'a str);

impl ToSql for Text<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    tokio_postgres::types::to_sql_checked!();
}

impl SqlConnection {
    pub(super) async fn open(job: Arc<Job>) -> Result<Self> {
        let wire = open_wire(&job).await.map_err(|error| match error {
            OpenError::Lost(fault) => job.target.connection_error(&fault),
            OpenError::Refused(sql, fault) => anyhow!("prepare `{sql}`: {}", fault.message),
        })?;
        if job.reconnect {
            // That was to see that it works.
            wire.close().await;
            return Ok(Self::new(job, None));
        }
        Ok(Self::new(job, Some(wire)))
    }

    fn new(job: Arc<Job>, wire: Option<Wire>) -> Self {
        Self { job, wire, values: Vec::new() }
    }
}

/// Why there is no connection.
enum OpenError {
    Lost(Fault),
    Refused(String, Fault),
}

async fn open_wire(job: &Job) -> Result<Wire, OpenError> {
    let mut wire = job.target.connect_for_load().await.map_err(OpenError::Lost)?;
    if job.protocol == QueryProtocol::Prepared {
        for step in job.transactions.iter().flat_map(|transaction| &transaction.steps) {
            let result = wire.prepare(&step.name, &step.numbered_sql).await;
            result.map_err(|fault| OpenError::Refused(step.numbered_sql.clone(), fault))?;
        }
    }
    Ok(wire)
}

impl Step {
    async fn run(&self, job: &Job, wire: &mut Wire, values: &[String]) -> Result<(), Fault> {
        if job.protocol == QueryProtocol::Prepared {
            let values = self.value_indexes.iter().map(|index| values[*index].as_str());
            return wire.execute(&self.name, values).await;
        }
        wire.simple_query(&self.with_literals(values)).await
    }

    /// Its text with the transaction's values in it.
    fn with_literals(&self, values: &[String]) -> String {
        self.statement.with_literals(|name| {
            let index = self.value_names.iter().position(|known| known == name);
            index.map_or("", |found| values[self.value_indexes[found]].as_str())
        })
    }
}

impl Worker for SqlConnection {
    async fn operate(&mut self, operation: &mut Operation) -> Result<Arc<str>, String> {
        let job = &*self.job;
        let index = job.weights.draw(&mut operation.random);
        let transaction = &job.transactions[index];
        let length = transaction.draws.len().max(self.values.len());
        self.values.resize(length, String::new());
        for (draw, value) in transaction.draws.iter().zip(&mut self.values) {
            draw.write_value(operation.number, &mut operation.random, value);
        }
        let mut wire = match self.wire.take() {
            Some(wire) if !wire.is_broken() => wire,
            _ => {
                let begun = Instant::now();
                let result = open_wire(job).await;
                let wire = result.map_err(|error| match error {
                    OpenError::Lost(fault) | OpenError::Refused(_, fault) => cause(&fault),
                })?;
                operation.record_phase("connect", begun.elapsed());
                wire
            }
        };
        let done = transaction.run(job, &mut wire, &self.values, operation).await;
        if done.is_err() && transaction.has_begin && !wire.is_broken() {
            // What cannot be undone leaves the connection broken, and the next one opens another.
            let _ = wire.simple_query("ROLLBACK").await;
        }
        if job.reconnect {
            wire.close().await;
        } else {
            self.wire = Some(wire);
        }
        match done {
            Ok(()) => Ok(transaction.name.clone()),
            Err(fault) => Err(cause(&fault)),
        }
    }
}

impl BoundTransaction {
    async fn run(
        &self,
        job: &Job,
        wire: &mut Wire,
        values: &[String],
        operation: &mut Operation,
    ) -> Result<(), Fault> {
        let begun = Instant::now();
        let mut commit = Duration::ZERO;
        for step in &self.steps {
            if step.role == Role::End {
                let commit_started = Instant::now();
                step.run(job, wire, values).await?;
                commit += commit_started.elapsed();
            } else {
                step.run(job, wire, values).await?;
            }
        }
        operation.record_phase("execute", begun.elapsed().saturating_sub(commit));
        if self.has_begin {
            operation.record_phase("commit", commit);
        }
        Ok(())
    }
}

/// The plan of every statement, executed once with drawn values in a transaction that is undone.
/// `number` is that of the first operation that has not been done.
pub(super) async fn explain(job: &Job, seed: u64, number: u64) -> Result<Plans> {
    let client = job.target.connect_client().await?;
    let mut plans = Plans::default();
    for (number, transaction) in (number..).zip(&job.transactions) {
        let mut random = seeded_random(seed, number);
        let mut values = vec![String::new(); transaction.draws.len()];
        for (draw, value) in transaction.draws.iter().zip(&mut values) {
            draw.write_value(number, &mut random, value);
        }
        client.batch_execute("BEGIN").await.context("begin a transaction")?;
        for step in &transaction.steps {
            let result = explain_step(&client, &transaction.name, step, &values).await;
            match result {
                Ok(plan) => plans.plans.extend(plan),
                Err(error) => {
                    plans.missing.push(format!(
                        "cannot get a plan of `{}` and of the statements after it in `{}`: {}",
                        step.numbered_sql,
                        transaction.name,
                        error_chain(&error)
                    ));
                    break;
                }
            }
        }
        client.batch_execute("ROLLBACK").await.context("undo the transaction")?;
    }
    Ok(plans)
}

/// Executes a statement, and returns its plan where it has one. What ends the transaction is not
/// executed: it is undone later.
async fn explain_step(
    client: &Client,
    transaction: &str,
    step: &Step,
    values: &[String],
) -> Result<Option<Value>, Error> {
    if step.role == Role::End {
        return Ok(None);
    }
    if !step.statement.is_explainable() {
        // Later statements may need what it does, e.g. a temporary table or a setting.
        client.batch_execute(&step.with_literals(values)).await?;
        return Ok(None);
    }
    let plan = query_plan(client, step, values).await?;
    let parameters: Vec<&str> =
        step.value_indexes.iter().map(|index| values[*index].as_str()).collect();
    Ok(Some(json!({
        "transaction": transaction,
        "statement": step.numbered_sql,
        "parameters": parameters,
        "plan": plan,
    })))
}

async fn query_plan(client: &Client, step: &Step, values: &[String]) -> Result<Value, Error> {
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", step.numbered_sql);
    let texts: Vec<Text<'_>> =
        step.value_indexes.iter().map(|index| Text(&values[*index])).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = texts.iter().map(|text| text as _).collect();
    let row = client.query_one(&sql, &parameters).await?;
    row.try_get(0)
}
