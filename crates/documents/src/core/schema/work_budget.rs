//! Values as the validator sees them, with a work budget that bounds a check for any schema and
//! document.
//!
//! A schema may check one value in several ways, and each of them its parts in several again; how
//! often depends on the document. Rather than predicting that, every access to a value is counted.
//! When the budget is used up, values appear empty, and the check ends.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::ControlFlow;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Value};

/// Bytes of a string times positions of a pattern that cost one step: about a tenth of a
/// microsecond.
const PATTERN_WORK_PER_STEP: u64 = 32;

/// Remaining work budget of a check.
pub(super) struct WorkBudget {
    steps: Cell<u64>,
    errors: Cell<u64>,
    /// Positions of the largest pattern that may be matched against a string.
    pattern_positions: u64,
}

impl WorkBudget {
    pub(super) fn new(steps: u64, errors: u64, pattern_positions: u64) -> Self {
        Self { steps: Cell::new(steps), errors: Cell::new(errors), pattern_positions }
    }

    /// Whether it is used up: results since then are not reliable.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    #[inline]
    fn spend(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_sub(steps));
    }

    /// Counts an error; the last allowed one uses up the budget.
    fn spend_error(&self) {
        let errors = self.errors.get().saturating_sub(1);
        self.errors.set(errors);
        if errors == 0 {
            self.steps.set(0);
        }
    }
}

pub(super) struct BudgetedJson;

/// A value with the budget of its check.
#[derive(Clone, Copy)]
pub(super) struct BudgetedValue<'a> {
    pub(super) value: &'a Value,
    pub(super) budget: &'a WorkBudget,
}

#[derive(Clone, Copy)]
pub(super) struct BudgetedObject<'a> {
    properties: &'a Map<String, Value>,
    budget: &'a WorkBudget,
}

#[derive(Clone, Copy)]
pub(super) struct BudgetedArray<'a> {
    elements: &'a [Value],
    budget: &'a WorkBudget,
}

impl Json for BudgetedJson {
    type Node<'a> = BudgetedValue<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(BudgetedValue<'_>) -> T) -> T {
        // For a single name, such as of `propertyNames` checks: names within an object use that
        // object's budget, below.
        let budget = WorkBudget::new(u64::MAX, u64::MAX, 0);
        let value = Value::String(string.to_owned());
        f(BudgetedValue { value: &value, budget: &budget })
    }
}

impl<'a> Node<'a, BudgetedJson> for BudgetedValue<'a> {
    type Object = BudgetedObject<'a>;
    type Array = BudgetedArray<'a>;
    type Number = &'a serde_json::Number;

    #[inline]
    fn as_object(&self) -> Option<BudgetedObject<'a>> {
        self.budget.spend(1);
        let properties = self.value.as_object()?;
        Some(BudgetedObject { properties, budget: self.budget })
    }

    #[inline]
    fn as_array(&self) -> Option<BudgetedArray<'a>> {
        self.budget.spend(1);
        let elements = self.value.as_array()?;
        Some(BudgetedArray { elements, budget: self.budget })
    }

    #[inline]
    fn as_string(&self) -> Option<Cow<'a, str>> {
        let string = self.value.as_str()?;
        let work = (string.len() as u64).saturating_mul(self.budget.pattern_positions);
        self.budget.spend(1 + work / PATTERN_WORK_PER_STEP);
        // A string too expensive to match is not matched at all.
        (!self.budget.is_exhausted()).then_some(Cow::Borrowed(string))
    }

    #[inline]
    fn as_number(&self) -> Option<&'a serde_json::Number> {
        self.budget.spend(1);
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
        self.budget.spend(1);
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
        self.budget.spend(1);
        Node::<SerdeJson>::string_length(&self.value)
    }

    fn string_length_within(&self, min: u64, max: u64) -> Option<bool> {
        self.budget.spend(1);
        Node::<SerdeJson>::string_length_within(&self.value, min, max)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.budget.spend(1);
        Node::<SerdeJson>::equals_value(&self.value, expected)
    }

    /// Validation errors would clone the instance, some several times. It is never reported, so
    /// return `null`.
    fn to_value(&self) -> Cow<'a, Value> {
        self.budget.spend_error();
        Cow::Owned(Value::Null)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Node::<SerdeJson>::identity(&self.value)
    }
}

impl<'a> Object<'a, BudgetedJson> for BudgetedObject<'a> {
    type Node = BudgetedValue<'a>;
    type MemberName = &'a str;
    type MembersIter = BudgetedMembers<'a>;

    #[inline]
    fn len(&self) -> usize {
        self.properties.len()
    }

    #[inline]
    fn get(&self, key: &String) -> Option<BudgetedValue<'a>> {
        self.budget.spend(1);
        if self.budget.is_exhausted() {
            return None;
        }
        let value = Object::<SerdeJson>::get(&self.properties, key)?;
        Some(BudgetedValue { value, budget: self.budget })
    }

    fn members(&self) -> BudgetedMembers<'a> {
        BudgetedMembers { members: self.properties.iter(), budget: self.budget }
    }

    fn try_for_each_name_node<B>(
        &self,
        (): &mut (),
        mut f: impl FnMut(BudgetedValue<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for (name, _) in self.members() {
            let value = Value::String(name.to_owned());
            f(BudgetedValue { value: &value, budget: self.budget })?;
        }
        ControlFlow::Continue(())
    }
}

impl<'a> Array<'a, BudgetedJson> for BudgetedArray<'a> {
    type Node = BudgetedValue<'a>;
    type ElementsIter = BudgetedElements<'a>;

    #[inline]
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn elements(&self) -> BudgetedElements<'a> {
        BudgetedElements { elements: self.elements.iter(), budget: self.budget }
    }

    /// Reads everything in the elements, so all of it is counted.
    fn is_unique(&self) -> bool {
        self.budget.spend(self.elements.iter().map(count_values).sum());
        self.budget.is_exhausted() || Array::<SerdeJson>::is_unique(&self.elements)
    }
}

/// Number of values in a value, including itself.
fn count_values(value: &Value) -> u64 {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(count_values).sum::<u64>(),
        Value::Object(properties) => 1 + properties.values().map(count_values).sum::<u64>(),
        _ => 1,
    }
}

pub(super) struct BudgetedMembers<'a> {
    members: serde_json::map::Iter<'a>,
    budget: &'a WorkBudget,
}

impl<'a> Iterator for BudgetedMembers<'a> {
    type Item = (&'a str, BudgetedValue<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.budget.spend(1);
        if self.budget.is_exhausted() {
            return None;
        }
        let (name, value) = self.members.next()?;
        let budget = self.budget;
        Some((name.as_str(), BudgetedValue { value, budget }))
    }
}

pub(super) struct BudgetedElements<'a> {
    elements: std::slice::Iter<'a, Value>,
    budget: &'a WorkBudget,
}

impl<'a> Iterator for BudgetedElements<'a> {
    type Item = BudgetedValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<BudgetedValue<'a>> {
        self.budget.spend(1);
        if self.budget.is_exhausted() {
            return None;
        }
        let budget = self.budget;
        self.elements.next().map(|value| BudgetedValue { value, budget })
    }
}
