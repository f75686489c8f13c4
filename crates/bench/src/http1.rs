//! HTTP/1.1 by hand, for loads where a whole client would be measured as the server's.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const READ_BYTES: usize = 64 << 10;

/// A server that says nothing for this long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A response that is whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response<'a> {
    pub(crate) status: u64,
    pub(crate) body: Cow<'a, [u8]>,
    /// Its length with its head.
    used: usize,
}

impl Response<'_> {
    /// How many bytes of the connection it was.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

/// The response at the front of `bytes`; `None` while it is not whole.
///
/// # Errors
/// When it is no HTTP/1.1.
pub(crate) fn response(bytes: &[u8]) -> Result<Option<Response<'_>>> {
    let Some((first, mut used)) = line(bytes) else {
        return Ok(None);
    };
    let status = number(
        first
            .get(9..12)
            .context("the server's response is not HTTP")?,
        10,
    )?;
    let (mut length, mut chunked) = (0, false);
    loop {
        let Some((header, more)) = line(&bytes[used..]) else {
            return Ok(None);
        };
        used += more;
        if header.is_empty() {
            break;
        }
        let Some(colon) = header.iter().position(|byte| *byte == b':') else {
            bail!("a header has no colon");
        };
        let (name, value) = (&header[..colon], header[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = number(value, 10)? as usize;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            chunked = value.eq_ignore_ascii_case(b"chunked");
        }
    }
    if chunked {
        return Ok(chunks(&bytes[used..])?.map(|(body, more)| Response {
            status,
            body: Cow::Owned(body),
            used: used + more,
        }));
    }
    let body = bytes.get(used..used + length);
    Ok(body.map(|body| Response {
        status,
        body: Cow::Borrowed(body),
        used: used + length,
    }))
}

/// The body of a chunked response, and its length as it was sent.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
    let (mut body, mut used) = (Vec::new(), 0);
    loop {
        let Some((size, more)) = line(&bytes[used..]) else {
            return Ok(None);
        };
        let size = size.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = number(size.trim_ascii(), 16)? as usize;
        used += more;
        let Some(chunk) = bytes.get(used..used + size + 2) else {
            return Ok(None);
        };
        used += size + 2;
        if size == 0 {
            return Ok(Some((body, used)));
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

/// A line without its end, and how long it is with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

fn number(text: &[u8], radix: u32) -> Result<u64> {
    let parsed = std::str::from_utf8(text)
        .ok()
        .and_then(|text| u64::from_str_radix(text, radix).ok());
    parsed.with_context(|| format!("`{}` is not a number", String::from_utf8_lossy(text)))
}

/// A connection on which one request follows the other.
pub(crate) struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
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
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self {
            stream,
            inbox: Vec::new(),
            chunk: vec![0; READ_BYTES],
        })
    }

    /// Sends a whole request and returns the status and what `parse_body` makes of the body.
    ///
    /// # Errors
    /// When the connection is lost or the answer is no HTTP/1.1.
    pub(crate) fn exchange<T>(
        &mut self,
        request: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<(u64, T)> {
        self.stream.write_all(request).context("send a request")?;
        loop {
            if let Some(response) = response(&self.inbox)? {
                let (status, used) = (response.status, response.used());
                let made = read(&response.body);
                self.inbox.drain(..used);
                return Ok((status, made));
            }
            let got = self
                .stream
                .read(&mut self.chunk)
                .context("wait for a response")?;
            if got == 0 {
                bail!("the server closed the connection");
            }
            self.inbox.extend_from_slice(&self.chunk[..got]);
        }
    }
}

#[cfg(test)]
mod tests;
