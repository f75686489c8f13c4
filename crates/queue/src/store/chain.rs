//! The file of a chain whose tasks are in several partitions. It is written before the first task
//! is made and removed after the last, so that a start finishes what a crash has interrupted.
//!
//! `EGCHAIN1`, the number of members, each with its record as in the log and the indexes of the
//! members that it waits for, and the CRC-32C of all before it.

use std::io;
use std::path::{Path, PathBuf};

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint};
use egret_base::durable;

const MAGIC: &[u8] = b"EGCHAIN1";
const WHAT: &str = "the file of a chain";
const SUFFIX: &str = "chain";

/// A task of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The record that makes it, without the tasks of `links`.
    pub record: Vec<u8>,
    /// Indexes of members that it waits for.
    pub links: Vec<u32>,
}

/// Encodes a chain as a record.
pub fn encode(members: &[Member]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_varint(&mut out, members.len() as u64);
    for member in members {
        put_bytes(&mut out, &member.record);
        put_varint(&mut out, member.links.len() as u64);
        for link in &member.links {
            put_varint(&mut out, u64::from(*link));
        }
    }
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// Decodes what [`encode`] wrote.
///
/// # Errors
/// [`DecodeError`] when it is something else, or damaged.
pub fn decode(file: &[u8]) -> Result<Vec<Member>, DecodeError> {
    let whole = Reader::new(file, WHAT);
    let Some((content, checksum)) = file.split_last_chunk::<4>() else {
        return Err(whole.malformed());
    };
    let Some(members) = content.strip_prefix(MAGIC) else {
        return Err(whole.malformed());
    };
    if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
        return Err(whole.malformed());
    }
    let mut from = Reader::new(members, WHAT);
    let count: u32 = from.varint_as()?;
    let mut members = Vec::new();
    for index in 0..count {
        let record = from.bytes()?.to_vec();
        let mut links = Vec::new();
        for _ in 0..from.varint()? {
            // Only earlier members, as they are made in this order.
            let link = from.varint_as()?;
            if link >= index {
                return Err(from.malformed());
            }
            links.push(link);
        }
        members.push(Member { record, links });
    }
    match from.rest() {
        [] => Ok(members),
        _ => Err(whole.malformed()),
    }
}

/// The file of the chain with this number.
pub fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:016x}.{SUFFIX}"))
}

/// Writes a chain so that it survives a loss of power, or not at all.
///
/// # Errors
/// Those of the file system.
pub fn write(path: &Path, members: &[Member]) -> io::Result<()> {
    durable::write_file(path, &encode(members), 0o600)
}

/// The chains of a directory, by number.
///
/// # Errors
/// Those of the file system; none where there is no directory.
pub fn list(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut chains = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_chain = path.extension().is_some_and(|extension| extension == SUFFIX);
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let number = stem.and_then(|stem| u64::from_str_radix(stem, 16).ok());
        if is_chain && let Some(number) = number {
            chains.push((number, path));
        }
    }
    chains.sort_unstable();
    Ok(chains)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_laid_out_is_read_and_nothing_else() {
        let members = [
            Member { record: b"one".to_vec(), links: Vec::new() },
            Member { record: b"two".to_vec(), links: vec![0] },
        ];
        let file = encode(&members);
        assert_eq!(decode(&file).unwrap(), members);
        for at in 0..file.len() {
            assert!(decode(&file[..at]).is_err(), "cut at {at}");
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert!(decode(&flipped).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn a_member_waits_for_earlier_ones_only() {
        let member = Member { record: Vec::new(), links: vec![0] };
        assert!(decode(&encode(&[member])).is_err());
    }
}
