//! How far a load of the demo's data has come, and the bar that shows it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// How far a load has come, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadProgress {
    /// Rows sent so far, of all rows.
    Rows {
        /// Number of rows sent so far.
        sent: u64,
        /// Number of rows to be sent in all.
        total: u64,
    },
    /// The rows are there; keys, indexes and statistics are being made.
    Keys,
}

/// A bar for the rows of a demo load, on standard error when that is a terminal.
pub(super) fn loading_bar() -> impl FnMut(LoadProgress) + Send {
    let style =
        ProgressStyle::with_template("loading flights {wide_bar} {human_pos} of {human_len} rows")
            .expect("the template is a constant that parses");
    let making_keys = ProgressStyle::with_template("{spinner} creating keys and indexes {elapsed}")
        .expect("the template is a constant that parses");
    let bar = ProgressBar::new(0).with_style(style).with_finish(ProgressFinish::AndClear);
    move |progress| match progress {
        LoadProgress::Rows { sent, total } => {
            bar.set_length(total);
            bar.set_position(sent);
        }
        LoadProgress::Keys => {
            bar.set_style(making_keys.clone());
            // Nothing is reported until they are there: the clock shows that work goes on.
            bar.enable_steady_tick(Duration::from_millis(100));
        }
    }
}
