//! What the command line says where one side of a connection speaks TLS and the other does not.

use std::error::Error as StdError;
use std::io;

use reqwest::Url;
use rustls::Error;

use super::refused_certificate::tls_error;

type Cause<'a> = &'a (dyn StdError + 'static);

/// What the server does not speak, and which scheme may be meant. `None` where the error is another
/// one.
pub(super) fn describe(error: Cause<'_>, url: &Url) -> Option<&'static str> {
    let has_cause = |predicate: fn(Cause<'_>) -> bool| {
        std::iter::successors(Some(error), |error| (*error).source()).any(predicate)
    };
    match url.scheme() {
        "https" if has_cause(is_not_tls) => {
            Some("the server at this address does not use TLS: try http://")
        }
        "http" if has_cause(is_not_http) => {
            Some("the server at this address does not accept plain HTTP: try https://")
        }
        _ => None,
    }
}

/// Whether the handshake was answered by something else than TLS, or by an end of the connection.
fn is_not_tls(error: Cause<'_>) -> bool {
    let is_end = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.to_string() == "tls handshake eof");
    is_end || matches!(tls_error(error), Some(Error::InvalidMessage(_)))
}

/// Whether a request was answered by something else than HTTP: a server with TLS answers with an
/// alert.
fn is_not_http(error: Cause<'_>) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn an_answer_without_tls_is_told_from_other_failures() {
        let encrypted: Url = "https://127.0.0.1:7070".parse().unwrap();
        let plain: Url = "http://127.0.0.1:7070".parse().unwrap();
        let invalid = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        for error in [io::Error::other(invalid), ended] {
            let error = io::Error::other(error);
            let message = describe(&error, &encrypted).unwrap();
            assert!(message.contains("http://"), "{message}");
            assert_eq!(describe(&error, &plain), None);
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(describe(&refused, &encrypted), None);
        assert_eq!(describe(&refused, &plain), None);
    }
}
