//! The error contract: every engine's error says what kind it is, carries a stable code, and says
//! whether a retry can help. The frontends map it to HTTP problem+json and gRPC status.

/// The family an error belongs to; it decides the HTTP and gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is malformed or out of range. HTTP 400, gRPC `INVALID_ARGUMENT`.
    Invalid,
    /// No valid token or password. HTTP 401, gRPC `UNAUTHENTICATED`.
    Unauthenticated,
    /// The token does not carry the needed scope. HTTP 403, gRPC `PERMISSION_DENIED`.
    Denied,
    /// The named thing does not exist. HTTP 404, gRPC `NOT_FOUND`.
    NotFound,
    /// The request contradicts the present state. HTTP 409, gRPC `FAILED_PRECONDITION`.
    Conflict,
    /// A condition that the request names does not hold. HTTP 412, gRPC `FAILED_PRECONDITION`.
    Mismatch,
    /// What was asked for was there, and is not kept any more. HTTP 410, gRPC `OUT_OF_RANGE`.
    Gone,
    /// The request body is larger than its limit. HTTP 413, gRPC `RESOURCE_EXHAUSTED`.
    TooLarge,
    /// A named limit is reached for this caller. HTTP 429, gRPC `RESOURCE_EXHAUSTED`.
    LimitReached,
    /// Something needed is not there at the moment. HTTP 503, gRPC `UNAVAILABLE`.
    Unavailable,
    /// The time allowed has passed. HTTP 504, gRPC `DEADLINE_EXCEEDED`.
    TimedOut,
    /// A fault of Egret or of the machine under it. HTTP 500, gRPC `INTERNAL`.
    Internal,
}

/// What every error that crosses a layer's edge can say about itself.
///
/// `Display` gives the message: lowercase, what failed, with which value, what to do.
pub trait CodedError: std::error::Error + Send + Sync + 'static {
    /// A stable, documented identifier such as `branch_not_found`.
    fn code(&self) -> &'static str;

    /// The family the error belongs to.
    fn kind(&self) -> Kind;

    /// Whether the same request may succeed later without being changed.
    fn retryable(&self) -> bool {
        matches!(self.kind(), Kind::LimitReached | Kind::Unavailable | Kind::TimedOut)
    }
}

/// The message of an error with those of its sources, separated by `: `. A message that the text
/// contains already is left out.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let message = inner.to_string();
        if !contains_message(&text, &message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = inner.source();
    }
    text
}

/// Whether a text contains a message, other than as part of a word.
fn contains_message(text: &str, message: &str) -> bool {
    let is_in_word = |neighbour: Option<char>| neighbour.is_some_and(char::is_alphanumeric);
    message.is_empty()
        || text.match_indices(message).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + message.len()..]);
            !is_in_word(before.chars().next_back()) && !is_in_word(after.chars().next())
        })
}

#[cfg(test)]
mod tests;
