//! The messages the proxy itself sends to clients, in PostgreSQL's format.

use bytes::{BufMut, BytesMut};
use egret_postgres::wire::{BackendKey, RawSession, scram};

use super::directory::ConnectionRefusal;

/// Protocol 3.0, the only version the proxy speaks.
const VERSION: i32 = 3 << 16;

/// An ErrorResponse after which the connection ends.
pub(super) fn fatal_error(refusal: &ConnectionRefusal) -> BytesMut {
    let mut reply = BytesMut::new();
    let hint = refusal.hint.as_deref();
    let fields = [
        (b'S', Some("FATAL")),
        (b'V', Some("FATAL")),
        (b'C', Some(refusal.sqlstate)),
        (b'M', Some(refusal.message.as_str())),
        (b'H', hint),
    ];
    put_message(&mut reply, b'E', |body| {
        for (field, value) in fields {
            if let Some(value) = value {
                body.put_u8(field);
                put_text(body, value);
            }
        }
        body.put_u8(0);
    });
    reply
}

/// NegotiateProtocolVersion: only 3.0, and none of the options.
pub(super) fn negotiate_version(options: &[String]) -> BytesMut {
    let mut reply = BytesMut::new();
    put_message(&mut reply, b'v', |body| {
        body.put_i32(VERSION);
        body.put_i32(i32::try_from(options.len()).expect("a startup packet is small"));
        for option in options {
            put_text(body, option);
        }
    });
    reply
}

/// AuthenticationSASL with the one mechanism there is.
pub(super) fn sasl_mechanisms() -> BytesMut {
    let mut reply = BytesMut::new();
    put_message(&mut reply, b'R', |body| {
        body.put_i32(10);
        put_text(body, scram::MECHANISM);
        body.put_u8(0);
    });
    reply
}

/// Encodes the message AuthenticationSASLContinue.
pub(super) fn sasl_continue(data: &str) -> BytesMut {
    let mut reply = BytesMut::new();
    put_message(&mut reply, b'R', |body| {
        body.put_i32(11);
        body.put_slice(data.as_bytes());
    });
    reply
}

/// Encodes the messages AuthenticationSASLFinal and AuthenticationOk.
pub(super) fn authenticated(data: &str) -> BytesMut {
    let mut reply = BytesMut::new();
    put_message(&mut reply, b'R', |body| {
        body.put_i32(12);
        body.put_slice(data.as_bytes());
    });
    put_message(&mut reply, b'R', |body| body.put_i32(0));
    reply
}

/// The messages that begin a session: the server's settings and notices, the key, and
/// ReadyForQuery.
pub(super) fn session_start(session: &RawSession) -> BytesMut {
    let mut reply = BytesMut::new();
    for notice in &session.notices {
        reply.extend_from_slice(notice);
    }
    for (name, value) in &session.parameters {
        put_message(&mut reply, b'S', |body| {
            put_text(body, name);
            put_text(body, value);
        });
    }
    let BackendKey { pid, secret } = session.key;
    put_message(&mut reply, b'K', |body| {
        body.put_i32(pid);
        body.put_i32(secret);
    });
    put_message(&mut reply, b'Z', |body| body.put_u8(b'I'));
    reply
}

fn put_message(reply: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) {
    let mut body = BytesMut::new();
    write(&mut body);
    reply.put_u8(tag);
    reply.put_i32(i32::try_from(body.len() + 4).expect("the proxy's own messages are small"));
    reply.unsplit(body);
}

fn put_text(body: &mut BytesMut, text: &str) {
    // A zero byte would end the field early and let the rest pass for other fields.
    body.extend(text.bytes().filter(|byte| *byte != 0));
    body.put_u8(0);
}

#[cfg(test)]
mod tests;
