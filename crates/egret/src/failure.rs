//! Why a command failed, what to do about it, and the exit code for scripts.

use std::fmt;

use clap::error::ErrorKind;
use serde_json::{Value as Json, json};

/// The failure of a command, as it is printed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the program.
    pub exit: Exit,
    /// A stable identifier, the server's where it gave one.
    pub code: String,
    /// What failed: lowercase, one line.
    pub message: String,
    /// What the user can do about it.
    pub hint: Option<String>,
    /// The server's id of the request, for its log.
    pub request_id: Option<String>,
    /// Whether the same may succeed later.
    pub retryable: bool,
    /// Position of the error in the text that was sent, from 1.
    pub position: Option<usize>,
}

/// The documented exit codes other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command was understood and failed.
    Failed = 1,
    /// Command line or configuration is wrong.
    Usage = 2,
    /// The server does not answer.
    Unreachable = 3,
}

impl Failure {
    /// A failure of the command itself, with exit code 1.
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            code: code.to_owned(),
            message: message.into(),
            hint: None,
            request_id: None,
            retryable: false,
            position: None,
        }
    }

    /// Command line or configuration is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::failed("usage", message) }
    }

    /// Adds advice to the failure.
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// As `--json` prints it.
    pub(crate) fn to_json(&self) -> Json {
        json!({
            "error": {
                "code": self.code,
                "detail": self.message,
                "hint": self.hint,
                "request_id": self.request_id,
                "position": self.position,
                "exit_code": self.exit as u8,
            }
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed("failed", format!("{error:#}"))
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let missing =
            [ErrorKind::MissingSubcommand, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
        if missing.contains(&error.kind()) {
            return Self::usage("a command is missing").with_hint("`egret help` lists them");
        }
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        match text.split_once("\n\n") {
            Some((message, rest)) => Self::usage(message).with_hint(rest.trim()),
            None => Self::usage(text),
        }
    }
}

impl From<egret_base::settings::SettingError> for Failure {
    fn from(error: egret_base::settings::SettingError) -> Self {
        Self::usage(error.to_string())
    }
}
