//! A compressed CSV file as chunks for COPY, with references added where the other file has the
//! row.

use std::collections::HashSet;

use anyhow::Context;
use bytes::Bytes;
use csv::ByteRecord;

/// Enough rows at once to keep PostgreSQL busy, few enough not to hold the runtime up for long.
const CHUNK_BYTES: usize = 64 << 10;

/// What the files write for a value that is not known.
const UNKNOWN: &[u8] = b"NA";

type Reader = csv::Reader<zstd::Decoder<'static, &'static [u8]>>;

pub(super) struct CsvChunk {
    pub(super) bytes: Bytes,
    pub(super) rows: u64,
}

/// A file being read.
pub(super) struct CsvStream {
    reader: Reader,
    columns: Vec<String>,
    references: Vec<CodeColumn>,
    record: ByteRecord,
}

/// A column to add: the code of another column where `keys` has it, else unknown.
struct CodeColumn {
    source_column: usize,
    keys: HashSet<Vec<u8>>,
}

impl CsvStream {
    /// Opens a file and reads its header.
    pub(super) fn open(csv_zst: &'static [u8]) -> anyhow::Result<Self> {
        let mut reader = csv::Reader::from_reader(decoder(csv_zst)?);
        let columns = reader.headers()?.iter().map(str::to_owned).collect();
        Ok(Self { reader, columns, references: Vec::new(), record: ByteRecord::new() })
    }

    /// Adds the column `name`, which repeats `from` where `key` of the file `other` has its value.
    pub(super) fn add_reference_column(
        &mut self,
        from: &str,
        name: &str,
        other: &'static [u8],
        key: &str,
    ) -> anyhow::Result<()> {
        let from = column_index(&self.columns, from)?;
        self.references
            .push(CodeColumn { source_column: from, keys: Self::open(other)?.column_values(key)? });
        self.columns.push(name.to_owned());
        Ok(())
    }

    /// The columns, added ones last.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The next rows as CSV; `None` after the last.
    pub(super) fn next_chunk(&mut self) -> anyhow::Result<Option<CsvChunk>> {
        let mut writer = csv::Writer::from_writer(Vec::with_capacity(CHUNK_BYTES + 4096));
        let mut rows = 0;
        let mut bytes = 0;
        while bytes < CHUNK_BYTES && self.reader.read_byte_record(&mut self.record)? {
            for reference in &self.references {
                let code = &self.record[reference.source_column];
                let has_key = reference.keys.contains(code);
                let value = if has_key { code.to_vec() } else { UNKNOWN.to_vec() };
                self.record.push_field(&value);
            }
            writer.write_byte_record(&self.record)?;
            bytes += self.record.as_slice().len() + self.record.len();
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let bytes = writer.into_inner().context("writing to memory failed")?;
        Ok(Some(CsvChunk { bytes: Bytes::from(bytes), rows }))
    }

    fn column_values(mut self, column: &str) -> anyhow::Result<HashSet<Vec<u8>>> {
        let column = column_index(&self.columns, column)?;
        let mut values = HashSet::new();
        while self.reader.read_byte_record(&mut self.record)? {
            values.insert(self.record[column].to_vec());
        }
        Ok(values)
    }
}

pub(super) fn decoder(
    csv_zst: &'static [u8],
) -> anyhow::Result<zstd::Decoder<'static, &'static [u8]>> {
    zstd::Decoder::with_buffer(csv_zst).context("cannot decompress the demo's data")
}

fn column_index(columns: &[String], name: &str) -> anyhow::Result<usize> {
    columns
        .iter()
        .position(|column| column == name)
        .with_context(|| format!("the demo's data has no column {name}"))
}
