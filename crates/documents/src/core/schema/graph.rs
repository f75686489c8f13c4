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
const UNSUPPORTED_KEYWORDS: [(&str, &str); 4] = [
    ("$dynamicRef", "use `$ref`"),
    ("$dynamicAnchor", "use `$anchor`"),
    ("$recursiveRef", "use `$ref`"),
    ("$recursiveAnchor", "use `$anchor`"),
];

/// To which part of the instance a subschema applies, relative to the schema around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ApplicatorKind {
    Same,
    /// To a part of it, such as a property.
    Child,
    /// To nothing, until a `$ref` leads to it.
    Unapplied,
}

/// Keywords with one subschema.
pub(super) const SCHEMA_KEYWORDS: [(&str, ApplicatorKind); 12] = [
    ("not", ApplicatorKind::Same),
    ("if", ApplicatorKind::Same),
    ("then", ApplicatorKind::Same),
    ("else", ApplicatorKind::Same),
    ("items", ApplicatorKind::Child),
    ("additionalItems", ApplicatorKind::Child),
    ("contains", ApplicatorKind::Child),
    ("additionalProperties", ApplicatorKind::Child),
    ("propertyNames", ApplicatorKind::Child),
    ("unevaluatedItems", ApplicatorKind::Child),
    ("unevaluatedProperties", ApplicatorKind::Child),
    ("contentSchema", ApplicatorKind::Unapplied),
];

/// Keywords with a list of subschemas.
pub(super) const SCHEMA_LIST_KEYWORDS: [(&str, ApplicatorKind); 4] = [
    ("allOf", ApplicatorKind::Same),
    ("anyOf", ApplicatorKind::Same),
    ("oneOf", ApplicatorKind::Same),
    ("prefixItems", ApplicatorKind::Child),
];

/// Keywords with subschemas by name.
pub(super) const SCHEMA_MAP_KEYWORDS: [(&str, ApplicatorKind); 6] = [
    ("dependentSchemas", ApplicatorKind::Same),
    ("dependencies", ApplicatorKind::Same),
    ("properties", ApplicatorKind::Child),
    ("patternProperties", ApplicatorKind::Child),
    ("$defs", ApplicatorKind::Unapplied),
    ("definitions", ApplicatorKind::Unapplied),
];

/// A direct subschema of a schema.
struct Subschema<'a> {
    kind: ApplicatorKind,
    /// JSON pointer from the schema around it.
    pointer: String,
    schema: &'a Value,
}

/// The direct subschemas of a schema.
fn subschemas<'a>(schema: &'a Map<String, Value>) -> Vec<Subschema<'a>> {
    let mut found = Vec::new();
    let mut add = |kind, tokens: &[&str], schema: &'a Value| {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return;
        }
        let mut pointer = String::new();
        tokens.iter().for_each(|token| path::push_escaped(&mut pointer, token));
        found.push(Subschema { kind, pointer, schema });
    };
    for (keyword, looks) in SCHEMA_KEYWORDS {
        if let Some(inner) = schema.get(keyword) {
            add(looks, &[keyword], inner);
        }
    }
    for (keyword, looks) in SCHEMA_LIST_KEYWORDS {
        let list = schema.get(keyword).and_then(Value::as_array);
        for (index, inner) in list.into_iter().flatten().enumerate() {
            add(looks, &[keyword, &index.to_string()], inner);
        }
    }
    for (keyword, looks) in SCHEMA_MAP_KEYWORDS {
        let named = schema.get(keyword).and_then(Value::as_object);
        for (name, inner) in named.into_iter().flatten() {
            add(looks, &[keyword, name], inner);
        }
    }
    found
}

/// Calls `change` with every subschema of a schema, itself first.
pub(super) fn for_each_mut(schema: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    change(object);
    for (keyword, _) in SCHEMA_KEYWORDS {
        if let Some(inner) = object.get_mut(keyword) {
            for_each_mut(inner, change);
        }
    }
    for (keyword, _) in SCHEMA_LIST_KEYWORDS {
        let list = object.get_mut(keyword).and_then(Value::as_array_mut);
        for inner in list.into_iter().flatten() {
            for_each_mut(inner, change);
        }
    }
    for (keyword, _) in SCHEMA_MAP_KEYWORDS {
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
    index_by_address: HashMap<usize, usize>,
    /// Index of the node of an anchor.
    anchors: HashMap<&'a str, usize>,
}

struct SchemaNode<'a> {
    schema: &'a Value,
    /// The node that contains it; none: it is the root.
    parent: Option<usize>,
    /// JSON pointer from that node. Pointers from the root could in total be far larger than the
    /// schema.
    pointer: String,
    same_instance: Vec<usize>,
    child_instance: Vec<usize>,
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

impl<'a> SchemaGraph<'a> {
    /// Builds the graph of a schema.
    ///
    /// # Errors
    /// References that lead outside it, or nowhere.
    pub(super) fn build(root: &'a Value) -> Result<Self, Vec<Violation>> {
        let mut graph = Self {
            root,
            nodes: Vec::new(),
            index_by_address: HashMap::new(),
            anchors: HashMap::new(),
        };
        let mut violations = Vec::new();
        graph.add(root, None, String::new());
        // Collect all anchors before following any `$ref`.
        let mut index = 0;
        while index < graph.nodes.len() {
            graph.expand(index, &mut violations);
            index += 1;
        }
        for at in 0..graph.nodes.len() {
            if let Err(violation) = graph.resolve_ref(at) {
                violations.push(violation);
            }
        }
        if violations.is_empty() { Ok(graph) } else { Err(violations) }
    }

    fn add(&mut self, schema: &'a Value, parent: Option<usize>, pointer: String) -> usize {
        *self.index_by_address.entry(address(schema)).or_insert_with(|| {
            self.nodes.push(SchemaNode {
                schema,
                parent,
                pointer,
                same_instance: Vec::new(),
                child_instance: Vec::new(),
            });
            self.nodes.len() - 1
        })
    }

    /// JSON pointer of a node from the root.
    fn pointer(&self, index: usize) -> String {
        let ancestors = std::iter::successors(Some(index), |at| self.nodes[*at].parent);
        let steps: Vec<&str> = ancestors.map(|at| self.nodes[at].pointer.as_str()).collect();
        steps.into_iter().rev().collect()
    }

    /// Adds the direct subschemas of a node, and checks its keywords.
    fn expand(&mut self, index: usize, violations: &mut Vec<Violation>) {
        let Some(schema) = self.nodes[index].schema.as_object() else {
            return;
        };
        let anchor = schema.get("$anchor").and_then(Value::as_str);
        let is_duplicate =
            anchor.is_some_and(|anchor| self.anchors.insert(anchor, index).is_some());
        let mut reject = |keyword: &str, what: &str| {
            violations.push(Violation::new(format!("{}/{keyword}", self.pointer(index)), what));
        };
        for (keyword, instead) in UNSUPPORTED_KEYWORDS {
            if schema.contains_key(keyword) {
                reject(keyword, &format!("`{keyword}` is not supported: {instead}"));
            }
        }
        if index != 0 && schema.contains_key("$id") {
            reject("$id", "`$id` is allowed only at the root of the schema");
        }
        if let Some(dialect) = schema.get("$schema") {
            let said = dialect.as_str().map(|said| said.trim_end_matches('#'));
            if said != Some(DIALECT) || index != 0 {
                let what = format!("`$schema` is allowed only at the root, and must be {DIALECT}");
                reject("$schema", &what);
            }
        }
        if is_duplicate {
            reject("$anchor", "this anchor occurs twice");
        }
        for part in subschemas(schema) {
            let inner = self.add(part.schema, Some(index), part.pointer);
            match part.kind {
                ApplicatorKind::Same => self.nodes[index].same_instance.push(inner),
                ApplicatorKind::Child => self.nodes[index].child_instance.push(inner),
                ApplicatorKind::Unapplied => {}
            }
        }
    }

    /// Resolves the `$ref` of a node.
    fn resolve_ref(&mut self, index: usize) -> Result<(), Violation> {
        let schema = self.nodes[index].schema;
        let Some(reference) = schema.get("$ref").filter(|_| schema.is_object()) else {
            return Ok(());
        };
        let reject =
            |what: String| Err(Violation::new(format!("{}/$ref", self.pointer(index)), what));
        let Some(reference) = reference.as_str() else {
            return reject("a `$ref` must be a string".to_owned());
        };
        let Some(pointer) = self.resolve_pointer(reference) else {
            return reject(format!(
                "`{reference}` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON \
                 pointer, or `#` with an anchor of this schema"
            ));
        };
        let target = self.root.pointer(&pointer);
        match target.and_then(|target| self.index_by_address.get(&address(target))) {
            Some(target) => {
                self.nodes[index].same_instance.push(*target);
                Ok(())
            }
            None => {
                reject(format!("`{reference}` does not lead to a schema: define it under `$defs`"))
            }
        }
    }

    /// The JSON pointer for a `$ref`.
    pub(super) fn resolve_pointer(&self, reference: &str) -> Option<String> {
        let fragment = reference.strip_prefix('#')?;
        let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
        match fragment.as_bytes().first() {
            None | Some(b'/') => Some(fragment.into_owned()),
            Some(_) => {
                let index = self.anchors.get(fragment.as_ref())?;
                Some(self.pointer(*index))
            }
        }
    }

    /// The schema to which a `$ref` leads.
    pub(super) fn resolve_target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(&self.resolve_pointer(reference)?)
    }

    /// All subschemas, including the root, each with its JSON pointer.
    pub(super) fn located_schemas(&self) -> impl Iterator<Item = (String, &'a Value)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.map(|(index, node)| (self.pointer(index), node.schema))
    }

    /// All subschemas, including the root.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        self.nodes.iter().map(|node| node.schema)
    }

    /// Checks that validation terminates, and stays within limits.
    ///
    /// # Errors
    /// The place of a cycle, or the limit that is exceeded.
    pub(super) fn check_bounds(&self) -> Result<(), Violation> {
        let order = self.topological_order()?;
        let mut applied_counts = vec![0_u64; self.nodes.len()];
        for &index in &order {
            let inner = self.nodes[index].same_instance.iter().map(|inner| applied_counts[*inner]);
            applied_counts[index] = inner.fold(1, u64::saturating_add);
            if applied_counts[index] > SCHEMA_PLACES_MAX {
                let what = format!(
                    "more than {SCHEMA_PLACES_MAX} parts of the schema (`schema_places_max`) \
                     apply to the same value here, with each `$ref` followed"
                );
                return Err(Violation::new(self.pointer(index), what));
            }
        }
        if self.max_nesting(&order) > SCHEMA_NESTING_MAX {
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
    fn topological_order(&self) -> Result<Vec<usize>, Violation> {
        let mut dependents = vec![Vec::new(); self.nodes.len()];
        let mut remaining: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            node.same_instance.iter().for_each(|inner| dependents[*inner].push(index));
            remaining.push(node.same_instance.len());
        }
        let mut order: Vec<usize> = (0..remaining.len()).filter(|at| remaining[*at] == 0).collect();
        let mut next = 0;
        while let Some(&inner) = order.get(next) {
            for &at in &dependents[inner] {
                remaining[at] -= 1;
                if remaining[at] == 0 {
                    order.push(at);
                }
            }
            next += 1;
        }
        let Some(mut at) = remaining.iter().position(|missing| *missing > 0) else {
            return Ok(order);
        };
        // Walking along the remaining nodes returns to one already seen: that is the cycle.
        let mut visited = vec![false; self.nodes.len()];
        while !std::mem::replace(&mut visited[at], true) {
            let mut inner = self.nodes[at].same_instance.iter();
            at = *inner
                .find(|inner| remaining[**inner] > 0)
                .expect("a node whose dependencies are ordered is ordered too");
        }
        let what = "a `$ref` leads back to here without going into a property or an element: validation would never end";
        Err(Violation::new(self.pointer(at), what))
    }

    /// Nesting of checks for a document of maximum depth.
    fn max_nesting(&self, order: &[usize]) -> usize {
        let mut nesting = vec![0; self.nodes.len()];
        for _ in 0..=DEPTH_MAX {
            let below = nesting.clone();
            for &index in order {
                let node = &self.nodes[index];
                let same = node.same_instance.iter().map(|inner| nesting[*inner]).max();
                let below = node.child_instance.iter().map(|inner| below[*inner]).max();
                nesting[index] = 1 + same.max(below).unwrap_or(0);
            }
            if nesting == below {
                break;
            }
        }
        nesting[0]
    }
}
