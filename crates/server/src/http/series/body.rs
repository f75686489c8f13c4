//! Bodies that may be compressed by gzip. What one may become is bounded like what it may be.

use std::io::{Read, Write as _};

use axum::extract::Request;
use bytes::Bytes;
use egret_base::Limit;
use egret_series::SeriesConfig;
use egret_series::wire::WireError;
use flate2::read::MultiGzDecoder;
use flate2::write;
use http::{HeaderMap, header};

use crate::error::RequestError;
use crate::extract::read_bounded;
use crate::problem::Problem;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
}

impl Encoding {
    /// What the headers say.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, RequestError> {
        let named = headers.get(header::CONTENT_ENCODING);
        match named.map(|name| name.as_bytes()) {
            None | Some(b"" | b"identity") => Ok(Self::Plain),
            Some(b"gzip") => Ok(Self::Gzip),
            Some(other) => Err(RequestError::MediaType {
                found: format!("encoded as `{}`", String::from_utf8_lossy(other)),
                expected: "what is not compressed, or gzip",
            }),
        }
    }
}

fn broken(error: &std::io::Error) -> WireError {
    WireError::Compression {
        encoding: "gzip",
        problem: error.to_string(),
    }
}

/// The limit on a body as it comes in.
pub(super) fn request_limit(config: &SeriesConfig) -> Limit {
    Limit::new("series.request_bytes_max", config.request_bytes_max.bytes())
}

/// Reads a whole body, and decompresses it.
pub(super) async fn read_whole(request: Request, config: &SeriesConfig) -> Result<Bytes, Problem> {
    let encoding = Encoding::of(request.headers())?;
    let body = read_bounded(request.into_body(), request_limit(config)).await?;
    if encoding == Encoding::Plain {
        return Ok(body);
    }
    let limit = Limit::new("series.decoded_bytes_max", config.decoded_bytes_max.bytes());
    let mut plain = Vec::new();
    let mut decoder = MultiGzDecoder::new(&*body).take(limit.max.saturating_add(1));
    decoder
        .read_to_end(&mut plain)
        .map_err(|error| broken(&error))?;
    limit.check(plain.len() as u64).map_err(WireError::from)?;
    Ok(plain.into())
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

    /// What a piece becomes.
    pub(super) fn decode(&mut self, piece: Bytes) -> Result<Bytes, WireError> {
        match self {
            Self::Plain => Ok(piece),
            Self::Gzip(decoder) => {
                decoder.write_all(&piece).map_err(|error| broken(&error))?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
        }
    }

    /// What is left at the end.
    pub(super) fn finish(self) -> Result<Bytes, WireError> {
        match self {
            Self::Plain => Ok(Bytes::new()),
            Self::Gzip(decoder) => {
                let rest = decoder.finish().map_err(|error| broken(&error))?;
                Ok(rest.into())
            }
        }
    }
}

#[cfg(test)]
mod tests;
