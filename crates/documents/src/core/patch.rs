//! Patches of a body: merge patch (RFC 7386) and JSON patch (RFC 6902).
//!
//! A patch of a few bytes can ask for a body of any size, by copying what it copied before, and for
//! any amount of work. So the values moved are counted, and the depth is checked with every
//! operation. Whether the result is a valid document is for the caller to check.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::core::identity::is_equivalent;
use crate::core::json;
use crate::core::path::unescape;
use crate::model::{DEPTH_MAX, Violation, truncate};

/// Budget of a JSON patch: a value moved costs one, and so do 16 bytes of a string and 16 elements
/// of an array that are shifted.
pub(crate) const PATCH_STEPS_MAX: usize = 2_000_000;

/// Applies a merge patch. The result need not be an object.
pub(crate) fn apply_merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(properties) = target else {
        return;
    };
    for (name, change) in changes {
        match change {
            Value::Null => {
                properties.shift_remove(&name);
            }
            change => apply_merge_patch(properties.entry(name).or_insert(Value::Null), change),
        }
    }
}

/// A JSON patch (RFC 6902).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPatch(Vec<Operation>);

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation {
    Add { path: Pointer, value: Value },
    Remove { path: Pointer },
    Replace { path: Pointer, value: Value },
    Move { from: Pointer, path: Pointer },
    Copy { from: Pointer, path: Pointer },
    Test { path: Pointer, value: Value },
}

/// A JSON pointer, split into steps.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Pointer {
    text: String,
    tokens: Vec<String>,
}

impl TryFrom<String> for Pointer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let shown = truncate(&text, 100);
        let tokens = match text.strip_prefix('/') {
            None if text.is_empty() => Ok(Vec::new()),
            None => Err("it must be empty or begin with `/`".to_owned()),
            Some(rest) => rest
                .split('/')
                .map(|token| unescape(token).map(|token| token.into_owned()))
                .collect(),
        };
        match tokens {
            Ok(tokens) => Ok(Self { text, tokens }),
            Err(what) => Err(format!("`{shown}` is not a JSON pointer: {what}")),
        }
    }
}

impl JsonPatch {
    /// Reads a patch from its JSON. Unknown members of an operation are ignored, as RFC 6902
    /// requires.
    ///
    /// # Errors
    /// The first invalid operation; the pointer is into the patch.
    pub(crate) fn parse(patch: Value) -> Result<Self, Violation> {
        let Value::Array(operations) = patch else {
            let what =
                format!("a JSON patch must be an array of operations, not {}", json::kind(&patch));
            return Err(Violation::new("", what));
        };
        let operations = operations.into_iter().enumerate().map(|(index, operation)| {
            serde_json::from_value(operation)
                .map_err(|error| Violation::new(format!("/{index}"), error.to_string()))
        });
        operations.collect::<Result<_, _>>().map(Self)
    }

    /// Applies the operations in order.
    ///
    /// # Errors
    /// The first operation that fails; the pointer is into the patch. The target is then
    /// incomplete.
    pub(crate) fn apply(self, target: &mut Value) -> Result<(), Violation> {
        let mut budget = PatchBudget(PATCH_STEPS_MAX);
        for (index, operation) in self.0.into_iter().enumerate() {
            operation
                .apply(target, &mut budget)
                .map_err(|what| Violation::new(format!("/{index}"), what))?;
        }
        Ok(())
    }
}

/// Remaining budget of a patch.
struct PatchBudget(usize);

impl PatchBudget {
    fn spend(&mut self, steps: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(steps).ok_or_else(|| {
            format!("the patch needs more than {PATCH_STEPS_MAX} steps (`patch_steps_max`): replace the whole document instead")
        })?;
        Ok(())
    }
}

impl Operation {
    fn apply(self, target: &mut Value, budget: &mut PatchBudget) -> Result<(), String> {
        match self {
            Self::Add { path, value } => add(target, &path, value, budget),
            Self::Remove { path } => remove(target, &path, budget).map(drop),
            Self::Replace { path, value } => {
                check_depth(&path, &value, budget)?;
                *find_mut(target, &path)? = value;
                Ok(())
            }
            Self::Move { from, path } => {
                let goes_into_itself =
                    path.tokens.len() > from.tokens.len() && path.tokens.starts_with(&from.tokens);
                if goes_into_itself {
                    return Err(format!("`{}` cannot be moved into itself", from.text));
                }
                if from == path {
                    return find(target, &from).map(drop);
                }
                let value = remove(target, &from, budget)?;
                add(target, &path, value, budget)
            }
            Self::Copy { from, path } => {
                let value = find(target, &from)?;
                budget.spend(move_cost(value))?;
                let value = value.clone();
                add(target, &path, value, budget)
            }
            Self::Test { path, value } => {
                if is_equivalent(find(target, &path)?, &value) {
                    Ok(())
                } else {
                    Err(format!("the test fails: `{}` has another value", path.text))
                }
            }
        }
    }
}

/// Adds a value at a pointer: to an object, or into an array, where `-` is its end.
fn add(
    target: &mut Value,
    path: &Pointer,
    value: Value,
    budget: &mut PatchBudget,
) -> Result<(), String> {
    check_depth(path, &value, budget)?;
    let Some((last, parent_tokens)) = path.tokens.split_last() else {
        *target = value;
        return Ok(());
    };
    match walk_mut(target, parent_tokens) {
        Some(Value::Object(properties)) => {
            properties.insert(last.clone(), value);
            Ok(())
        }
        Some(Value::Array(elements)) => {
            let index = match last.as_str() {
                "-" => Some(elements.len()),
                token => parse_index(token).filter(|index| *index <= elements.len()),
            };
            let index = index.ok_or_else(|| {
                format!(
                    "`{}` is not a position in an array of {} elements",
                    path.text,
                    elements.len()
                )
            })?;
            budget.spend((elements.len() - index) / 16)?;
            elements.insert(index, value);
            Ok(())
        }
        _ => Err(format!(
            "cannot add `{}`: its parent does not exist, or is not an object or array",
            path.text
        )),
    }
}

fn remove(target: &mut Value, path: &Pointer, budget: &mut PatchBudget) -> Result<Value, String> {
    let Some((last, parent_tokens)) = path.tokens.split_last() else {
        return Ok(std::mem::take(target));
    };
    let removed = match walk_mut(target, parent_tokens) {
        Some(Value::Object(properties)) => {
            // The order of properties has no meaning, and preserving it would cost a pass over the
            // object.
            properties.swap_remove(last)
        }
        Some(Value::Array(elements)) => {
            match parse_index(last).filter(|index| *index < elements.len()) {
                Some(index) => {
                    budget.spend((elements.len() - index) / 16)?;
                    Some(elements.remove(index))
                }
                None => None,
            }
        }
        _ => None,
    };
    removed.ok_or_else(|| not_found_message(path))
}

fn find<'a>(target: &'a Value, path: &Pointer) -> Result<&'a Value, String> {
    let found = path.tokens.iter().try_fold(target, |value, token| match value {
        Value::Object(properties) => properties.get(token),
        Value::Array(elements) => elements.get(parse_index(token)?),
        _ => None,
    });
    found.ok_or_else(|| not_found_message(path))
}

fn find_mut<'a>(target: &'a mut Value, path: &Pointer) -> Result<&'a mut Value, String> {
    walk_mut(target, &path.tokens).ok_or_else(|| not_found_message(path))
}

fn not_found_message(path: &Pointer) -> String {
    format!("there is nothing at `{}`", path.text)
}

fn walk_mut<'a>(target: &'a mut Value, tokens: &[String]) -> Option<&'a mut Value> {
    tokens.iter().try_fold(target, |value, token| match value {
        Value::Object(properties) => properties.get_mut(token),
        Value::Array(elements) => elements.get_mut(parse_index(token)?),
        _ => None,
    })
}

/// Parses an index as RFC 6901 has it: digits without a leading zero.
fn parse_index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with('0');
    let is_number = is_plain && token.bytes().all(|byte| byte.is_ascii_digit());
    token.parse().ok().filter(|_| is_number)
}

/// Checks that a value is not nested too deep at its new place.
fn check_depth(path: &Pointer, value: &Value, budget: &mut PatchBudget) -> Result<(), String> {
    budget.spend(move_cost(value))?;
    if path.tokens.len() + depth(value) > DEPTH_MAX {
        return Err(format!("the document would be nested deeper than {DEPTH_MAX}"));
    }
    Ok(())
}

/// Cost of moving a value.
fn move_cost(value: &Value) -> usize {
    match value {
        Value::String(string) => 1 + string.len() / 16,
        Value::Array(elements) => 1 + elements.iter().map(move_cost).sum::<usize>(),
        Value::Object(properties) => 1 + properties.values().map(move_cost).sum::<usize>(),
        _ => 1,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(properties) => 1 + properties.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
