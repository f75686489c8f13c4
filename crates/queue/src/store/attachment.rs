//! Attachments: results that are too large for the log, each in a file of its own.
//!
//! A file holds the bytes, then their content type, then a tail of fixed size that tells both apart
//! and proves that the file is whole. What a task was completed with stands in its record, as a
//! *manifest*.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::error::QueueError;
use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint};

const MAGIC: &[u8; 8] = b"EGRETATT";
const VERSION: u16 = 1;

/// Bytes of the tail: size, checksum, length of the content type, version, checksum of all that,
/// magic.
const TAIL_BYTES: usize = 28;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The longest content type, in bytes.
const CONTENT_TYPE_BYTES_MAX: usize = 256;

const WHAT: &str = "an attachment's description";

/// Encoded attachments that a task is completed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest(pub(crate) Vec<u8>);

/// Description of an attachment, without its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, unique within its task.
    pub name: String,
    /// Its media type, as in the HTTP header `Content-Type`.
    pub content_type: String,
    /// Size of its bytes.
    pub size_bytes: u64,
    /// CRC-32C of its bytes.
    pub crc32c: u32,
}

/// Refuses a name that is not valid on every file system.
///
/// # Errors
/// [`QueueError::Invalid`].
pub fn check_name(name: &str) -> Result<(), QueueError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_valid = (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(plain);
    is_valid.then_some(()).ok_or_else(|| QueueError::Invalid {
        what: "attachment",
        reason: format!(
            "`{name}` is not a valid name: use 1 to {NAME_BYTES_MAX} letters, digits and `-_.`, \
             and do not begin with `.`"
        ),
    })
}

/// Refuses a content type that is not a valid header value.
///
/// # Errors
/// [`QueueError::Invalid`].
pub fn check_content_type(content_type: &str) -> Result<(), QueueError> {
    let visible = |byte: u8| (b' '..=b'~').contains(&byte);
    let is_valid = (1..=CONTENT_TYPE_BYTES_MAX).contains(&content_type.len())
        && content_type.bytes().all(visible);
    is_valid.then_some(()).ok_or_else(|| QueueError::Invalid {
        what: "content_type",
        reason: format!("it must have 1 to {CONTENT_TYPE_BYTES_MAX} visible ASCII characters"),
    })
}

/// Appends what follows an attachment's bytes in its file.
pub fn put_tail(out: &mut Vec<u8>, attachment: &Attachment) {
    let start = out.len();
    out.extend_from_slice(attachment.content_type.as_bytes());
    out.extend_from_slice(&attachment.size_bytes.to_le_bytes());
    out.extend_from_slice(&attachment.crc32c.to_le_bytes());
    let length = u16::try_from(attachment.content_type.len()).expect("the length was checked");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(MAGIC);
}

/// Reads the end of a file of `file_bytes`: its content type and its tail. The name is the file's.
///
/// # Errors
/// [`DecodeError`] when [`put_tail`] has not written it.
pub fn take_tail(end: &[u8], file_bytes: u64, name: &str) -> Result<Attachment, DecodeError> {
    let malformed = DecodeError { what: WHAT };
    let (rest, tail) = end.split_last_chunk::<TAIL_BYTES>().ok_or(malformed)?;
    let mut from = Reader::new(tail, WHAT);
    let (size_bytes, crc32c, length) = (from.u64()?, from.u32()?, from.u16()?);
    let (version, crc, magic) = (from.u16()?, from.u32()?, from.take(8)?);
    let type_start = rest.len().checked_sub(usize::from(length));
    let content_type = rest.get(type_start.ok_or(malformed)?..).ok_or(malformed)?;
    let expected_crc = crc32c::crc32c_append(crc32c::crc32c(content_type), &tail[..16]);
    let total_bytes = size_bytes.checked_add(u64::from(length) + TAIL_BYTES as u64);
    if magic != MAGIC
        || version != VERSION
        || crc != expected_crc
        || total_bytes != Some(file_bytes)
    {
        return Err(malformed);
    }
    let content_type = std::str::from_utf8(content_type).map_err(|_| malformed)?;
    Ok(Attachment {
        name: name.to_owned(),
        content_type: content_type.to_owned(),
        size_bytes,
        crc32c,
    })
}

/// Reads the description in a file, and rewinds the file.
///
/// # Errors
/// Those of the file; `InvalidData` when it is not an attachment's, or not whole.
pub(crate) fn read_description(file: &mut File, name: &str) -> std::io::Result<Attachment> {
    let file_bytes = file.metadata()?.len();
    let tail_bytes_max = (TAIL_BYTES + CONTENT_TYPE_BYTES_MAX) as u64;
    file.seek(SeekFrom::Start(file_bytes.saturating_sub(tail_bytes_max)))?;
    let mut end = Vec::new();
    file.take(tail_bytes_max).read_to_end(&mut end)?;
    file.rewind()?;
    take_tail(&end, file_bytes, name)
        .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}

/// Appends a manifest, after its length.
pub fn put_manifest(out: &mut Vec<u8>, attachments: &[Attachment]) {
    let mut bytes = Vec::new();
    for attachment in attachments {
        put_bytes(&mut bytes, attachment.name.as_bytes());
        put_bytes(&mut bytes, attachment.content_type.as_bytes());
        put_varint(&mut bytes, attachment.size_bytes);
        bytes.extend_from_slice(&attachment.crc32c.to_le_bytes());
    }
    put_bytes(out, &bytes);
}

/// Reads a manifest; returns it with the bytes after it.
///
/// # Errors
/// [`DecodeError`] when there is none.
pub fn take_manifest(bytes: &[u8]) -> Result<(Vec<Attachment>, &[u8]), DecodeError> {
    let mut from = Reader::new(bytes, WHAT);
    let mut inner = Reader::new(from.bytes()?, WHAT);
    let mut attachments = Vec::new();
    while !inner.rest().is_empty() {
        attachments.push(Attachment {
            name: inner.text()?.to_owned(),
            content_type: inner.text()?.to_owned(),
            size_bytes: inner.varint()?,
            crc32c: inner.u32()?,
        });
    }
    Ok((attachments, from.rest()))
}
