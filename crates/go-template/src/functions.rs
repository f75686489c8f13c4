//! The functions of a template: those of Go, and those that Prometheus adds.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use egret_metrics_model::TimeMs;
use egret_metrics_model::number::duration_ms;
use regex::{Regex, RegexBuilder};

use super::humanize::{
    graph_link, humanize, humanize_1024, humanize_duration, humanize_percentage,
    humanize_timestamp, table_link, time,
};
use super::print::{print, print_line, printf};
use super::value::{TemplateRecord, TemplateValue};
use super::{Ask, OUTPUT_BYTES_MAX, QUERY_STEPS, REGEX_STEPS, STEPS_MAX};

/// Maximum memory of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Maximum number of samples that a query of a template may yield.
const SAMPLES_MAX: usize = 10_000;
/// Maximum size of one replacement, as the match's length times the replacement text's length.
const REPLACEMENT_BYTES_MAX: usize = 16 << 20;

/// Context of function calls.
pub(super) struct FunctionContext<'a> {
    pub now: TimeMs,
    pub ask: Ask<'a>,
    pub external_url: &'a str,
    /// Steps spent so far, out of [`STEPS_MAX`].
    pub steps: Cell<usize>,
}

impl FunctionContext<'_> {
    /// Counts steps against [`STEPS_MAX`].
    pub(crate) fn spend(&self, steps: usize) -> Result<(), String> {
        let spent = self.steps.get().saturating_add(steps);
        self.steps.set(spent);
        if spent > STEPS_MAX {
            Err(format!(
                "more than {STEPS_MAX} steps: simplify the template"
            ))
        } else {
            Ok(())
        }
    }

    fn regex(&self, pattern: &TemplateValue, text: &str) -> Result<Regex, String> {
        let pattern = pattern.as_text()?;
        self.spend(REGEX_STEPS + text.len() / 64)?;
        RegexBuilder::new(pattern)
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|error| format!("error parsing regexp `{pattern}`: {error}"))
    }
}

type Called = Result<TemplateValue, String>;

/// How a function evaluates its arguments.
#[derive(Clone, Copy)]
pub(super) enum EvaluationMode {
    /// The first argument that is false, or the last; those after it are not evaluated.
    And,
    /// The first argument that is true, or the last.
    Or,
    /// All arguments are evaluated first.
    All(fn(&FunctionContext<'_>, &[TemplateValue]) -> Called),
}

pub(super) struct FunctionEntry {
    pub name: &'static str,
    /// The fewest arguments that it takes.
    pub least: usize,
    /// The most arguments that it takes.
    pub most: usize,
    pub work: EvaluationMode,
}

#[derive(Clone, Copy)]
pub(super) struct TemplateFunction(pub &'static FunctionEntry);

impl std::fmt::Debug for TemplateFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0.name)
    }
}

impl TemplateFunction {
    pub(crate) fn named(name: &str) -> Option<Self> {
        ENTRIES.iter().find(|entry| entry.name == name).map(Self)
    }
}

const MANY: usize = usize::MAX;

const fn entry(
    name: &'static str,
    least: usize,
    most: usize,
    work: fn(&FunctionContext<'_>, &[TemplateValue]) -> Called,
) -> FunctionEntry {
    let work = EvaluationMode::All(work);
    FunctionEntry {
        name,
        least,
        most,
        work,
    }
}

const fn lazy(name: &'static str, work: EvaluationMode) -> FunctionEntry {
    FunctionEntry {
        name,
        least: 1,
        most: MANY,
        work,
    }
}

static ENTRIES: &[FunctionEntry] = &[
    lazy("and", EvaluationMode::And),
    lazy("or", EvaluationMode::Or),
    entry("not", 1, 1, |_, a| Ok(TemplateValue::Bool(!a[0].is_true()))),
    entry("eq", 2, MANY, |_, a| any_equals(a)),
    entry("ne", 2, 2, |_, a| {
        Ok(TemplateValue::Bool(!a[0].equals(&a[1])?))
    }),
    entry("lt", 2, 2, |_, a| compare(a, |order| order.is_lt())),
    entry("le", 2, 2, |_, a| compare(a, |order| order.is_le())),
    entry("gt", 2, 2, |_, a| compare(a, |order| order.is_gt())),
    entry("ge", 2, 2, |_, a| compare(a, |order| order.is_ge())),
    entry("len", 1, 1, |_, a| {
        Ok(TemplateValue::Int(a[0].len()? as i64))
    }),
    entry("index", 1, MANY, |_, a| {
        a[1..]
            .iter()
            .try_fold(a[0].clone(), |of, at| of.element(at))
    }),
    entry("print", 0, MANY, |_, a| Ok(TemplateValue::text(print(a)))),
    entry("println", 0, MANY, |_, a| {
        Ok(TemplateValue::text(print_line(a)))
    }),
    entry("printf", 1, MANY, |_, a| {
        Ok(TemplateValue::text(printf(a[0].as_text()?, &a[1..])?))
    }),
    entry("html", 1, MANY, |_, a| {
        Ok(TemplateValue::text(html(&print(a))))
    }),
    entry("urlquery", 1, MANY, |_, a| Ok(url_escaped(&print(a)))),
    entry("urlQueryEscape", 1, 1, |_, a| {
        Ok(url_escaped(a[0].as_text()?))
    }),
    entry("humanize", 1, 1, |_, a| by_number(a, humanize)),
    entry("humanize1024", 1, 1, |_, a| by_number(a, humanize_1024)),
    entry("humanizeDuration", 1, 1, |_, a| {
        by_number(a, humanize_duration)
    }),
    entry("humanizePercentage", 1, 1, |_, a| {
        by_number(a, humanize_percentage)
    }),
    entry("humanizeTimestamp", 1, 1, |_, a| {
        Ok(TemplateValue::text(humanize_timestamp(a[0].number()?)?))
    }),
    entry("toTime", 1, 1, |_, a| {
        Ok(TemplateValue::Time(time(a[0].number()?)?))
    }),
    entry("toDuration", 1, 1, |_, a| {
        Ok(TemplateValue::Duration((a[0].number()? * 1e9) as i64))
    }),
    entry("now", 0, 0, |around, _| {
        Ok(TemplateValue::Float(around.now as f64 / 1e3))
    }),
    entry("parseDuration", 1, 1, |_, a| parse_duration(a)),
    entry("toUpper", 1, 1, |_, a| by_text(a, |t| t.to_uppercase())),
    entry("toLower", 1, 1, |_, a| by_text(a, |t| t.to_lowercase())),
    entry("title", 1, 1, |_, a| by_text(a, title)),
    entry("safeHtml", 1, 1, |_, a| by_text(a, str::to_owned)),
    entry("match", 2, 2, |around, a| {
        let text = a[1].as_text()?;
        Ok(TemplateValue::Bool(
            around.regex(&a[0], text)?.is_match(text),
        ))
    }),
    entry("reReplaceAll", 3, 3, replace_all),
    entry("stripPort", 1, 1, |_, a| {
        by_text(a, |t| split_port(t).map_or(t, |(host, _)| host).to_owned())
    }),
    entry("stripDomain", 1, 1, |_, a| by_text(a, strip_domain)),
    entry("graphLink", 1, 1, |_, a| by_text(a, graph_link)),
    entry("tableLink", 1, 1, |_, a| by_text(a, table_link)),
    entry("externalURL", 0, 0, |around, _| {
        Ok(TemplateValue::text(around.external_url))
    }),
    entry("pathPrefix", 0, 0, |around, _| {
        Ok(TemplateValue::text(path(around.external_url)))
    }),
    entry("args", 0, MANY, |_, a| args(a)),
    entry("query", 1, 1, query),
    entry("first", 1, 1, |_, a| {
        let first = a[0].list()?.first().cloned();
        first.ok_or_else(|| "first() called on vector with no elements".to_owned())
    }),
    entry("label", 2, 2, |_, a| {
        Ok(TemplateValue::text(a[1].sample()?.0.get(a[0].as_text()?)))
    }),
    entry("value", 1, 1, |_, a| {
        Ok(TemplateValue::Float(a[0].sample()?.1))
    }),
    entry("strvalue", 1, 1, |_, a| {
        Ok(TemplateValue::text(a[0].sample()?.0.get("__value__")))
    }),
    entry("sortByLabel", 2, 2, |_, a| sort_by_label(a)),
];

impl FunctionEntry {
    /// Calls a function that takes all of its arguments.
    pub(crate) fn call(
        &self,
        work: fn(&FunctionContext<'_>, &[TemplateValue]) -> Called,
        around: &FunctionContext<'_>,
        arguments: &[TemplateValue],
    ) -> Called {
        let result =
            work(around, arguments).map_err(|message| format!("{}: {message}", self.name))?;
        if let TemplateValue::Text(text) = &result {
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

fn by_number(arguments: &[TemplateValue], work: fn(f64) -> String) -> Called {
    Ok(TemplateValue::text(work(arguments[0].number()?)))
}

fn by_text(arguments: &[TemplateValue], work: impl Fn(&str) -> String) -> Called {
    Ok(TemplateValue::text(work(arguments[0].as_text()?)))
}

fn any_equals(arguments: &[TemplateValue]) -> Called {
    for other in &arguments[1..] {
        if arguments[0].equals(other)? {
            return Ok(TemplateValue::Bool(true));
        }
    }
    Ok(TemplateValue::Bool(false))
}

fn compare(arguments: &[TemplateValue], holds: fn(std::cmp::Ordering) -> bool) -> Called {
    let order = arguments[0].order(&arguments[1])?;
    Ok(TemplateValue::Bool(order.is_some_and(holds)))
}

fn url_escaped(text: &str) -> TemplateValue {
    let escaped: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    TemplateValue::text(escaped)
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

fn parse_duration(arguments: &[TemplateValue]) -> Called {
    let text = arguments[0].as_text()?;
    let ms = duration_ms(text).ok_or_else(|| format!("{text:?} is not a duration"))?;
    Ok(TemplateValue::Float(ms as f64 / 1e3))
}

/// The first letter of each word becomes a capital; the others stay.
fn title(text: &str) -> String {
    let mut last = ' ';
    let mut out = String::with_capacity(text.len());
    for next in text.chars() {
        let is_inside = last.is_alphanumeric() || last == '_' || last == '\'';
        if is_inside {
            out.push(next)
        } else {
            out.extend(next.to_uppercase())
        }
        last = next;
    }
    out
}

fn replace_all(around: &FunctionContext<'_>, arguments: &[TemplateValue]) -> Called {
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
    Ok(TemplateValue::text(out))
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

/// A map of `arg0`, `arg1`… Maps of maps are refused: nothing needs them, and they could be nested
/// without end.
fn args(arguments: &[TemplateValue]) -> Called {
    if arguments
        .iter()
        .any(|one| matches!(one, TemplateValue::Map(_)))
    {
        return Err("an argument is itself made by args".to_owned());
    }
    let mut pairs: Vec<(Box<str>, TemplateValue)> = arguments
        .iter()
        .enumerate()
        .map(|(at, value)| (format!("arg{at}").into(), value.clone()))
        .collect();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(TemplateValue::Map(pairs.into()))
}

fn query(around: &FunctionContext<'_>, arguments: &[TemplateValue]) -> Called {
    around.spend(QUERY_STEPS)?;
    let found = (around.ask)(arguments[0].as_text()?)?;
    if found.len() > SAMPLES_MAX {
        let count = found.len();
        return Err(format!(
            "{count} samples are more than {SAMPLES_MAX}, the maximum of one template query"
        ));
    }
    let samples = found.into_iter().map(|(labels, value)| {
        TemplateValue::Record(Arc::new(TemplateRecord::Sample { labels, value }))
    });
    Ok(TemplateValue::List(samples.collect()))
}

fn sort_by_label(arguments: &[TemplateValue]) -> Called {
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
    Ok(TemplateValue::List(samples.into()))
}
