//! HTTP/1.1 by hand, for loads where a whole client would be measured as the server's.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const READ_BYTES: usize = 64 << 10;

/// A server that says nothing for this long has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// A response that is whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response<'a> {
    pub(crate) status: u64,
    pub(crate) body: Cow<'a, [u8]>,
    /// Its length with its head.
    total_length: usize,
}

impl Response<'_> {
    /// How many bytes of the connection it was.
    pub(crate) fn total_length(&self) -> usize {
        self.total_length
    }
}

/// The response at the front of `bytes`; `None` while it is not whole.
///
/// # Errors
/// When it is no HTTP/1.1.
pub(crate) fn parse_response(bytes: &[u8]) -> Result<Option<Response<'_>>> {
    let Some((first, mut consumed)) = split_line(bytes) else {
        return Ok(None);
    };
    let status = parse_number(first.get(9..12).context("the server's response is not HTTP")?, 10)?;
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let Some((header, line_length)) = split_line(&bytes[consumed..]) else {
            return Ok(None);
        };
        consumed += line_length;
        if header.is_empty() {
            break;
        }
        let Some(colon) = header.iter().position(|byte| *byte == b':') else {
            bail!("a header has no colon");
        };
        let (name, value) = (&header[..colon], header[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = parse_number(value, 10)? as usize;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            is_chunked = value.eq_ignore_ascii_case(b"chunked");
        }
    }
    if is_chunked {
        return Ok(decode_chunks(&bytes[consumed..])?.map(|(body, more)| Response {
            status,
            body: Cow::Owned(body),
            total_length: consumed + more,
        }));
    }
    let body = bytes.get(consumed..consumed + length);
    Ok(body.map(|body| Response {
        status,
        body: Cow::Borrowed(body),
        total_length: consumed + length,
    }))
}

/// The body of a chunked response, and its length as it was sent.
fn decode_chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
    let (mut body, mut consumed) = (Vec::new(), 0);
    loop {
        let Some((size, line_length)) = split_line(&bytes[consumed..]) else {
            return Ok(None);
        };
        let size = size.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = parse_number(size.trim_ascii(), 16)? as usize;
        consumed += line_length;
        let Some(chunk) = bytes.get(consumed..consumed + size + 2) else {
            return Ok(None);
        };
        consumed += size + 2;
        if size == 0 {
            return Ok(Some((body, consumed)));
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

/// A line without its end, and how long it is with it.
fn split_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

fn parse_number(text: &[u8], radix: u32) -> Result<u64> {
    let parsed =
        std::str::from_utf8(text).ok().and_then(|text| u64::from_str_radix(text, radix).ok());
    parsed.with_context(|| format!("`{}` is not a number", String::from_utf8_lossy(text)))
}

/// A connection on which one request follows the other.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    chunk: Vec<u8>,
}

impl Connection {
    /// Connects to a host and port.
    ///
    /// # Errors
    /// If the connection cannot be established.
    pub(crate) fn open(host: &str) -> Result<Self> {
        let stream = TcpStream::connect(host).with_context(|| format!("connect to {host}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { stream, buffer: Vec::new(), chunk: vec![0; READ_BYTES] })
    }

    /// Sends a whole request and returns the status and what `parse_body` makes of the body.
    ///
    /// # Errors
    /// When the connection is lost or the answer is no HTTP/1.1.
    pub(crate) fn exchange<T>(
        &mut self,
        request: &[u8],
        parse_body: impl FnOnce(&[u8]) -> T,
    ) -> Result<(u64, T)> {
        self.stream.write_all(request).context("send a request")?;
        loop {
            if let Some(response) = parse_response(&self.buffer)? {
                let (status, used) = (response.status, response.total_length());
                let parsed = parse_body(&response.body);
                self.buffer.drain(..used);
                return Ok((status, parsed));
            }
            let count = self.stream.read(&mut self.chunk).context("wait for a response")?;
            if count == 0 {
                bail!("the server closed the connection");
            }
            self.buffer.extend_from_slice(&self.chunk[..count]);
        }
    }
}

#[cfg(test)]
mod tests;
