//! Values as the validator sees them, with a gauge: how much work a check may be is bounded, whatever schema and document do to each other.
//!
//! A schema may check one value in several ways, and each of them its parts in several again; only the document decides how often. Rather than to
//! foresee that, every look at a value is counted. When the gauge is used up, values have no parts any more, and the check comes to an end.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::ControlFlow;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Value};

/// Bytes of a string times positions of a pattern that are one step: a tenth of a microsecond, about.
const PATTERN_WORK_OF_A_STEP: u64 = 32;

/// How much a check may still do.
pub(super) struct Gauge {
    steps: Cell<u64>,
    errors: Cell<u64>,
    /// Positions of the largest pattern that a string may be held against.
    pattern_positions: u64,
}

impl Gauge {
    pub(super) fn new(steps: u64, errors: u64, pattern_positions: u64) -> Self {
        Self {
            steps: Cell::new(steps),
            errors: Cell::new(errors),
            pattern_positions,
        }
    }

    /// Whether it is used up: what was said since cannot be trusted.
    pub(super) fn is_used_up(&self) -> bool {
        self.steps.get() == 0
    }

    #[inline]
    fn take(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_sub(steps));
    }

    /// Counts an error; after the last that may be, the gauge is used up.
    fn take_error(&self) {
        let errors = self.errors.get().saturating_sub(1);
        self.errors.set(errors);
        if errors == 0 {
            self.steps.set(0);
        }
    }
}

/// The representation.
pub(super) struct Gauged;

/// A value of it.
#[derive(Clone, Copy)]
pub(super) struct GaugedValue<'a> {
    pub(super) value: &'a Value,
    pub(super) gauge: &'a Gauge,
}

#[derive(Clone, Copy)]
pub(super) struct GaugedObject<'a> {
    properties: &'a Map<String, Value>,
    gauge: &'a Gauge,
}

#[derive(Clone, Copy)]
pub(super) struct GaugedArray<'a> {
    elements: &'a [Value],
    gauge: &'a Gauge,
}

impl Json for Gauged {
    type Node<'a> = GaugedValue<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(GaugedValue<'_>) -> T) -> T {
        // Names of properties come with the gauge of their object, below; this one is for a name by itself.
        let gauge = Gauge::new(u64::MAX, u64::MAX, 0);
        let value = Value::String(string.to_owned());
        f(GaugedValue {
            value: &value,
            gauge: &gauge,
        })
    }
}

impl<'a> Node<'a, Gauged> for GaugedValue<'a> {
    type Object = GaugedObject<'a>;
    type Array = GaugedArray<'a>;
    type Number = &'a serde_json::Number;

    #[inline]
    fn as_object(&self) -> Option<GaugedObject<'a>> {
        self.gauge.take(1);
        let properties = self.value.as_object()?;
        Some(GaugedObject {
            properties,
            gauge: self.gauge,
        })
    }

    #[inline]
    fn as_array(&self) -> Option<GaugedArray<'a>> {
        self.gauge.take(1);
        let elements = self.value.as_array()?;
        Some(GaugedArray {
            elements,
            gauge: self.gauge,
        })
    }

    #[inline]
    fn as_string(&self) -> Option<Cow<'a, str>> {
        let string = self.value.as_str()?;
        let work = (string.len() as u64).saturating_mul(self.gauge.pattern_positions);
        self.gauge.take(1 + work / PATTERN_WORK_OF_A_STEP);
        // A string that is too much work is not held against anything.
        (!self.gauge.is_used_up()).then_some(Cow::Borrowed(string))
    }

    #[inline]
    fn as_number(&self) -> Option<&'a serde_json::Number> {
        self.gauge.take(1);
        self.value.as_number()
    }

    #[inline]
    fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    #[inline]
    fn is_null(&self) -> bool {
        self.value.is_null()
    }

    #[inline]
    fn json_type(&self) -> JsonType {
        self.gauge.take(1);
        Node::<SerdeJson>::json_type(&self.value)
    }

    #[inline]
    fn is_string(&self) -> bool {
        self.value.is_string()
    }

    #[inline]
    fn is_number(&self) -> bool {
        self.value.is_number()
    }

    fn string_length(&self) -> Option<u64> {
        self.gauge.take(1);
        Node::<SerdeJson>::string_length(&self.value)
    }

    fn string_length_within(&self, min: u64, max: u64) -> Option<bool> {
        self.gauge.take(1);
        Node::<SerdeJson>::string_length_within(&self.value, min, max)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.gauge.take(1);
        Node::<SerdeJson>::equals_value(&self.value, expected)
    }

    /// Errors carry what they are of, and some are copied more than once. Nothing is told of it, so it is nothing.
    fn to_value(&self) -> Cow<'a, Value> {
        self.gauge.take_error();
        Cow::Owned(Value::Null)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Node::<SerdeJson>::identity(&self.value)
    }
}

impl<'a> Object<'a, Gauged> for GaugedObject<'a> {
    type Node = GaugedValue<'a>;
    type MemberName = &'a str;
    type MembersIter = GaugedMembers<'a>;

    #[inline]
    fn len(&self) -> usize {
        self.properties.len()
    }

    #[inline]
    fn get(&self, key: &String) -> Option<GaugedValue<'a>> {
        self.gauge.take(1);
        if self.gauge.is_used_up() {
            return None;
        }
        let value = Object::<SerdeJson>::get(&self.properties, key)?;
        Some(GaugedValue {
            value,
            gauge: self.gauge,
        })
    }

    fn members(&self) -> GaugedMembers<'a> {
        GaugedMembers {
            members: self.properties.iter(),
            gauge: self.gauge,
        }
    }

    fn try_for_each_name_node<B>(
        &self,
        (): &mut (),
        mut f: impl FnMut(GaugedValue<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for (name, _) in self.members() {
            let value = Value::String(name.to_owned());
            f(GaugedValue {
                value: &value,
                gauge: self.gauge,
            })?;
        }
        ControlFlow::Continue(())
    }
}

impl<'a> Array<'a, Gauged> for GaugedArray<'a> {
    type Node = GaugedValue<'a>;
    type ElementsIter = GaugedElements<'a>;

    #[inline]
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn elements(&self) -> GaugedElements<'a> {
        GaugedElements {
            elements: self.elements.iter(),
            gauge: self.gauge,
        }
    }

    /// All that is in the elements is read.
    fn is_unique(&self) -> bool {
        self.gauge.take(self.elements.iter().map(parts).sum());
        self.gauge.is_used_up() || Array::<SerdeJson>::is_unique(&self.elements)
    }
}

/// How many values are in a value, itself included.
fn parts(value: &Value) -> u64 {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(parts).sum::<u64>(),
        Value::Object(properties) => 1 + properties.values().map(parts).sum::<u64>(),
        _ => 1,
    }
}

pub(super) struct GaugedMembers<'a> {
    members: serde_json::map::Iter<'a>,
    gauge: &'a Gauge,
}

impl<'a> Iterator for GaugedMembers<'a> {
    type Item = (&'a str, GaugedValue<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.gauge.take(1);
        if self.gauge.is_used_up() {
            return None;
        }
        let (name, value) = self.members.next()?;
        let gauge = self.gauge;
        Some((name.as_str(), GaugedValue { value, gauge }))
    }
}

pub(super) struct GaugedElements<'a> {
    elements: std::slice::Iter<'a, Value>,
    gauge: &'a Gauge,
}

impl<'a> Iterator for GaugedElements<'a> {
    type Item = GaugedValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<GaugedValue<'a>> {
        self.gauge.take(1);
        if self.gauge.is_used_up() {
            return None;
        }
        let gauge = self.gauge;
        self.elements
            .next()
            .map(|value| GaugedValue { value, gauge })
    }
}
