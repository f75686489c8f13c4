//! How a value with its unit is written for people: three digits that matter, and the prefix that
//! keeps them few.

/// A value of a metric's unit, e.g. `4.21 ms`, `312 µs`, `1,240/s`, `41.7 MB`.
pub(crate) fn format_quantity(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    match unit {
        "ms" => format_scaled(value, &[(1e3, " s"), (1.0, " ms"), (1e-3, " µs"), (1e-6, " ns")]),
        "us" => format_quantity(value / 1e3, "ms"),
        "bytes" => format_scaled(
            value,
            &[(1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")],
        ),
        "1/s" => format!("{}/s", format_number(value)),
        "ratio" => format!("{value:.3}"),
        "count" => format_number(value),
        other => format!("{} {}", format_number(value), printable(other)),
    }
}

/// With the largest prefix that leaves at least one before the point; zero with the unit itself.
fn format_scaled(value: f64, prefixes: &[(f64, &str)]) -> String {
    // What rounds up to a full thousand belongs to the next prefix.
    let fits = |(size, _): &&(f64, &str)| value.abs() >= size * 0.9995;
    let unprefixed = prefixes.iter().find(|(size, _)| *size == 1.0);
    let prefix =
        if value == 0.0 { unprefixed } else { prefixes.iter().find(fits).or(prefixes.last()) };
    let (size, name) = prefix.unwrap_or(&(1.0, ""));
    match value / size {
        0.0 => format!("0{name}"),
        bytes if *name == " B" => format!("{}{name}", format_number(bytes)),
        number => format!("{}{name}", format_significant(number)),
    }
}

/// Three digits, more before the point, with commas between thousands; whole numbers stay whole.
pub fn format_number(value: f64) -> String {
    if value == value.trunc() { format_grouped(value) } else { format_significant(value) }
}

/// Three digits, more before the point.
fn format_significant(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format_grouped(value.round()),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        size if size >= 0.00095 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

fn format_grouped(value: f64) -> String {
    let plain_digits = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(plain_digits.len() + plain_digits.len() / 3 + 1);
    if value < 0.0 {
        text.push('-');
    }
    for (index, digit) in plain_digits.chars().enumerate() {
        if index > 0 && (plain_digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A value as an axis names it: without the zeros that a table keeps, `2.5 s` and `10 ms`.
pub(crate) fn format_tick(value: f64, unit: &str) -> String {
    if unit == "percent" {
        return format_change(value).replace(".0%", "%");
    }
    let text = match unit {
        "ratio" | "count" => format_plain(value),
        _ => format_quantity(value, unit),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '-'))
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if number.contains('.') {
        let number = number.trim_end_matches('0').trim_end_matches('.');
        return format!("{number}{rest}");
    }
    text
}

/// A number with at most four digits behind the point.
fn format_plain(value: f64) -> String {
    if value.abs() >= 1_000.0 {
        return format_number(value.round());
    }
    format!("{value:.4}")
}

/// A ratio as a change: `+9.8%`, `−0.4%`; as a factor where a percentage would be hard to read.
pub(crate) fn format_change(ratio: f64) -> String {
    if !ratio.is_finite() || ratio <= 0.0 {
        return "–".to_owned();
    }
    if !(0.2..5.0).contains(&ratio) {
        return format!("×{}", format_number(ratio));
    }
    let percent = (ratio - 1.0) * 100.0;
    let text = format!("{:.1}%", percent.abs());
    match percent {
        _ if text == "0.0%" => text,
        percent if percent < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// Text of a file without what a terminal would take for a command.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// At most `width` characters, the last one `…` where something is missing.
pub fn truncate(text: &str, width: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= width {
        return text;
    }
    let mut shorter: String = text.chars().take(width.saturating_sub(1)).collect();
    shorter.push('…');
    shorter
}

#[cfg(test)]
mod tests;
