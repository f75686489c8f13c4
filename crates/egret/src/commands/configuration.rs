//! `egret config`: every setting with its value and where it came from.

use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::{Output, listing};

pub(crate) fn show(configuration: &Configuration, output: Output) -> Result<(), Failure> {
    let settings = configuration.effective()?;
    if output.is_json() {
        return output.print_json(&settings);
    }
    let rows = settings.into_iter().map(|setting| vec![setting.key, setting.value, setting.origin]);
    output.print_text(&listing(&["key", "value", "origin"], rows))
}
