//! Reading protobuf without copying: fields of a message as slices of the whole body, so that every
//! error can say at which byte, and a fixed number of bytes can be looked at beyond a message's
//! end.
//!
//! Format: protobuf.dev/programming-guides/encoding.

use super::error::WireError;

/// Seven bits of each byte of a varint.
const PAYLOAD_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
/// The bit of each byte that says whether another follows.
const MORE_BITS: u64 = 0x8080_8080_8080_8080;

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(Message<'a>),
    Fixed32,
}

/// A field as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub number: u32,
    pub value: FieldValue<'a>,
    /// Offset of the field's key.
    pub offset: usize,
}

/// A message, or what is left of one to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// The body it is part of.
    pub body: &'a [u8],
    /// Where reading goes on; at most `end`.
    pub position: usize,
    /// Its end; at most the length of the body.
    pub end: usize,
    /// Name of the message in the schema.
    pub name: &'static str,
}

/// A varint of at most eight bytes at the start of `word`: its value and its length; `None` when it
/// is longer.
#[inline(always)]
pub(crate) fn decode_varint_word(word: u64) -> Option<(u64, usize)> {
    let stop_bits = !word & MORE_BITS;
    if stop_bits == 0 {
        return None;
    }
    // Everything up to the lowest stop bit; that bit itself is masked with the other high bits
    // below.
    let payload = word & (stop_bits ^ (stop_bits - 1)) & PAYLOAD_BITS;
    let pairs = (payload & 0x7f00_7f00_7f00_7f00) >> 1 | payload & 0x007f_007f_007f_007f;
    let quads = (pairs & 0x3fff_0000_3fff_0000) >> 2 | pairs & 0x0000_3fff_0000_3fff;
    let value = (quads & 0x0fff_ffff_0000_0000) >> 4 | quads & 0x0fff_ffff;
    Some((value, stop_bits.trailing_zeros() as usize / 8 + 1))
}

impl<'a> Message<'a> {
    /// A body that is one message.
    pub(crate) fn new(body: &'a [u8], name: &'static str) -> Self {
        Self { body, position: 0, end: body.len(), name }
    }

    /// The same bytes as a message of another name.
    pub(crate) fn with_name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.position >= self.end
    }

    /// The unread rest of the message.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.body[self.position..self.end]
    }

    #[cold]
    pub(crate) fn truncated_error(&self) -> WireError {
        WireError::Truncated { message: self.name, at: self.position }
    }

    #[inline(always)]
    pub(crate) fn read_varint(&mut self) -> Result<u64, WireError> {
        if self.position < self.end && self.body[self.position] < 0x80 {
            self.position += 1;
            return Ok(u64::from(self.body[self.position - 1]));
        }
        self.read_long_varint()
    }

    #[inline(never)]
    fn read_long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for (index, byte) in self.rest().iter().enumerate().take(10) {
            let payload = u64::from(byte & 0x7f);
            if index == 9 && payload > 1 {
                break;
            }
            value |= payload << (7 * index);
            if byte & 0x80 == 0 {
                self.position += index + 1;
                return Ok(value);
            }
        }
        if self.end - self.position < 10 {
            return Err(self.truncated_error());
        }
        Err(WireError::VarintTooLong { message: self.name, at: self.position })
    }

    /// Splits `length` bytes off.
    #[inline(always)]
    pub(crate) fn take(&mut self, length: u64) -> Result<Message<'a>, WireError> {
        if length > (self.end - self.position) as u64 {
            return Err(self.truncated_error());
        }
        let part = Self { end: self.position + length as usize, ..*self };
        self.position = part.end;
        Ok(part)
    }

    /// Bytes that come with their length.
    #[inline(always)]
    pub(crate) fn read_delimited(&mut self) -> Result<Message<'a>, WireError> {
        let length = self.read_varint()?;
        self.take(length)
    }

    /// Reads the next field; `None` at the end of the message.
    pub(crate) fn read_field(&mut self) -> Result<Option<Field<'a>>, WireError> {
        if self.is_empty() {
            return Ok(None);
        }
        let offset = self.position;
        let key = self.read_varint()?;
        let number = key >> 3;
        if number == 0 || number > (1 << 29) - 1 {
            return Err(self.bad_key_error(key, offset));
        }
        let value = match key & 7 {
            0 => FieldValue::Varint(self.read_varint()?),
            1 => FieldValue::Fixed64(self.read_fixed64()?),
            2 => FieldValue::Bytes(self.read_delimited()?),
            5 => {
                self.take(4)?;
                FieldValue::Fixed32
            }
            _ => return Err(self.bad_key_error(key, offset)),
        };
        Ok(Some(Field { number: number as u32, value, offset }))
    }

    pub(crate) fn read_fixed64(&mut self) -> Result<u64, WireError> {
        let part = self.take(8)?;
        let bytes = part.rest().try_into().expect("eight bytes were taken");
        Ok(u64::from_le_bytes(bytes))
    }

    #[cold]
    fn bad_key_error(&self, key: u64, offset: usize) -> WireError {
        WireError::BadKey { message: self.name, key, at: offset }
    }

    /// The rest as a string.
    pub(crate) fn text(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.rest()).map_err(|error| WireError::NotUtf8 {
            message: self.name,
            at: self.position + error.valid_up_to(),
        })
    }
}

impl<'a> Field<'a> {
    #[cold]
    fn wire_type_error(&self, message: &'static str) -> WireError {
        let wire_type = match self.value {
            FieldValue::Varint(_) => 0,
            FieldValue::Fixed64(_) => 1,
            FieldValue::Bytes(_) => 2,
            FieldValue::Fixed32 => 5,
        };
        WireError::WrongWireType { message, field: self.number, wire_type, at: self.offset }
    }

    pub(crate) fn as_varint(&self, message: &'static str) -> Result<u64, WireError> {
        match self.value {
            FieldValue::Varint(word) => Ok(word),
            _ => Err(self.wire_type_error(message)),
        }
    }

    pub(crate) fn as_double(&self, message: &'static str) -> Result<f64, WireError> {
        match self.value {
            FieldValue::Fixed64(word) => Ok(f64::from_bits(word)),
            _ => Err(self.wire_type_error(message)),
        }
    }

    /// A message in this field of `message`.
    pub(crate) fn as_message(
        &self,
        message: &'static str,
        name: &'static str,
    ) -> Result<Message<'a>, WireError> {
        match self.value {
            FieldValue::Bytes(part) => Ok(part.with_name(name)),
            _ => Err(self.wire_type_error(message)),
        }
    }

    pub(crate) fn as_text(&self, message: &'static str) -> Result<&'a str, WireError> {
        self.as_message(message, message)?.text()
    }

    /// Numbers of a repeated field, packed or one by one.
    pub(crate) fn for_each_varint(
        &self,
        message: &'static str,
        mut visit: impl FnMut(u64),
    ) -> Result<(), WireError> {
        match self.value {
            FieldValue::Varint(word) => visit(word),
            FieldValue::Bytes(mut packed) => {
                while !packed.is_empty() {
                    visit(packed.read_varint()?);
                }
            }
            _ => return Err(self.wire_type_error(message)),
        }
        Ok(())
    }

    /// Doubles of a repeated field, packed or one by one.
    pub(crate) fn append_doubles(
        &self,
        message: &'static str,
        into: &mut Vec<f64>,
    ) -> Result<(), WireError> {
        match self.value {
            FieldValue::Fixed64(word) => into.push(f64::from_bits(word)),
            FieldValue::Bytes(mut packed) => {
                while !packed.is_empty() {
                    into.push(f64::from_bits(packed.read_fixed64()?));
                }
            }
            _ => return Err(self.wire_type_error(message)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
