//! Samples as a table in Apache Parquet, which DuckDB, Spark and others read: a sample a row, with
//! the columns `time` (milliseconds, UTC), `metric`, `labels` (a map without the metric's name),
//! and `value` or, of a native histogram, `histogram`, with the bounds of its buckets. Written
//! piece by piece, with a row group for every so many samples.
//!
//! Specification: parquet.apache.org/docs/file-format.

use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use egret_metrics_model::{Histogram, Labels, METRIC_NAME, TimeMs};
use egret_promql::FloatHistogram;

const SCHEMA: &str = "
    message series {
        required int64 time (TIMESTAMP(MILLIS,true));
        required binary metric (STRING);
        required group labels (MAP) {
            repeated group key_value {
                required binary key (STRING);
                required binary value (STRING);
            }
        }
        optional double value;
        optional group histogram {
            required double count;
            required double sum;
            required int32 schema;
            required double zero_threshold;
            required double zero_count;
            required group buckets (LIST) {
                repeated group list {
                    required group element {
                        required double lower;
                        required double upper;
                        required double count;
                    }
                }
            }
        }
    }";

/// Samples of a row group, at least; the last has fewer.
const GROUP_ROWS_MIN: usize = 100_000;

/// Why writing cannot fail.
const INFALLIBLE_REASON: &str =
    "memory takes whatever is written, and the columns are those of the schema";

/// A table that is being written.
pub struct ParquetWriter {
    file: SerializedFileWriter<Vec<u8>>,
    rows: Rows,
}

/// Columns of the row group that is being gathered.
#[derive(Default)]
struct Rows {
    times_ms: Vec<TimeMs>,
    metrics: Vec<ByteArray>,
    names: Vec<ByteArray>,
    label_values: Vec<ByteArray>,
    /// Of each label, and once of a row without any: 1 where there is a label…
    definition_levels: Vec<i16>,
    /// …and 1 where it is not the first of its row.
    repetition_levels: Vec<i16>,
    /// Of the rows that have one.
    values: Vec<f64>,
    /// Of each row: whether it has a value, or else a histogram.
    has_value: Vec<i16>,
    has_histogram: Vec<i16>,
    histograms: HistogramColumns,
}

/// The columns of native histograms, of the rows that have one.
#[derive(Default)]
struct HistogramColumns {
    /// Count, sum, zero threshold and zero count of each.
    numbers: [Vec<f64>; 4],
    schemas: Vec<i32>,
    /// Lower and upper bounds and counts of all buckets.
    buckets: [Vec<f64>; 3],
    /// Of each bucket, of each histogram without any, and of each row without a histogram: 2, 1 and
    /// 0…
    definition_levels: Vec<i16>,
    /// …and 1 where it is not the first of its row.
    repetition_levels: Vec<i16>,
}

impl Default for ParquetWriter {
    fn default() -> Self {
        let schema = parse_message_type(SCHEMA).expect("the schema is one");
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder().set_compression(zstd).build();
        let file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties));
        Self { file: file.expect(INFALLIBLE_REASON), rows: Rows::default() }
    }
}

impl ParquetWriter {
    /// Adds samples of a series.
    pub fn add(&mut self, labels: &Labels, samples: impl Iterator<Item = (TimeMs, f64)>) {
        let (metric, pairs) = series_cells(labels);
        for (time_ms, value) in samples {
            self.rows.push(&metric, &pairs, time_ms);
            self.rows.push_value(value);
            self.write_if_full();
        }
    }

    /// Adds native histograms of a series.
    pub fn add_histograms<'a>(
        &mut self,
        labels: &Labels,
        histograms: impl Iterator<Item = (TimeMs, &'a Histogram)>,
    ) {
        let (metric, pairs) = series_cells(labels);
        for (time_ms, histogram) in histograms {
            self.rows.push(&metric, &pairs, time_ms);
            self.rows.push_histogram(&histogram.into());
            self.write_if_full();
        }
    }

    fn write_if_full(&mut self) {
        if self.rows.times_ms.len() >= GROUP_ROWS_MIN {
            self.write_rows().expect(INFALLIBLE_REASON);
        }
    }

    /// Takes what is written so far and was not taken before.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        self.file.flush().expect(INFALLIBLE_REASON);
        std::mem::take(self.file.inner_mut())
    }

    /// Bytes that may be taken, about.
    pub fn len(&self) -> usize {
        self.file.inner().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the last rows and the end of the file, and returns what was not taken before.
    pub fn finish(mut self) -> Vec<u8> {
        if !self.rows.times_ms.is_empty() {
            self.write_rows().expect(INFALLIBLE_REASON);
        }
        self.file.into_inner().expect(INFALLIBLE_REASON)
    }

    fn write_rows(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let levels = Some((&*rows.definition_levels, &*rows.repetition_levels));
        let mut group = self.file.next_row_group()?;
        write_column::<Int64Type>(&mut group, &rows.times_ms, None)?;
        write_column::<ByteArrayType>(&mut group, &rows.metrics, None)?;
        write_column::<ByteArrayType>(&mut group, &rows.names, levels)?;
        write_column::<ByteArrayType>(&mut group, &rows.label_values, levels)?;
        let value_levels = Some((&*rows.has_value, &[][..]));
        write_column::<DoubleType>(&mut group, &rows.values, value_levels)?;
        rows.histograms.write(&rows.has_histogram, &mut group)?;
        group.close().map(drop)
    }
}

impl HistogramColumns {
    fn push(&mut self, histogram: &FloatHistogram) {
        let numbers =
            [histogram.count, histogram.sum, histogram.zero_threshold, histogram.zero_count];
        for (column, number) in self.numbers.iter_mut().zip(numbers) {
            column.push(number);
        }
        self.schemas.push(histogram.schema);
        let buckets = histogram.rendered_buckets();
        if buckets.is_empty() {
            self.push_levels(1, 0);
        }
        for (index, (_, lower, upper, count)) in buckets.into_iter().enumerate() {
            self.push_levels(2, i16::from(index > 0));
            for (column, number) in self.buckets.iter_mut().zip([lower, upper, count]) {
                column.push(number);
            }
        }
    }

    fn push_levels(&mut self, definition: i16, repetition: i16) {
        self.definition_levels.push(definition);
        self.repetition_levels.push(repetition);
    }

    /// Writes its columns, in the order of the schema.
    fn write(
        &self,
        defined: &[i16],
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    ) -> Result<()> {
        let histogram_levels = Some((defined, &[][..]));
        let [counts, sums, zero_thresholds, zero_counts] = &self.numbers;
        write_column::<DoubleType>(group, counts, histogram_levels)?;
        write_column::<DoubleType>(group, sums, histogram_levels)?;
        write_column::<Int32Type>(group, &self.schemas, histogram_levels)?;
        write_column::<DoubleType>(group, zero_thresholds, histogram_levels)?;
        write_column::<DoubleType>(group, zero_counts, histogram_levels)?;
        let levels = Some((&*self.definition_levels, &*self.repetition_levels));
        self.buckets.iter().try_for_each(|column| write_column::<DoubleType>(group, column, levels))
    }
}

/// The cells of a series that are the same in each of its rows: the metric's name and the other
/// labels.
fn series_cells(labels: &Labels) -> (ByteArray, Vec<(ByteArray, ByteArray)>) {
    let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    let pairs = labels
        .iter()
        .filter(|(name, _)| *name != METRIC_NAME)
        .map(|(name, value)| (bytes(name), bytes(value)));
    (bytes(labels.metric()), pairs.collect())
}

/// Writes the next column of a row group, with definition and repetition levels where the schema
/// has some.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    levels: Option<(&[i16], &[i16])>,
) -> Result<()> {
    let mut column = group.next_column()?.expect("the schema has a column more");
    let (definitions, repetitions) = levels.unzip();
    let repetitions = repetitions.filter(|levels| !levels.is_empty());
    let typed = column.typed::<T>();
    typed.write_batch(values, definitions, repetitions)?;
    column.close()
}

impl Rows {
    fn push(&mut self, metric: &ByteArray, labels: &[(ByteArray, ByteArray)], time_ms: TimeMs) {
        self.times_ms.push(time_ms);
        self.metrics.push(metric.clone());
        if labels.is_empty() {
            self.definition_levels.push(0);
            self.repetition_levels.push(0);
        }
        for (index, (name, value)) in labels.iter().enumerate() {
            self.definition_levels.push(1);
            self.repetition_levels.push(i16::from(index > 0));
            self.names.push(name.clone());
            self.label_values.push(value.clone());
        }
    }

    /// Ends a row with a value…
    fn push_value(&mut self, value: f64) {
        self.values.push(value);
        self.has_value.push(1);
        self.has_histogram.push(0);
        self.histograms.push_levels(0, 0);
    }

    /// …or with a histogram.
    fn push_histogram(&mut self, histogram: &FloatHistogram) {
        self.has_value.push(0);
        self.has_histogram.push(1);
        self.histograms.push(histogram);
    }
}

#[cfg(test)]
mod tests;
