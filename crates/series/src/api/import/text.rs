//! Imports of texts that are read while they come in.

use std::sync::Arc;

use egret_metrics_model::TimeMs;
use egret_metrics_wire::WireError;
use egret_metrics_wire::exposition::{TextFormat, TextItem, TextReader};
use egret_metrics_wire::json_lines::JsonLine;
use egret_metrics_wire::table::TableColumns;

use super::{Batch, LINE_BYTES_MAX, parse_utf8};
use crate::api::Series;
use crate::api::write::{WriteCounts, WrittenValue};
use crate::core::metadata::{Describe, Description, MetadataLines};
use crate::error::SeriesError;

/// So much of a text is read together, if there is so much.
const PIECE_BYTES: usize = 1 << 20;

/// The forms that a text may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// Prometheus's text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics text format, version 1.0.
    OpenMetrics,
    /// CSV, as [`egret_metrics_wire::table`] reads it.
    Csv,
    /// JSON lines, as [`egret_metrics_wire::json_lines`] reads them.
    JsonLines,
}

/// A text that is being taken in.
pub struct Import {
    series: Series,
    format: ImportFormat,
    now_ms: TimeMs,
    /// Text that has not been read yet.
    unread: Vec<u8>,
    /// Lines that were read.
    lines: u64,
    columns: Option<TableColumns>,
    /// Whether OpenMetrics has said that it is whole.
    has_ended: bool,
    counts: WriteCounts,
}

impl ImportFormat {
    /// The name of each.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("prometheus", Self::Prometheus),
        ("openmetrics", Self::OpenMetrics),
        ("csv", Self::Csv),
        ("jsonl", Self::JsonLines),
    ];

    /// The format with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        let entry = names.find(|(known, _)| *known == name);
        entry.map(|(_, format)| *format)
    }

    /// End of the last complete line.
    fn find_complete_end(self, text: &[u8]) -> Option<usize> {
        if self != Self::Csv {
            return text.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        }
        // Between quotes, a newline ends no row.
        let (mut is_quoted, mut end) = (false, None);
        for (index, byte) in text.iter().enumerate() {
            match byte {
                b'"' => is_quoted = !is_quoted,
                b'\n' if !is_quoted => end = Some(index + 1),
                _ => {}
            }
        }
        end
    }
}

impl Import {
    /// Begins to take a text in. Samples without a time are of now.
    pub fn new(series: Series, format: ImportFormat) -> Self {
        Self {
            now_ms: series.now_ms(),
            series,
            format,
            unread: Vec::new(),
            lines: 0,
            columns: None,
            has_ended: false,
            counts: WriteCounts::default(),
        }
    }

    /// Takes in what came next.
    ///
    /// # Errors
    /// [`SeriesError::Wire`] for what is no such text or has a line that is too long, and those of
    /// writing. What was taken in before stays. Lines that cannot be read are counted.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), SeriesError> {
        self.unread.extend_from_slice(bytes);
        if self.unread.len() < PIECE_BYTES {
            return Ok(());
        }
        let Some(end) = self.format.find_complete_end(&self.unread) else {
            let checked = LINE_BYTES_MAX.check(self.unread.len() as u64);
            return Ok(checked.map_err(WireError::from)?);
        };
        let incomplete = self.unread.split_off(end);
        let piece = std::mem::replace(&mut self.unread, incomplete);
        self.read_piece(&piece).await
    }

    /// Takes in the last of it, and tells what became of the samples.
    ///
    /// # Errors
    /// As [`Import::push`].
    pub async fn finish(mut self) -> Result<WriteCounts, SeriesError> {
        let piece = std::mem::take(&mut self.unread);
        self.read_piece(&piece).await?;
        if self.format == ImportFormat::OpenMetrics && !self.has_ended {
            let reason = "the text does not end with # EOF: it is truncated";
            self.counts.rejected.add(0, reason);
        }
        Ok(self.counts)
    }

    async fn read_piece(&mut self, piece: &[u8]) -> Result<(), SeriesError> {
        let series = self.series.clone();
        let mut batch = Batch::new(&series);
        match self.format {
            ImportFormat::Prometheus => {
                self.read_text(piece, TextFormat::Prometheus, &mut batch).await?;
            }
            ImportFormat::OpenMetrics => {
                self.read_text(piece, TextFormat::OpenMetrics, &mut batch).await?;
            }
            ImportFormat::Csv => self.read_rows(piece, &mut batch).await?,
            ImportFormat::JsonLines => self.read_lines(piece, &mut batch).await?,
        }
        self.counts.merge(batch.finish().await?);
        Ok(())
    }

    async fn read_text(
        &mut self,
        piece: &[u8],
        format: TextFormat,
        batch: &mut Batch<'_>,
    ) -> Result<(), SeriesError> {
        let mut reader = TextReader::new(parse_utf8(piece, "text")?, format);
        let mut metadata_lines = MetadataLines::default();
        let series = self.series.clone();
        let describe = &mut |description: Description<'_>| drop(series.describe(description));
        while let Some(item) = reader.next() {
            match item {
                Ok(TextItem::Sample { labels, value, time_ms }) => {
                    let pairs = labels.iter().map(|(name, value)| (&**name, &**value));
                    if let Some(labels) = batch.check_labels(pairs.collect(), 1) {
                        batch.add(labels, time_ms.unwrap_or(self.now_ms), value).await?;
                    }
                }
                Ok(item) => metadata_lines.add_item(item, describe),
                Err(mut error) => {
                    error.line += self.lines;
                    batch.counts.rejected.add(1, error);
                }
            }
        }
        metadata_lines.finish(describe);
        self.has_ended |= reader.has_ended();
        self.lines += reader.lines_read();
        Ok(())
    }

    async fn read_rows(&mut self, piece: &[u8], batch: &mut Batch<'_>) -> Result<(), SeriesError> {
        let mut rows = csv::ReaderBuilder::new();
        let mut rows = rows.has_headers(false).flexible(true).from_reader(piece);
        let mut row = csv::StringRecord::new();
        loop {
            let line = self.lines + rows.position().line();
            match rows.read_record(&mut row) {
                Ok(false) => break,
                Ok(true) => {}
                Err(error) => {
                    batch.counts.rejected.add(1, format_args!("line {line}: {error}"));
                    continue;
                }
            }
            let Some(columns) = &self.columns else {
                let columns = TableColumns::parse_header(row.iter());
                self.columns = Some(
                    columns.map_err(|problem| WireError::Message { message: "csv", problem })?,
                );
                continue;
            };
            match columns.parse_row(|index| row.get(index)) {
                Ok(sample) => {
                    if let Some(labels) = batch.check_labels(sample.labels, 1) {
                        let time_ms = sample.time_ms.unwrap_or(self.now_ms);
                        batch.add(labels, time_ms, sample.value).await?;
                    }
                }
                Err(problem) => {
                    batch.counts.rejected.add(1, format_args!("line {line}: {problem}"));
                }
            }
        }
        self.lines += rows.position().line() - 1;
        Ok(())
    }

    async fn read_lines(&mut self, piece: &[u8], batch: &mut Batch<'_>) -> Result<(), SeriesError> {
        for line in parse_utf8(piece, "json lines")?.lines() {
            self.lines += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let json_line = match JsonLine::parse(line) {
                Ok(read) => read,
                Err(problem) => {
                    let reason = format_args!("line {}: {problem}", self.lines).to_string();
                    batch.counts.rejected.add(1, reason);
                    continue;
                }
            };
            let pairs = json_line.labels.0.iter().map(|(name, value)| (&**name, &**value));
            let count = (json_line.samples().count() + json_line.histograms().count()) as u64;
            let Some(labels) = batch.check_labels(pairs.collect(), count) else {
                continue;
            };
            for (time_ms, value) in json_line.samples() {
                batch.add(labels.clone(), time_ms, value).await?;
            }
            for histogram in json_line.histograms() {
                let histogram = match histogram {
                    Ok(histogram) => histogram,
                    Err(problem) => {
                        let reason = format_args!("line {}: {problem}", self.lines).to_string();
                        batch.counts.rejected.add(1, reason);
                        continue;
                    }
                };
                let value = WrittenValue::Histogram(Arc::new(histogram.to_histogram()));
                batch.add(labels.clone(), histogram.time_ms, value).await?;
            }
        }
        Ok(())
    }
}
