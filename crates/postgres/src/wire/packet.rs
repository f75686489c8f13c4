//! What a client sends before it is authenticated, decoded without trust.
//!
//! The caller that reads the bytes limits their number; nothing here allocates more than it was
//! given.

use std::collections::BTreeMap;

use super::session::BackendKey;

const CANCEL_CODE: u32 = 0x04D2_162E;
const SSL_CODE: u32 = 0x04D2_162F;
const GSSENC_CODE: u32 = 0x04D2_1630;

/// The first packets of a connection, which have a length but no tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstPacket {
    /// The client asks for TLS; the answer is one byte, `S` or `N`.
    Ssl,
    /// The client asks for GSSAPI encryption; the answer is one byte, `G` or `N`.
    GssEncryption,
    /// The client asks to cancel what a backend does; there is no answer.
    Cancel(BackendKey),
    /// The client wants a session.
    Startup(StartupPacket),
}

/// A client's request for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartupPacket {
    /// The minor version asked for, above 3.0.
    pub minor: u16,
    /// Protocol options (`_pq_.…`), in the packet's order.
    pub protocol_options: Vec<String>,
    /// Every other parameter. Of one given twice the last value counts, as in PostgreSQL.
    pub parameters: BTreeMap<String, String>,
}

/// Why a packet cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// A protocol of another major version. SQLSTATE 0A000.
    #[error("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0")]
    Version {
        /// The major version asked for.
        major: u16,
        /// The minor version asked for.
        minor: u16,
    },
    /// Anything else. SQLSTATE 08P01.
    #[error("{0}")]
    Malformed(&'static str),
}

impl FirstPacket {
    /// Decodes a packet without its length field.
    ///
    /// # Errors
    /// [`PacketError`] when it is none of the four packets.
    pub fn decode(packet: &[u8]) -> Result<Self, PacketError> {
        let Some((code, rest)) = packet.split_first_chunk::<4>() else {
            return Err(PacketError::Malformed("invalid length of startup packet"));
        };
        match u32::from_be_bytes(*code) {
            SSL_CODE if rest.is_empty() => Ok(FirstPacket::Ssl),
            GSSENC_CODE if rest.is_empty() => Ok(FirstPacket::GssEncryption),
            CANCEL_CODE => decode_cancel(rest).map(FirstPacket::Cancel),
            version => decode_startup(version, rest).map(FirstPacket::Startup),
        }
    }
}

fn decode_cancel(rest: &[u8]) -> Result<BackendKey, PacketError> {
    let key: &[u8; 8] = rest
        .try_into()
        .map_err(|_| PacketError::Malformed("invalid length of cancel request packet"))?;
    let [a, b, c, d, e, f, g, h] = *key;
    Ok(BackendKey {
        pid: i32::from_be_bytes([a, b, c, d]),
        secret: i32::from_be_bytes([e, f, g, h]),
    })
}

fn decode_startup(version: u32, mut rest: &[u8]) -> Result<StartupPacket, PacketError> {
    let (major, minor) = ((version >> 16) as u16, (version & 0xFFFF) as u16);
    if major != 3 {
        return Err(PacketError::Version { major, minor });
    }
    let mut packet = StartupPacket { minor, ..StartupPacket::default() };
    loop {
        let name = take_text(&mut rest)?;
        if name.is_empty() {
            break;
        }
        if name.starts_with("_pq_.") {
            take_text(&mut rest)?;
            packet.protocol_options.push(name.to_owned());
        } else {
            let value = take_text(&mut rest)?;
            packet.parameters.insert(name.to_owned(), value.to_owned());
        }
    }
    if !rest.is_empty() {
        return Err(PacketError::Malformed(
            "invalid startup packet layout: expected terminator as last byte",
        ));
    }
    Ok(packet)
}

/// The client's choice of a SASL mechanism with its first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslInitialResponse<'a> {
    /// Name of the mechanism, such as `SCRAM-SHA-256`.
    pub mechanism: &'a str,
    /// The mechanism's first message.
    pub data: &'a [u8],
}

impl<'a> SaslInitialResponse<'a> {
    /// Decodes the body of the message.
    ///
    /// # Errors
    /// [`PacketError::Malformed`] when a length is wrong, or there is no first message.
    pub fn decode(mut body: &'a [u8]) -> Result<Self, PacketError> {
        let mechanism = take_text(&mut body)?;
        let Some((length, data)) = body.split_first_chunk::<4>() else {
            return Err(PacketError::Malformed("insufficient data left in message"));
        };
        if usize::try_from(i32::from_be_bytes(*length)) != Ok(data.len()) {
            return Err(PacketError::Malformed("invalid length of SASL initial response"));
        }
        Ok(Self { mechanism, data })
    }
}

/// Takes text up to a zero byte.
fn take_text<'a>(rest: &mut &'a [u8]) -> Result<&'a str, PacketError> {
    let end = rest.iter().position(|byte| *byte == 0).ok_or(PacketError::Malformed(
        "invalid startup packet layout: expected terminator as last byte",
    ))?;
    let text = std::str::from_utf8(&rest[..end]).map_err(|_| {
        PacketError::Malformed("names and values in the startup packet must be UTF-8")
    })?;
    *rest = &rest[end + 1..];
    Ok(text)
}

#[cfg(test)]
mod tests;
