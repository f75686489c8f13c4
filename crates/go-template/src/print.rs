//! How Go writes values: `print`, and `printf` with its verbs, flags, width and precision.

use std::fmt::Write;

use egret_metrics_model::number::format_short_number;
use egret_metrics_model::{Labels, TimeMs};

use super::OUTPUT_BYTES_MAX;
use super::value::{TemplateRecord, TemplateValue};

/// Maximum width and precision.
const WIDTH_MAX: usize = 4_096;

/// Writes a value as `%v` does. Stops soon after the maximum size of a template's output.
pub(super) fn format_value(value: &TemplateValue) -> String {
    let mut out = String::new();
    append_value(value, &mut out);
    out
}

fn append_value(value: &TemplateValue, out: &mut String) {
    if out.len() > OUTPUT_BYTES_MAX {
        return;
    }
    match value {
        TemplateValue::Nil => out.push_str("<no value>"),
        TemplateValue::Bool(value) => out.push_str(&value.to_string()),
        TemplateValue::Int(value) => out.push_str(&value.to_string()),
        TemplateValue::Float(value) => out.push_str(&format_short_number(*value)),
        TemplateValue::Text(text) => out.push_str(text),
        TemplateValue::Labels(labels) => append_labels(labels, out),
        TemplateValue::List(list) => {
            out.push('[');
            for (index, value) in list.iter().enumerate() {
                out.push_str(if index > 0 { " " } else { "" });
                append_value(value, out);
            }
            out.push(']');
        }
        TemplateValue::Map(pairs) => {
            out.push_str("map[");
            for (at, (key, value)) in pairs.iter().enumerate() {
                out.push_str(if at > 0 { " " } else { "" });
                out.push_str(key);
                out.push(':');
                append_value(value, out);
            }
            out.push(']');
        }
        TemplateValue::Record(record) => {
            out.push('{');
            let value = match &**record {
                TemplateRecord::Sample { labels, value } => {
                    append_labels(labels, out);
                    *value
                }
                TemplateRecord::Subject(subject) => {
                    append_labels(&subject.labels, out);
                    out.push(' ');
                    append_labels(&subject.external_labels, out);
                    out.push(' ');
                    out.push_str(&subject.external_url);
                    subject.value
                }
            };
            out.push(' ');
            out.push_str(&format_short_number(value));
            out.push('}');
        }
        TemplateValue::Time(time) => out.push_str(&format_time(*time)),
        TemplateValue::Duration(nanos) => out.push_str(&format_duration(*nanos)),
    }
}

fn append_labels(labels: &Labels, out: &mut String) {
    out.push_str("map[");
    for (index, (name, value)) in labels.iter().enumerate() {
        out.push_str(if index > 0 { " " } else { "" });
        out.push_str(name);
        out.push(':');
        out.push_str(value);
    }
    out.push(']');
}

/// Prints a time as Go's `Time.String`, in UTC.
pub(super) fn format_time(time: TimeMs) -> String {
    let Ok(moment) = jiff::Timestamp::from_millisecond(time) else {
        return format!("{time} ms");
    };
    let fraction = match time.rem_euclid(1_000) {
        0 => String::new(),
        ms => format!(".{ms:03}").trim_end_matches('0').to_owned(),
    };
    format!("{}{fraction} +0000 UTC", moment.strftime("%Y-%m-%d %H:%M:%S"))
}

/// Writes a duration as Go's `Duration.String`: `1h0m0.5s`, below a second `1.5ms`.
fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    if magnitude == 0 {
        return "0s".to_owned();
    }
    for (unit, name) in [(1, "ns"), (1_000, "µs"), (1_000_000, "ms")] {
        if magnitude < unit * 1_000 {
            return format!("{sign}{}{name}", magnitude as f64 / unit as f64);
        }
    }
    let minutes = magnitude / 60_000_000_000;
    let seconds = (magnitude % 60_000_000_000) as f64 / 1e9;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Prints values as `print` does: with a space between two operands that are both not text.
pub(super) fn print_values(values: &[TemplateValue]) -> String {
    let mut text = String::new();
    for (index, value) in values.iter().enumerate() {
        let is_text = |value: &TemplateValue| matches!(value, TemplateValue::Text(_));
        if index > 0 && !is_text(value) && !is_text(&values[index - 1]) {
            text.push(' ');
        }
        append_value(value, &mut text);
    }
    text
}

/// Prints values as `println` does.
pub(super) fn print_line(values: &[TemplateValue]) -> String {
    let mut text = String::new();
    for (index, value) in values.iter().enumerate() {
        text.push_str(if index > 0 { " " } else { "" });
        append_value(value, &mut text);
    }
    text + "\n"
}

/// Flags, width and precision of a verb.
#[derive(Default)]
struct Directive {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Directive {
    fn parse(rest: &mut &str) -> Self {
        let mut directive = Self::default();
        while let Some(flag) = rest.chars().next() {
            match flag {
                '+' => directive.plus = true,
                '-' => directive.minus = true,
                '#' => directive.sharp = true,
                ' ' => directive.space = true,
                '0' => directive.zero = true,
                _ => break,
            }
            *rest = &rest[1..];
        }
        let number = |rest: &mut &str| {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
            *rest = after;
            let number = digits.parse::<usize>().unwrap_or(WIDTH_MAX);
            (!digits.is_empty()).then_some(number.min(WIDTH_MAX))
        };
        directive.width = number(rest);
        if let Some(after) = rest.strip_prefix('.') {
            *rest = after;
            directive.precision = Some(number(rest).unwrap_or(0));
        }
        directive
    }

    /// Puts the sign before digits and fills up to the width.
    fn with_sign_and_width(&self, is_negative: bool, digits: &str) -> String {
        let sign = if is_negative {
            "-"
        } else if self.plus {
            "+"
        } else if self.space {
            " "
        } else {
            ""
        };
        let is_finite = digits.starts_with(|c: char| c.is_ascii_hexdigit());
        let zeros = match self.width {
            Some(width) if self.zero && !self.minus && is_finite => {
                width.saturating_sub(sign.len() + digits.len())
            }
            _ => 0,
        };
        self.pad(&format!("{sign}{}{digits}", "0".repeat(zeros)))
    }

    fn pad(&self, text: &str) -> String {
        let missing = self.width.map_or(0, |width| width.saturating_sub(text.chars().count()));
        let fill = " ".repeat(missing);
        if self.minus { format!("{text}{fill}") } else { format!("{fill}{text}") }
    }

    fn format_float(&self, verb: char, value: f64) -> String {
        let digits = match value.abs() {
            _ if value.is_nan() => "NaN".to_owned(),
            size if size.is_infinite() && !self.plus && value > 0.0 => return self.pad("+Inf"),
            size if size.is_infinite() => "Inf".to_owned(),
            size => match (verb.to_ascii_lowercase(), self.precision) {
                ('f', precision) => format!("{size:.*}", precision.unwrap_or(6)),
                ('e', precision) => format_exponential(size, precision.unwrap_or(6)),
                (_, None) => format_short_number(size),
                (_, Some(precision)) => format_general(size, precision),
            },
        };
        let digits = if verb.is_ascii_uppercase() { digits.to_ascii_uppercase() } else { digits };
        self.with_sign_and_width(value.is_sign_negative() && !value.is_nan(), &digits)
    }

    fn format_integer(&self, verb: char, value: i64) -> Option<String> {
        let magnitude = value.unsigned_abs();
        let prefix = |text: &'static str| if self.sharp { text } else { "" };
        let digits = match verb {
            'd' | 'v' => magnitude.to_string(),
            'x' => format!("{}{magnitude:x}", prefix("0x")),
            'X' => format!("{}{magnitude:X}", prefix("0X")),
            'o' => format!("{}{magnitude:o}", prefix("0")),
            'b' => format!("{magnitude:b}"),
            'c' | 'q' => {
                let character = u32::try_from(value)
                    .ok()
                    .and_then(char::from_u32)
                    .unwrap_or(char::REPLACEMENT_CHARACTER);
                return Some(self.pad(&match verb {
                    'c' => character.to_string(),
                    _ => format!("'{character}'"),
                }));
            }
            'U' => return Some(self.pad(&format!("U+{magnitude:04X}"))),
            _ => return None,
        };
        let digits_min = self.precision.unwrap_or(0);
        let zeros = "0".repeat(digits_min.saturating_sub(digits.len()));
        Some(self.with_sign_and_width(value < 0, &format!("{zeros}{digits}")))
    }

    fn format_string(&self, verb: char, text: &str) -> Option<String> {
        let truncate = |text: &str| match self.precision {
            Some(characters) => text.chars().take(characters).collect(),
            None => text.to_owned(),
        };
        Some(match verb {
            's' | 'v' => self.pad(&truncate(text)),
            'q' if self.sharp && !text.contains('`') => self.pad(&format!("`{}`", truncate(text))),
            'q' => self.pad(&quote(&truncate(text))),
            'x' | 'X' => {
                let mut hex = String::with_capacity(text.len() * 2);
                for byte in text.bytes() {
                    let result = match verb {
                        'x' => write!(hex, "{byte:02x}"),
                        _ => write!(hex, "{byte:02X}"),
                    };
                    result.expect("a string takes whatever is written");
                }
                self.pad(&hex)
            }
            _ => return None,
        })
    }

    /// Formats one operand; none if the verb does not apply to it.
    fn format_operand(&self, verb: char, value: &TemplateValue) -> Option<String> {
        match (verb, value) {
            ('T', _) => Some(self.pad(value.type_name())),
            (_, TemplateValue::Float(number)) => match verb {
                'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'v' => Some(self.format_float(verb, *number)),
                _ => None,
            },
            ('v' | 's', TemplateValue::Duration(_) | TemplateValue::Time(_)) => {
                Some(self.pad(&format_value(value)))
            }
            (_, TemplateValue::Int(number) | TemplateValue::Duration(number)) => {
                self.format_integer(verb, *number)
            }
            (_, TemplateValue::Text(text)) => self.format_string(verb, text),
            ('t' | 'v', TemplateValue::Bool(value)) => Some(self.pad(&value.to_string())),
            ('v', TemplateValue::Nil) => Some(self.pad("<nil>")),
            (_, TemplateValue::Bool(_) | TemplateValue::Nil) => None,
            ('v' | 's', _) => Some(self.pad(&format_value(value))),
            _ => None,
        }
    }
}

/// Digits of a number with an exponent of at least two digits.
fn format_exponential(magnitude: f64, precision: usize) -> String {
    let text = format!("{magnitude:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').expect("`e` is what `:e` writes");
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `%g` with a number of significant digits.
pub(super) fn format_general(magnitude: f64, precision: usize) -> String {
    let precision = precision.clamp(1, WIDTH_MAX);
    let text = format_exponential(magnitude, precision - 1);
    let (mantissa, exponent) = text.split_once('e').expect("it was written with one");
    let power: i64 = exponent.parse().expect("an exponent is a whole number");
    let trim_zeros = |digits: &str| {
        if digits.contains('.') {
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            digits.to_owned()
        }
    };
    if power < -4 || power >= precision as i64 {
        return format!("{}e{exponent}", trim_zeros(mantissa));
    }
    let decimals = usize::try_from(precision as i64 - 1 - power).unwrap_or(0);
    trim_zeros(&format!("{magnitude:.decimals$}"))
}

/// A string with Go's quotes and escapes.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character.is_control() && u32::from(character) < 0x80 => {
                write!(out, "\\x{:02x}", u32::from(character))
                    .expect("a string takes whatever is written");
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

/// Formats values as `printf` does; mismatches become text such as `%!d(MISSING)`, as in Go.
///
/// # Errors
/// When the text would be longer than a template's output may be.
pub(super) fn printf(format: &str, values: &[TemplateValue]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = format;
    let mut operands = values.iter();
    while let Some(percent) = rest.find('%') {
        out.push_str(&rest[..percent]);
        rest = &rest[percent + 1..];
        let directive = Directive::parse(&mut rest);
        let Some(verb) = rest.chars().next() else {
            out.push_str("%!(NOVERB)");
            break;
        };
        rest = &rest[verb.len_utf8()..];
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = operands.next() else {
            out.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        match directive.format_operand(verb, value) {
            Some(text) => out.push_str(&text),
            None => {
                out.push_str(&format!("%!{verb}({}={})", value.type_name(), format_value(value)))
            }
        }
        if out.len() > OUTPUT_BYTES_MAX {
            return Err(format!("printf writes more than {OUTPUT_BYTES_MAX} bytes"));
        }
    }
    out.push_str(rest);
    let extra: Vec<String> =
        operands.map(|value| format!("{}={}", value.type_name(), format_value(value))).collect();
    if !extra.is_empty() {
        out.push_str(&format!("%!(EXTRA {})", extra.join(", ")));
    }
    Ok(out)
}
