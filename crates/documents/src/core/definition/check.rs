//! Checks of a single definition: counts, and the types that its schema allows at every path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::core::path::{Path, push_escaped};
use crate::core::schema::{Scalar, Schema, SchemaShape, Types};
use crate::model::{CollectionName, Violation};

use super::constraints;
use super::declared::{
    DeclaredDefinition, DeclaredExtension, DeclaredHistory, DeclaredReference, StrictObject,
};
use super::pairs::DeclaredPairs;
use super::{
    CLAIMS_MAX, Claim, DAYS_MAX, Definition, EXTENDS_MAX, Extension, HISTORY_VERSIONS_MAX, History,
    IDENTITY_PATHS_MAX, IdentityPart, MatchMode, PathPair, QUERY_PATHS_MAX, QueryPath,
    REFERENCES_MAX, Reference,
};

/// Violations found so far.
#[derive(Default)]
pub(super) struct ViolationList(Vec<Violation>);

impl ViolationList {
    pub(super) fn add(&mut self, pointer: impl AsRef<str>, message: impl AsRef<str>) {
        self.0.push(Violation::new(pointer, message));
    }

    pub(super) fn check_count(&mut self, pointer: &str, count: usize, name: &str, max: usize) {
        if count > max {
            let what = format!("there are {count}, more than the maximum of {max} (`{name}`)");
            self.add(pointer, what);
        }
    }

    fn into_result<T>(self, value: T) -> Result<T, Vec<Violation>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

/// Checks a definition by itself.
pub(super) fn check_definition(
    declared: DeclaredDefinition,
    source: Value,
) -> Result<Definition, Vec<Violation>> {
    let mut violations = ViolationList::default();
    check_counts(&declared, &mut violations);
    let schema = compile_schema(&declared, &mut violations);
    violations = if violations.0.is_empty() {
        violations
    } else {
        return Err(violations.0);
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
                .and_then(|shape| check_identity_part(shape, &path, &pointer, &mut violations));
            IdentityPart { path, scalar }
        })
        .collect();
    let references = check_references(
        declared.references.unwrap_or_default(),
        &identity,
        shape.as_ref(),
        &mut violations,
    );
    let (equal, unique) =
        constraints::check(declared.equal, declared.unique, shape.as_ref(), &mut violations);
    let query: Vec<QueryPath> = declared
        .query
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .filter_map(|(index, path)| check_query_path(index, path, shape.as_ref(), &mut violations))
        .collect();
    let history = check_history(declared.history.as_ref(), &mut violations);
    check_days("/retention_days", declared.retention_days, &mut violations);
    let claims = check_claims(declared.claims.unwrap_or_default(), &query, &mut violations);
    let extends = declared
        .extends
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .map(|(index, StrictObject(declared))| {
            check_extension(index, declared, &identity, shape.as_ref(), &mut violations)
        })
        .collect();
    drop(shape);
    violations.into_result(Definition {
        collection: declared.collection,
        is_abstract: declared.is_abstract,
        identity,
        identity_mutable: declared.identity_mutable.unwrap_or(false),
        references,
        equal,
        unique,
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
fn check_counts(declared: &DeclaredDefinition, violations: &mut ViolationList) {
    if declared.identity.is_empty() {
        violations.add("/identity", "an identity needs at least one path");
    }
    violations.check_count(
        "/identity",
        declared.identity.len(),
        "identity_paths_max",
        IDENTITY_PATHS_MAX,
    );
    check_paths("/identity", &declared.identity, violations);
    let query = declared.query.as_deref().unwrap_or_default();
    violations.check_count("/query", query.len(), "query_paths_max", QUERY_PATHS_MAX);
    check_paths("/query", query, violations);
    let references = declared.references.as_deref().unwrap_or_default();
    violations.check_count("/references", references.len(), "references_max", REFERENCES_MAX);
    check_unique("/references", "name", references.iter().map(|one| &one.0.name), violations);
    let extends = declared.extends.as_deref().unwrap_or_default();
    violations.check_count("/extends", extends.len(), "extends_max", EXTENDS_MAX);
    check_unique("/extends", "collection", extends.iter().map(|one| &one.0.collection), violations);
    if !declared.is_abstract {
        return;
    }
    let forbidden_keys = [
        ("identity_mutable", declared.identity_mutable.is_some()),
        ("references", declared.references.is_some()),
        ("equal", declared.equal.is_some()),
        ("unique", declared.unique.is_some()),
        ("query", declared.query.is_some()),
        ("history", declared.history.is_some()),
        ("retention_days", declared.retention_days.is_some()),
        ("claims", declared.claims.is_some()),
        ("schema", declared.schema.is_some()),
    ];
    for (key, _) in forbidden_keys.iter().filter(|(_, has)| *has) {
        let what = format!(
            "an abstract collection cannot have `{key}`: set it in the collections that extend it"
        );
        violations.add(format!("/{key}"), what);
    }
}

/// Checks that no path has several values, and none occurs twice.
fn check_paths(pointer: &str, paths: &[Path], violations: &mut ViolationList) {
    let mut seen = BTreeSet::new();
    for (index, path) in paths.iter().enumerate() {
        let item_pointer = format!("{pointer}/{index}");
        if path.is_plural() {
            violations.add(
                &item_pointer,
                format!("`{path}` can have several values: only references may have `*`"),
            );
        }
        if !seen.insert(path) {
            violations.add(&item_pointer, format!("`{path}` occurs twice"));
        }
    }
}

fn check_unique<'a>(
    pointer: &str,
    key: &str,
    names: impl Iterator<Item = &'a CollectionName>,
    violations: &mut ViolationList,
) {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            violations.add(format!("{pointer}/{index}/{key}"), format!("`{name}` occurs twice"));
        }
    }
}

fn compile_schema(declared: &DeclaredDefinition, wrong: &mut ViolationList) -> Option<Schema> {
    let Some(source) = &declared.schema else {
        if !declared.is_abstract {
            wrong.add("", "a collection needs a `schema`, or `\"abstract\": true`");
        }
        return None;
    };
    match Schema::compile(source) {
        Ok(schema) => Some(schema),
        Err(schema_violations) => {
            wrong.0.extend(
                schema_violations
                    .into_iter()
                    .map(|violation| violation.with_pointer_prefix("/schema")),
            );
            None
        }
    }
}

/// The one type of an identity's part.
fn check_identity_part(
    shape: &SchemaShape<'_>,
    path: &Path,
    pointer: &str,
    violations: &mut ViolationList,
) -> Option<Scalar> {
    if let Err(reason) = shape.check_required(path) {
        violations.add(pointer, reason);
        return None;
    }
    let types = shape.types(path);
    let scalar = Scalar::single(types);
    if scalar.is_none() {
        let what = format!(
            "by the schema `{path}` is {types}: a part of an identity must be exactly one of \
             string, integer, number and boolean"
        );
        violations.add(pointer, what);
    }
    scalar
}

fn check_query_path(
    index: usize,
    path: Path,
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) -> Option<QueryPath> {
    let types = shape?.types(&path);
    let Some(scalar) = Scalar::single(types.without(Types::NULL)) else {
        let what = format!(
            "by the schema `{path}` is {types}: a query path must be exactly one of string, \
             integer, number and boolean, and may be null"
        );
        violations.add(format!("/query/{index}"), what);
        return None;
    };
    Some(QueryPath { path, scalar })
}

fn check_history(
    declared: Option<&StrictObject<DeclaredHistory>>,
    violations: &mut ViolationList,
) -> History {
    let Some(StrictObject(declared)) = declared else {
        return History::default();
    };
    if declared.versions > HISTORY_VERSIONS_MAX {
        let what = format!("it may be at most {HISTORY_VERSIONS_MAX} (`history_versions_max`)");
        violations.add("/history/versions", what);
    }
    check_days("/history/days", declared.days, violations);
    if declared.versions == 0 && !declared.deleted {
        violations.add("/history", "it keeps nothing: set `versions`, or `\"deleted\": true`");
    }
    History { versions: declared.versions, deleted: declared.deleted, days: declared.days }
}

fn check_days(pointer: &str, days: Option<u32>, violations: &mut ViolationList) {
    if days.is_some_and(|days| !(1..=DAYS_MAX).contains(&days)) {
        violations.add(pointer, format!("it must be from 1 to {DAYS_MAX} (`days_max`)"));
    }
}

fn check_claims(
    declared: BTreeMap<String, Path>,
    query: &[QueryPath],
    violations: &mut ViolationList,
) -> Vec<Claim> {
    violations.check_count("/claims", declared.len(), "claims_max", CLAIMS_MAX);
    let mut claims = Vec::new();
    for (name, path) in declared {
        match query.iter().find(|one| one.path == path) {
            Some(path) => claims.push(Claim { name, path: path.clone() }),
            None => {
                let what = format!("`{path}` is not a path of `query`, as a claim requires");
                let mut pointer = "/claims".to_owned();
                push_escaped(&mut pointer, &name);
                violations.add(pointer, what);
            }
        }
    }
    claims
}

fn check_references(
    declared: Vec<StrictObject<DeclaredReference>>,
    identity: &[IdentityPart],
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) -> Vec<Reference> {
    let references = declared.into_iter().enumerate();
    let references = references
        .map(|(index, StrictObject(declared))| check_reference(index, declared, shape, violations));
    choose_match_modes(references.collect(), identity)
}

fn check_reference(
    index: usize,
    declared: DeclaredReference,
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) -> (Reference, Option<MatchMode>) {
    let pointer = format!("/references/{index}/paths");
    let DeclaredPairs(paths) = declared.paths;
    violations.check_count(&pointer, paths.len(), "identity_paths_max", IDENTITY_PATHS_MAX);
    let first = paths.first().map(|(own, _)| own);
    if first.is_none() {
        violations.add(&pointer, "a reference needs at least one path");
    }
    let (element_path, _) = first.map(Path::split_at_last_each).unwrap_or_default();
    if paths.iter().any(|(own, _)| own.split_at_last_each().0 != element_path) {
        let what = "the paths of a reference must be the same up to their last `*`, so that they \
             concern the same element";
        violations.add(&pointer, what);
    }
    let pairs = path_pairs(paths, &pointer, shape, violations);
    let mut seen = BTreeSet::new();
    for pair in pairs.iter().filter(|pair| seen.insert(&pair.own)) {
        let types = pair.types.without(Types::NULL);
        if types == Types::NONE || !types.is_within(Types::SCALAR) {
            let what = format!(
                "by the schema `{}` is {}: a path of a reference must be a string, number or \
                 boolean",
                pair.own, pair.types
            );
            violations.add(&pointer, what);
        }
    }
    let match_mode = MatchMode::Full;
    (Reference { name: declared.name, to: declared.to, pairs, match_mode }, declared.match_mode)
}

/// Chooses the mode where none is declared: a path that the identity or another reference has as
/// well says nothing about whether a document has this reference.
fn choose_match_modes(
    declared: Vec<(Reference, Option<MatchMode>)>,
    identity: &[IdentityPart],
) -> Vec<Reference> {
    let own_paths = |reference: &Reference| -> BTreeSet<Path> {
        reference.pairs.iter().map(|pair| pair.own.clone()).collect()
    };
    let mut counts: BTreeMap<Path, usize> = BTreeMap::new();
    let named = declared.iter().flat_map(|(reference, _)| own_paths(reference));
    for path in named.chain(identity.iter().map(|part| part.path.clone())) {
        *counts.entry(path).or_default() += 1;
    }
    let modes = declared.into_iter().map(|(mut reference, match_mode)| {
        let is_shared = reference.pairs.iter().any(|pair| counts[&pair.own] > 1);
        let default = if is_shared { MatchMode::Simple } else { MatchMode::Full };
        reference.match_mode = match_mode.unwrap_or(default);
        reference
    });
    modes.collect()
}

fn check_extension(
    index: usize,
    declared: DeclaredExtension,
    identity: &[IdentityPart],
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) -> Extension {
    let pointer = format!("/extends/{index}/identity");
    for own in declared.identity.keys() {
        let is_identity_part = identity.iter().any(|part| part.path == *own);
        match shape {
            _ if is_identity_part => {}
            _ if own.is_plural() => {
                violations.add(
                    &pointer,
                    format!("`{own}` can have several values: only references may have `*`"),
                );
            }
            Some(shape) => {
                check_identity_part(shape, own, &pointer, violations);
            }
            None => violations
                .add(&pointer, format!("`{own}` is not a path of this collection's identity")),
        }
    }
    Extension {
        collection: declared.collection,
        pairs: path_pairs(declared.identity.into_iter().collect(), &pointer, shape, violations),
    }
}

/// Pairs of own paths and paths in another collection, of which none of the latter occurs twice.
fn path_pairs(
    paths: Vec<(Path, Path)>,
    pointer: &str,
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) -> Vec<PathPair> {
    let mut seen = BTreeSet::new();
    for (_, target) in &paths {
        if !seen.insert(target) {
            violations.add(pointer, format!("`{target}` occurs twice"));
        }
    }
    let types = |own: &Path| shape.map_or(Types::SCALAR, |shape| shape.types(own));
    let pairs = paths.into_iter().map(|(own, target)| PathPair { types: types(&own), own, target });
    pairs.collect()
}
