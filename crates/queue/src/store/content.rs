//! The content of a task, which its partition does not interpret.
//!
//! A record's content has two parts. The *private* one comes first, after its length. The rest is
//! handed to workers as it is: the fields of a task in the wire format of Protocol Buffers, with
//! the numbers they have in `Assignment` of `queue.proto`, so that a task is decoded only for
//! readers that need its fields.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use crate::error::QueueError;
use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint};

/// Numbers of fields in `Assignment`.
mod field {
    pub const PAYLOAD: u64 = 3;
    pub(crate) const FORMAT: u64 = 4;
    pub(crate) const ORDERING_KEY: u64 = 10;
    pub(crate) const TAGS: u64 = 12;
    pub const METADATA: u64 = 13;
    pub(crate) const TRACEPARENT: u64 = 14;
    pub(crate) const TRACESTATE: u64 = 15;
}

/// Wire types of Protocol Buffers.
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// Format of a payload or a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Any bytes, which are not checked.
    #[default]
    Bytes,
    /// JSON, encoded as UTF-8.
    Json,
}

/// Refuses what is not UTF-8 JSON where its format says that it is.
pub(crate) fn check_json(what: &'static str, bytes: &[u8]) -> Result<(), QueueError> {
    // The parser skips the contents of strings.
    let text = std::str::from_utf8(bytes).ok();
    let parsed = text.and_then(|text| serde_json::from_str::<IgnoredAny>(text).ok());
    parsed.map(|_| ()).ok_or_else(|| QueueError::Invalid {
        what,
        reason: "its format is JSON, but it is not valid JSON".to_owned(),
    })
}

/// Content of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content<'a> {
    /// Payload of the task.
    pub payload: &'a [u8],
    /// Format of the payload.
    pub format: Format,
    /// Its ordering key; empty: none.
    pub ordering_key: &'a str,
    /// Metadata, as names and values.
    pub metadata: BTreeMap<&'a str, &'a str>,
    /// W3C trace context: `traceparent`.
    pub traceparent: &'a str,
    /// W3C trace context: `tracestate`.
    pub tracestate: &'a str,
    /// Fields that workers do not get.
    pub private: Private<'a>,
}

/// The part of the content that workers do not receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private<'a> {
    /// URL that is called when the task has ended; empty: none.
    pub callback_url: &'a str,
    /// Its unique key; empty: none.
    pub unique_key: &'a str,
    /// The description of the schedule that makes it; empty: none does.
    pub schedule: &'a [u8],
}

fn put_text(out: &mut Vec<u8>, number: u64, text: &str) {
    if !text.is_empty() {
        put_field(out, number, text.as_bytes());
    }
}

fn put_field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | LENGTH_DELIMITED);
    put_bytes(out, bytes);
}

/// Appends the encoded content to `out`.
pub fn encode(out: &mut Vec<u8>, content: &Content<'_>) {
    let private = &content.private;
    if *private == Private::default() {
        out.push(0);
    } else {
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, private.callback_url.as_bytes());
        put_bytes(&mut bytes, private.unique_key.as_bytes());
        put_bytes(&mut bytes, private.schedule);
        put_bytes(out, &bytes);
    }
    if !content.payload.is_empty() {
        put_field(out, field::PAYLOAD, content.payload);
    }
    if content.format == Format::Json {
        put_varint(out, field::FORMAT << 3 | VARINT);
        out.push(1);
    }
    put_text(out, field::ORDERING_KEY, content.ordering_key);
    for (name, value) in &content.metadata {
        let mut entry = Vec::with_capacity(name.len() + value.len() + 8);
        put_text(&mut entry, 1, name);
        put_text(&mut entry, 2, value);
        put_field(out, field::METADATA, &entry);
    }
    put_text(out, field::TRACEPARENT, content.traceparent);
    put_text(out, field::TRACESTATE, content.tracestate);
}

/// Splits a content into its private part and that for workers.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub fn split(content: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut from = Reader::new(content, WHAT);
    Ok((from.bytes()?, from.rest()))
}

/// Decodes a private part.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub fn decode_private(bytes: &[u8]) -> Result<Private<'_>, DecodeError> {
    if bytes.is_empty() {
        return Ok(Private::default());
    }
    let mut from = Reader::new(bytes, WHAT);
    Ok(Private { callback_url: from.text()?, unique_key: from.text()?, schedule: from.bytes()? })
}

const WHAT: &str = "a task's content";

/// Decodes a content.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub fn decode(content: &[u8]) -> Result<Content<'_>, DecodeError> {
    let (private_part, rest) = split(content)?;
    Ok(Content { private: decode_private(private_part)?, ..decode_for_workers(rest)? })
}

/// Decodes the part for workers, without anything private.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub(crate) fn decode_for_workers(fields: &[u8]) -> Result<Content<'_>, DecodeError> {
    let mut from = Reader::new(fields, WHAT);
    let mut result = Content::default();
    while !from.rest().is_empty() {
        let tag = from.varint()?;
        match (tag >> 3, tag & 7) {
            (field::PAYLOAD, LENGTH_DELIMITED) => result.payload = from.bytes()?,
            (field::FORMAT, VARINT) => result.format = take_format(&mut from)?,
            (field::ORDERING_KEY, LENGTH_DELIMITED) => result.ordering_key = from.text()?,
            (field::METADATA, LENGTH_DELIMITED) => {
                let (name, value) = take_entry(from.bytes()?)?;
                result.metadata.insert(name, value);
            }
            (field::TRACEPARENT, LENGTH_DELIMITED) => result.traceparent = from.text()?,
            (field::TRACESTATE, LENGTH_DELIMITED) => result.tracestate = from.text()?,
            (_, wire_type) => skip(&mut from, wire_type)?,
        }
    }
    Ok(result)
}

/// An unknown format counts as bytes.
fn take_format(from: &mut Reader<'_>) -> Result<Format, DecodeError> {
    Ok(match from.varint()? {
        1 => Format::Json,
        _ => Format::Bytes,
    })
}

/// Skips an unknown field, which another version has written.
fn skip(from: &mut Reader<'_>, wire_type: u64) -> Result<(), DecodeError> {
    match wire_type {
        VARINT => drop(from.varint()?),
        EIGHT_BYTES => drop(from.take(8)?),
        LENGTH_DELIMITED => drop(from.bytes()?),
        FOUR_BYTES => drop(from.take(4)?),
        _ => return Err(from.malformed()),
    }
    Ok(())
}

fn take_entry(entry: &[u8]) -> Result<(&str, &str), DecodeError> {
    let mut from = Reader::new(entry, WHAT);
    let (mut name, mut value) = ("", "");
    while !from.rest().is_empty() {
        match from.varint()? {
            tag if tag == 1 << 3 | LENGTH_DELIMITED => name = from.text()?,
            tag if tag == 2 << 3 | LENGTH_DELIMITED => value = from.text()?,
            tag => skip(&mut from, tag & 7)?,
        }
    }
    Ok((name, value))
}

/// Appends tags as they are sent to workers.
pub fn put_tags<'a>(out: &mut Vec<u8>, tags: impl Iterator<Item = &'a str>) {
    for tag in tags {
        put_field(out, field::TAGS, tag.as_bytes());
    }
}

/// The tags that [`put_tags`] wrote; ends at malformed bytes.
pub fn tags(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let mut from = Reader::new(bytes, WHAT);
    std::iter::from_fn(move || {
        let tag = from.varint().ok()?;
        (tag == field::TAGS << 3 | LENGTH_DELIMITED).then(|| from.text().ok())?
    })
}
