//! What the parts of a schema ask of each other: which of them look at the same value, and which at a part of it.
//!
//! Of that is told, before anything is compiled, whether a schema stays within itself, whether a `$ref` leads in a circle without going into the
//! value, how many parts look at one value, and how deep checks are nested.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::core::json::DEPTH_MAX;
use crate::core::path;
use crate::model::Violation;

use super::{SCHEMA_NESTING_MAX, SCHEMA_PLACES_MAX};

/// The dialect of schemas.
pub(super) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Keywords that would lead out of the schema, or to a place that is known only when it is used.
const REFUSED: [(&str, &str); 4] = [
    ("$dynamicRef", "use `$ref`"),
    ("$dynamicAnchor", "use `$anchor`"),
    ("$recursiveRef", "use `$ref`"),
    ("$recursiveAnchor", "use `$anchor`"),
];

/// What a part of a schema looks at, of what the part around it looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// The same value.
    AtTheSame,
    /// A part of it, such as a property.
    Below,
    /// Nothing, until a `$ref` leads to it.
    AtNothing,
}

/// Keywords with one schema, …
const WITH_ONE: [(&str, Looks); 12] = [
    ("not", Looks::AtTheSame),
    ("if", Looks::AtTheSame),
    ("then", Looks::AtTheSame),
    ("else", Looks::AtTheSame),
    ("items", Looks::Below),
    ("additionalItems", Looks::Below),
    ("contains", Looks::Below),
    ("additionalProperties", Looks::Below),
    ("propertyNames", Looks::Below),
    ("unevaluatedItems", Looks::Below),
    ("unevaluatedProperties", Looks::Below),
    ("contentSchema", Looks::AtNothing),
];

/// … with a list of schemas, …
const WITH_A_LIST: [(&str, Looks); 4] = [
    ("allOf", Looks::AtTheSame),
    ("anyOf", Looks::AtTheSame),
    ("oneOf", Looks::AtTheSame),
    ("prefixItems", Looks::Below),
];

/// … and with schemas by name.
const WITH_NAMES: [(&str, Looks); 6] = [
    ("dependentSchemas", Looks::AtTheSame),
    ("dependencies", Looks::AtTheSame),
    ("properties", Looks::Below),
    ("patternProperties", Looks::Below),
    ("$defs", Looks::AtNothing),
    ("definitions", Looks::AtNothing),
];

/// A schema directly inside of another.
struct Part<'a> {
    looks: Looks,
    /// From the outer schema, as a pointer.
    pointer: String,
    schema: &'a Value,
}

/// The schemas directly inside of one.
fn parts<'a>(schema: &'a Map<String, Value>) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut add = |looks, way: &[&str], schema: &'a Value| {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return;
        }
        let mut pointer = String::new();
        way.iter()
            .for_each(|token| path::push_escaped(&mut pointer, token));
        parts.push(Part {
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

/// Calls `change` with every schema in a schema, itself first.
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

/// A schema with all that is in it.
pub(super) struct Graph<'a> {
    root: &'a Value,
    nodes: Vec<Node<'a>>,
    /// Which node a value is, by its address.
    known: HashMap<usize, usize>,
    /// Which node an anchor is of.
    anchors: HashMap<&'a str, usize>,
}

struct Node<'a> {
    schema: &'a Value,
    /// The node that it was found in; none: the whole schema.
    within: Option<usize>,
    /// From there, as a pointer. Whole pointers of all nodes could be far larger than the schema.
    pointer: String,
    same: Vec<usize>,
    below: Vec<usize>,
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

impl<'a> Graph<'a> {
    /// The graph of a schema.
    ///
    /// # Errors
    /// Whatever leads out of it, or nowhere.
    pub(super) fn of(root: &'a Value) -> Result<Self, Vec<Violation>> {
        let mut graph = Self {
            root,
            nodes: Vec::new(),
            known: HashMap::new(),
            anchors: HashMap::new(),
        };
        let mut violations = Vec::new();
        graph.add(root, None, String::new());
        // All anchors are met before any `$ref` is followed.
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
        match violations.is_empty() {
            true => Ok(graph),
            false => Err(violations),
        }
    }

    fn add(&mut self, schema: &'a Value, within: Option<usize>, pointer: String) -> usize {
        *self.known.entry(address(schema)).or_insert_with(|| {
            self.nodes.push(Node {
                schema,
                within,
                pointer,
                same: Vec::new(),
                below: Vec::new(),
            });
            self.nodes.len() - 1
        })
    }

    /// Where a node is.
    fn pointer(&self, at: usize) -> String {
        let outwards = std::iter::successors(Some(at), |at| self.nodes[*at].within);
        let steps: Vec<&str> = outwards.map(|at| self.nodes[at].pointer.as_str()).collect();
        steps.into_iter().rev().collect()
    }

    /// Adds what is directly inside of a node, and looks at its keywords.
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
            refuse("$id", "only the schema as a whole may have an `$id`");
        }
        if let Some(dialect) = schema.get("$schema") {
            let said = dialect.as_str().map(|said| said.trim_end_matches('#'));
            if said != Some(DIALECT) || at != 0 {
                let what = format!("a schema is one of {DIALECT}, as a whole");
                refuse("$schema", &what);
            }
        }
        if is_twice {
            refuse("$anchor", "this anchor is there twice");
        }
        for part in parts(schema) {
            let inner = self.add(part.schema, Some(at), part.pointer);
            match part.looks {
                Looks::AtTheSame => self.nodes[at].same.push(inner),
                Looks::Below => self.nodes[at].below.push(inner),
                Looks::AtNothing => {}
            }
        }
    }

    /// Looks for what the `$ref` of a node leads to.
    fn follow(&mut self, at: usize) -> Result<(), Violation> {
        let schema = self.nodes[at].schema;
        let Some(reference) = schema.get("$ref").filter(|_| schema.is_object()) else {
            return Ok(());
        };
        let refuse = |what: String| Err(Violation::new(format!("{}/$ref", self.pointer(at)), what));
        let Some(reference) = reference.as_str() else {
            return refuse("a `$ref` is a string".to_owned());
        };
        let Some(pointer) = self.pointer_of(reference) else {
            return refuse(format!(
                "`{reference}` leads out of the schema: a `$ref` is `#`, `#/` with a JSON pointer, or `#` with an anchor of this schema"
            ));
        };
        let target = self.root.pointer(&pointer);
        match target.and_then(|target| self.known.get(&address(target))) {
            Some(target) => {
                self.nodes[at].same.push(*target);
                Ok(())
            }
            None => refuse(format!(
                "`{reference}` leads to no schema: have it under `$defs`"
            )),
        }
    }

    /// The pointer that a `$ref` stands for.
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

    /// The schema that a `$ref` leads to.
    pub(super) fn target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(&self.pointer_of(reference)?)
    }

    /// Every schema that is in it.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        self.nodes.iter().map(|node| node.schema)
    }

    /// Whether checks come to an end, and how large they may get.
    ///
    /// # Errors
    /// Where they do not, or what they exceed.
    pub(super) fn bounded(&self) -> Result<(), Violation> {
        let order = self.inner_first()?;
        let mut places = vec![0_u64; self.nodes.len()];
        for &at in &order {
            let inner = self.nodes[at].same.iter().map(|inner| places[*inner]);
            places[at] = inner.fold(1, u64::saturating_add);
            if places[at] > SCHEMA_PLACES_MAX {
                let what = format!(
                    "more than {SCHEMA_PLACES_MAX} parts of the schema, `schema_places_max`, look at one value here, each `$ref` being followed"
                );
                return Err(Violation::new(self.pointer(at), what));
            }
        }
        if self.nesting(&order) > SCHEMA_NESTING_MAX {
            let what = format!(
                "checks of a document can be nested more than {SCHEMA_NESTING_MAX} deep, `schema_nesting_max`: shorten chains of `$ref`, `allOf` and the like"
            );
            return Err(Violation::new("", what));
        }
        Ok(())
    }

    /// All nodes in an order in which whatever looks at the same value as another comes before it.
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
        // Whoever goes on among these comes back to where he was: that is a circle.
        let mut seen = vec![false; self.nodes.len()];
        while !std::mem::replace(&mut seen[at], true) {
            let mut inner = self.nodes[at].same.iter();
            at = *inner
                .find(|inner| missing[**inner] > 0)
                .expect("one that waits for nothing would be done");
        }
        let what = "a `$ref` leads back to here without going into a property or an element: no value could ever be checked";
        Err(Violation::new(self.pointer(at), what))
    }

    /// How deep checks of a document as deep as may be are nested.
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
