//! The server's codec for Protocol Buffers: bounds the number of fields of a message before it is
//! decoded, so that it cannot take many times its size in memory.

use std::any::TypeId;
use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::queue::v1;

/// Maximum number of fields of a message, without those of nested messages: an empty item takes two
/// bytes on the wire and hundreds in memory.
pub(crate) const FIELDS_MAX: usize = 4_096;

/// Maximum number of fields of a task or a report in a message.
pub(crate) const ITEM_FIELDS_MAX: usize = 512;

/// A codec that bounds the fields of the messages that it reads. `T` is sent, `U` is read.
pub(crate) struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Decodes messages whose fields are bounded.
pub(crate) struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if from.chunk().len() < from.remaining() {
            return Err(Status::internal("a message is not in one piece"));
        }
        check_field_count(from.chunk(), items_field::<U>()).map_err(|TooMany { what, max }| {
            let mut status = Status::invalid_argument(format!("{what} has more than {max} fields"));
            let code = "invalid_request".parse().expect("plain ASCII");
            status.metadata_mut().insert("egret-code", code);
            status
        })?;
        self.0.decode(from)
    }
}

/// The field of a request that holds many tasks or reports.
fn items_field<U: 'static>() -> Option<u64> {
    let request = TypeId::of::<U>();
    let item_fields = [
        (TypeId::of::<v1::ProduceRequest>(), TASKS_FIELD),
        (TypeId::of::<v1::EnqueueRequest>(), TASKS_FIELD),
        (TypeId::of::<v1::WorkRequest>(), WORK_REPORTS_FIELD),
        (TypeId::of::<v1::ReportRequest>(), REPORTS_FIELD),
    ];
    let found = item_fields.into_iter().find(|(holder, _)| *holder == request);
    found.map(|(_, field)| field)
}

const TASKS_FIELD: u64 = 2;
const WORK_REPORTS_FIELD: u64 = 3;
const REPORTS_FIELD: u64 = 1;

/// A message, or an item of one, with too many fields.
#[derive(Debug, PartialEq, Eq)]
struct TooMany {
    what: &'static str,
    max: usize,
}

/// Checks the number of fields. Malformed messages pass: decoding reports them.
fn check_field_count(message: &[u8], items: Option<u64>) -> Result<(), TooMany> {
    for (count, (number, content)) in Fields(message).enumerate() {
        if count == FIELDS_MAX {
            return Err(TooMany { what: "the message", max: FIELDS_MAX });
        }
        if Some(number) == items && Fields(content).nth(ITEM_FIELDS_MAX).is_some() {
            return Err(TooMany { what: "a task or report", max: ITEM_FIELDS_MAX });
        }
    }
    Ok(())
}

/// The fields of a message in the wire format: their numbers, and what those with a length hold.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn skip(&mut self, length: u64) -> Option<&'a [u8]> {
        let (skipped, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(skipped)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let key = self.varint()?;
        let content = match key & 7 {
            0 => self.varint().map(|_| &[][..])?,
            1 => self.skip(8)?,
            2 => {
                let length = self.varint()?;
                self.skip(length)?
            }
            5 => self.skip(4)?,
            // Groups; no contract of ours has them, and they cost a byte each.
            3 | 4 => &[],
            _ => return None,
        };
        Some((key >> 3, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tasks: usize, tags: usize) -> Vec<u8> {
        let task = v1::NewTask { tags: vec!["t".to_owned(); tags], ..v1::NewTask::default() };
        let request =
            v1::ProduceRequest { tasks: vec![task; tasks], ..v1::ProduceRequest::default() };
        request.encode_to_vec()
    }

    #[test]
    fn the_items_are_where_they_are_looked_for() {
        let numbers = [
            (items_field::<v1::ProduceRequest>(), request(1, 1)),
            (
                items_field::<v1::EnqueueRequest>(),
                v1::EnqueueRequest {
                    tasks: vec![v1::NewTask::default()],
                    ..v1::EnqueueRequest::default()
                }
                .encode_to_vec(),
            ),
            (
                items_field::<v1::WorkRequest>(),
                v1::WorkRequest {
                    reports: vec![v1::TaskReport::default()],
                    ..v1::WorkRequest::default()
                }
                .encode_to_vec(),
            ),
            (
                items_field::<v1::ReportRequest>(),
                v1::ReportRequest { reports: vec![v1::TaskReport::default()] }.encode_to_vec(),
            ),
        ];
        for (number, message) in numbers {
            let found = Fields(&message).next().map(|(field, _)| field);
            assert_eq!(found, number);
        }
        assert_eq!(items_field::<v1::WatchRequest>(), None);
    }

    #[test]
    fn what_would_grow_is_refused_before_it_is_read() {
        let items = items_field::<v1::ProduceRequest>();
        assert_eq!(check_field_count(&request(1_000, 64), items), Ok(()));
        let many = check_field_count(&request(FIELDS_MAX + 1, 0), items).unwrap_err();
        assert_eq!(many.max, FIELDS_MAX);
        let wide = check_field_count(&request(1, ITEM_FIELDS_MAX + 1), items).unwrap_err();
        assert_eq!(wide.max, ITEM_FIELDS_MAX);
        // Groups count as fields, and truncated messages pass: decoding reports them.
        assert!(check_field_count(&[0x0b; 8_192], items).is_err());
        assert_eq!(check_field_count(&[0x12, 0x7f, 1], items), Ok(()));
        assert_eq!(check_field_count(&[0xff; 32], items), Ok(()));
    }
}
