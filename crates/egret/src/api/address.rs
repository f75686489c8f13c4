//! The server that a command calls, its rights there, and the processes that may see its token.

use std::net::IpAddr;

use egret_tls::{ClientIdentity, ClientTls};
use reqwest::Url;
use rustls::ClientConfig;

use super::listener::{ListenerError, ListenerGuard};
use crate::failure::{Exit, Failure};

/// What to reach and with which rights.
#[derive(Debug)]
pub struct Address {
    /// URL of the server.
    pub url: Url,
    /// The server's own certificate (PEM), where its configuration is at hand: it alone is
    /// trusted then, whatever host it names.
    pub certificate: Option<Vec<u8>>,
    /// Certificates of authorities (PEM) that are trusted beside those of the machine.
    pub authorities: Option<Vec<u8>>,
    /// The client's own certificate and its key, where the server may ask for them.
    pub identity: Option<ClientIdentity>,
}

/// A token, and the processes that it may be shown to.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The token, where there is one.
    pub token: Option<String>,
    /// The user whose process alone may see it; `None`: any process that the address leads to.
    pub owner: Option<u32>,
}

impl Credentials {
    /// The token for a client that does not look at its connections: whose process listens is
    /// looked at now.
    ///
    /// # Errors
    /// [`Failure`]: it is not the owner's.
    pub(crate) fn into_checked_token(self, address: &Address) -> Result<Option<String>, Failure> {
        if let Some(owner) = self.owner {
            ListenerGuard::new(&address.url, owner)
                .check()
                .map_err(|error| token_not_sent(&address.url, &error))?;
        }
        Ok(self.token)
    }
}

/// A server's address without user and password: fit to be shown, and to be kept in a file.
pub(crate) fn without_credentials(url: &Url) -> Url {
    let mut shown = url.clone();
    // Refused where an address has no host alone, and so no user.
    _ = shown.set_username("");
    _ = shown.set_password(None);
    shown
}

/// The token stays here.
pub(super) fn token_not_sent(url: &Url, error: &ListenerError) -> Failure {
    Failure {
        exit: Exit::Unreachable,
        // A server that is stopped or killed after it has taken the connection listens no more.
        retryable: matches!(error, ListenerError::Unknown { .. }),
        ..Failure::failed(
            "foreign_server",
            format!("the admin token was not sent to {}: {error}", without_credentials(url)),
        )
    }
    .with_hint("name the server by --url with --token-file or EGRET_TOKEN if you trust it")
}

impl Address {
    /// TLS with the server.
    ///
    /// # Errors
    /// Which certificate or key cannot be used.
    pub fn tls(&self) -> anyhow::Result<ClientConfig> {
        let tls = ClientTls {
            certificate: self.certificate.as_deref(),
            authorities: self.authorities.as_deref(),
            identity: self.identity.as_ref(),
        };
        Ok(tls.config()?)
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.url.host_str().is_some_and(|host| {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_user_and_password() {
        for (url, expected) in [
            ("http://admin:TOPSECRET@127.0.0.1:7070", "http://127.0.0.1:7070/"),
            ("https://TOPSECRET@egret.example/a?b=c", "https://egret.example/a?b=c"),
            ("http://[::1]:7070/", "http://[::1]:7070/"),
        ] {
            let url: Url = url.parse().unwrap();
            assert_eq!(without_credentials(&url).as_str(), expected);
            let stopped = ListenerError::Unknown { port: 7070 };
            let message = token_not_sent(&url, &stopped).message;
            assert!(!message.contains("TOPSECRET"), "{message}");
        }
    }

    #[test]
    fn a_server_that_has_just_stopped_is_tried_again_and_a_foreign_one_is_not() {
        let url: Url = "http://127.0.0.1:7070".parse().unwrap();
        let stopped = ListenerError::Unknown { port: 7070 };
        assert!(token_not_sent(&url, &stopped).retryable);
        let foreign = ListenerError::Foreign { found: 7, port: 7070, owner: 0 };
        assert!(!token_not_sent(&url, &foreign).retryable);
    }
}
