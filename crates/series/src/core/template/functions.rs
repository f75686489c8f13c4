//! The functions of a template: those of Go, and those that Prometheus adds.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::humanize::{
    graph_link, humanize, humanize_1024, humanize_duration, humanize_percentage,
    humanize_timestamp, table_link, time,
};
use super::print::{print, print_line, printf};
use super::value::{Record, Value};
use super::{Ask, OUTPUT_BYTES_MAX, QUERY_STEPS, REGEX_STEPS, STEPS_MAX};
use crate::core::promql::duration_ms;
use crate::model::TimeMs;

/// Compiled, a regular expression of a template takes at most so much memory.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// A query of a template yields at most so many samples.
const SAMPLES_MAX: usize = 10_000;
/// One replacement of a match is at most so long, before what is not put in is left out.
const REPLACEMENT_BYTES_MAX: usize = 16 << 20;

/// What functions know besides their arguments.
pub(super) struct Around<'a> {
    pub now: TimeMs,
    pub ask: Ask<'a>,
    pub external_url: &'a str,
    /// Used so far.
    pub steps: Cell<usize>,
}

impl Around<'_> {
    /// Counts what is done.
    pub fn spend(&self, steps: usize) -> Result<(), String> {
        let spent = self.steps.get().saturating_add(steps);
        self.steps.set(spent);
        match spent > STEPS_MAX {
            true => Err(format!(
                "more than {STEPS_MAX} steps: do less in one template"
            )),
            false => Ok(()),
        }
    }

    fn regex(&self, pattern: &Value, text: &str) -> Result<Regex, String> {
        let pattern = pattern.as_text()?;
        self.spend(REGEX_STEPS + text.len() / 64)?;
        RegexBuilder::new(pattern)
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|error| format!("error parsing regexp `{pattern}`: {error}"))
    }
}

type Called = Result<Value, String>;

/// How a function works.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// The first argument that is false, or the last; those after it are not evaluated.
    And,
    /// The first argument that is true, or the last.
    Or,
    /// All arguments are evaluated first.
    All(fn(&Around<'_>, &[Value]) -> Called),
}

/// A function.
pub(super) struct Entry {
    pub name: &'static str,
    /// It takes so many arguments…
    pub least: usize,
    /// …to so many.
    pub most: usize,
    pub work: Work,
}

#[derive(Clone, Copy)]
pub(super) struct Function(pub &'static Entry);

impl std::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0.name)
    }
}

impl Function {
    pub fn named(name: &str) -> Option<Self> {
        ENTRIES.iter().find(|entry| entry.name == name).map(Self)
    }
}

const MANY: usize = usize::MAX;

const fn entry(
    name: &'static str,
    (least, most): (usize, usize),
    work: fn(&Around<'_>, &[Value]) -> Called,
) -> Entry {
    let work = Work::All(work);
    Entry {
        name,
        least,
        most,
        work,
    }
}

const fn lazy(name: &'static str, work: Work) -> Entry {
    Entry {
        name,
        least: 1,
        most: MANY,
        work,
    }
}

static ENTRIES: &[Entry] = &[
    lazy("and", Work::And),
    lazy("or", Work::Or),
    entry("not", (1, 1), |_, a| Ok(Value::Bool(!a[0].is_true()))),
    entry("eq", (2, MANY), |_, a| any_equals(a)),
    entry("ne", (2, 2), |_, a| Ok(Value::Bool(!a[0].equals(&a[1])?))),
    entry("lt", (2, 2), |_, a| compare(a, |order| order.is_lt())),
    entry("le", (2, 2), |_, a| compare(a, |order| order.is_le())),
    entry("gt", (2, 2), |_, a| compare(a, |order| order.is_gt())),
    entry("ge", (2, 2), |_, a| compare(a, |order| order.is_ge())),
    entry("len", (1, 1), |_, a| Ok(Value::Int(a[0].len()? as i64))),
    entry("index", (1, MANY), |_, a| {
        a[1..]
            .iter()
            .try_fold(a[0].clone(), |of, at| of.element(at))
    }),
    entry("print", (0, MANY), |_, a| Ok(Value::text(print(a)))),
    entry("println", (0, MANY), |_, a| Ok(Value::text(print_line(a)))),
    entry("printf", (1, MANY), |_, a| {
        Ok(Value::text(printf(a[0].as_text()?, &a[1..])?))
    }),
    entry("html", (1, MANY), |_, a| Ok(Value::text(html(&print(a))))),
    entry("urlquery", (1, MANY), |_, a| Ok(url_escaped(&print(a)))),
    entry("urlQueryEscape", (1, 1), |_, a| {
        Ok(url_escaped(a[0].as_text()?))
    }),
    entry("humanize", (1, 1), |_, a| by_number(a, humanize)),
    entry("humanize1024", (1, 1), |_, a| by_number(a, humanize_1024)),
    entry("humanizeDuration", (1, 1), |_, a| {
        by_number(a, humanize_duration)
    }),
    entry("humanizePercentage", (1, 1), |_, a| {
        by_number(a, humanize_percentage)
    }),
    entry("humanizeTimestamp", (1, 1), |_, a| {
        Ok(Value::text(humanize_timestamp(a[0].number()?)?))
    }),
    entry("toTime", (1, 1), |_, a| {
        Ok(Value::Time(time(a[0].number()?)?))
    }),
    entry("toDuration", (1, 1), |_, a| {
        Ok(Value::Duration((a[0].number()? * 1e9) as i64))
    }),
    entry("now", (0, 0), |around, _| {
        Ok(Value::Float(around.now as f64 / 1e3))
    }),
    entry("parseDuration", (1, 1), |_, a| parse_duration(a)),
    entry("toUpper", (1, 1), |_, a| by_text(a, |t| t.to_uppercase())),
    entry("toLower", (1, 1), |_, a| by_text(a, |t| t.to_lowercase())),
    entry("title", (1, 1), |_, a| by_text(a, title)),
    entry("safeHtml", (1, 1), |_, a| by_text(a, str::to_owned)),
    entry("match", (2, 2), |around, a| {
        let text = a[1].as_text()?;
        Ok(Value::Bool(around.regex(&a[0], text)?.is_match(text)))
    }),
    entry("reReplaceAll", (3, 3), replace_all),
    entry("stripPort", (1, 1), |_, a| {
        by_text(a, |t| split_port(t).map_or(t, |(host, _)| host).to_owned())
    }),
    entry("stripDomain", (1, 1), |_, a| by_text(a, strip_domain)),
    entry("graphLink", (1, 1), |_, a| by_text(a, graph_link)),
    entry("tableLink", (1, 1), |_, a| by_text(a, table_link)),
    entry("externalURL", (0, 0), |around, _| {
        Ok(Value::text(around.external_url))
    }),
    entry("pathPrefix", (0, 0), |around, _| {
        Ok(Value::text(path(around.external_url)))
    }),
    entry("args", (0, MANY), |_, a| args(a)),
    entry("query", (1, 1), query),
    entry("first", (1, 1), |_, a| {
        let first = a[0].list()?.first().cloned();
        first.ok_or_else(|| "first() called on vector with no elements".to_owned())
    }),
    entry("label", (2, 2), |_, a| {
        Ok(Value::text(a[1].sample()?.0.get(a[0].as_text()?)))
    }),
    entry("value", (1, 1), |_, a| Ok(Value::Float(a[0].sample()?.1))),
    entry("strvalue", (1, 1), |_, a| {
        Ok(Value::text(a[0].sample()?.0.get("__value__")))
    }),
    entry("sortByLabel", (2, 2), |_, a| sort_by_label(a)),
];

impl Entry {
    /// Calls a function that takes all of its arguments.
    pub fn call(
        &self,
        work: fn(&Around<'_>, &[Value]) -> Called,
        around: &Around<'_>,
        arguments: &[Value],
    ) -> Called {
        let result = work(around, arguments);
        let result = result.map_err(|message| format!("{}: {message}", self.name))?;
        if let Value::Text(text) = &result {
            around.spend(text.len() / 64)?;
            if text.len() > OUTPUT_BYTES_MAX {
                let name = self.name;
                return Err(format!(
                    "{name}: more than {OUTPUT_BYTES_MAX} bytes of text"
                ));
            }
        }
        Ok(result)
    }
}

fn by_number(arguments: &[Value], work: fn(f64) -> String) -> Called {
    Ok(Value::text(work(arguments[0].number()?)))
}

fn by_text(arguments: &[Value], work: impl Fn(&str) -> String) -> Called {
    Ok(Value::text(work(arguments[0].as_text()?)))
}

fn any_equals(arguments: &[Value]) -> Called {
    for other in &arguments[1..] {
        if arguments[0].equals(other)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn compare(arguments: &[Value], holds: fn(std::cmp::Ordering) -> bool) -> Called {
    let order = arguments[0].order(&arguments[1])?;
    Ok(Value::Bool(order.is_some_and(holds)))
}

fn url_escaped(text: &str) -> Value {
    let escaped: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    Value::text(escaped)
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for next in text.chars() {
        match next {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(next),
        }
    }
    out
}

fn parse_duration(arguments: &[Value]) -> Called {
    let text = arguments[0].as_text()?;
    let ms = duration_ms(text).ok_or_else(|| format!("{text:?} is not a duration"))?;
    Ok(Value::Float(ms as f64 / 1e3))
}

/// The first letter of each word becomes a capital; the others stay.
fn title(text: &str) -> String {
    let mut last = ' ';
    let mut out = String::with_capacity(text.len());
    for next in text.chars() {
        let is_inside = last.is_alphanumeric() || last == '_' || last == '\'';
        match is_inside {
            true => out.push(next),
            false => out.extend(next.to_uppercase()),
        }
        last = next;
    }
    out
}

fn replace_all(around: &Around<'_>, arguments: &[Value]) -> Called {
    let (replacement, text) = (arguments[1].as_text()?, arguments[2].as_text()?);
    let regex = around.regex(&arguments[0], text)?;
    let mut out = String::new();
    let mut done = 0;
    for captures in regex.captures_iter(text) {
        let found = captures.get_match();
        if found.len().saturating_mul(replacement.len()) > REPLACEMENT_BYTES_MAX {
            return Err("the replacement is too long".to_owned());
        }
        out.push_str(&text[done..found.start()]);
        captures.expand(replacement, &mut out);
        done = found.end();
        if out.len() > OUTPUT_BYTES_MAX {
            return Err(format!("more than {OUTPUT_BYTES_MAX} bytes of text"));
        }
    }
    out.push_str(&text[done..]);
    Ok(Value::text(out))
}

/// Host and port of `host:port`, `[host]:port`; nothing where there is no port.
fn split_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inner) => Some((inner.strip_suffix(']')?, port)),
        None if host.contains([':', '[', ']']) => None,
        None => Some((host, port)),
    }
}

/// The first part of a host's name; an address stays as it is.
fn strip_domain(text: &str) -> String {
    let (host, port) = match split_port(text) {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    if host.parse::<IpAddr>().is_ok() {
        return text.to_owned();
    }
    let name = host.split('.').next().unwrap_or(host);
    match port {
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    }
}

/// The path of an address, without what follows it.
fn path(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    let path = after.find('/').map_or("", |at| &after[at..]);
    path.split(['?', '#']).next().unwrap_or(path)
}

/// A map of `arg0`, `arg1`… Maps of maps are refused: nothing needs them, and they could be nested without end.
fn args(arguments: &[Value]) -> Called {
    if arguments.iter().any(|one| matches!(one, Value::Map(_))) {
        return Err("an argument is itself made by args".to_owned());
    }
    let pairs = arguments.iter().enumerate();
    let mut pairs: Vec<(Box<str>, Value)> = pairs
        .map(|(at, value)| (format!("arg{at}").into(), value.clone()))
        .collect();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(Value::Map(pairs.into()))
}

fn query(around: &Around<'_>, arguments: &[Value]) -> Called {
    around.spend(QUERY_STEPS)?;
    let found = (around.ask)(arguments[0].as_text()?)?;
    if found.len() > SAMPLES_MAX {
        let count = found.len();
        return Err(format!(
            "{count} samples are more than {SAMPLES_MAX}, the most that a template may ask for"
        ));
    }
    let samples = found
        .into_iter()
        .map(|(labels, value)| Value::Record(Arc::new(Record::Sample { labels, value })));
    Ok(Value::List(samples.collect()))
}

fn sort_by_label(arguments: &[Value]) -> Called {
    let name = arguments[0].as_text()?;
    let mut samples = arguments[1].list()?.to_vec();
    for sample in &samples {
        sample.sample()?;
    }
    samples.sort_by_cached_key(|sample| {
        let labels = sample
            .sample()
            .map(|(labels, _)| labels.get(name).to_owned());
        labels.unwrap_or_default()
    });
    Ok(Value::List(samples.into()))
}
