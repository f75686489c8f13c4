//! The parameters of Prometheus's API: those of the address and those of a form, read as Prometheus
//! reads them.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use egret_base::Timestamp;
use egret_metrics_model::number::{DURATION_MS_MAX, parse_duration_ms};
use egret_metrics_model::{LabelMatcher, TimeMs};
use egret_promql::{QueryError, parse_selectors};
use http::header;

use crate::extract::read_body;
use crate::problem::Problem;

/// Texts that stand for the earliest and the latest time.
const TIME_LIMITS: [(&str, TimeMs); 2] = [
    ("-292273086-05-16T16:47:06Z", TimeMs::MIN),
    ("292277025-08-18T07:12:54.999999999Z", TimeMs::MAX),
];

/// The largest number of seconds that is a time.
const SECONDS_MAX: f64 = 9.2e15;

/// Names and values. What is in the form comes before what is in the address.
pub(super) struct Parameters(Vec<(String, String)>);

impl<S: Send + Sync> FromRequest<S> for Parameters {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let has_form = content_type.is_some_and(|value| {
            let form = b"application/x-www-form-urlencoded";
            let value = value.as_bytes();
            value.len() >= form.len() && value[..form.len()].eq_ignore_ascii_case(form)
        });
        let mut pairs = Vec::new();
        if has_form {
            let body = read_body(request).await?;
            pairs.extend(form_urlencoded::parse(&body).into_owned());
        }
        pairs.extend(form_urlencoded::parse(query.as_bytes()).into_owned());
        Ok(Self(pairs))
    }
}

/// The error of a parameter that cannot be used.
pub(super) fn invalid_parameter(name: &str, reason: impl std::fmt::Display) -> QueryError {
    let message = format!("invalid parameter {name:?}: {reason}");
    QueryError::Invalid { message }
}

/// The error of a request without `match[]`, in Prometheus's wording.
pub(super) fn missing_selector() -> QueryError {
    let message = "no match[] parameter provided".to_owned();
    QueryError::Invalid { message }
}

impl Parameters {
    /// The value of a parameter; empty when it is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        self.values(name).next().unwrap_or_default()
    }

    /// All values of a parameter that may be repeated.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| value.as_str())
    }

    /// A time: seconds since 1970, or RFC 3339; `None` when it is missing.
    pub(super) fn time(&self, name: &str) -> Result<Option<TimeMs>, QueryError> {
        match self.text(name) {
            "" => Ok(None),
            _ => self.required_time(name).map(Some),
        }
    }

    /// A time that may not be missing.
    pub(super) fn required_time(&self, name: &str) -> Result<TimeMs, QueryError> {
        let text = self.text(name);
        read_time(text).ok_or_else(|| {
            invalid_parameter(name, format_args!("cannot parse {text:?} to a valid timestamp"))
        })
    }

    /// A duration in milliseconds: a number of seconds, or one with units such as `5m`; `None` when
    /// it is missing.
    pub(super) fn duration_ms(&self, name: &str) -> Result<Option<i64>, QueryError> {
        match self.text(name) {
            "" => Ok(None),
            text => read_duration_ms(text).map(Some).ok_or_else(|| {
                invalid_parameter(name, format_args!("cannot parse {text:?} to a valid duration"))
            }),
        }
    }

    /// A duration that is not negative.
    pub(super) fn duration(&self, name: &str) -> Result<Option<Duration>, QueryError> {
        let Some(ms) = self.duration_ms(name)? else {
            return Ok(None);
        };
        let ms = u64::try_from(ms).map_err(|_| invalid_parameter(name, "must be 0 or more"))?;
        Ok(Some(Duration::from_millis(ms)))
    }

    /// The largest number of results; unlimited when missing or 0.
    pub(super) fn limit(&self) -> Result<usize, QueryError> {
        match self.text("limit") {
            "" | "0" => Ok(usize::MAX),
            text => text
                .parse()
                .map_err(|_| invalid_parameter("limit", "must be a whole number of 0 or more")),
        }
    }

    /// A truth value in one of the forms that Go reads; false when it is missing.
    pub(super) fn flag(&self, name: &str) -> Result<bool, QueryError> {
        match self.text(name) {
            "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            text => {
                Err(invalid_parameter(name, format_args!("{text:?} is neither true nor false")))
            }
        }
    }

    /// The selectors of `match[]`.
    pub(super) fn selectors(&self) -> Result<Vec<Vec<LabelMatcher>>, QueryError> {
        parse_selectors(self.values("match[]")).map_err(|error| invalid_parameter("match[]", error))
    }
}

/// A time: seconds since 1970, or RFC 3339.
pub(super) fn read_time(text: &str) -> Option<TimeMs> {
    let limit = TIME_LIMITS.iter().find(|(name, _)| *name == text);
    if let Some((_, time_ms)) = limit {
        return Some(*time_ms);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.abs() < SECONDS_MAX).then(|| (seconds * 1_000.0).round() as TimeMs);
    }
    if !is_rfc3339(text.as_bytes()) {
        return None;
    }
    let time: Timestamp = text.parse().ok()?;
    Some(time.as_micros().div_euclid(1_000))
}

/// Whether a text has the form of RFC 3339, without what other readers of times take besides:
/// spaces, lower case, sixty seconds.
fn is_rfc3339(text: &[u8]) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let is_match = |form: &[u8], text: &[u8]| {
        let mut pairs = form.iter().zip(text);
        form.len() == text.len()
            && pairs.all(|(form, byte)| match form {
                b'0' => byte.is_ascii_digit(),
                mark => mark == byte,
            })
    };
    let Some((date_time, rest)) = text.split_at_checked(FORM.len()) else {
        return false;
    };
    if !is_match(FORM, date_time) || date_time[17] >= b'6' {
        return false;
    }
    let zone = match rest.split_first() {
        Some((b'.', fraction)) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
            match digits.count() {
                0 => return false,
                digits => &fraction[digits..],
            }
        }
        _ => rest,
    };
    zone == b"Z" || is_match(b"+00:00", zone) || is_match(b"-00:00", zone)
}

fn read_duration_ms(text: &str) -> Option<i64> {
    let ms = match text.parse::<f64>() {
        Ok(seconds) => (seconds.abs() < SECONDS_MAX).then(|| (seconds * 1_000.0).round() as i64)?,
        // Numbers of another base, and units of less than nothing, are no durations here.
        Err(_) if text.contains(['x', 'X']) || text.starts_with('-') => return None,
        Err(_) => parse_duration_ms(text)?,
    };
    (ms.abs() <= DURATION_MS_MAX).then_some(ms)
}

#[cfg(test)]
mod tests;
