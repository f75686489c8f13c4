//! The table of symbols: where each string is in the body.

use super::REQUEST;
use crate::error::WireError;
use crate::protobuf::Message;

/// Strings of at most so many bytes are copied without looking how long they are.
pub(super) const COPY_BYTES: usize = 32;
/// A string of the table: from the highest bit down, whether it is short (not empty, and as many
/// bytes as are copied of short ones are there), its length in 31 bits, where it begins in the body
/// in 32. One word, because two are spilled to memory and read back in other pieces, which stalls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol(pub u64);

pub(super) const SHORT_BIT: u64 = 1 << 63;

impl Symbol {
    #[inline(always)]
    pub(crate) fn new(message: Message<'_>) -> Result<Self, WireError> {
        if message.end >= 1 << 31 {
            return Err(message.truncated_error());
        }
        let length = message.end - message.position;
        let is_short = (1..=COPY_BYTES).contains(&length)
            && message.position + COPY_BYTES <= message.body.len();
        let flag = if is_short { SHORT_BIT } else { 0 };
        Ok(Self(flag | (length as u64) << 32 | message.position as u64))
    }

    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.0 as u32 as usize
    }

    #[inline(always)]
    pub(crate) fn length(self) -> usize {
        ((self.0 & !SHORT_BIT) >> 32) as usize
    }

    #[inline(always)]
    pub(crate) fn bytes(self, whole: &[u8]) -> &[u8] {
        &whole[self.offset()..self.offset() + self.length()]
    }

    pub(crate) fn text(self, whole: &[u8]) -> Result<&str, WireError> {
        let offset = self.offset();
        std::str::from_utf8(self.bytes(whole))
            .map_err(|_| WireError::NotUtf8 { message: REQUEST, at: offset })
    }
}
