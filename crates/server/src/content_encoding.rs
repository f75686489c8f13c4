//! Bodies that are compressed (RFC 9110, 8.4): by gzip (RFC 1952) or zstd (RFC 8878).

use std::io::Read;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, header};
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::error::RequestError;
use crate::extract::BodyMemory;

/// How the body of a request is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Identity,
    Gzip,
    Zstd,
}

/// A larger body is decompressed by a thread that may be busy for long, so that other requests need
/// not wait for it.
const LARGE_BYTES: usize = 32 << 10;

/// The least memory that is reserved at once while a body is decompressed, in bytes.
const STEP_BYTES: usize = 64 << 10;

/// Largest window of zstd, as a power of two: the 8 MiB that RFC 9659 sets for `Content-Encoding`.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

impl ContentEncoding {
    /// The encodings, as the header `Accept-Encoding` has them.
    pub(crate) const ACCEPTED: &str = "gzip, zstd";

    /// Reads the encoding from the headers.
    ///
    /// # Errors
    /// [`RequestError::ContentEncoding`] names the one that was sent.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, RequestError> {
        let values = headers.get_all(header::CONTENT_ENCODING).iter();
        let names = values.flat_map(|value| value.to_str().unwrap_or("unreadable").split(','));
        let names = names.map(|name| name.trim().to_ascii_lowercase());
        let names: Vec<String> =
            names.filter(|name| !name.is_empty() && name != "identity").collect();
        match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Self::Identity),
            ["gzip" | "x-gzip"] => Ok(Self::Gzip),
            ["zstd"] => Ok(Self::Zstd),
            // Several encodings, one over another, are a way to large bodies and no use.
            _ => Err(RequestError::ContentEncoding { found: names.join(", ") }),
        }
    }

    /// Decompresses a body of at most `bytes_max` decompressed bytes; they are counted as memory of
    /// the request.
    ///
    /// # Errors
    /// [`RequestError::BodyTooLarge`], [`RequestError::BodyNotDecoded`], and those of quotas.
    pub(crate) async fn decode(
        self,
        body: Bytes,
        bytes_max: u64,
        memory: BodyMemory,
    ) -> Result<Bytes, RequestError> {
        if self == Self::Identity || body.is_empty() {
            return Ok(body);
        }
        if body.len() <= LARGE_BYTES {
            return self.decompress(&body, bytes_max, &memory);
        }
        let work = move || self.decompress(&body, bytes_max, &memory);
        match tokio::task::spawn_blocking(work).await {
            Ok(decoded) => decoded,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn decompress(
        self,
        body: &[u8],
        bytes_max: u64,
        memory: &BodyMemory,
    ) -> Result<Bytes, RequestError> {
        match self {
            Self::Identity => Ok(Bytes::copy_from_slice(body)),
            Self::Gzip => self.read_decoded(MultiGzDecoder::new(body), bytes_max, memory),
            Self::Zstd => {
                let mut decoder =
                    ZstdDecoder::with_buffer(body).map_err(|error| self.broken(&error))?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|error| self.broken(&error))?;
                self.read_decoded(decoder, bytes_max, memory)
            }
        }
    }

    fn read_decoded(
        self,
        mut decoder: impl Read,
        bytes_max: u64,
        memory: &BodyMemory,
    ) -> Result<Bytes, RequestError> {
        let mut decoded = Vec::new();
        loop {
            // Memory grows by a quarter, each time after it was reserved: a body that decompresses
            // to a thousand times its size cannot exceed the quota.
            let step = (decoded.len() / 4).max(STEP_BYTES);
            memory.reserve(step as u64)?;
            decoded.reserve_exact(step);
            let mut piece = decoder.by_ref().take(step as u64);
            let length = piece.read_to_end(&mut decoded).map_err(|error| self.broken(&error))?;
            if decoded.len() as u64 > bytes_max {
                return Err(RequestError::BodyTooLarge { max: bytes_max });
            }
            if length < step {
                return Ok(decoded.into());
            }
        }
    }

    fn broken(self, error: &dyn std::error::Error) -> RequestError {
        RequestError::BodyNotDecoded {
            encoding: match self {
                Self::Identity => "plain",
                Self::Gzip => "gzip",
                Self::Zstd => "zstd",
            },
            message: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
