//! Samples as a table in Apache Parquet, which DuckDB, Spark and others read: a sample a row, with the columns `time`
//! (milliseconds, UTC), `metric`, `labels` (a map without the metric's name) and `value`. Written piece by piece, with
//! a row group for every so many samples.
//!
//! Specification: parquet.apache.org/docs/file-format.

use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::model::{Labels, METRIC_NAME, TimeMs};

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
        required double value;
    }";

/// Samples of a row group, at least; the last has fewer.
const ROWS: usize = 100_000;

/// Why writing cannot fail.
const IN_MEMORY: &str = "memory takes whatever is written, and the columns are those of the schema";

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
    definitions: Vec<i16>,
    /// …and 1 where it is not the first of its row.
    repetitions: Vec<i16>,
    values: Vec<f64>,
}

impl Default for ParquetWriter {
    fn default() -> Self {
        let schema = parse_message_type(SCHEMA).expect("the schema is one");
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder().set_compression(zstd).build();
        let file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties));
        Self {
            file: file.expect(IN_MEMORY),
            rows: Rows::default(),
        }
    }
}

impl ParquetWriter {
    /// Adds samples of a series.
    pub fn add(&mut self, labels: &Labels, samples: impl Iterator<Item = (TimeMs, f64)>) {
        let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
        let metric = bytes(labels.metric());
        let pairs = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
        let pairs: Vec<(ByteArray, ByteArray)> = pairs
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect();
        for (time_ms, value) in samples {
            self.rows.push(&metric, &pairs, time_ms, value);
            if self.rows.values.len() >= ROWS {
                self.write_rows().expect(IN_MEMORY);
            }
        }
    }

    /// Takes what is written so far and was not taken before.
    pub fn take(&mut self) -> Vec<u8> {
        self.file.flush().expect(IN_MEMORY);
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
        if !self.rows.values.is_empty() {
            self.write_rows().expect(IN_MEMORY);
        }
        self.file.into_inner().expect(IN_MEMORY)
    }

    fn write_rows(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let levels = Some((&*rows.definitions, &*rows.repetitions));
        let mut group = self.file.next_row_group()?;
        write_column::<Int64Type>(&mut group, &rows.times_ms, None)?;
        write_column::<ByteArrayType>(&mut group, &rows.metrics, None)?;
        write_column::<ByteArrayType>(&mut group, &rows.names, levels)?;
        write_column::<ByteArrayType>(&mut group, &rows.label_values, levels)?;
        write_column::<DoubleType>(&mut group, &rows.values, None)?;
        group.close().map(drop)
    }
}

/// Writes the next column of a row group, with definition and repetition levels where it has some.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    levels: Option<(&[i16], &[i16])>,
) -> Result<()> {
    let mut column = group.next_column()?.expect("the schema has five columns");
    let (definitions, repetitions) = levels.unzip();
    let typed = column.typed::<T>();
    typed.write_batch(values, definitions, repetitions)?;
    column.close()
}

impl Rows {
    fn push(
        &mut self,
        metric: &ByteArray,
        labels: &[(ByteArray, ByteArray)],
        time_ms: TimeMs,
        value: f64,
    ) {
        self.times_ms.push(time_ms);
        self.metrics.push(metric.clone());
        self.values.push(value);
        if labels.is_empty() {
            self.definitions.push(0);
            self.repetitions.push(0);
        }
        for (at, (name, value)) in labels.iter().enumerate() {
            self.definitions.push(1);
            self.repetitions.push(i16::from(at > 0));
            self.names.push(name.clone());
            self.label_values.push(value.clone());
        }
    }
}

#[cfg(test)]
mod tests;
