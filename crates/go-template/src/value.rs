//! Values of a template, and what Go's templates do with values of any kind: truth, order, fields,
//! elements.

use std::cmp::Ordering;
use std::sync::Arc;

use egret_metrics_model::{Labels, TimeMs};

use super::Subject;

#[derive(Clone, Debug)]
pub(super) enum TemplateValue {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    /// A map of text to text; a missing key yields the empty text.
    Labels(Labels),
    List(Arc<[TemplateValue]>),
    /// A map whose keys are sorted.
    Map(Arc<[(Box<str>, TemplateValue)]>),
    Record(Arc<TemplateRecord>),
    Time(TimeMs),
    /// A length of time, in nanoseconds.
    Duration(i64),
}

#[derive(Clone, Debug)]
pub(super) enum TemplateRecord {
    /// What the template is about.
    Subject(Subject),
    /// A sample of a query's answer.
    Sample { labels: Labels, value: f64 },
}

type TemplateResult<T> = Result<T, String>;

impl TemplateValue {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// Name of the type, as Go's `%T` prints it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::Labels(_) => "map[string]string",
            Self::List(_) => "list",
            Self::Map(_) => "map[string]interface {}",
            Self::Record(_) => "sample",
            Self::Time(_) => "time.Time",
            Self::Duration(_) => "time.Duration",
        }
    }

    /// Whether `if` takes it for true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Duration(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Labels(labels) => !labels.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Record(_) | Self::Time(_) => true,
        }
    }

    /// The value as a number; text is parsed.
    pub(crate) fn to_number(&self) -> TemplateResult<f64> {
        match self {
            Self::Float(value) => Ok(*value),
            Self::Int(value) => Ok(*value as f64),
            Self::Duration(nanos) => Ok(*nanos as f64 / 1e9),
            Self::Time(time) => Ok(*time as f64 / 1e3),
            Self::Text(text) => text.parse().map_err(|_| format!("{text:?} is not a number")),
            other => Err(format!("a {} is not a number", other.type_name())),
        }
    }

    /// The value as text; an error for other types.
    pub(crate) fn as_text(&self) -> TemplateResult<&str> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(format!("wrong type: a string is expected, not {}", other.type_name())),
        }
    }

    pub(crate) fn as_int(&self) -> TemplateResult<i64> {
        match self {
            Self::Int(value) => Ok(*value),
            other => Err(format!("a whole number is expected, not {}", other.type_name())),
        }
    }

    pub(crate) fn as_list(&self) -> TemplateResult<&Arc<[TemplateValue]>> {
        match self {
            Self::List(list) => Ok(list),
            other => Err(format!("a list is expected, not {}", other.type_name())),
        }
    }

    pub(crate) fn as_sample(&self) -> TemplateResult<(&Labels, f64)> {
        match self {
            Self::Record(record) => match &**record {
                TemplateRecord::Sample { labels, value } => Ok((labels, *value)),
                TemplateRecord::Subject(subject) => Ok((&subject.labels, subject.value)),
            },
            other => Err(format!("a sample is expected, not {}", other.type_name())),
        }
    }

    /// A field of a record or an element of a map.
    pub(crate) fn field(&self, name: &str) -> TemplateResult<TemplateValue> {
        match self {
            Self::Labels(labels) => Ok(Self::text(labels.get(name))),
            Self::Map(map) => {
                let entry = map.iter().find(|(key, _)| **key == *name);
                Ok(entry.map_or(Self::Nil, |(_, value)| value.clone()))
            }
            Self::Record(record) => match (&**record, name) {
                (TemplateRecord::Subject(subject), "ExternalLabels") => {
                    Ok(Self::Labels(subject.external_labels.clone()))
                }
                (TemplateRecord::Subject(subject), "ExternalURL") => {
                    Ok(Self::Text(subject.external_url.clone()))
                }
                (_, "Labels") => Ok(Self::Labels(self.as_sample()?.0.clone())),
                (_, "Value") => Ok(Self::Float(self.as_sample()?.1)),
                _ => Err(format!("there is no field {name}")),
            },
            other => Err(format!("a {} has no field {name}", other.type_name())),
        }
    }

    /// The element at an index, as `index` returns it.
    pub(crate) fn element(&self, index: &TemplateValue) -> TemplateResult<TemplateValue> {
        match self {
            Self::Labels(_) | Self::Map(_) => self.field(index.as_text()?),
            Self::List(list) => {
                let position = index.as_int()?;
                let found = usize::try_from(position).ok().and_then(|at| list.get(at)).cloned();
                found.ok_or_else(|| format!("index {position} is out of range of {}", list.len()))
            }
            Self::Text(text) => {
                let at = index.as_int()?;
                let found = usize::try_from(at)
                    .ok()
                    .and_then(|at| text.as_bytes().get(at))
                    .map(|byte| Self::Int(i64::from(*byte)));
                found.ok_or_else(|| format!("index {at} is out of range of {}", text.len()))
            }
            other => Err(format!("a {} has no elements", other.type_name())),
        }
    }

    pub(crate) fn len(&self) -> TemplateResult<usize> {
        match self {
            Self::Text(text) => Ok(text.len()),
            Self::Labels(labels) => Ok(labels.iter().count()),
            Self::List(list) => Ok(list.len()),
            Self::Map(map) => Ok(map.len()),
            other => Err(format!("a {} has no length", other.type_name())),
        }
    }

    /// Whether two values are equal. Integers and floating-point numbers are compared as numbers.
    pub(crate) fn equals(&self, other: &Self) -> TemplateResult<bool> {
        match (self, other) {
            (Self::Nil, Self::Nil) => Ok(true),
            (Self::Nil, _) | (_, Self::Nil) => Ok(false),
            (Self::Bool(a), Self::Bool(b)) => Ok(a == b),
            (Self::Labels(_) | Self::Map(_) | Self::List(_) | Self::Record(_), _) => {
                Err(format!("a {} cannot be compared", self.type_name()))
            }
            _ => self.partial_order(other).map(|order| order == Some(Ordering::Equal)),
        }
    }

    /// The order of two values; none if one of them is NaN.
    pub(crate) fn partial_order(&self, other: &Self) -> TemplateResult<Option<Ordering>> {
        match (self, other) {
            (Self::Int(a), Self::Int(b))
            | (Self::Duration(a), Self::Duration(b))
            | (Self::Time(a), Self::Time(b)) => Ok(Some(a.cmp(b))),
            (Self::Int(a), Self::Float(b)) => Ok((*a as f64).partial_cmp(b)),
            (Self::Float(a), Self::Int(b)) => Ok(a.partial_cmp(&(*b as f64))),
            (Self::Float(a), Self::Float(b)) => Ok(a.partial_cmp(b)),
            (Self::Text(a), Self::Text(b)) => Ok(Some(a.cmp(b))),
            _ => Err(format!(
                "incompatible types for comparison: {} and {}",
                self.type_name(),
                other.type_name()
            )),
        }
    }
}
