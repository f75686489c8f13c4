//! Names of OpenTelemetry as names of Prometheus: what is not a letter, digit or underscore becomes
//! one, units and `_total` are appended. This is Prometheus's default,
//! `UnderscoreEscapingWithSuffixes`.
//!
//! Rules: opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics, and the units
//! as Prometheus 3 translates them.

/// As far as a metric's name depends on what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedKind {
    Gauge,
    Counter,
    Other,
}

fn unit_word(unit: &str) -> &str {
    match unit {
        "d" => "days",
        "h" => "hours",
        "min" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        "By" => "bytes",
        "KiBy" => "kibibytes",
        "MiBy" => "mebibytes",
        "GiBy" => "gibibytes",
        // Not a word, but the one that Prometheus writes.
        "TiBy" => "tibibytes",
        "KBy" => "kilobytes",
        "MBy" => "megabytes",
        "GBy" => "gigabytes",
        "TBy" => "terabytes",
        "m" => "meters",
        "V" => "volts",
        "A" => "amperes",
        "J" => "joules",
        "W" => "watts",
        "g" => "grams",
        "Cel" => "celsius",
        "Hz" => "hertz",
        "1" => "",
        "%" => "percent",
        other => other,
    }
}

fn per_unit_word(unit: &str) -> &str {
    match unit {
        "s" => "second",
        "m" => "minute",
        "h" => "hour",
        "d" => "day",
        "w" => "week",
        "mo" => "month",
        "y" => "year",
        other => other,
    }
}

fn is_metric_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == ':'
}

/// Runs of what may not be in a name, and of underscores, become one underscore; none is at the
/// start.
fn clean_unit(unit: &str) -> String {
    let mut out = String::new();
    for letter in unit.chars() {
        match is_metric_letter(letter) {
            true => out.push(letter),
            false if !out.is_empty() && !out.ends_with('_') => out.push('_'),
            false => {}
        }
    }
    out
}

/// The words of a unit: what is measured, and per what.
fn unit_words(unit: &str) -> (String, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    // What is in braces is an annotation.
    let is_not_annotation = |part: &str| !part.contains(['{', '}']);
    let (main, per) = (main.trim(), per.trim());
    let main = if is_not_annotation(main) { clean_unit(unit_word(main)) } else { String::new() };
    let per = if is_not_annotation(per) { clean_unit(per_unit_word(per)) } else { String::new() };
    let per = per.trim_end_matches('_');
    let per = if per.is_empty() { String::new() } else { format!("per_{per}") };
    (main, per)
}

/// What a metric is measured in, in words.
pub(crate) fn unit_name(unit: &str) -> String {
    let (main, per) = unit_words(unit);
    let words = [main.trim_matches('_'), &per];
    let present_words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    present_words.join("_")
}

/// The metric's name; `None` when nothing is left of it.
pub(crate) fn metric_name(name: &str, unit: &str, kind: NamedKind) -> Option<String> {
    let mut words: Vec<&str> =
        name.split(|letter| !is_metric_letter(letter)).filter(|word| !word.is_empty()).collect();
    let (main, per) = unit_words(unit);
    let main = if words.contains(&main.as_str()) {
        ""
    } else if !per.is_empty() {
        main.trim_end_matches('_')
    } else {
        &main
    };
    let per = if words.contains(&per.as_str()) { "" } else { &per };
    words.extend([main, per].into_iter().filter(|word| !word.is_empty()));
    let suffix = match kind {
        NamedKind::Counter => Some("total"),
        // Counters of things say "1" too; only of a gauge it means a ratio.
        NamedKind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(suffix) = suffix {
        words.retain(|word| *word != suffix);
        words.push(suffix);
    }
    let mut joined = words.join("_");
    if joined.starts_with(|first: char| first.is_ascii_digit()) {
        joined.insert(0, '_');
    }
    (!joined.is_empty()).then_some(joined)
}

/// An attribute's name as a label's; `None` when nothing is left of it.
pub(crate) fn label_name(name: &str) -> Option<String> {
    let to_label_char = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '_',
    };
    let out: String = name.chars().map(to_label_char).collect();
    if out != name && out.bytes().all(|byte| byte == b'_') || out.is_empty() {
        return None;
    }
    match out.as_bytes() {
        [b'0'..=b'9', ..] => Some(format!("key_{out}")),
        [b'_', next, ..] if *next != b'_' => Some(format!("key{out}")),
        _ => Some(out),
    }
}
