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

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of these types are among others.
    pub(crate) fn is_within(self, other: Self) -> bool {
        self.without(other) == Self::NONE
    }

    fn named(name: &str) -> Self {
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

    fn of(value: &Value) -> Self {
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
        let number = match self.and(Self::NUMBER) {
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
        let mut names = all
            .iter()
            .filter(|(types, _)| self.and(*types) != Self::NONE);
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
    pub(crate) fn only(types: Types) -> Option<Self> {
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
    pub(super) fn of(root: &'a Value, graph: SchemaGraph<'a>) -> Self {
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
    pub(crate) fn required(&self, path: &Path) -> Result<(), String> {
        let way = path.segments();
        for length in 1..=way.len() {
            let (here, rest) = way.split_at(length);
            let shown = shown(here);
            if !self.requires(self.root, here, &mut ShapeCache::default()) {
                return Err(format!(
                    "the schema does not require `{shown}`: list it in `required`"
                ));
            }
            let types = self.types_at(here);
            if !rest.is_empty() && types != Types::OBJECT {
                return Err(format!(
                    "by the schema `{shown}` is {types}: declare it as an object"
                ));
            }
        }
        Ok(())
    }

    fn types_at(&self, way: &[Segment]) -> Types {
        self.types_from(self.root, way, &mut ShapeCache::default())
    }

    fn types_from(&self, schema: &'a Value, way: &[Segment], known: &mut ShapeCache) -> Types {
        let object = match schema {
            Value::Bool(false) => return Types::NONE,
            Value::Object(object) => object,
            _ => return Types::ALL,
        };
        let key = (std::ptr::from_ref(schema).addr(), way.len());
        if let Some(types) = known.types.get(&key) {
            return *types;
        }
        let mut types = match way.split_first() {
            None => own_types(object),
            Some((step, rest)) => self.types_below(object, step, rest, known),
        };
        for all in self.all_of(object) {
            types = types.and(self.types_from(all, way, known));
        }
        for branches in ["anyOf", "oneOf"] {
            let Some(branches) = object.get(branches).and_then(Value::as_array) else {
                continue;
            };
            let mut any = Types::NONE;
            for branch in branches {
                if self.may_lead(branch, way, known) {
                    any = any.or(self.types_from(branch, way, known));
                }
            }
            types = types.and(any);
        }
        known.types.insert(key, types);
        types
    }

    /// Whether a value that matches a schema can contain the next step of a path.
    fn may_lead(&self, schema: &'a Value, way: &[Segment], known: &mut ShapeCache) -> bool {
        let needed = match way.first() {
            None => return true,
            Some(Segment::Property(_)) => Types::OBJECT,
            Some(Segment::Each) => Types::ARRAY,
        };
        self.types_from(schema, &[], known).and(needed) != Types::NONE
    }

    /// Types of the values at a step, by the keywords of this schema alone.
    fn types_below(
        &self,
        object: &'a Map<String, Value>,
        step: &Segment,
        rest: &[Segment],
        known: &mut ShapeCache,
    ) -> Types {
        let mut from = |schema: Option<&'a Value>| {
            schema.map_or(Types::ALL, |schema| self.types_from(schema, rest, known))
        };
        match step {
            Segment::Property(name) => match object.get("properties").and_then(|all| all.get(name))
            {
                Some(property) => from(Some(property)),
                None if object.contains_key("patternProperties") => Types::ALL,
                None => from(object.get("additionalProperties")),
            },
            Segment::Each => {
                let first = object.get("prefixItems").and_then(Value::as_array);
                let others = from(object.get("items"));
                let all = first.into_iter().flatten();
                all.fold(others, |types, schema| types.or(from(Some(schema))))
            }
        }
    }

    /// Whether every value that matches a schema, and has everything up to the last step of a path,
    /// has that too.
    fn requires(&self, schema: &'a Value, way: &[Segment], known: &mut ShapeCache) -> bool {
        let object = match schema {
            Value::Object(object) => object,
            other => return *other == Value::Bool(false),
        };
        let Some((Segment::Property(name), rest)) = way.split_first() else {
            return false;
        };
        let key = (std::ptr::from_ref(schema).addr(), way.len());
        if let Some(requires) = known.requires.get(&key) {
            return *requires;
        }
        let by_itself = match rest {
            [] => {
                let mut required = object
                    .get("required")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten();
                required.any(|required| required == name)
            }
            rest => {
                let property = object.get("properties").and_then(|all| all.get(name));
                property.is_some_and(|property| self.requires(property, rest, known))
            }
        };
        let requires = by_itself
            || self
                .all_of(object)
                .any(|all| self.requires(all, way, known))
            || ["anyOf", "oneOf"].into_iter().any(|branches| {
                let branches = object.get(branches).and_then(Value::as_array);
                branches.is_some_and(|branches| {
                    branches.iter().all(|branch| {
                        !self.may_lead(branch, way, known) || self.requires(branch, way, known)
                    })
                })
            });
        known.requires.insert(key, requires);
        requires
    }

    /// Subschemas that hold whenever this one does.
    fn all_of(&self, object: &'a Map<String, Value>) -> impl Iterator<Item = &'a Value> {
        let reference = object.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| self.graph.target(reference));
        let all = object.get("allOf").and_then(Value::as_array);
        target.into_iter().chain(all.into_iter().flatten())
    }
}

/// Types that `type`, `const` and `enum` of a schema allow.
fn own_types(object: &Map<String, Value>) -> Types {
    let any = |values: &[Value], of: fn(&Value) -> Types| {
        let all = values.iter().map(of);
        all.fold(Types::NONE, Types::or)
    };
    let named = |name: &Value| name.as_str().map_or(Types::NONE, Types::named);
    let mut types = match object.get("type") {
        Some(Value::Array(names)) => any(names, |name| {
            name.as_str().map_or(Types::NONE, Types::named)
        }),
        Some(name) => named(name),
        None => Types::ALL,
    };
    if let Some(only) = object.get("const") {
        types = types.and(Types::of(only));
    }
    if let Some(options) = object.get("enum").and_then(Value::as_array) {
        types = types.and(any(options, Types::of));
    }
    types
}

fn shown(way: &[Segment]) -> String {
    let mut pointer = String::new();
    for segment in way {
        match segment {
            Segment::Property(name) => crate::core::path::push_escaped(&mut pointer, name),
            Segment::Each => pointer.push_str("/*"),
        }
    }
    pointer
}

#[cfg(test)]
mod tests;
