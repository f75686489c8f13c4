//! Checks of constraints between the values of one document.

use crate::core::path::Path;
use crate::core::schema::{SchemaShape, Types};

use super::check::ViolationList;
use super::{EQUAL_GROUPS_MAX, EQUAL_PATHS_MAX, UNIQUE_MAX, UNIQUE_PATHS_MAX};

/// The groups of equal and of unique paths, which are checked.
pub(super) fn check(
    equal: Option<Vec<Vec<Path>>>,
    unique: Option<Vec<Vec<Path>>>,
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) -> (Vec<Vec<Path>>, Vec<Vec<Path>>) {
    let (equal, unique) = (equal.unwrap_or_default(), unique.unwrap_or_default());
    check_equal(&equal, shape, violations);
    check_unique(&unique, shape, violations);
    (equal, unique)
}

/// Checks that the paths of each group can have equal values.
fn check_equal(
    groups: &[Vec<Path>],
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) {
    violations.check_count("/equal", groups.len(), "equal_groups_max", EQUAL_GROUPS_MAX);
    for (index, group) in groups.iter().enumerate() {
        let pointer = format!("/equal/{index}");
        violations.check_count(&pointer, group.len(), "equal_paths_max", EQUAL_PATHS_MAX);
        if group.len() < 2 {
            violations.add(&pointer, "a group of equal paths needs at least two");
        }
        let mut common_types = Types::SCALAR;
        for (position, path) in group.iter().enumerate() {
            let pointer = format!("{pointer}/{position}");
            if group[..position].contains(path) {
                violations.add(&pointer, format!("`{path}` occurs twice"));
            }
            let Some(shape) = shape else { continue };
            let types = shape.types(path).without(Types::NULL);
            if types == Types::NONE || !types.is_within(Types::SCALAR) {
                let what = format!(
                    "by the schema `{path}` is {}: an equal path must be a string, number or \
                     boolean",
                    shape.types(path)
                );
                violations.add(&pointer, what);
            } else if common_types.intersection(types) == Types::NONE {
                let what = format!(
                    "by the schema `{path}` is {types}, and can never equal `{}`",
                    group[0]
                );
                violations.add(&pointer, what);
            } else {
                common_types = common_types.intersection(types);
            }
        }
    }
}

/// Checks that the paths of each group lead to scalars in elements of the same array.
fn check_unique(
    groups: &[Vec<Path>],
    shape: Option<&SchemaShape<'_>>,
    violations: &mut ViolationList,
) {
    violations.check_count("/unique", groups.len(), "unique_max", UNIQUE_MAX);
    for (index, group) in groups.iter().enumerate() {
        let pointer = format!("/unique/{index}");
        violations.check_count(&pointer, group.len(), "unique_paths_max", UNIQUE_PATHS_MAX);
        if group.is_empty() {
            violations.add(&pointer, "a group of unique paths needs at least one");
        }
        for (position, path) in group.iter().enumerate() {
            let pointer = format!("{pointer}/{position}");
            if group[..position].contains(path) {
                violations.add(&pointer, format!("`{path}` occurs twice"));
            }
            if !path.is_plural() {
                let what = format!("`{path}` leads into no array: it needs a `*`");
                violations.add(&pointer, what);
            } else if path.split_at_last_each().0 != group[0].split_at_last_each().0 {
                let what = format!(
                    "`{path}` must be the same as `{}` up to the last `*`, so that both concern \
                     the same element",
                    group[0]
                );
                violations.add(&pointer, what);
            }
            let Some(shape) = shape else { continue };
            let types = shape.types(path);
            let scalars = types.without(Types::NULL);
            if scalars == Types::NONE || !scalars.is_within(Types::SCALAR) {
                let what = format!(
                    "by the schema `{path}` is {types}: a unique path must be a string, number or \
                     boolean"
                );
                violations.add(&pointer, what);
            }
        }
    }
}

#[cfg(test)]
mod tests;
