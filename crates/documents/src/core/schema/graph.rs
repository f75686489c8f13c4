//! Graph of a schema's subschemas: which apply to the same value, and which to a part of it.
//!
//! It shows, before anything is compiled, whether a schema refers outside itself, whether `$ref`s
//! form a cycle without descending into the value, how many subschemas apply to one value, and how
//! deep checks are nested.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::core::path;
use crate::model::{DEPTH_MAX, Violation};

use super::{SCHEMA_NESTING_MAX, SCHEMA_PLACES_MAX};

/// URI of the supported dialect.
pub(super) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Keywords that would refer outside the schema, or to a place known only at run time.
const REFUSED: [(&str, &str); 4] = [
    ("$dynamicRef", "use `$ref`"),
    ("$dynamicAnchor", "use `$anchor`"),
    ("$recursiveRef", "use `$ref`"),
    ("$recursiveAnchor", "use `$anchor`"),
];

/// To which part of the instance a subschema applies, relative to the schema around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApplicatorKind {
    AtTheSame,
    /// To a part of it, such as a property.
    Below,
    /// To nothing, until a `$ref` leads to it.
    AtNothing,
}

/// Keywords with one subschema.
const WITH_ONE: [(&str, ApplicatorKind); 12] = [
    ("not", ApplicatorKind::AtTheSame),
    ("if", ApplicatorKind::AtTheSame),
    ("then", ApplicatorKind::AtTheSame),
    ("else", ApplicatorKind::AtTheSame),
    ("items", ApplicatorKind::Below),
    ("additionalItems", ApplicatorKind::Below),
    ("contains", ApplicatorKind::Below),
    ("additionalProperties", ApplicatorKind::Below),
    ("propertyNames", ApplicatorKind::Below),
    ("unevaluatedItems", ApplicatorKind::Below),
    ("unevaluatedProperties", ApplicatorKind::Below),
    ("contentSchema", ApplicatorKind::AtNothing),
];

/// Keywords with a list of subschemas.
const WITH_A_LIST: [(&str, ApplicatorKind); 4] = [
    ("allOf", ApplicatorKind::AtTheSame),
    ("anyOf", ApplicatorKind::AtTheSame),
    ("oneOf", ApplicatorKind::AtTheSame),
    ("prefixItems", ApplicatorKind::Below),
];

/// Keywords with subschemas by name.
const WITH_NAMES: [(&str, ApplicatorKind); 6] = [
    ("dependentSchemas", ApplicatorKind::AtTheSame),
    ("dependencies", ApplicatorKind::AtTheSame),
    ("properties", ApplicatorKind::Below),
    ("patternProperties", ApplicatorKind::Below),
    ("$defs", ApplicatorKind::AtNothing),
    ("definitions", ApplicatorKind::AtNothing),
];

/// A direct subschema of a schema.
struct Subschema<'a> {
    looks: ApplicatorKind,
    /// JSON pointer from the schema around it.
    pointer: String,
    schema: &'a Value,
}

/// The direct subschemas of a schema.
fn parts<'a>(schema: &'a Map<String, Value>) -> Vec<Subschema<'a>> {
    let mut parts = Vec::new();
    let mut add = |looks, way: &[&str], schema: &'a Value| {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return;
        }
        let mut pointer = String::new();
        way.iter()
            .for_each(|token| path::push_escaped(&mut pointer, token));
        parts.push(Subschema {
            looks,
            pointer,
            schema,
        });
    };
    for (keyword, looks) in WITH_ONE {
        if let Some(inner) = schema.get(keyword) {
            add(looks, &[keyword], inner);
        }
    }
    for (keyword, looks) in WITH_A_LIST {
        let list = schema.get(keyword).and_then(Value::as_array);
        for (index, inner) in list.into_iter().flatten().enumerate() {
            add(looks, &[keyword, &index.to_string()], inner);
        }
    }
    for (keyword, looks) in WITH_NAMES {
        let named = schema.get(keyword).and_then(Value::as_object);
        for (name, inner) in named.into_iter().flatten() {
            add(looks, &[keyword, name], inner);
        }
    }
    parts
}

/// Calls `change` with every subschema of a schema, itself first.
pub(super) fn for_each_mut(schema: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    change(object);
    for (keyword, _) in WITH_ONE {
        if let Some(inner) = object.get_mut(keyword) {
            for_each_mut(inner, change);
        }
    }
    for (keyword, _) in WITH_A_LIST {
        let list = object.get_mut(keyword).and_then(Value::as_array_mut);
        for inner in list.into_iter().flatten() {
            for_each_mut(inner, change);
        }
    }
    for (keyword, _) in WITH_NAMES {
        let named = object.get_mut(keyword).and_then(Value::as_object_mut);
        for (_, inner) in named.into_iter().flatten() {
            for_each_mut(inner, change);
        }
    }
}

/// A schema with all its subschemas.
pub(super) struct SchemaGraph<'a> {
    root: &'a Value,
    nodes: Vec<SchemaNode<'a>>,
    /// Index of the node of a value, by its address.
    known: HashMap<usize, usize>,
    /// Index of the node of an anchor.
    anchors: HashMap<&'a str, usize>,
}

struct SchemaNode<'a> {
    schema: &'a Value,
    /// The node that contains it; none: it is the root.
    within: Option<usize>,
    /// JSON pointer from that node. Pointers from the root could in total be far larger than the
    /// schema.
    pointer: String,
    same: Vec<usize>,
    below: Vec<usize>,
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

impl<'a> SchemaGraph<'a> {
    /// Builds the graph of a schema.
    ///
    /// # Errors
    /// References that lead outside it, or nowhere.
    pub(super) fn of(root: &'a Value) -> Result<Self, Vec<Violation>> {
        let mut graph = Self {
            root,
            nodes: Vec::new(),
            known: HashMap::new(),
            anchors: HashMap::new(),
        };
        let mut violations = Vec::new();
        graph.add(root, None, String::new());
        // Collect all anchors before following any `$ref`.
        let mut at = 0;
        while at < graph.nodes.len() {
            graph.expand(at, &mut violations);
            at += 1;
        }
        for at in 0..graph.nodes.len() {
            if let Err(violation) = graph.follow(at) {
                violations.push(violation);
            }
        }
        if violations.is_empty() {
            Ok(graph)
        } else {
            Err(violations)
        }
    }

    fn add(&mut self, schema: &'a Value, within: Option<usize>, pointer: String) -> usize {
        *self.known.entry(address(schema)).or_insert_with(|| {
            self.nodes.push(SchemaNode {
                schema,
                within,
                pointer,
                same: Vec::new(),
                below: Vec::new(),
            });
            self.nodes.len() - 1
        })
    }

    /// JSON pointer of a node from the root.
    fn pointer(&self, at: usize) -> String {
        let outwards = std::iter::successors(Some(at), |at| self.nodes[*at].within);
        let steps: Vec<&str> = outwards.map(|at| self.nodes[at].pointer.as_str()).collect();
        steps.into_iter().rev().collect()
    }

    /// Adds the direct subschemas of a node, and checks its keywords.
    fn expand(&mut self, at: usize, violations: &mut Vec<Violation>) {
        let Some(schema) = self.nodes[at].schema.as_object() else {
            return;
        };
        let anchor = schema.get("$anchor").and_then(Value::as_str);
        let is_twice = anchor.is_some_and(|anchor| self.anchors.insert(anchor, at).is_some());
        let mut refuse = |keyword: &str, what: &str| {
            violations.push(Violation::new(
                format!("{}/{keyword}", self.pointer(at)),
                what,
            ));
        };
        for (keyword, instead) in REFUSED {
            if schema.contains_key(keyword) {
                refuse(keyword, &format!("`{keyword}` is not supported: {instead}"));
            }
        }
        if at != 0 && schema.contains_key("$id") {
            refuse("$id", "`$id` is allowed only at the root of the schema");
        }
        if let Some(dialect) = schema.get("$schema") {
            let said = dialect.as_str().map(|said| said.trim_end_matches('#'));
            if said != Some(DIALECT) || at != 0 {
                let what = format!("`$schema` is allowed only at the root, and must be {DIALECT}");
                refuse("$schema", &what);
            }
        }
        if is_twice {
            refuse("$anchor", "this anchor occurs twice");
        }
        for part in parts(schema) {
            let inner = self.add(part.schema, Some(at), part.pointer);
            match part.looks {
                ApplicatorKind::AtTheSame => self.nodes[at].same.push(inner),
                ApplicatorKind::Below => self.nodes[at].below.push(inner),
                ApplicatorKind::AtNothing => {}
            }
        }
    }

    /// Resolves the `$ref` of a node.
    fn follow(&mut self, at: usize) -> Result<(), Violation> {
        let schema = self.nodes[at].schema;
        let Some(reference) = schema.get("$ref").filter(|_| schema.is_object()) else {
            return Ok(());
        };
        let refuse = |what: String| Err(Violation::new(format!("{}/$ref", self.pointer(at)), what));
        let Some(reference) = reference.as_str() else {
            return refuse("a `$ref` must be a string".to_owned());
        };
        let Some(pointer) = self.pointer_of(reference) else {
            return refuse(format!(
                "`{reference}` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON \
                 pointer, or `#` with an anchor of this schema"
            ));
        };
        let target = self.root.pointer(&pointer);
        match target.and_then(|target| self.known.get(&address(target))) {
            Some(target) => {
                self.nodes[at].same.push(*target);
                Ok(())
            }
            None => refuse(format!(
                "`{reference}` does not lead to a schema: define it under `$defs`"
            )),
        }
    }

    /// The JSON pointer for a `$ref`.
    pub(super) fn pointer_of(&self, reference: &str) -> Option<String> {
        let fragment = reference.strip_prefix('#')?;
        let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
        match fragment.as_bytes().first() {
            None | Some(b'/') => Some(fragment.into_owned()),
            Some(_) => {
                let at = self.anchors.get(fragment.as_ref())?;
                Some(self.pointer(*at))
            }
        }
    }

    /// The schema to which a `$ref` leads.
    pub(super) fn target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(&self.pointer_of(reference)?)
    }

    /// All subschemas, including the root.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        self.nodes.iter().map(|node| node.schema)
    }

    /// Checks that validation terminates, and stays within limits.
    ///
    /// # Errors
    /// The place of a cycle, or the limit that is exceeded.
    pub(super) fn bounded(&self) -> Result<(), Violation> {
        let order = self.inner_first()?;
        let mut places = vec![0_u64; self.nodes.len()];
        for &at in &order {
            let inner = self.nodes[at].same.iter().map(|inner| places[*inner]);
            places[at] = inner.fold(1, u64::saturating_add);
            if places[at] > SCHEMA_PLACES_MAX {
                let what = format!(
                    "more than {SCHEMA_PLACES_MAX} parts of the schema (`schema_places_max`) \
                     apply to the same value here, with each `$ref` followed"
                );
                return Err(Violation::new(self.pointer(at), what));
            }
        }
        if self.nesting(&order) > SCHEMA_NESTING_MAX {
            let what = format!(
                "validation can be nested more than {SCHEMA_NESTING_MAX} levels deep \
                 (`schema_nesting_max`): shorten chains of `$ref`, `allOf` and the like"
            );
            return Err(Violation::new("", what));
        }
        Ok(())
    }

    /// All nodes in topological order: those that apply to the same value as another come before
    /// it.
    fn inner_first(&self) -> Result<Vec<usize>, Violation> {
        let mut outer = vec![Vec::new(); self.nodes.len()];
        let mut missing: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            node.same.iter().for_each(|inner| outer[*inner].push(at));
            missing.push(node.same.len());
        }
        let mut order: Vec<usize> = (0..missing.len()).filter(|at| missing[*at] == 0).collect();
        let mut done = 0;
        while let Some(&inner) = order.get(done) {
            for &at in &outer[inner] {
                missing[at] -= 1;
                if missing[at] == 0 {
                    order.push(at);
                }
            }
            done += 1;
        }
        let Some(mut at) = missing.iter().position(|missing| *missing > 0) else {
            return Ok(order);
        };
        // Walking along the remaining nodes returns to one already seen: that is the cycle.
        let mut seen = vec![false; self.nodes.len()];
        while !std::mem::replace(&mut seen[at], true) {
            let mut inner = self.nodes[at].same.iter();
            at = *inner
                .find(|inner| missing[**inner] > 0)
                .expect("a node whose dependencies are ordered is ordered too");
        }
        let what = "a `$ref` leads back to here without going into a property or an element: validation would never end";
        Err(Violation::new(self.pointer(at), what))
    }

    /// Nesting of checks for a document of maximum depth.
    fn nesting(&self, order: &[usize]) -> usize {
        let mut nesting = vec![0; self.nodes.len()];
        for _ in 0..=DEPTH_MAX {
            let below = nesting.clone();
            for &at in order {
                let node = &self.nodes[at];
                let same = node.same.iter().map(|inner| nesting[*inner]).max();
                let below = node.below.iter().map(|inner| below[*inner]).max();
                nesting[at] = 1 + same.max(below).unwrap_or(0);
            }
            if nesting == below {
                break;
            }
        }
        nesting[0]
    }
}
