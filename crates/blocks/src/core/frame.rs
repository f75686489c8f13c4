//! Bytes with a checksum, and frames, which may also be compressed.

use egret_base::codec::{DecodeError, Reader, put_varint};

/// Uncompressed bytes of a frame, at most: nothing is allocated for more, whatever the bytes claim.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 30;

/// Frames below this are not worth compressing.
const COMPRESSED_BYTES_MIN: usize = 64;

const ZSTD_LEVEL: i32 = 3;

const STORED: u8 = 0;
const COMPRESSED: u8 = 1;

/// Appends bytes after their checksum.
pub(crate) fn put_checked(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The bytes of [`put_checked`], or `None` when they are not what was written.
pub(crate) fn verify_checksum(bytes: &[u8]) -> Option<&[u8]> {
    let (checksum, rest) = bytes.split_first_chunk()?;
    (crc32c::crc32c(rest) == u32::from_le_bytes(*checksum)).then_some(rest)
}

/// Appends a frame: a byte that says how it is kept, then the bytes, or their length (varint) and a
/// frame of zstd.
///
/// # Panics
/// When there are more than [`FRAME_BYTES_MAX`] bytes.
pub fn put_frame(out: &mut Vec<u8>, bytes: &[u8]) {
    assert!(bytes.len() <= FRAME_BYTES_MAX, "a frame is bounded");
    let mut body = vec![STORED];
    if bytes.len() >= COMPRESSED_BYTES_MIN
        && let Ok(compressed) = zstd::bulk::compress(bytes, ZSTD_LEVEL)
        && compressed.len() + 4 < bytes.len()
    {
        body[0] = COMPRESSED;
        put_varint(&mut body, bytes.len() as u64);
        body.extend_from_slice(&compressed);
    } else {
        body.extend_from_slice(bytes);
    }
    put_checked(out, &body);
}

/// The bytes of [`put_frame`].
///
/// # Errors
/// [`DecodeError`] when they are not what was written.
pub fn open_frame(frame: &[u8], what: &'static str) -> Result<Vec<u8>, DecodeError> {
    let malformed = DecodeError { what };
    let mut reader = Reader::new(verify_checksum(frame).ok_or(malformed)?, what);
    match reader.u8()? {
        STORED => Ok(reader.rest().to_vec()),
        COMPRESSED => {
            let length: usize = reader.varint_as()?;
            if length > FRAME_BYTES_MAX {
                return Err(malformed);
            }
            let bytes = zstd::bulk::decompress(reader.rest(), length).map_err(|_| malformed)?;
            if bytes.len() == length { Ok(bytes) } else { Err(malformed) }
        }
        _ => Err(malformed),
    }
}
