//! Definitions as JSON: a file has one, or several under `collections`.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::core::json::{self, Bounds, JsonError};
use crate::core::path::{Path, push_escaped};
use crate::core::schema::SCHEMA_DEPTH_MAX;
use crate::error::DocumentsError;
use crate::model::{CollectionName, Violation};

use super::pairs::DeclaredPairs;
use super::{Definition, LocatedDefinition, MatchMode, check, invalid};

/// Bytes of a file of definitions, at most.
pub(crate) const DEFINITIONS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Depth of a schema within a file of definitions.
const SCHEMA_DEPTH_OFFSET: usize = 3;

/// A definition as it is written, before any check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredDefinition {
    pub(super) collection: CollectionName,
    #[serde(default, rename = "abstract")]
    pub(super) is_abstract: bool,
    pub(super) identity: Vec<Path>,
    pub(super) identity_mutable: Option<bool>,
    pub(super) references: Option<Vec<StrictObject<DeclaredReference>>>,
    pub(super) equal: Option<Vec<Vec<Path>>>,
    pub(super) unique: Option<Vec<Vec<Path>>>,
    pub(super) query: Option<Vec<Path>>,
    pub(super) extends: Option<Vec<StrictObject<DeclaredExtension>>>,
    pub(super) history: Option<StrictObject<DeclaredHistory>>,
    pub(super) retention_days: Option<u32>,
    pub(super) claims: Option<BTreeMap<String, Path>>,
    pub(super) schema: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredReference {
    pub(super) name: CollectionName,
    pub(super) to: CollectionName,
    pub(super) paths: DeclaredPairs,
    #[serde(rename = "match")]
    pub(super) match_mode: Option<MatchMode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredHistory {
    #[serde(default)]
    pub(super) versions: u32,
    #[serde(default)]
    pub(super) deleted: bool,
    pub(super) days: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredExtension {
    pub(super) collection: CollectionName,
    pub(super) identity: BTreeMap<Path, Path>,
}

/// A value deserialized from a JSON object only: serde would also accept an array of the fields'
/// values.
#[derive(Debug)]
pub(super) struct StrictObject<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for StrictObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StrictObjectVisitor(PhantomData))
    }
}

struct StrictObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for StrictObjectVisitor<T> {
    type Value = StrictObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StrictObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(StrictObject)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DefinitionFile {
    collections: Vec<Value>,
}

/// Reads a file: one definition, or `{"collections": [...]}`. Each is checked by itself.
///
/// # Errors
/// [`DocumentsError::DefinitionInvalid`] with all violations; [`DocumentsError::PayloadTooLarge`].
pub fn parse(bytes: &[u8]) -> Result<Vec<LocatedDefinition>, DocumentsError> {
    let bounds = Bounds {
        bytes_max: DEFINITIONS_BYTES_MAX,
        depth_max: SCHEMA_DEPTH_MAX + SCHEMA_DEPTH_OFFSET,
    };
    let file = json::parse(bytes, bounds).map_err(|error| match error {
        JsonError::Malformed { violation, .. } => invalid(vec![violation]),
        JsonError::TooLarge { bytes, bytes_max } => {
            DocumentsError::PayloadTooLarge { bytes, bytes_max, limit: "definitions_bytes_max" }
        }
    })?;
    let is_several = file.get("collections").is_some();
    let (sources, item_pointer): (Vec<Value>, fn(usize) -> String) = if is_several {
        let StrictObject(several): StrictObject<DefinitionFile> =
            deserialize(&file).map_err(|violation| invalid(vec![violation]))?;
        (several.collections, |index| format!("/collections/{index}"))
    } else {
        (vec![file], |_| String::new())
    };
    let mut definitions = Vec::new();
    let mut violations = Vec::new();
    for (index, source) in sources.into_iter().enumerate() {
        let pointer = item_pointer(index);
        match parse_one(source) {
            Ok(definition) => definitions.push(LocatedDefinition { pointer, definition }),
            Err(wrong) => violations
                .extend(wrong.into_iter().map(|wrong| wrong.with_pointer_prefix(&pointer))),
        }
    }
    if violations.is_empty() { Ok(definitions) } else { Err(invalid(violations)) }
}

/// Reads a stored [`Definition::source`], which was checked before.
///
/// # Errors
/// [`DocumentsError::DefinitionInvalid`]: it is no longer valid.
pub(crate) fn parse_stored(source: Value) -> Result<Definition, DocumentsError> {
    parse_one(source).map_err(invalid)
}

fn parse_one(source: Value) -> Result<Definition, Vec<Violation>> {
    let StrictObject(declared) = deserialize(&source).map_err(|violation| vec![violation])?;
    check::check_definition(declared, source)
}

/// Deserializes a value; an error becomes a violation with its path.
fn deserialize<T: DeserializeOwned>(value: &Value) -> Result<T, Violation> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let mut pointer = String::new();
        for segment in error.path() {
            match segment {
                Segment::Seq { index } => push_escaped(&mut pointer, &index.to_string()),
                Segment::Map { key } => push_escaped(&mut pointer, key),
                Segment::Enum { variant } => push_escaped(&mut pointer, variant),
                Segment::Unknown => {}
            }
        }
        Violation::new(pointer, error.inner().to_string())
    })
}
