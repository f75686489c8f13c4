//! What a schema guarantees at a path: the possible types, and whether there always is a value.
//!
//! The result is conservative. `$ref`, `allOf`, `anyOf` and `oneOf` are followed; conditions, `not`
//! and patterns of names are not: types that only they exclude count as possible, and properties
//! that only they require as optional.

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::core::path::{Path, Segment};

use super::graph::SchemaGraph;

/// A set of types of JSON values; integers are a type of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(0b111_1111);
    pub(crate) const NULL: Self = Self(1);
    pub(crate) const BOOLEAN: Self = Self(2);
    pub(crate) const INTEGER: Self = Self(4);
    pub(crate) const NUMBER: Self = Self(4 | 8);
    pub(crate) const STRING: Self = Self(16);
    pub(crate) const ARRAY: Self = Self(32);
    pub(crate) const OBJECT: Self = Self(64);
    /// Strings, integers, numbers and booleans.
    pub(crate) const SCALAR: Self = Self(2 | 4 | 8 | 16);

    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of these types are among others.
    pub(crate) fn is_within(self, other: Self) -> bool {
        self.without(other) == Self::NONE
    }

    fn from_name(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::NONE,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.is_f64() => Self::NUMBER,
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("anything");
        }
        let number = match self.intersection(Self::NUMBER) {
            Self::NUMBER => "a number",
            _ => "an integer",
        };
        let all = [
            (Self::STRING, "a string"),
            (Self::NUMBER, number),
            (Self::BOOLEAN, "a boolean"),
            (Self::OBJECT, "an object"),
            (Self::ARRAY, "an array"),
            (Self::NULL, "null"),
        ];
        let mut names = all.iter().filter(|(types, _)| self.intersection(*types) != Self::NONE);
        match names.next() {
            None => return f.write_str("never there"),
            Some((_, first)) => f.write_str(first)?,
        }
        names.try_for_each(|(_, name)| write!(f, " or {name}"))
    }
}

/// Type of the values in identities and at query paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A JSON string value.
    String,
    /// A JSON number without fraction.
    Integer,
    /// Any JSON number value.
    Number,
    /// A JSON boolean value.
    Boolean,
}

impl Scalar {
    /// The single type of a set, if there is only one.
    pub(crate) fn single(types: Types) -> Option<Self> {
        match types {
            Types::STRING => Some(Self::String),
            Types::INTEGER => Some(Self::Integer),
            Types::NUMBER => Some(Self::Number),
            Types::BOOLEAN => Some(Self::Boolean),
            _ => None,
        }
    }

    pub(crate) fn types(self) -> Types {
        match self {
            Self::String => Types::STRING,
            Self::Integer => Types::INTEGER,
            Self::Number => Types::NUMBER,
            Self::Boolean => Types::BOOLEAN,
        }
    }
}

/// Guarantees of a schema. Results are cached during a query: subschemas that refer to each other
/// are examined once for each step of a path.
pub(crate) struct SchemaShape<'a> {
    graph: SchemaGraph<'a>,
    root: &'a Value,
}

/// Results for the remainders of a path, by schema and length of the remainder.
#[derive(Default)]
struct ShapeCache {
    types: HashMap<(usize, usize), Types>,
    requires: HashMap<(usize, usize), bool>,
}

impl<'a> SchemaShape<'a> {
    /// For a schema whose graph has no cycle.
    pub(super) fn new(root: &'a Value, graph: SchemaGraph<'a>) -> Self {
        Self { graph, root }
    }

    /// Types that a value at a path can have, if there is one.
    pub(crate) fn types(&self, path: &Path) -> Types {
        self.types_at(path.segments())
    }

    /// Whether every valid document has a value at a path.
    ///
    /// # Errors
    /// A message with the place that may be absent.
    pub(crate) fn check_required(&self, path: &Path) -> Result<(), String> {
        let segments = path.segments();
        for length in 1..=segments.len() {
            let (prefix, rest) = segments.split_at(length);
            let pointer = to_pointer(prefix);
            if !self.requires(self.root, prefix, &mut ShapeCache::default()) {
                return Err(format!(
                    "the schema does not require `{pointer}`: list it in `required`"
                ));
            }
            let types = self.types_at(prefix);
            if !rest.is_empty() && types != Types::OBJECT {
                return Err(format!(
                    "by the schema `{pointer}` is {types}: declare it as an object"
                ));
            }
        }
        Ok(())
    }

    fn types_at(&self, segments: &[Segment]) -> Types {
        self.types_from(self.root, segments, &mut ShapeCache::default())
    }

    fn types_from(&self, schema: &'a Value, segments: &[Segment], cache: &mut ShapeCache) -> Types {
        let object = match schema {
            Value::Bool(false) => return Types::NONE,
            Value::Object(object) => object,
            _ => return Types::ALL,
        };
        let key = (std::ptr::from_ref(schema).addr(), segments.len());
        if let Some(types) = cache.types.get(&key) {
            return *types;
        }
        let mut types = match segments.split_first() {
            None => own_types(object),
            Some((step, rest)) => self.types_below(object, step, rest, cache),
        };
        for subschema in self.conjuncts(object) {
            types = types.intersection(self.types_from(subschema, segments, cache));
        }
        for branches in ["anyOf", "oneOf"] {
            let Some(branches) = object.get(branches).and_then(Value::as_array) else {
                continue;
            };
            let mut any_types = Types::NONE;
            for branch in branches {
                if self.can_contain(branch, segments, cache) {
                    any_types = any_types.union(self.types_from(branch, segments, cache));
                }
            }
            types = types.intersection(any_types);
        }
        cache.types.insert(key, types);
        types
    }

    /// Whether a value that matches a schema can contain the next step of a path.
    fn can_contain(&self, schema: &'a Value, segments: &[Segment], cache: &mut ShapeCache) -> bool {
        let container = match segments.first() {
            None => return true,
            Some(Segment::Property(_)) => Types::OBJECT,
            Some(Segment::Each) => Types::ARRAY,
        };
        self.types_from(schema, &[], cache).intersection(container) != Types::NONE
    }

    /// Types of the values at a step, by the keywords of this schema alone.
    fn types_below(
        &self,
        object: &'a Map<String, Value>,
        step: &Segment,
        rest: &[Segment],
        cache: &mut ShapeCache,
    ) -> Types {
        let mut types_of = |schema: Option<&'a Value>| {
            schema.map_or(Types::ALL, |schema| self.types_from(schema, rest, cache))
        };
        match step {
            Segment::Property(name) => match object.get("properties").and_then(|all| all.get(name))
            {
                Some(property) => types_of(Some(property)),
                None if object.contains_key("patternProperties") => Types::ALL,
                None => types_of(object.get("additionalProperties")),
            },
            Segment::Each => {
                let prefix_items = object.get("prefixItems").and_then(Value::as_array);
                let item_types = types_of(object.get("items"));
                let all = prefix_items.into_iter().flatten();
                all.fold(item_types, |types, schema| types.union(types_of(Some(schema))))
            }
        }
    }

    /// Whether every value that matches a schema, and has everything up to the last step of a path,
    /// has that too.
    fn requires(&self, schema: &'a Value, segments: &[Segment], cache: &mut ShapeCache) -> bool {
        let object = match schema {
            Value::Object(object) => object,
            other => return *other == Value::Bool(false),
        };
        let Some((Segment::Property(name), rest)) = segments.split_first() else {
            return false;
        };
        let key = (std::ptr::from_ref(schema).addr(), segments.len());
        if let Some(requires) = cache.requires.get(&key) {
            return *requires;
        }
        let is_required_here = match rest {
            [] => {
                let mut required =
                    object.get("required").and_then(Value::as_array).into_iter().flatten();
                required.any(|required| required == name)
            }
            rest => {
                let property = object.get("properties").and_then(|all| all.get(name));
                property.is_some_and(|property| self.requires(property, rest, cache))
            }
        };
        let requires = is_required_here
            || self.conjuncts(object).any(|all| self.requires(all, segments, cache))
            || ["anyOf", "oneOf"].into_iter().any(|branches| {
                let branches = object.get(branches).and_then(Value::as_array);
                branches.is_some_and(|branches| {
                    branches.iter().all(|branch| {
                        !self.can_contain(branch, segments, cache)
                            || self.requires(branch, segments, cache)
                    })
                })
            });
        cache.requires.insert(key, requires);
        requires
    }

    /// Subschemas that hold whenever this one does.
    fn conjuncts(&self, object: &'a Map<String, Value>) -> impl Iterator<Item = &'a Value> {
        let reference = object.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| self.graph.resolve_target(reference));
        let all = object.get("allOf").and_then(Value::as_array);
        target.into_iter().chain(all.into_iter().flatten())
    }
}

/// Types that `type`, `const` and `enum` of a schema allow.
fn own_types(object: &Map<String, Value>) -> Types {
    let union_of = |values: &[Value], of: fn(&Value) -> Types| {
        let all = values.iter().map(of);
        all.fold(Types::NONE, Types::union)
    };
    let named = |name: &Value| name.as_str().map_or(Types::NONE, Types::from_name);
    let mut types = match object.get("type") {
        Some(Value::Array(names)) => {
            union_of(names, |name| name.as_str().map_or(Types::NONE, Types::from_name))
        }
        Some(name) => named(name),
        None => Types::ALL,
    };
    if let Some(only) = object.get("const") {
        types = types.intersection(Types::of_value(only));
    }
    if let Some(options) = object.get("enum").and_then(Value::as_array) {
        types = types.intersection(union_of(options, Types::of_value));
    }
    types
}

fn to_pointer(segments: &[Segment]) -> String {
    let mut pointer = String::new();
    for segment in segments {
        match segment {
            Segment::Property(name) => crate::core::path::push_escaped(&mut pointer, name),
            Segment::Each => pointer.push_str("/*"),
        }
    }
    pointer
}

#[cfg(test)]
mod tests;
