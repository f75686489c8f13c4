//! The lines of a file, in chunks that are sent together.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::commands::document::request::file_failure;
use crate::failure::Failure;

/// Lines of a request.
pub(super) const CHUNK_LINES_MAX: usize = 1_000;

/// Bytes of a request, unless one line has more.
const CHUNK_BYTES_MAX: usize = 2 << 20;

/// Bytes of a line, at most.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Lines that are sent together.
pub(super) struct LineChunk {
    pub(super) text: Vec<u8>,
    /// The number of its first line in the file, from 1 on.
    pub(super) first_line: u64,
    pub(super) lines: u64,
    /// Where it ends in the file, in bytes.
    pub(super) end: u64,
}

/// Reader of the lines of a file, chunk by chunk.
pub(super) struct Lines<'a> {
    path: &'a Path,
    reader: Box<dyn BufRead + Send>,
    offset: u64,
    line: u64,
    /// The next line, which did not fit into the chunk before.
    next_line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn open(path: &'a Path, offset: u64, line: u64) -> Result<Self, Failure> {
        let reader: Box<dyn BufRead + Send> = if path.as_os_str() == "-" {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let mut file = File::open(path).map_err(|error| file_failure(path, &error))?;
            // A pipe has but one place, its beginning.
            if offset > 0 {
                io::Seek::seek(&mut file, io::SeekFrom::Start(offset))
                    .map_err(|error| file_failure(path, &error))?;
            }
            Box::new(BufReader::with_capacity(1 << 20, file))
        };
        Ok(Self { path, reader, offset, line, next_line: Vec::new() })
    }

    pub(super) fn next(&mut self) -> Result<Option<LineChunk>, Failure> {
        let mut chunk = LineChunk { text: Vec::new(), first_line: self.line + 1, lines: 0, end: 0 };
        while (chunk.lines as usize) < CHUNK_LINES_MAX {
            self.fill_next_line()?;
            let is_full =
                chunk.lines > 0 && chunk.text.len() + self.next_line.len() > CHUNK_BYTES_MAX;
            if self.next_line.is_empty() || is_full {
                break;
            }
            self.offset += self.next_line.len() as u64;
            chunk.text.append(&mut self.next_line);
            chunk.lines += 1;
        }
        self.line += chunk.lines;
        chunk.end = self.offset;
        Ok(Some(chunk).filter(|chunk| chunk.lines > 0))
    }

    /// Reads the next line, if none is there yet. At the end there is none.
    fn fill_next_line(&mut self) -> Result<(), Failure> {
        if !self.next_line.is_empty() {
            return Ok(());
        }
        let read =
            io::Read::take(&mut self.reader, LINE_BYTES_MAX).read_until(b'\n', &mut self.next_line);
        read.map_err(|error| file_failure(self.path, &error))?;
        if self.next_line.len() as u64 == LINE_BYTES_MAX && !self.next_line.ends_with(b"\n") {
            Err(Failure::usage(format!(
                "{}: a line has more than {} MiB",
                self.path.display(),
                LINE_BYTES_MAX >> 20
            )))
        } else {
            Ok(())
        }
    }
}
