//! Checks the URLs of callbacks: allowed destinations, without credentials.

use egret_outgoing::Destinations;

use crate::error::QueueError;

/// Refuses a URL that callbacks cannot use.
///
/// # Errors
/// [`QueueError::Invalid`].
pub(crate) fn check_callback_url(url: &str, destinations: &Destinations) -> Result<(), QueueError> {
    let invalid = |reason: String| QueueError::Invalid { what: "callback_url", reason };
    let parsed = destinations.check(url).map_err(|error| invalid(error.to_string()))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(invalid("it must not hold a user name or a password".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_destination_is_refused() {
        let public = Destinations::new("").unwrap();
        check_callback_url("https://example.org/done?x=1", &public).unwrap();
        check_callback_url("http://127.0.0.1:8080/done", &Destinations::allow_all()).unwrap();
        let refused = [
            "ftp://example.org",
            "example.org",
            "https://user@example.org",
            "http://127.0.0.1/",
            "http://169.254.169.254/latest/meta-data",
        ];
        for url in refused {
            let refused = check_callback_url(url, &public).unwrap_err().to_string();
            assert!(refused.contains("callback_url"), "{url}: {refused}");
        }
    }
}
