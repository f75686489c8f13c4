//! What is printed: text and tables for people, JSON for programs, a spinner while one waits.

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use comfy_table::presets::NOTHING;
use comfy_table::{ContentLineStyle, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value as Json;

use crate::cli::Color;
use crate::failure::Failure;

const BOLD: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// What is said below a list of things in databases that may lack some.
pub(crate) const INCOMPLETE_NOTE: &str =
    "\nthere may be others: some databases accept no session, see `egret check`";

/// Where and how a command prints.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// Decides about colours for the whole process.
    pub fn new(json: bool, color: Color) -> Self {
        let choice = match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
        Self { json }
    }

    /// Prints an answer: as it came with `--json`, else as `text` makes it.
    ///
    /// # Errors
    /// When the answer is not of the form expected, or standard output fails.
    pub(crate) fn print_answer<T: for<'de> serde::Deserialize<'de>>(
        &self,
        answer: &Json,
        text: impl FnOnce(T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            return self.print_json(answer);
        }
        self.print_text(&text(decode(answer)?))
    }

    /// Whether JSON is to be printed.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a value as JSON.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).expect("answers have text for keys");
        self.print_text(&text)
    }

    /// Prints a value as JSON on one line, where one comes after the other.
    pub(crate) fn print_json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.print_text(&serde_json::to_string(value).expect("answers have text for keys"))
    }

    /// Prints text, ending it with one newline.
    ///
    /// # Errors
    /// When standard output fails; a reader that has had enough (`| head`) is no failure.
    pub(crate) fn print_text(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = anstream::stdout().lock();
        let written =
            writeln!(stdout, "{}", text.trim_end_matches('\n')).and_then(|()| stdout.flush());
        ignore_broken_pipe(written)
    }

    /// Prints one part of an output that comes in parts, as it is.
    pub(crate) fn write_chunk(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        ignore_broken_pipe(stdout.write_all(bytes).and_then(|()| stdout.flush()))
    }

    /// Prints bytes as they are; text gets a newline at its end where it has none.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let lacks_newline = !bytes.ends_with(b"\n") && std::str::from_utf8(bytes).is_ok();
        let end: &[u8] = if lacks_newline { b"\n" } else { b"" };
        let written = stdout.write_all(bytes).and_then(|()| stdout.write_all(end));
        ignore_broken_pipe(written.and_then(|()| stdout.flush()))
    }

    /// Prints a part of a story as it happens: text for people on standard output; with `--json`
    /// a remark, for one answer is all that a program expects there.
    pub(crate) fn print_story(&self, text: &str) -> Result<(), Failure> {
        if self.json {
            self.print_remark(text);
            return Ok(());
        }
        tracing_indicatif::suspend_tracing_indicatif(|| self.print_text(text))
    }

    /// Prints a remark to standard error, where it does not get into a program's way.
    pub(crate) fn print_remark(&self, text: &str) {
        // A bar that is being drawn makes room.
        tracing_indicatif::suspend_tracing_indicatif(|| {
            // Nothing sensible is left to do when standard error is gone.
            let _ = writeln!(anstream::stderr(), "{text}");
        });
    }

    /// Prints why the command failed.
    pub(crate) fn print_failure(&self, failure: &Failure) {
        if self.json {
            let text =
                serde_json::to_string_pretty(&failure.to_json()).expect("a failure is plain text");
            self.print_remark(&text);
            return;
        }
        self.print_remark(&format!("{ERROR}error:{ERROR:#} {}", failure.message));
        if let Some(hint) = &failure.hint {
            self.print_remark(&format!(" {HINT}hint:{HINT:#} {hint}"));
        }
        if let Some(id) = &failure.request_id {
            self.print_remark(&format!(" request {id}"));
        }
    }

    /// Waits for long work with a spinner on standard error, when that is a terminal.
    pub(crate) async fn wait_with_spinner<T>(
        &self,
        message: &str,
        work: impl Future<Output = T>,
    ) -> T {
        if !io::stderr().is_terminal() {
            return work.await;
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
            .expect("the template is a constant that parses");
        let spinner = ProgressBar::new_spinner().with_style(style).with_message(message.to_owned());
        spinner.enable_steady_tick(Duration::from_millis(100));
        let result = work.await;
        spinner.finish_and_clear();
        result
    }
}

/// A reader that has had enough is no failure.
fn ignore_broken_pipe(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed("output", format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Reads an answer as the type it should be.
///
/// # Errors
/// When it is not: client and server are then of different versions.
pub(crate) fn decode<T: for<'de> serde::Deserialize<'de>>(answer: &Json) -> Result<T, Failure> {
    T::deserialize(answer).map_err(|error| {
        Failure::failed("unexpected_answer", format!("unexpected response of the server: {error}"))
            .with_hint(
                "use the same version of Egret for client and server; --json shows the unparsed \
             response",
            )
    })
}

/// A listing: a bold head, columns apart by spaces.
pub(crate) fn listing(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().map(|name| name.to_uppercase()));
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.trim_fmt();
    match lines.split_once('\n') {
        Some((head, rows)) => format!("{BOLD}{head}{BOLD:#}\n{rows}"),
        None => format!("{BOLD}{lines}{BOLD:#}"),
    }
}

/// Names with their values, one a line; values that are empty are left out.
pub(crate) fn format_fields(facts: &[(&str, String)]) -> String {
    let nonempty = || facts.iter().filter(|(_, value)| !value.is_empty());
    let width = nonempty().map(|(name, _)| name.len()).max().unwrap_or(0);
    nonempty().map(|(name, value)| format!("{BOLD}{name:width$}{BOLD:#}  {value}\n")).collect()
}

const GRID: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction('|'))
    .header_separator(LineStyle::none().fill('-').junction('+'))
    .content_lines(ContentLineStyle::none().junction('|'));

/// Rows of a query, as psql shows them.
pub(crate) fn grid(head: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(GRID).set_header(head);
    table.add_rows(rows);
    table.trim_fmt()
}

/// A length of time by its two largest units: `2h 5min`.
pub(crate) fn format_duration(ms: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    let Some(largest) = UNITS.iter().position(|(_, unit)| ms >= *unit) else {
        return format!("{ms}ms");
    };
    let (name, unit) = UNITS[largest];
    let mut text = format!("{}{name}", ms / unit);
    if let Some((name, smaller)) = UNITS.get(largest + 1)
        && ms % unit >= *smaller
    {
        text.push_str(&format!(" {}{name}", ms % unit / smaller));
    }
    text
}

/// Data must not steer the terminal: control characters are shown, not sent.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => c.to_string(),
            '\t' => "    ".to_owned(),
            c if c.is_control() => c.escape_default().to_string(),
            c => c.to_string(),
        })
        .collect()
}

/// A number of bytes with one decimal: `1.4 GB` (powers of 1024, as PostgreSQL counts).
pub(crate) fn format_bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests;
