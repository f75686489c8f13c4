//! The reference page of all settings, made from what each section declares.

use std::fmt::Write;

use super::{declared_settings, variable_name};

/// A Markdown page with every setting: meaning, form, default, variable.
pub fn reference() -> String {
    let mut page = String::from(
        "# Settings\n\nMade by `egret config --reference`. A value is read from `egret.toml`, \
         then from the environment, then from\n`--set section.key=value`; the last one found \
         applies. `egret config` shows the effective values and their sources.\n",
    );
    let mut section = String::new();
    for setting in declared_settings() {
        let (name, _) = setting.key.split_once('.').unwrap_or_default();
        if name != section {
            name.clone_into(&mut section);
            write!(page, "\n## [{name}]\n").expect("writing to a string works");
        }
        let meaning = setting.doc.split_whitespace().collect::<Vec<_>>().join(" ");
        let default = match setting.default.as_str() {
            "" => "none".to_owned(),
            text => format!("`{text}`"),
        };
        write!(
            page,
            "\n### {}\n\n{meaning}\n\n- takes {}\n- default: {default}\n- variable: `{}`\n",
            setting.key,
            setting.form,
            variable_name(&setting.key),
        )
        .expect("writing to a string works");
    }
    page
}
