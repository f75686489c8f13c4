//! Bodies that may be compressed by gzip. Both the compressed and the decompressed size are
//! bounded.

use std::io::{Read, Write as _};

use axum::extract::Request;
use bytes::Bytes;
use egret_base::Limit;
use egret_metrics_wire::{WireError, snappy};
use egret_series::{SeriesConfig, SeriesError};
use flate2::read::MultiGzDecoder;
use flate2::write;
use http::{HeaderMap, header};
use tokio::runtime::Handle;

use crate::error::RequestError;
use crate::extract::{BodyMemory, read_bounded};
use crate::problem::Problem;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
}

impl Encoding {
    /// Reads the encoding from the headers.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, RequestError> {
        let header = headers.get(header::CONTENT_ENCODING);
        match header.map(|name| name.as_bytes()) {
            None | Some(b"" | b"identity") => Ok(Self::Plain),
            Some(b"gzip") => Ok(Self::Gzip),
            Some(other) => Err(RequestError::MediaType {
                found: format!("encoded as `{}`", String::from_utf8_lossy(other)),
                expected: "bodies without compression, or with gzip",
            }),
        }
    }
}

fn compression_error(error: &std::io::Error) -> WireError {
    WireError::Compression { encoding: "gzip", problem: error.to_string() }
}

/// A larger body is worked on by a thread that may be busy for long, so that other requests need
/// not wait for it.
const LARGE_BYTES: usize = 1 << 20;

/// A larger gzip body may be large once it is decompressed: gzip compresses to a thousandth at
/// best.
const LARGE_GZIP_BYTES: usize = 32 << 10;

/// Runs `work` on a body; for a large one on a blocking thread.
pub(super) async fn process_body<T, Work>(
    body: Bytes,
    work: impl FnOnce(Bytes) -> Work + Send + 'static,
) -> Result<T, SeriesError>
where
    T: Send + 'static,
    Work: Future<Output = Result<T, SeriesError>>,
{
    if body.len() <= LARGE_BYTES {
        return work(body).await;
    }
    let runtime = Handle::current();
    run_blocking(move || runtime.block_on(work(body))).await
}

/// Runs long work on a blocking thread.
async fn run_blocking<T: Send + 'static, E: From<SeriesError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(SeriesError::Stopping.into()),
    }
}

/// The limit on a body as it comes in.
pub(super) fn request_limit(config: &SeriesConfig) -> Limit {
    Limit::new("series.request_bytes_max", config.request_bytes_max.bytes())
}

/// Reads a whole body, and decompresses it. Both are counted as memory of the request's token.
pub(super) async fn read_decompressed(
    request: Request,
    config: &SeriesConfig,
) -> Result<Bytes, Problem> {
    let encoding = Encoding::from_headers(request.headers())?;
    let memory = BodyMemory::from_request(&request);
    let body = read_bounded(request, request_limit(config)).await?;
    if encoding == Encoding::Plain {
        return Ok(body);
    }
    let limit = decoded_limit(config);
    let decompressed = if body.len() <= LARGE_GZIP_BYTES {
        decompress(&body, limit, &memory)
    } else {
        run_blocking(move || decompress(&body, limit, &memory)).await
    };
    decompressed.map_err(|problem| *problem)
}

impl From<SeriesError> for Box<Problem> {
    fn from(error: SeriesError) -> Self {
        Box::new(error.into())
    }
}

/// Reads a whole body that is a block of snappy. Reserves memory for its decoded size as well; it
/// is decoded later.
pub(super) async fn read_snappy(request: Request, config: &SeriesConfig) -> Result<Bytes, Problem> {
    let memory = BodyMemory::from_request(&request);
    let body = read_bounded(request, request_limit(config)).await?;
    // A body whose length cannot be read, or is too large, is refused before it is decoded.
    let decoded_bytes = snappy::decoded_bytes(&body).unwrap_or_default();
    if decoded_limit(config).check(decoded_bytes).is_ok() {
        memory.reserve(decoded_bytes)?;
    }
    Ok(body)
}

/// The limit on the decoded size of a body.
fn decoded_limit(config: &SeriesConfig) -> Limit {
    Limit::new("series.decoded_bytes_max", config.decoded_bytes_max.bytes())
}

/// The least memory that is reserved at once while a body is decompressed, in bytes.
const DECODED_STEP_BYTES: usize = 64 << 10;

fn decompress(body: &[u8], limit: Limit, memory: &BodyMemory) -> Result<Bytes, Box<Problem>> {
    let mut decompressed = Vec::new();
    let mut decoder = MultiGzDecoder::new(body);
    loop {
        // Memory grows by a quarter, each time after it was reserved: a body that decompresses to a
        // thousand times its size cannot exceed the quota.
        let step = (decompressed.len() / 4).max(DECODED_STEP_BYTES);
        let reserved = memory.reserve(step as u64);
        reserved.map_err(|error| Box::new(Problem::from(error)))?;
        decompressed.reserve_exact(step);
        let mut piece = decoder.by_ref().take(step as u64);
        let read = piece
            .read_to_end(&mut decompressed)
            .map_err(|error| SeriesError::from(compression_error(&error)))?;
        let size = limit.check(decompressed.len() as u64);
        size.map_err(|error| SeriesError::from(WireError::from(error)))?;
        if read < step {
            return Ok(decompressed.into());
        }
    }
}

/// Decompresses a body piece by piece.
pub(super) enum Decoder {
    Plain,
    Gzip(Box<write::MultiGzDecoder<Vec<u8>>>),
}

impl Decoder {
    pub(super) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Plain => Self::Plain,
            Encoding::Gzip => Self::Gzip(Box::new(write::MultiGzDecoder::new(Vec::new()))),
        }
    }

    /// Decompresses the next piece of the body.
    pub(super) fn decode(&mut self, piece: Bytes) -> Result<Bytes, WireError> {
        match self {
            Self::Plain => Ok(piece),
            Self::Gzip(decoder) => {
                decoder.write_all(&piece).map_err(|error| compression_error(&error))?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
        }
    }

    /// Returns the rest at the end of the body.
    pub(super) fn finish(self) -> Result<Bytes, WireError> {
        match self {
            Self::Plain => Ok(Bytes::new()),
            Self::Gzip(decoder) => {
                let rest = decoder.finish().map_err(|error| compression_error(&error))?;
                Ok(rest.into())
            }
        }
    }
}

#[cfg(test)]
mod tests;
