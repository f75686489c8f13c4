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
use crate::postgres::{ConnectionTarget, Fault, Wire, chain};
use crate::scenario::Plans;
use crate::schedule::random;

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
    numbered: String,
    /// Which of the transaction's values are its parameters.
    values: Vec<usize>,
    /// The same, by name: for the simple protocol.
    names: Vec<String>,
}

impl Job {
    pub(super) fn new(
        target: ConnectionTarget,
        workload: &Workload,
        drawn: Vec<BoundParameters>,
    ) -> Self {
        let transactions = workload
            .transactions
            .iter()
            .zip(drawn)
            .enumerate()
            .map(|(number, (transaction, drawn))| {
                let place = |name: &str| {
                    let found = drawn.draws.iter().position(|(known, _)| known == name);
                    found.expect("the workload was checked: every name is declared")
                };
                let steps: Vec<Step> = transaction
                    .statements
                    .iter()
                    .enumerate()
                    .map(|(at, statement)| Step {
                        name: format!("bench_{number}_{at}"),
                        role: statement.role(),
                        numbered: statement.numbered(),
                        values: statement.names().into_iter().map(place).collect(),
                        names: statement.names().into_iter().map(str::to_owned).collect(),
                        statement: statement.clone(),
                    })
                    .collect();
                BoundTransaction {
                    name: transaction.name.as_str().into(),
                    has_begin: steps.iter().any(|step| step.role == Role::Begin),
                    draws: drawn.draws.into_iter().map(|(_, draw)| draw).collect(),
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
        let wire = open(&job).await.map_err(|error| match error {
            OpenError::Lost(fault) => job.target.lost(&fault),
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
        Self {
            job,
            wire,
            values: Vec::new(),
        }
    }
}

/// Why there is no connection.
enum OpenError {
    Lost(Fault),
    Refused(String, Fault),
}

async fn open(job: &Job) -> Result<Wire, OpenError> {
    let mut wire = job.target.wire().await.map_err(OpenError::Lost)?;
    if job.protocol == QueryProtocol::Prepared {
        for step in job.transactions.iter().flat_map(|one| &one.steps) {
            let prepared = wire.prepare(&step.name, &step.numbered).await;
            prepared.map_err(|fault| OpenError::Refused(step.numbered.clone(), fault))?;
        }
    }
    Ok(wire)
}

impl Step {
    async fn run(&self, job: &Job, wire: &mut Wire, values: &[String]) -> Result<(), Fault> {
        if job.protocol == QueryProtocol::Prepared {
            let values = self.values.iter().map(|at| values[*at].as_str());
            return wire.execute(&self.name, values).await;
        }
        wire.simple(&self.filled(values)).await
    }

    /// Its text with the transaction's values in it.
    fn filled(&self, values: &[String]) -> String {
        self.statement.filled(|name| {
            let found = self.names.iter().position(|known| known == name);
            found.map_or("", |found| values[self.values[found]].as_str())
        })
    }
}

impl Worker for SqlConnection {
    async fn operate(&mut self, turn: &mut Operation) -> Result<Arc<str>, String> {
        let job = &*self.job;
        let which = job.weights.draw(&mut turn.random);
        let transaction = &job.transactions[which];
        let room = transaction.draws.len().max(self.values.len());
        self.values.resize(room, String::new());
        for (draw, value) in transaction.draws.iter().zip(&mut self.values) {
            draw.value(turn.number, &mut turn.random, value);
        }
        let mut wire = match self.wire.take() {
            Some(wire) if !wire.is_broken() => wire,
            _ => {
                let begun = Instant::now();
                let opened = open(job).await;
                let wire = opened.map_err(|error| match error {
                    OpenError::Lost(fault) | OpenError::Refused(_, fault) => cause(&fault),
                })?;
                turn.phase("connect", begun.elapsed());
                wire
            }
        };
        let done = transaction.run(job, &mut wire, &self.values, turn).await;
        if done.is_err() && transaction.has_begin && !wire.is_broken() {
            // What cannot be undone leaves the connection broken, and the next one opens another.
            let _ = wire.simple("ROLLBACK").await;
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
        turn: &mut Operation,
    ) -> Result<(), Fault> {
        let begun = Instant::now();
        let mut commit = Duration::ZERO;
        for step in &self.steps {
            if step.role == Role::End {
                let ending = Instant::now();
                step.run(job, wire, values).await?;
                commit += ending.elapsed();
            } else {
                step.run(job, wire, values).await?;
            }
        }
        turn.phase("execute", begun.elapsed().saturating_sub(commit));
        if self.has_begin {
            turn.phase("commit", commit);
        }
        Ok(())
    }
}

/// The plan of every statement, executed once with drawn values in a transaction that is undone.
/// `number` is that of the first operation that has not been done.
pub(super) async fn explain(job: &Job, seed: u64, number: u64) -> Result<Plans> {
    let client = job.target.client().await?;
    let mut found = Plans::default();
    for (number, transaction) in (number..).zip(&job.transactions) {
        let mut random = random(seed, number);
        let mut values = vec![String::new(); transaction.draws.len()];
        for (draw, value) in transaction.draws.iter().zip(&mut values) {
            draw.value(number, &mut random, value);
        }
        client
            .batch_execute("BEGIN")
            .await
            .context("begin a transaction")?;
        for step in &transaction.steps {
            let explained = explain_step(&client, &transaction.name, step, &values).await;
            match explained {
                Ok(plan) => found.plans.extend(plan),
                Err(error) => {
                    found.missing.push(format!(
                        "cannot get a plan of `{}` and of the statements after it in `{}`: {}",
                        step.numbered,
                        transaction.name,
                        chain(&error)
                    ));
                    break;
                }
            }
        }
        client
            .batch_execute("ROLLBACK")
            .await
            .context("undo the transaction")?;
    }
    Ok(found)
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
        client.batch_execute(&step.filled(values)).await?;
        return Ok(None);
    }
    let plan = plan(client, step, values).await?;
    let parameters: Vec<&str> = step.values.iter().map(|at| values[*at].as_str()).collect();
    Ok(Some(json!({
        "transaction": transaction,
        "statement": step.numbered,
        "parameters": parameters,
        "plan": plan,
    })))
}

async fn plan(client: &Client, step: &Step, values: &[String]) -> Result<Value, Error> {
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", step.numbered);
    let texts: Vec<Text<'_>> = step.values.iter().map(|at| Text(&values[*at])).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = texts.iter().map(|text| text as _).collect();
    let row = client.query_one(&sql, &parameters).await?;
    row.try_get(0)
}
