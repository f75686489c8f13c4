//! Checks of a single definition: counts, and the types that its schema allows at every path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::core::path::{Path, push_escaped};
use crate::core::schema::{Scalar, Schema, SchemaShape, Types};
use crate::model::{CollectionName, Violation};

use super::declared::{
    DeclaredDefinition, DeclaredExtension, DeclaredHistory, DeclaredReference, StrictObject,
};
use super::{
    CLAIMS_MAX, Claim, DAYS_MAX, Definition, EXTENDS_MAX, Extension, HISTORY_VERSIONS_MAX, History,
    IDENTITY_PATHS_MAX, IdentityPart, PathPair, QUERY_PATHS_MAX, QueryPath, REFERENCES_MAX,
    Reference,
};

/// Violations found so far.
#[derive(Default)]
struct ViolationList(Vec<Violation>);

impl ViolationList {
    fn add(&mut self, pointer: impl AsRef<str>, message: impl AsRef<str>) {
        self.0.push(Violation::new(pointer, message));
    }

    fn count(&mut self, pointer: &str, count: usize, name: &str, max: usize) {
        if count > max {
            let what = format!("there are {count}, more than the maximum of {max} (`{name}`)");
            self.add(pointer, what);
        }
    }

    fn into_result<T>(self, right: T) -> Result<T, Vec<Violation>> {
        if self.0.is_empty() {
            Ok(right)
        } else {
            Err(self.0)
        }
    }
}

/// Checks a definition by itself.
pub(super) fn checked(
    declared: DeclaredDefinition,
    source: Value,
) -> Result<Definition, Vec<Violation>> {
    let mut wrong = ViolationList::default();
    counted(&declared, &mut wrong);
    let schema = compiled(&declared, &mut wrong);
    wrong = if wrong.0.is_empty() {
        wrong
    } else {
        return Err(wrong.0);
    };
    let shape = schema.as_ref().map(|schema| schema.shape());
    let identity: Vec<IdentityPart> = declared
        .identity
        .into_iter()
        .enumerate()
        .map(|(index, path)| {
            let pointer = format!("/identity/{index}");
            let scalar = shape
                .as_ref()
                .and_then(|shape| named_by(shape, &path, &pointer, &mut wrong));
            IdentityPart { path, scalar }
        })
        .collect();
    let references = declared
        .references
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .map(|(index, StrictObject(declared))| {
            reference(index, declared, shape.as_ref(), &mut wrong)
        })
        .collect();
    let query: Vec<QueryPath> = declared
        .query
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .filter_map(|(index, path)| query_path(index, path, shape.as_ref(), &mut wrong))
        .collect();
    let history = history(declared.history.as_ref(), &mut wrong);
    days("/retention_days", declared.retention_days, &mut wrong);
    let claims = claims(declared.claims.unwrap_or_default(), &query, &mut wrong);
    let extends = declared
        .extends
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .map(|(index, StrictObject(declared))| {
            extension(index, declared, &identity, shape.as_ref(), &mut wrong)
        })
        .collect();
    drop(shape);
    wrong.into_result(Definition {
        collection: declared.collection,
        is_abstract: declared.is_abstract,
        identity,
        identity_mutable: declared.identity_mutable.unwrap_or(false),
        references,
        query,
        extends,
        history,
        retention_days: declared.retention_days,
        claims,
        schema: schema.map(Arc::new),
        source,
    })
}

/// Checks counts, and that nothing occurs twice.
fn counted(declared: &DeclaredDefinition, wrong: &mut ViolationList) {
    if declared.identity.is_empty() {
        wrong.add("/identity", "an identity needs at least one path");
    }
    wrong.count(
        "/identity",
        declared.identity.len(),
        "identity_paths_max",
        IDENTITY_PATHS_MAX,
    );
    singular("/identity", &declared.identity, wrong);
    let query = declared.query.as_deref().unwrap_or_default();
    wrong.count("/query", query.len(), "query_paths_max", QUERY_PATHS_MAX);
    singular("/query", query, wrong);
    let references = declared.references.as_deref().unwrap_or_default();
    wrong.count(
        "/references",
        references.len(),
        "references_max",
        REFERENCES_MAX,
    );
    unique(
        "/references",
        "name",
        references.iter().map(|one| &one.0.name),
        wrong,
    );
    let extends = declared.extends.as_deref().unwrap_or_default();
    wrong.count("/extends", extends.len(), "extends_max", EXTENDS_MAX);
    unique(
        "/extends",
        "collection",
        extends.iter().map(|one| &one.0.collection),
        wrong,
    );
    if !declared.is_abstract {
        return;
    }
    let has = [
        ("identity_mutable", declared.identity_mutable.is_some()),
        ("references", declared.references.is_some()),
        ("query", declared.query.is_some()),
        ("history", declared.history.is_some()),
        ("retention_days", declared.retention_days.is_some()),
        ("claims", declared.claims.is_some()),
        ("schema", declared.schema.is_some()),
    ];
    for (key, _) in has.iter().filter(|(_, has)| *has) {
        let what = format!(
            "an abstract collection cannot have `{key}`: set it in the collections that extend it"
        );
        wrong.add(format!("/{key}"), what);
    }
}

/// Checks that no path has several values, and none occurs twice.
fn singular(pointer: &str, paths: &[Path], wrong: &mut ViolationList) {
    let mut seen = BTreeSet::new();
    for (index, path) in paths.iter().enumerate() {
        let at = format!("{pointer}/{index}");
        if path.is_plural() {
            wrong.add(
                &at,
                format!("`{path}` can have several values: only references may have `*`"),
            );
        }
        if !seen.insert(path) {
            wrong.add(&at, format!("`{path}` occurs twice"));
        }
    }
}

fn unique<'a>(
    pointer: &str,
    key: &str,
    names: impl Iterator<Item = &'a CollectionName>,
    wrong: &mut ViolationList,
) {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            wrong.add(
                format!("{pointer}/{index}/{key}"),
                format!("`{name}` occurs twice"),
            );
        }
    }
}

fn compiled(declared: &DeclaredDefinition, wrong: &mut ViolationList) -> Option<Schema> {
    let Some(source) = &declared.schema else {
        if !declared.is_abstract {
            wrong.add("", "a collection needs a `schema`, or `\"abstract\": true`");
        }
        return None;
    };
    match Schema::compile(source) {
        Ok(schema) => Some(schema),
        Err(violations) => {
            wrong.0.extend(
                violations
                    .into_iter()
                    .map(|violation| violation.below("/schema")),
            );
            None
        }
    }
}

/// The one type of an identity's part.
fn named_by(
    shape: &SchemaShape<'_>,
    path: &Path,
    pointer: &str,
    wrong: &mut ViolationList,
) -> Option<Scalar> {
    if let Err(why) = shape.required(path) {
        wrong.add(pointer, why);
        return None;
    }
    let types = shape.types(path);
    let scalar = Scalar::only(types);
    if scalar.is_none() {
        let what = format!(
            "by the schema `{path}` is {types}: a part of an identity must be exactly one of \
             string, integer, number and boolean"
        );
        wrong.add(pointer, what);
    }
    scalar
}

fn query_path(
    index: usize,
    path: Path,
    shape: Option<&SchemaShape<'_>>,
    wrong: &mut ViolationList,
) -> Option<QueryPath> {
    let types = shape?.types(&path);
    let Some(scalar) = Scalar::only(types.without(Types::NULL)) else {
        let what = format!(
            "by the schema `{path}` is {types}: a query path must be exactly one of string, \
             integer, number and boolean, and may be null"
        );
        wrong.add(format!("/query/{index}"), what);
        return None;
    };
    Some(QueryPath { path, scalar })
}

fn history(declared: Option<&StrictObject<DeclaredHistory>>, wrong: &mut ViolationList) -> History {
    let Some(StrictObject(declared)) = declared else {
        return History::default();
    };
    if declared.versions > HISTORY_VERSIONS_MAX {
        let what = format!("it may be at most {HISTORY_VERSIONS_MAX} (`history_versions_max`)");
        wrong.add("/history/versions", what);
    }
    days("/history/days", declared.days, wrong);
    if declared.versions == 0 && !declared.deleted {
        wrong.add(
            "/history",
            "it keeps nothing: set `versions`, or `\"deleted\": true`",
        );
    }
    History {
        versions: declared.versions,
        deleted: declared.deleted,
        days: declared.days,
    }
}

fn days(pointer: &str, days: Option<u32>, wrong: &mut ViolationList) {
    if days.is_some_and(|days| !(1..=DAYS_MAX).contains(&days)) {
        wrong.add(
            pointer,
            format!("it must be from 1 to {DAYS_MAX} (`days_max`)"),
        );
    }
}

fn claims(
    declared: BTreeMap<String, Path>,
    query: &[QueryPath],
    wrong: &mut ViolationList,
) -> Vec<Claim> {
    wrong.count("/claims", declared.len(), "claims_max", CLAIMS_MAX);
    let mut claims = Vec::new();
    for (name, path) in declared {
        match query.iter().find(|one| one.path == path) {
            Some(path) => claims.push(Claim {
                name,
                path: path.clone(),
            }),
            None => {
                let what = format!("`{path}` is not a path of `query`, as a claim requires");
                let mut pointer = "/claims".to_owned();
                push_escaped(&mut pointer, &name);
                wrong.add(pointer, what);
            }
        }
    }
    claims
}

fn reference(
    index: usize,
    declared: DeclaredReference,
    shape: Option<&SchemaShape<'_>>,
    wrong: &mut ViolationList,
) -> Reference {
    let pointer = format!("/references/{index}/paths");
    let first = declared.paths.keys().next();
    if first.is_none() {
        wrong.add(&pointer, "a reference needs at least one path");
    }
    let (together, _) = first.map(Path::at_last_each).unwrap_or_default();
    if declared
        .paths
        .keys()
        .any(|path| path.at_last_each().0 != together)
    {
        let what = "the paths of a reference must be the same up to their last `*`, so that they \
             concern the same element";
        wrong.add(&pointer, what);
    }
    let pairs = pairs(declared.paths, &pointer, shape, wrong);
    for pair in &pairs {
        let types = pair.types.without(Types::NULL);
        if types == Types::NONE || !types.is_within(Types::SCALAR) {
            let what = format!(
                "by the schema `{}` is {}: a path of a reference must be a string, number or \
                 boolean",
                pair.own, pair.types
            );
            wrong.add(&pointer, what);
        }
    }
    Reference {
        name: declared.name,
        to: declared.to,
        pairs,
    }
}

fn extension(
    index: usize,
    declared: DeclaredExtension,
    identity: &[IdentityPart],
    shape: Option<&SchemaShape<'_>>,
    wrong: &mut ViolationList,
) -> Extension {
    let pointer = format!("/extends/{index}/identity");
    for own in declared.identity.keys() {
        let is_of_identity = identity.iter().any(|part| part.path == *own);
        match shape {
            _ if is_of_identity => {}
            _ if own.is_plural() => {
                wrong.add(
                    &pointer,
                    format!("`{own}` can have several values: only references may have `*`"),
                );
            }
            Some(shape) => {
                named_by(shape, own, &pointer, wrong);
            }
            None => wrong.add(
                &pointer,
                format!("`{own}` is not a path of this collection's identity"),
            ),
        }
    }
    Extension {
        collection: declared.collection,
        pairs: pairs(declared.identity, &pointer, shape, wrong),
    }
}

/// Pairs of own paths and paths in another collection, of which no path occurs twice.
fn pairs(
    paths: BTreeMap<Path, Path>,
    pointer: &str,
    shape: Option<&SchemaShape<'_>>,
    wrong: &mut ViolationList,
) -> Vec<PathPair> {
    let mut seen = BTreeSet::new();
    for target in paths.values() {
        if !seen.insert(target) {
            wrong.add(pointer, format!("`{target}` occurs twice"));
        }
    }
    let types = |own: &Path| shape.map_or(Types::SCALAR, |shape| shape.types(own));
    let pairs = paths.into_iter().map(|(own, target)| PathPair {
        types: types(&own),
        own,
        target,
    });
    pairs.collect()
}
