//! The lines of a file from its end back, in pieces: a file of any size takes little memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Bytes read at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// Bytes of the longest line that is looked at; entries are far shorter.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Yields the lines of a file, the last one first.
pub(super) struct LinesFromEnd {
    file: File,
    /// Where `buffer` begins in the file.
    start: u64,
    /// Bytes that were read and belong to no line yet.
    buffer: Vec<u8>,
    /// Whether the end of the current line was dropped, as the line is too long.
    is_too_long: bool,
}

impl LinesFromEnd {
    pub(super) fn new(mut file: File) -> io::Result<Self> {
        let start = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, start, buffer: Vec::new(), is_too_long: false })
    }

    /// The line before, without its end; `None` at the beginning of the file. Lines that are too
    /// long are left out.
    pub(super) fn previous(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let line = match self.buffer.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => {
                    let line = self.buffer.split_off(end + 1);
                    self.buffer.truncate(end);
                    line
                }
                None if self.start > 0 => {
                    self.read_piece()?;
                    continue;
                }
                None if self.buffer.is_empty() => return Ok(None),
                None => std::mem::take(&mut self.buffer),
            };
            if !std::mem::take(&mut self.is_too_long) && line.len() <= LINE_BYTES_MAX {
                return Ok(Some(line));
            }
        }
    }

    /// Reads the piece before what was read.
    fn read_piece(&mut self) -> io::Result<()> {
        if self.buffer.len() > LINE_BYTES_MAX {
            self.buffer.clear();
            self.is_too_long = true;
        }
        let bytes = self.start.min(PIECE_BYTES);
        self.start -= bytes;
        self.file.seek(SeekFrom::Start(self.start))?;
        let mut piece = vec![0; bytes as usize];
        self.file.read_exact(&mut piece)?;
        piece.append(&mut self.buffer);
        self.buffer = piece;
        Ok(())
    }
}
