//! One connection that does transactions, one round trip per statement as pgbench does them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type};
use tokio_postgres::{Client, Error, Statement as Prepared};

use super::causes::cause;
use super::draw::Draw;
use super::statement::{Role, Statement};
use super::workload::{Drawn, Protocol, Workload};
use crate::load::{Turn, Worker};
use crate::postgres::{Session, Target, chain};
use crate::schedule::random;

/// What all connections do.
pub(super) struct Job {
    target: Target,
    protocol: Protocol,
    reconnect: bool,
    weights: super::draw::Weights,
    transactions: Vec<Transaction>,
}

struct Transaction {
    name: Arc<str>,
    draws: Vec<Draw>,
    steps: Vec<Step>,
    has_begin: bool,
}

struct Step {
    statement: Statement,
    role: Role,
    numbered: String,
    /// Which of the transaction's values are its parameters.
    values: Vec<usize>,
    /// The same, by name: for the simple protocol.
    names: Vec<String>,
}

impl Job {
    pub(super) fn new(target: Target, workload: &Workload, drawn: Vec<Drawn>) -> Self {
        let transactions = workload
            .transactions
            .iter()
            .zip(drawn)
            .map(|(transaction, drawn)| {
                let place = |name: &str| {
                    let found = drawn.draws.iter().position(|(known, _)| known == name);
                    found.expect("the workload was checked: every name is declared")
                };
                let steps: Vec<Step> = transaction
                    .statements
                    .iter()
                    .map(|statement| Step {
                        role: statement.role(),
                        numbered: statement.numbered(),
                        values: statement.names().into_iter().map(place).collect(),
                        names: statement.names().into_iter().map(str::to_owned).collect(),
                        statement: statement.clone(),
                    })
                    .collect();
                Transaction {
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

/// A client.
pub(super) struct Connection {
    job: Arc<Job>,
    open: Option<Open>,
    /// The values of one transaction, kept for their memory.
    values: Vec<String>,
}

struct Open {
    session: Session,
    /// By transaction and statement.
    prepared: Vec<Vec<Prepared>>,
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

impl Connection {
    /// Connects and prepares.
    pub(super) async fn open(job: Arc<Job>) -> Result<Self> {
        let open = match job.reconnect {
            true => None,
            false => Some(
                Open::new(&job)
                    .await
                    .map_err(|error| job.target.lost(&error))?,
            ),
        };
        Ok(Self {
            open,
            job,
            values: Vec::new(),
        })
    }
}

impl Open {
    async fn new(job: &Job) -> Result<Self, Error> {
        let mut session = job.target.session().await?;
        let mut prepared = Vec::new();
        if job.protocol == Protocol::Prepared {
            for transaction in &job.transactions {
                let mut of_transaction = Vec::new();
                for step in &transaction.steps {
                    let statement = session
                        .with(|client| client.prepare(&step.numbered))
                        .await?;
                    of_transaction.push(statement);
                }
                prepared.push(of_transaction);
            }
        }
        Ok(Self { session, prepared })
    }

    async fn step(
        &mut self,
        transaction: usize,
        at: usize,
        step: &Step,
        values: &[String],
    ) -> Result<(), Error> {
        let Some(prepared) = self.prepared.get(transaction).map(|all| &all[at]) else {
            let value = |name: &str| {
                let found = step.names.iter().position(|known| known == name);
                found.map_or("", |found| values[step.values[found]].as_str())
            };
            let sql = step.statement.filled(value);
            return self.session.with(|client| client.batch_execute(&sql)).await;
        };
        let parameters = step.values.iter().map(|at| Text(&values[*at]));
        self.session
            .with(|client| client.execute_raw(prepared, parameters))
            .await
            .map(drop)
    }
}

impl Worker for Connection {
    async fn operate(&mut self, turn: &mut Turn) -> Result<Arc<str>, String> {
        let which = self.job.weights.draw(&mut turn.random);
        let job = self.job.clone();
        let transaction = &job.transactions[which];
        self.values.resize(
            transaction.draws.len().max(self.values.len()),
            String::new(),
        );
        for (draw, value) in transaction.draws.iter().zip(&mut self.values) {
            draw.value(turn.index, &mut turn.random, value);
        }
        let mut open = match self.open.take() {
            Some(open) if !open.session.is_closed() => open,
            _ => {
                let begun = Instant::now();
                let open = Open::new(&job).await.map_err(|error| cause(&error))?;
                turn.phase("connect", begun.elapsed());
                open
            }
        };
        let done = run(&mut open, which, transaction, &self.values, turn).await;
        if let Err(error) = done {
            let keep = !open.session.is_closed()
                && (!transaction.has_begin
                    || open
                        .session
                        .with(|client| client.batch_execute("ROLLBACK"))
                        .await
                        .is_ok());
            if keep && !job.reconnect {
                self.open = Some(open);
            }
            return Err(cause(&error));
        }
        if !job.reconnect {
            self.open = Some(open);
        }
        Ok(transaction.name.clone())
    }
}

async fn run(
    open: &mut Open,
    which: usize,
    transaction: &Transaction,
    values: &[String],
    turn: &mut Turn,
) -> Result<(), Error> {
    let begun = Instant::now();
    let mut commit = Duration::ZERO;
    for (at, step) in transaction.steps.iter().enumerate() {
        if step.role == Role::End {
            let ending = Instant::now();
            open.step(which, at, step, values).await?;
            commit += ending.elapsed();
        } else {
            open.step(which, at, step, values).await?;
        }
    }
    turn.phase("execute", begun.elapsed().saturating_sub(commit));
    if transaction.has_begin {
        turn.phase("commit", commit);
    }
    Ok(())
}

/// The plan of every statement, executed once with drawn values in a transaction that is undone.
pub(super) async fn explain(job: &Job, seed: u64) -> Result<Value> {
    let client = job.target.client().await?;
    let mut plans = Vec::new();
    for (index, transaction) in job.transactions.iter().enumerate() {
        let mut random = random(seed, index as u64);
        let mut values = vec![String::new(); transaction.draws.len()];
        for (draw, value) in transaction.draws.iter().zip(&mut values) {
            draw.value(0, &mut random, value);
        }
        client
            .batch_execute("BEGIN")
            .await
            .context("begin a transaction")?;
        for step in &transaction.steps {
            if !step.statement.is_explainable() {
                continue;
            }
            let plan = plan(&client, step, &values)
                .await
                .map_err(|error| anyhow!("explain `{}`: {}", step.numbered, chain(&error)))?;
            let parameters: Vec<&str> = step.values.iter().map(|at| values[*at].as_str()).collect();
            plans.push(json!({
                "transaction": &*transaction.name,
                "statement": step.numbered,
                "parameters": parameters,
                "plan": plan,
            }));
        }
        client
            .batch_execute("ROLLBACK")
            .await
            .context("undo the transaction")?;
    }
    Ok(Value::Array(plans))
}

async fn plan(client: &Client, step: &Step, values: &[String]) -> Result<Value, Error> {
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", step.numbered);
    let texts: Vec<Text<'_>> = step.values.iter().map(|at| Text(&values[*at])).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = texts.iter().map(|text| text as _).collect();
    let row = client.query_one(&sql, &parameters).await?;
    row.try_get(0)
}
