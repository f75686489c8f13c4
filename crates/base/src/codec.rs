//! Reading and writing the bytes of records and other files: little endian, LEB128 for what is
//! mostly small.

/// The bytes do not have the format that is expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read")]
pub struct DecodeError {
    /// Name of the part that cannot be decoded, for messages.
    pub what: &'static str,
}

/// A signed number as an unsigned one that is small when it is near zero: "zigzag", as Protocol
/// Buffers have it.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The number of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends an unsigned number, seven bits a byte, the lowest first.
#[inline]
pub fn put_varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Appends bytes after their length.
pub fn put_bytes(buffer: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(buffer, bytes.len() as u64);
    buffer.extend_from_slice(bytes);
}

/// Takes values from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`; `what` names their content in errors.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    /// The bytes that have not been read.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The error of these bytes.
    pub fn malformed(&self) -> DecodeError {
        DecodeError { what: self.what }
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// [`DecodeError`] when there are fewer.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(DecodeError { what: self.what })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many were taken"))
    }

    /// One byte.
    ///
    /// # Errors
    /// [`DecodeError`] at the end.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// [`DecodeError`] for others.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// A number of two bytes.
    ///
    /// # Errors
    /// [`DecodeError`] at the end.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of four bytes.
    ///
    /// # Errors
    /// [`DecodeError`] at the end.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of eight bytes.
    ///
    /// # Errors
    /// [`DecodeError`] at the end.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of sixteen bytes.
    ///
    /// # Errors
    /// [`DecodeError`] at the end.
    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        self.array().map(u128::from_le_bytes)
    }

    /// A number of [`put_varint`].
    ///
    /// # Errors
    /// [`DecodeError`] for one that does not end or does not fit.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed())
    }

    /// A number of [`put_varint`] that fits a smaller type.
    ///
    /// # Errors
    /// [`DecodeError`] when it does not.
    pub fn varint_as<N: TryFrom<u64>>(&mut self) -> Result<N, DecodeError> {
        let value = self.varint()?;
        N::try_from(value).map_err(|_| self.malformed())
    }

    /// Bytes of [`put_bytes`].
    ///
    /// # Errors
    /// [`DecodeError`] when there are fewer than announced.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint_as()?;
        self.take(length)
    }

    /// A reader of bytes of [`put_bytes`].
    ///
    /// # Errors
    /// [`DecodeError`] when there are fewer than announced.
    pub fn part(&mut self) -> Result<Reader<'a>, DecodeError> {
        let rest = self.bytes()?;
        Ok(Reader { rest, ..*self })
    }

    /// Bytes of [`put_bytes`] that are text.
    ///
    /// # Errors
    /// [`DecodeError`] when they are not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed())
    }
}

#[cfg(test)]
mod tests;
