//! A progress line on standard error, if that is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// What is being done at the moment.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line that shows on a terminal.
    pub fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
            .expect("the template is a constant that parses");
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }

    /// One that never shows.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// Says what is being done now.
    pub fn show(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
    }

    /// Removes the line from the terminal.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
