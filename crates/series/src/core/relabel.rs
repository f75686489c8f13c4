//! Relabelling as Prometheus defines it: what a target is called, which samples are kept, and under
//! which labels.
//!
//! Specification: prometheus.io/docs/prometheus/latest/configuration/configuration/#relabel_config.

use md5::{Digest, Md5};
use regex::Regex;
use serde::{Deserialize, Serialize};

use egret_metrics_model::LabelsBuilder;
use egret_metrics_model::matcher::compile_anchored;

/// A regular expression, a separator or a replacement is at most so long, in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// References of a replacement to what was matched; each may be as long as a label's value.
const REFERENCES_MAX: usize = 64;

/// Action of a relabelling step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Sets the target label to the replacement, where the sources match.
    #[default]
    Replace,
    /// Keeps what matches, and drops everything else.
    Keep,
    /// Drops what matches, and keeps everything else.
    Drop,
    /// Keeps that of which the sources are the target label.
    KeepEqual,
    /// Drops that of which the sources are the target label.
    DropEqual,
    /// Sets the target label to a hash of the sources, modulo a number.
    HashMod,
    /// Copies labels whose names match to names that the replacement makes.
    LabelMap,
    /// Takes labels away whose names match.
    LabelDrop,
    /// Takes labels away whose names do not match.
    LabelKeep,
    /// Sets the target label to the sources in lower case.
    Lowercase,
    /// Sets the target label to the sources in upper case.
    Uppercase,
}

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Keep => "keep",
            Self::Drop => "drop",
            Self::KeepEqual => "keepequal",
            Self::DropEqual => "dropequal",
            Self::HashMod => "hashmod",
            Self::LabelMap => "labelmap",
            Self::LabelDrop => "labeldrop",
            Self::LabelKeep => "labelkeep",
            Self::Lowercase => "lowercase",
            Self::Uppercase => "uppercase",
        }
    }
}

/// A step as a file has it; what is left out is as in Prometheus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RelabelConfig {
    /// Labels whose values, joined, are what is matched.
    pub source_labels: Option<Vec<String>>,
    /// Separator of the joined values; `;` if left out.
    pub separator: Option<String>,
    /// Regular expression that must match all of it; `(.*)` if left out.
    pub regex: Option<String>,
    /// Number of hash buckets for [`Action::HashMod`].
    #[serde(default)]
    pub modulus: u64,
    /// The label that is set or compared.
    pub target_label: Option<String>,
    /// New value of the target label; `$1` if left out.
    pub replacement: Option<String>,
    /// What the step does; `replace` if left out.
    #[serde(default)]
    pub action: Action,
}

/// Steps, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Relabeling {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    sources: Vec<String>,
    separator: String,
    regex: Regex,
    modulus: u64,
    target: String,
    replacement: String,
    action: Action,
}

impl Relabeling {
    /// Checks steps and compiles their expressions.
    ///
    /// # Errors
    /// What is wrong with the first invalid step.
    pub fn new(configs: &[RelabelConfig]) -> Result<Self, String> {
        let steps = configs.iter().map(Step::new).collect::<Result<_, _>>()?;
        Ok(Self { steps })
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Changes labels. Whether they are kept: when not, what is left of them means nothing.
    pub fn apply(&self, labels: &mut LabelsBuilder) -> bool {
        self.steps.iter().all(|step| step.apply(labels))
    }
}

impl Step {
    fn new(config: &RelabelConfig) -> Result<Self, String> {
        check_config(config)?;
        let text_or =
            |text: &Option<String>, default: &str| text.as_deref().unwrap_or(default).to_owned();
        let pattern = text_or(&config.regex, "(.*)");
        let regex = compile_anchored(&pattern)?;
        Ok(Self {
            sources: config.source_labels.clone().unwrap_or_default(),
            separator: text_or(&config.separator, ";"),
            regex,
            modulus: config.modulus,
            target: text_or(&config.target_label, ""),
            replacement: text_or(&config.replacement, "$1"),
            action: config.action,
        })
    }

    fn joined_sources(&self, labels: &LabelsBuilder) -> String {
        let mut joined = String::new();
        for (index, name) in self.sources.iter().enumerate() {
            if index > 0 {
                joined.push_str(&self.separator);
            }
            joined.push_str(labels.get(name));
        }
        joined
    }

    fn apply(&self, labels: &mut LabelsBuilder) -> bool {
        let source = self.joined_sources(labels);
        match self.action {
            Action::Drop => return !self.regex.is_match(&source),
            Action::Keep => return self.regex.is_match(&source),
            Action::DropEqual => return labels.get(&self.target) != source,
            Action::KeepEqual => return labels.get(&self.target) == source,
            Action::Replace => self.replace(&source, labels),
            Action::Lowercase => drop(labels.set(&self.target, &source.to_lowercase())),
            Action::Uppercase => drop(labels.set(&self.target, &source.to_uppercase())),
            Action::HashMod => {
                let bucket = md5_hash(&source) % self.modulus;
                labels.set(&self.target, &bucket.to_string());
            }
            Action::LabelMap => self.map_names(labels),
            Action::LabelDrop => drop(labels.retain(|name| !self.regex.is_match(name))),
            Action::LabelKeep => drop(labels.retain(|name| self.regex.is_match(name))),
        }
        true
    }

    fn replace(&self, source: &str, labels: &mut LabelsBuilder) {
        let Some(captures) = self.regex.captures(source) else {
            return;
        };
        let (mut target, mut value) = (String::new(), String::new());
        captures.expand(&self.target, &mut target);
        if target.is_empty() {
            return;
        }
        captures.expand(&self.replacement, &mut value);
        labels.set(&target, &value);
    }

    fn map_names(&self, labels: &mut LabelsBuilder) {
        for (name, value) in labels.build().iter() {
            if let Some(captures) = self.regex.captures(name) {
                let mut target = String::new();
                captures.expand(&self.replacement, &mut target);
                if !target.is_empty() {
                    labels.set(&target, value);
                }
            }
        }
    }
}

/// The last eight bytes of the MD5 of a text, the highest first: what Prometheus spreads targets
/// by.
pub(crate) fn md5_hash(text: &str) -> u64 {
    let digest: [u8; 16] = Md5::digest(text.as_bytes()).into();
    let (_, last) = digest.split_at(8);
    u64::from_be_bytes(last.try_into().expect("sixteen bytes less eight"))
}

fn has_reference(template: &str) -> bool {
    template.contains('$')
}

fn check_config(config: &RelabelConfig) -> Result<(), String> {
    let action = config.action;
    let name = action.as_str();
    let target = config.target_label.as_deref().unwrap_or("");
    for text in [&config.separator, &config.regex, &config.replacement] {
        if text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(format!(
                "relabel configuration has a text of more than {TEXT_BYTES_MAX} bytes"
            ));
        }
    }
    let replacement = config.replacement.as_deref().unwrap_or("");
    if replacement.matches('$').count() + target.matches('$').count() > REFERENCES_MAX {
        return Err(format!(
            "relabel configuration refers to what was matched more than {REFERENCES_MAX} times"
        ));
    }
    if action == Action::HashMod && config.modulus == 0 {
        return Err("relabel configuration for hashmod requires non-zero modulus".to_owned());
    }
    let sets_or_compares = matches!(
        action,
        Action::Replace
            | Action::HashMod
            | Action::Lowercase
            | Action::Uppercase
            | Action::KeepEqual
            | Action::DropEqual
    );
    if sets_or_compares && target.is_empty() {
        return Err(format!(
            "relabel configuration for {name} action requires 'target_label' value"
        ));
    }
    if action == Action::LabelMap && config.replacement.as_deref() == Some("") {
        return Err(format!("\"\" is invalid 'replacement' for {name} action"));
    }
    let changes_case = matches!(action, Action::Lowercase | Action::Uppercase);
    let compares = matches!(action, Action::KeepEqual | Action::DropEqual);
    if (changes_case || compares) && config.replacement.is_some() {
        return Err(format!("'replacement' can not be set for {name} action"));
    }
    if (changes_case || compares || action == Action::HashMod) && has_reference(target) {
        return Err(format!("{target:?} is invalid 'target_label' for {name} action"));
    }
    if compares && (config.regex.is_some() || config.separator.is_some() || config.modulus > 0) {
        return Err(format!(
            "{name} action requires only 'source_labels' and 'target_label', and no other fields"
        ));
    }
    let by_name = matches!(action, Action::LabelDrop | Action::LabelKeep);
    let has_others = config.source_labels.is_some()
        || config.target_label.is_some()
        || config.separator.is_some()
        || config.replacement.is_some()
        || config.modulus > 0;
    if by_name && has_others {
        return Err(format!("{name} action requires only 'regex', and no other fields"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
