//! The workload file: what its TOML may say, read and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::draw::{Distribution, Draw, Weights};
use super::expression::{Expression, Variables, nearest_name, unknown_name_error};
use super::statement::Statement;
use crate::refusal;

/// Workloads that need no file, by the name under which they are asked for.
const BUILT_IN_WORKLOADS: [(&str, &str); 2] = [
    ("tpcb-like.toml", include_str!("../../../workloads/tpcb-like.toml")),
    ("select-only.toml", include_str!("../../../workloads/select-only.toml")),
];

/// Names that the result uses for something else.
const RESERVED_NAMES: [&str; 6] = ["capacity", "throughput", "late", "dropped", "success", "all"];

/// A workload file as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    #[allow(dead_code, reason = "a description for readers of the file")]
    description: Option<String>,
    #[serde(default)]
    protocol: QueryProtocol,
    #[serde(default)]
    reconnect: bool,
    #[serde(default)]
    private_setup: Vec<String>,
    #[serde(default)]
    setup: Vec<String>,
    #[serde(default)]
    teardown: Vec<String>,
    #[serde(default)]
    variables: BTreeMap<String, Variable>,
    #[serde(rename = "transaction")]
    transactions: Vec<TransactionOfFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransactionOfFile {
    name: String,
    #[serde(default = "one")]
    weight: f64,
    statements: Vec<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Distribution>,
}

fn one() -> f64 {
    1.0
}

/// How statements are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QueryProtocol {
    /// Parsed and planned once per connection, then executed with values.
    #[default]
    Prepared,
    /// As text with the values in it.
    Simple,
}

/// What a variable is before the server is asked.
#[derive(Clone, Debug)]
pub enum Variable {
    /// A number, perhaps of other variables.
    Expression(Expression),
    /// The first column of the first row.
    Query(String),
}

/// A workload, checked as far as it can be without a server.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Name of the workload.
    pub name: String,
    /// How statements are sent.
    pub protocol: QueryProtocol,
    /// Whether each transaction opens a connection of its own.
    pub reconnect: bool,
    /// Run once on a private server, before [`Workload::setup`].
    pub private_setup: Vec<Statement>,
    /// Run once before the first run.
    pub setup: Vec<Statement>,
    /// Run once after the last run.
    pub teardown: Vec<Statement>,
    /// Variables by their names.
    pub variables: BTreeMap<String, Variable>,
    /// Transactions in the order of the file.
    pub transactions: Vec<Transaction>,
    /// How often each transaction runs, in proportion.
    pub weights: Weights,
    /// Text of the file.
    pub text: String,
}

/// One kind of transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its name, under which its latencies are reported.
    pub name: String,
    /// Statements in the order of execution.
    pub statements: Vec<Statement>,
    /// Parameters in the order of their names.
    pub parameters: BTreeMap<String, Distribution>,
}

/// A transaction with the numbers of its distributions known.
#[derive(Clone, Debug)]
pub(crate) struct BoundParameters {
    /// How each parameter is drawn, in the order of names.
    pub draws: Vec<(String, Draw)>,
}

impl Workload {
    /// Reads the workload named on the command line: a file, or one that is built in.
    ///
    /// # Errors
    /// When it cannot be read or is wrong, with the line.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let built_in = BUILT_IN_WORKLOADS.iter().find(|(name, _)| Path::new(name) == path);
        let text = match (fs::read_to_string(path), built_in) {
            (Ok(text), _) => text,
            (Err(_), Some((_, text))) => (*text).to_owned(),
            (Err(error), None) => {
                let known: Vec<&str> = BUILT_IN_WORKLOADS.iter().map(|(name, _)| *name).collect();
                return Err(refusal::usage(format!(
                    "workload {}: {error}; built in are {}",
                    path.display(),
                    known.join(" and ")
                )));
            }
        };
        Self::parse(&text)
            .map_err(|reason| refusal::usage(format!("workload {}: {reason}", path.display())))
    }

    /// Reads a workload.
    ///
    /// # Errors
    /// What is wrong, with the line where that is known.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| with_suggestion(&error))?;
        let parse_all = |statements: &[String], section: &str| {
            statements
                .iter()
                .map(|statement| {
                    Statement::parse(statement).map_err(|reason| format!("{section}: {reason}"))
                })
                .collect::<Result<Vec<_>, _>>()
        };
        if file.transactions.is_empty() {
            return Err("there is no [[transaction]]".to_owned());
        }
        let weights: Vec<f64> = file.transactions.iter().map(|one| one.weight).collect();
        let mut transactions = Vec::new();
        for transaction in file.transactions {
            let what = format!("transaction `{}`", transaction.name);
            if transaction.statements.is_empty() {
                return Err(format!("{what} has no statements"));
            }
            transactions.push(Transaction {
                statements: parse_all(&transaction.statements, &what)?,
                name: transaction.name,
                parameters: transaction.parameters,
            });
        }
        let workload = Self {
            name: file.name,
            protocol: file.protocol,
            reconnect: file.reconnect,
            private_setup: parse_all(&file.private_setup, "private_setup")?,
            setup: parse_all(&file.setup, "setup")?,
            teardown: parse_all(&file.teardown, "teardown")?,
            variables: file.variables,
            transactions,
            weights: Weights::new(&weights)?,
            text: text.to_owned(),
        };
        workload.validate()?;
        Ok(workload)
    }

    /// Replaces a variable by what the command line says.
    ///
    /// # Errors
    /// When there is no such variable, or the value is no expression.
    pub(crate) fn set_variable(&mut self, name: &str, value: &str) -> Result<(), String> {
        if !self.variables.contains_key(name) {
            return Err(unknown_name_error(
                "variable",
                name,
                self.variables.keys().map(String::as_str),
            ));
        }
        let expression = Expression::parse(value)?;
        self.variables.insert(name.to_owned(), Variable::Expression(expression));
        Ok(())
    }

    /// The values of all variables; `queried` has those of queries.
    ///
    /// # Errors
    /// When variables depend on each other in a circle.
    pub(crate) fn evaluate(&self, queried: &Variables) -> Result<Variables, String> {
        let mut values = queried.clone();
        loop {
            let mut failure = None;
            let before = values.len();
            for (name, variable) in &self.variables {
                let Variable::Expression(expression) = variable else {
                    continue;
                };
                if values.contains_key(name) {
                    continue;
                }
                match expression.evaluate(&values) {
                    Ok(value) => {
                        values.insert(name.clone(), value);
                    }
                    Err(reason) => failure = Some(format!("variable `{name}`: {reason}")),
                }
            }
            match failure {
                None => return Ok(values),
                Some(reason) if values.len() == before => return Err(reason),
                // One more round, with more variables known.
                Some(_) => {}
            }
        }
    }

    /// How each transaction's parameters are drawn.
    ///
    /// # Errors
    /// When a distribution cannot be, e.g. min above max.
    pub(crate) fn bind_parameters(
        &self,
        variables: &Variables,
    ) -> Result<Vec<BoundParameters>, String> {
        let bind = |transaction: &Transaction| {
            let mut draws = Vec::new();
            for (name, distribution) in &transaction.parameters {
                let draw = distribution.resolve(variables).map_err(|reason| {
                    format!("transaction `{}`, parameter `{name}`: {reason}", transaction.name)
                })?;
                draws.push((name.clone(), draw));
            }
            // A variable in a statement is a parameter that does not change.
            for name in transaction.statements.iter().flat_map(Statement::names) {
                if let Some(value) = variables.get(name)
                    && !draws.iter().any(|(known, _)| known == name)
                {
                    draws.push((name.to_owned(), Draw::Constant(value.to_string())));
                }
            }
            Ok(BoundParameters { draws })
        };
        self.transactions.iter().map(bind).collect()
    }

    /// Names: each transaction's its own, each value declared, each parameter used.
    fn validate(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for transaction in &self.transactions {
            let name = transaction.name.as_str();
            if name.is_empty() || RESERVED_NAMES.contains(&name) {
                return Err(format!(
                    "transaction `{name}`: the result uses that name: choose another"
                ));
            }
            if !names.insert(name) {
                return Err(format!("there are two transactions `{name}`"));
            }
            self.check_transaction(transaction)
                .map_err(|reason| format!("transaction `{name}`: {reason}"))?;
        }
        for statement in self.setup.iter().chain(&self.teardown).chain(&self.private_setup) {
            for name in statement.names() {
                self.check_variable(name)
                    .map_err(|reason| format!("setup or teardown: {reason}"))?;
            }
        }
        for (name, variable) in &self.variables {
            if let Variable::Expression(expression) = variable {
                for used in expression.variables() {
                    self.check_variable(used)
                        .map_err(|reason| format!("variable `{name}`: {reason}"))?;
                }
            }
        }
        Ok(())
    }

    fn check_transaction(&self, transaction: &Transaction) -> Result<(), String> {
        let used: BTreeSet<&str> =
            transaction.statements.iter().flat_map(Statement::names).collect();
        for name in &used {
            if !transaction.parameters.contains_key(*name) && !self.variables.contains_key(*name) {
                let known = transaction.parameters.keys().chain(self.variables.keys());
                return Err(unknown_name_error(
                    "parameter or variable",
                    name,
                    known.map(String::as_str),
                ));
            }
        }
        for (name, distribution) in &transaction.parameters {
            if !used.contains(name.as_str()) {
                return Err(format!("parameter `{name}` is used in no statement"));
            }
            for expression in distribution.expressions() {
                for variable in expression.variables() {
                    self.check_variable(variable)
                        .map_err(|reason| format!("parameter `{name}`: {reason}"))?;
                }
            }
        }
        Ok(())
    }

    fn check_variable(&self, name: &str) -> Result<(), String> {
        if self.variables.contains_key(name) {
            return Ok(());
        }
        Err(unknown_name_error("variable", name, self.variables.keys().map(String::as_str)))
    }
}

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Integer(number) => Ok(Self::Expression(Expression::Number(number as f64))),
            toml::Value::Float(number) => Ok(Self::Expression(Expression::Number(number))),
            toml::Value::String(text) => {
                Expression::parse(&text).map(Self::Expression).map_err(D::Error::custom)
            }
            toml::Value::Table(table) => match (table.len(), table.get("query")) {
                (1, Some(toml::Value::String(query))) => Ok(Self::Query(query.clone())),
                _ => Err(D::Error::custom("a variable's table is { query = \"SELECT …\" }")),
            },
            _ => Err(D::Error::custom(
                "a variable is a number, an expression, or { query = \"SELECT …\" }",
            )),
        }
    }
}

/// A TOML error with the key that may have been meant. The reader says it in two ways: "unknown
/// field `x`, expected one of `a`, `b`" and "unexpected keys in table: x, available keys: a, b".
fn with_suggestion(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let text = text.trim_end();
    let message = error.message();
    let prefixes = ["unknown field `", "unknown variant `", "unexpected keys in table: "];
    let Some(rest) = prefixes.iter().find_map(|start| message.strip_prefix(start)) else {
        return text.to_owned();
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut names = rest.split(|c| !is_name(c)).filter(|name| !name.is_empty());
    let unknown_key = names.next().unwrap_or_default();
    match nearest_name(unknown_key, names) {
        Some(near) => format!("{text}\ndid you mean `{near}`?"),
        None => text.to_owned(),
    }
}
