//! The functions of a template: those of Go, and those that Prometheus adds.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use egret_metrics_model::TimeMs;
use egret_metrics_model::number::parse_duration_ms;
use regex::{Regex, RegexBuilder};

use super::humanize::{
    graph_link, humanize, humanize_1024, humanize_duration, humanize_percentage,
    humanize_timestamp, table_link, time_from_seconds,
};
use super::print::{print_line, print_values, printf};
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
    pub run_query: Ask<'a>,
    pub external_url: &'a str,
    /// Steps spent so far, out of [`STEPS_MAX`].
    pub steps: Cell<usize>,
}

impl FunctionContext<'_> {
    /// Counts steps against [`STEPS_MAX`].
    pub(crate) fn spend_steps(&self, steps: usize) -> Result<(), String> {
        let spent = self.steps.get().saturating_add(steps);
        self.steps.set(spent);
        if spent > STEPS_MAX {
            Err(format!("more than {STEPS_MAX} steps: simplify the template"))
        } else {
            Ok(())
        }
    }

    fn compile_regex(&self, pattern: &TemplateValue, text: &str) -> Result<Regex, String> {
        let pattern = pattern.as_text()?;
        self.spend_steps(REGEX_STEPS + text.len() / 64)?;
        RegexBuilder::new(pattern)
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|error| format!("error parsing regexp `{pattern}`: {error}"))
    }
}

type CallResult = Result<TemplateValue, String>;

/// How a function evaluates its arguments.
#[derive(Clone, Copy)]
pub(super) enum EvaluationMode {
    /// The first argument that is false, or the last; those after it are not evaluated.
    And,
    /// The first argument that is true, or the last.
    Or,
    /// All arguments are evaluated first.
    All(fn(&FunctionContext<'_>, &[TemplateValue]) -> CallResult),
}

pub(super) struct FunctionEntry {
    pub name: &'static str,
    /// The fewest arguments that it takes.
    pub arguments_min: usize,
    /// The most arguments that it takes.
    pub arguments_max: usize,
    pub evaluation: EvaluationMode,
}

#[derive(Clone, Copy)]
pub(super) struct TemplateFunction(pub &'static FunctionEntry);

impl std::fmt::Debug for TemplateFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0.name)
    }
}

impl TemplateFunction {
    pub(crate) fn find(name: &str) -> Option<Self> {
        ENTRIES.iter().find(|entry| entry.name == name).map(Self)
    }
}

const UNBOUNDED: usize = usize::MAX;

const fn eager_entry(
    name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    function: fn(&FunctionContext<'_>, &[TemplateValue]) -> CallResult,
) -> FunctionEntry {
    let evaluation = EvaluationMode::All(function);
    FunctionEntry { name, arguments_min, arguments_max, evaluation }
}

const fn lazy_entry(name: &'static str, evaluation: EvaluationMode) -> FunctionEntry {
    FunctionEntry { name, arguments_min: 1, arguments_max: UNBOUNDED, evaluation }
}

static ENTRIES: &[FunctionEntry] = &[
    lazy_entry("and", EvaluationMode::And),
    lazy_entry("or", EvaluationMode::Or),
    eager_entry("not", 1, 1, |_, a| Ok(TemplateValue::Bool(!a[0].is_true()))),
    eager_entry("eq", 2, UNBOUNDED, |_, a| equals_any(a)),
    eager_entry("ne", 2, 2, |_, a| Ok(TemplateValue::Bool(!a[0].equals(&a[1])?))),
    eager_entry("lt", 2, 2, |_, a| compare(a, |order| order.is_lt())),
    eager_entry("le", 2, 2, |_, a| compare(a, |order| order.is_le())),
    eager_entry("gt", 2, 2, |_, a| compare(a, |order| order.is_gt())),
    eager_entry("ge", 2, 2, |_, a| compare(a, |order| order.is_ge())),
    eager_entry("len", 1, 1, |_, a| Ok(TemplateValue::Int(a[0].len()? as i64))),
    eager_entry("index", 1, UNBOUNDED, |_, a| {
        a[1..].iter().try_fold(a[0].clone(), |container, index| container.element(index))
    }),
    eager_entry("print", 0, UNBOUNDED, |_, a| Ok(TemplateValue::text(print_values(a)))),
    eager_entry("println", 0, UNBOUNDED, |_, a| Ok(TemplateValue::text(print_line(a)))),
    eager_entry("printf", 1, UNBOUNDED, |_, a| {
        Ok(TemplateValue::text(printf(a[0].as_text()?, &a[1..])?))
    }),
    eager_entry("html", 1, UNBOUNDED, |_, a| {
        Ok(TemplateValue::text(escape_html(&print_values(a))))
    }),
    eager_entry("urlquery", 1, UNBOUNDED, |_, a| Ok(escape_url(&print_values(a)))),
    eager_entry("urlQueryEscape", 1, 1, |_, a| Ok(escape_url(a[0].as_text()?))),
    eager_entry("humanize", 1, 1, |_, a| map_number(a, humanize)),
    eager_entry("humanize1024", 1, 1, |_, a| map_number(a, humanize_1024)),
    eager_entry("humanizeDuration", 1, 1, |_, a| map_number(a, humanize_duration)),
    eager_entry("humanizePercentage", 1, 1, |_, a| map_number(a, humanize_percentage)),
    eager_entry("humanizeTimestamp", 1, 1, |_, a| {
        Ok(TemplateValue::text(humanize_timestamp(a[0].to_number()?)?))
    }),
    eager_entry("toTime", 1, 1, |_, a| {
        Ok(TemplateValue::Time(time_from_seconds(a[0].to_number()?)?))
    }),
    eager_entry("toDuration", 1, 1, |_, a| {
        Ok(TemplateValue::Duration((a[0].to_number()? * 1e9) as i64))
    }),
    eager_entry("now", 0, 0, |context, _| Ok(TemplateValue::Float(context.now as f64 / 1e3))),
    eager_entry("parseDuration", 1, 1, |_, a| parse_duration(a)),
    eager_entry("toUpper", 1, 1, |_, a| map_text(a, |t| t.to_uppercase())),
    eager_entry("toLower", 1, 1, |_, a| map_text(a, |t| t.to_lowercase())),
    eager_entry("title", 1, 1, |_, a| map_text(a, capitalize_words)),
    eager_entry("safeHtml", 1, 1, |_, a| map_text(a, str::to_owned)),
    eager_entry("match", 2, 2, |context, a| {
        let text = a[1].as_text()?;
        Ok(TemplateValue::Bool(context.compile_regex(&a[0], text)?.is_match(text)))
    }),
    eager_entry("reReplaceAll", 3, 3, replace_all),
    eager_entry("stripPort", 1, 1, |_, a| {
        map_text(a, |t| split_port(t).map_or(t, |(host, _)| host).to_owned())
    }),
    eager_entry("stripDomain", 1, 1, |_, a| map_text(a, strip_domain)),
    eager_entry("graphLink", 1, 1, |_, a| map_text(a, graph_link)),
    eager_entry("tableLink", 1, 1, |_, a| map_text(a, table_link)),
    eager_entry("externalURL", 0, 0, |context, _| Ok(TemplateValue::text(context.external_url))),
    eager_entry("pathPrefix", 0, 0, |context, _| {
        Ok(TemplateValue::text(url_path(context.external_url)))
    }),
    eager_entry("args", 0, UNBOUNDED, |_, a| arguments_map(a)),
    eager_entry("query", 1, 1, query_samples),
    eager_entry("first", 1, 1, |_, a| {
        let first = a[0].as_list()?.first().cloned();
        first.ok_or_else(|| "first() called on vector with no elements".to_owned())
    }),
    eager_entry("label", 2, 2, |_, a| {
        Ok(TemplateValue::text(a[1].as_sample()?.0.get(a[0].as_text()?)))
    }),
    eager_entry("value", 1, 1, |_, a| Ok(TemplateValue::Float(a[0].as_sample()?.1))),
    eager_entry("strvalue", 1, 1, |_, a| {
        Ok(TemplateValue::text(a[0].as_sample()?.0.get("__value__")))
    }),
    eager_entry("sortByLabel", 2, 2, |_, a| sort_by_label(a)),
];

impl FunctionEntry {
    /// Calls a function that takes all of its arguments.
    pub(crate) fn call(
        &self,
        function: fn(&FunctionContext<'_>, &[TemplateValue]) -> CallResult,
        context: &FunctionContext<'_>,
        arguments: &[TemplateValue],
    ) -> CallResult {
        let result =
            function(context, arguments).map_err(|message| format!("{}: {message}", self.name))?;
        if let TemplateValue::Text(text) = &result {
            context.spend_steps(text.len() / 64)?;
            if text.len() > OUTPUT_BYTES_MAX {
                let name = self.name;
                return Err(format!("{name}: more than {OUTPUT_BYTES_MAX} bytes of text"));
            }
        }
        Ok(result)
    }
}

fn map_number(arguments: &[TemplateValue], function: fn(f64) -> String) -> CallResult {
    Ok(TemplateValue::text(function(arguments[0].to_number()?)))
}

fn map_text(arguments: &[TemplateValue], function: impl Fn(&str) -> String) -> CallResult {
    Ok(TemplateValue::text(function(arguments[0].as_text()?)))
}

fn equals_any(arguments: &[TemplateValue]) -> CallResult {
    for other in &arguments[1..] {
        if arguments[0].equals(other)? {
            return Ok(TemplateValue::Bool(true));
        }
    }
    Ok(TemplateValue::Bool(false))
}

fn compare(arguments: &[TemplateValue], accepts: fn(std::cmp::Ordering) -> bool) -> CallResult {
    let order = arguments[0].partial_order(&arguments[1])?;
    Ok(TemplateValue::Bool(order.is_some_and(accepts)))
}

fn escape_url(text: &str) -> TemplateValue {
    let escaped: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    TemplateValue::text(escaped)
}

fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

fn parse_duration(arguments: &[TemplateValue]) -> CallResult {
    let text = arguments[0].as_text()?;
    let ms = parse_duration_ms(text).ok_or_else(|| format!("{text:?} is not a duration"))?;
    Ok(TemplateValue::Float(ms as f64 / 1e3))
}

/// The first letter of each word becomes a capital; the others stay.
fn capitalize_words(text: &str) -> String {
    let mut previous = ' ';
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let is_inside = previous.is_alphanumeric() || previous == '_' || previous == '\'';
        if is_inside {
            out.push(character)
        } else {
            out.extend(character.to_uppercase())
        }
        previous = character;
    }
    out
}

fn replace_all(context: &FunctionContext<'_>, arguments: &[TemplateValue]) -> CallResult {
    let (replacement, text) = (arguments[1].as_text()?, arguments[2].as_text()?);
    let regex = context.compile_regex(&arguments[0], text)?;
    let mut output = String::new();
    let mut copied_until = 0;
    for captures in regex.captures_iter(text) {
        let matched = captures.get_match();
        if matched.len().saturating_mul(replacement.len()) > REPLACEMENT_BYTES_MAX {
            return Err("the replacement is too long".to_owned());
        }
        output.push_str(&text[copied_until..matched.start()]);
        captures.expand(replacement, &mut output);
        copied_until = matched.end();
        if output.len() > OUTPUT_BYTES_MAX {
            return Err(format!("more than {OUTPUT_BYTES_MAX} bytes of text"));
        }
    }
    output.push_str(&text[copied_until..]);
    Ok(TemplateValue::text(output))
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
fn url_path(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    let path = after.find('/').map_or("", |at| &after[at..]);
    path.split(['?', '#']).next().unwrap_or(path)
}

/// A map of `arg0`, `arg1`… Maps of maps are refused: nothing needs them, and they could be nested
/// without end.
fn arguments_map(arguments: &[TemplateValue]) -> CallResult {
    if arguments.iter().any(|one| matches!(one, TemplateValue::Map(_))) {
        return Err("an argument is itself made by args".to_owned());
    }
    let mut pairs: Vec<(Box<str>, TemplateValue)> = arguments
        .iter()
        .enumerate()
        .map(|(index, value)| (format!("arg{index}").into(), value.clone()))
        .collect();
    pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(TemplateValue::Map(pairs.into()))
}

fn query_samples(context: &FunctionContext<'_>, arguments: &[TemplateValue]) -> CallResult {
    context.spend_steps(QUERY_STEPS)?;
    let rows = (context.run_query)(arguments[0].as_text()?)?;
    if rows.len() > SAMPLES_MAX {
        let count = rows.len();
        return Err(format!(
            "{count} samples are more than {SAMPLES_MAX}, the maximum of one template query"
        ));
    }
    let samples = rows.into_iter().map(|(labels, value)| {
        TemplateValue::Record(Arc::new(TemplateRecord::Sample { labels, value }))
    });
    Ok(TemplateValue::List(samples.collect()))
}

fn sort_by_label(arguments: &[TemplateValue]) -> CallResult {
    let name = arguments[0].as_text()?;
    let mut samples = arguments[1].as_list()?.to_vec();
    for sample in &samples {
        sample.as_sample()?;
    }
    samples.sort_by_cached_key(|sample| {
        let labels = sample.as_sample().map(|(labels, _)| labels.get(name).to_owned());
        labels.unwrap_or_default()
    });
    Ok(TemplateValue::List(samples.into()))
}
