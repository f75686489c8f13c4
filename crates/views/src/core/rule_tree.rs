//! Reads rules of views, as `pg_rewrite.ev_action` has them (`pg_node_tree`): which equality
//! operators a query uses where the server prints none.
//!
//! `NULLIF`, `IS DISTINCT FROM`, `CASE` with a value and `USING` are printed without their
//! operator. Parsed again under another search path they may use another one, as `=` of `text` in
//! place of that of `citext`.

use std::collections::BTreeSet;

/// Equality operators that a query uses where the server prints none, and the types of their
/// operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BareEqualities {
    /// Oids of the operators.
    pub operators: BTreeSet<u32>,
    /// Oids of the operands' types, before implicit casts.
    pub types: BTreeSet<u32>,
}

/// A part of a rule.
#[derive(Debug)]
enum Tree {
    /// `{NAME :field value … :field value …}`
    Node(String, Vec<(String, Vec<Tree>)>),
    /// A list of parts: `(…)`
    List(Vec<Tree>),
    Word(String),
}

/// Format of a cast that the server has added by itself.
const IMPLICIT: &str = "2";

/// The equalities of a rule for which the server prints no operator.
pub(crate) fn bare_equalities(rule: &str) -> BareEqualities {
    let mut found = BareEqualities::default();
    let mut waiting: Vec<&Tree> = Vec::new();
    let parts = parse(rule);
    waiting.extend(&parts);
    while let Some(tree) = waiting.pop() {
        match tree {
            Tree::Word(_) => {}
            Tree::List(parts) => waiting.extend(parts),
            Tree::Node(name, fields) => {
                match name.as_str() {
                    "NULLIFEXPR" | "DISTINCTEXPR" => found.add_operator(tree),
                    "CASEEXPR" => found.add_case(tree),
                    "JOINEXPR" if tree.list("usingClause").next().is_some() => {
                        found.add_conditions(tree);
                    }
                    _ => {}
                }
                waiting.extend(fields.iter().flat_map(|(_, parts)| parts));
            }
        }
    }
    found
}

impl BareEqualities {
    /// Adds an expression with an operator.
    fn add_operator(&mut self, expression: &Tree) {
        self.operators.extend(expression.number("opno"));
        self.types.extend(expression.list("args").filter_map(type_of));
    }

    /// Adds the comparisons of CASE with a value.
    fn add_case(&mut self, case: &Tree) {
        let Some(value) = case.field("arg").filter(|value| value.is_node()) else {
            return;
        };
        self.types.extend(type_of(value));
        for when in case.list("args") {
            for condition in when.field("expr").into_iter().flat_map(comparisons) {
                self.add_operator(condition);
            }
        }
    }

    /// Adds the conditions of a join by USING.
    fn add_conditions(&mut self, join: &Tree) {
        for condition in join.field("quals").into_iter().flat_map(comparisons) {
            self.add_operator(condition);
        }
    }
}

impl Tree {
    fn is_node(&self) -> bool {
        matches!(self, Self::Node(..))
    }

    /// The first part of a field.
    fn field(&self, field: &str) -> Option<&Tree> {
        let Self::Node(_, fields) = self else {
            return None;
        };
        let mut fields = fields.iter();
        fields.find(|(name, _)| name == field)?.1.first()
    }

    /// The parts of a field that is a list.
    fn list(&self, field: &str) -> impl Iterator<Item = &Tree> {
        let parts = match self.field(field) {
            Some(Self::List(parts)) => parts.as_slice(),
            _ => &[],
        };
        parts.iter()
    }

    fn word(&self, field: &str) -> Option<&str> {
        match self.field(field)? {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }

    fn number(&self, field: &str) -> Option<u32> {
        self.word(field)?.parse().ok()
    }
}

/// The comparisons of a condition: one, or several with AND.
fn comparisons(condition: &Tree) -> Vec<&Tree> {
    match condition {
        Tree::Node(name, _) if name == "BOOLEXPR" => {
            condition.list("args").flat_map(comparisons).collect()
        }
        Tree::Node(name, _) if name == "OPEXPR" => vec![condition],
        _ => Vec::new(),
    }
}

/// Type of an expression before implicit casts; none if the tree does not say it.
fn type_of(expression: &Tree) -> Option<u32> {
    let Tree::Node(name, _) = expression else {
        return None;
    };
    let is_implicit = |format| expression.word(format) == Some(IMPLICIT);
    match name.as_str() {
        "RELABELTYPE" if is_implicit("relabelformat") => type_of(expression.field("arg")?),
        "COERCEVIAIO" if is_implicit("coerceformat") => type_of(expression.field("arg")?),
        "FUNCEXPR" if is_implicit("funcformat") => type_of(expression.list("args").next()?),
        // The value of a CASE, whose own type is that of the operand of the operator.
        "CASETESTEXPR" => None,
        _ => {
            let fields = [
                "vartype",
                "consttype",
                "paramtype",
                "funcresulttype",
                "resulttype",
                "opresulttype",
                "casetype",
                "coalescetype",
                "minmaxtype",
                "aggtype",
                "wintype",
            ];
            fields.iter().find_map(|field| expression.number(field))
        }
    }
}

/// Parses the text of a tree.
fn parse(text: &str) -> Vec<Tree> {
    // Nodes and lists that are open; the first is the list of all.
    let mut open = vec![Tree::List(Vec::new())];
    for token in tokens(text) {
        match token {
            "{" => open.push(Tree::Node(String::new(), Vec::new())),
            "(" => open.push(Tree::List(Vec::new())),
            "}" | ")" if open.len() > 1 => {
                let closed = open.pop().expect("there is more than one");
                add(&mut open, closed);
            }
            "}" | ")" => {}
            word => match (open.last_mut(), word.strip_prefix(':')) {
                (Some(Tree::Node(name, _)), _) if name.is_empty() => word.clone_into(name),
                (Some(Tree::Node(_, fields)), Some(field)) => {
                    fields.push((field.to_owned(), Vec::new()));
                }
                _ => add(&mut open, Tree::Word(word.to_owned())),
            },
        }
    }
    match open.into_iter().next() {
        Some(Tree::List(parts)) => parts,
        _ => Vec::new(),
    }
}

/// Adds a part to the innermost open node or list.
fn add(open: &mut [Tree], part: Tree) {
    match open.last_mut() {
        Some(Tree::List(parts)) => parts.push(part),
        Some(Tree::Node(_, fields)) => {
            if let Some((_, parts)) = fields.last_mut() {
                parts.push(part);
            }
        }
        _ => {}
    }
}

/// Brackets and words. A backslash takes the meaning from the character after it.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\n', '\t']);
        let mut is_escaped = false;
        let mut end = rest.len();
        for (at, letter) in rest.char_indices() {
            let is_bracket = ['{', '}', '(', ')'].contains(&letter);
            if is_escaped {
                is_escaped = false;
            } else if letter == '\\' {
                is_escaped = true;
            } else if is_bracket && at == 0 {
                end = 1;
                break;
            } else if is_bracket || [' ', '\n', '\t'].contains(&letter) {
                end = at;
                break;
            }
        }
        let (token, after) = rest.split_at(end);
        rest = after;
        (!token.is_empty()).then_some(token)
    })
}

#[cfg(test)]
mod tests;
