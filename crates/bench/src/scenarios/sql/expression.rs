//! Numbers in a workload file: literals, variables, `+ - * /` and parentheses.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Nesting beyond this is a mistake, and would otherwise end in a full stack.
const DEPTH_MAX: usize = 64;

/// An arithmetic expression over variables.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// The value of a literal.
    Number(f64),
    /// The value of a variable.
    Variable(String),
    /// An operator and its two operands.
    Binary(Box<Self>, Operator, Box<Self>),
    /// An operand with a minus sign.
    Negative(Box<Self>),
}

/// Operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`, the sum of both.
    Add,
    /// `-`, the difference of both.
    Subtract,
    /// `*`, the product of both.
    Multiply,
    /// `/`, the quotient of both without rounding.
    Divide,
}

/// Values of variables by name.
pub type Variables = BTreeMap<String, f64>;

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, position: 0 };
        let expression = parser.parse_sum(0)?;
        match parser.peek() {
            None => Ok(expression),
            Some(_) => Err(parser.syntax_error("an operator")),
        }
    }

    /// The value.
    ///
    /// # Errors
    /// When a variable is not known, or the value is no finite number.
    pub fn evaluate(&self, variables: &Variables) -> Result<f64, String> {
        let value = match self {
            Self::Number(number) => *number,
            Self::Variable(name) => *variables.get(name).ok_or_else(|| {
                unknown_name_error("variable", name, variables.keys().map(String::as_str))
            })?,
            Self::Negative(inner) => -inner.evaluate(variables)?,
            Self::Binary(left, operator, right) => {
                let (left, right) = (left.evaluate(variables)?, right.evaluate(variables)?);
                match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide => left / right,
                }
            }
        };
        if value.is_finite() {
            return Ok(value);
        }
        Err("the value is not a finite number".to_owned())
    }

    /// The variables in it.
    pub fn variables(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Variable(name) => vec![name],
            Self::Negative(inner) => inner.variables(),
            Self::Binary(left, _, right) => [left.variables(), right.variables()].concat(),
        }
    }
}

/// Says that a name is not known, and which one may have been meant.
pub(super) fn unknown_name_error<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.collect();
    let suggestion = nearest_name(name, known.iter().copied());
    match suggestion {
        Some(near) => format!("there is no {kind} `{name}`: did you mean `{near}`?"),
        None if known.is_empty() => format!("there is no {kind} `{name}`: none is declared"),
        None => format!("there is no {kind} `{name}`: declared are {}", known.join(", ")),
    }
}

/// The name that was meant, where one is a letter or two away.
pub(super) fn nearest_name<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let distances = known.map(|other| (strsim::osa_distance(name, other), other));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 && distance < name.chars().count()).then_some(near)
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl Parser<'_> {
    fn parse_sum(&mut self, depth: usize) -> Result<Expression, String> {
        let mut left = self.parse_product(depth)?;
        while let Some(operator) =
            self.take_operator(&[('+', Operator::Add), ('-', Operator::Subtract)])
        {
            let right = self.parse_product(depth)?;
            left = Expression::Binary(Box::new(left), operator, Box::new(right));
        }
        Ok(left)
    }

    fn parse_product(&mut self, depth: usize) -> Result<Expression, String> {
        let mut left = self.parse_factor(depth)?;
        while let Some(operator) =
            self.take_operator(&[('*', Operator::Multiply), ('/', Operator::Divide)])
        {
            let right = self.parse_factor(depth)?;
            left = Expression::Binary(Box::new(left), operator, Box::new(right));
        }
        Ok(left)
    }

    fn parse_factor(&mut self, depth: usize) -> Result<Expression, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested more than {DEPTH_MAX} levels deep"));
        }
        match self.peek() {
            Some('-') => {
                self.position += 1;
                Ok(Expression::Negative(Box::new(self.parse_factor(depth + 1)?)))
            }
            Some('(') => {
                self.position += 1;
                let inner = self.parse_sum(depth + 1)?;
                if self.peek() != Some(')') {
                    return Err(self.syntax_error("`)`"));
                }
                self.position += 1;
                Ok(inner)
            }
            Some(first) if first.is_ascii_digit() || first == '.' => self.parse_number(),
            Some(first) if first.is_ascii_alphabetic() || first == '_' => {
                let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Ok(Expression::Variable(name.to_owned()))
            }
            _ => Err(self.syntax_error("a number, a variable or `(`")),
        }
    }

    fn parse_number(&mut self) -> Result<Expression, String> {
        let begin = self.position;
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '.' || c == '_');
        let digits = digits.replace('_', "");
        digits.parse().map(Expression::Number).map_err(|_| {
            self.position = begin;
            self.syntax_error("a number")
        })
    }

    fn take_operator(&mut self, operators: &[(char, Operator)]) -> Option<Operator> {
        let next = self.peek()?;
        let (_, operator) = operators.iter().find(|(sign, _)| *sign == next)?;
        self.position += 1;
        Some(*operator)
    }

    /// The next character that is no blank, which is skipped to.
    fn peek(&mut self) -> Option<char> {
        self.take_while(char::is_whitespace);
        self.text[self.position..].chars().next()
    }

    fn take_while(&mut self, predicate: impl Fn(char) -> bool) -> &str {
        let rest = &self.text[self.position..];
        let end = rest.find(|c| !predicate(c)).unwrap_or(rest.len());
        self.position += end;
        &rest[..end]
    }

    fn syntax_error(&self, expected: &str) -> String {
        let rest = &self.text[self.position..];
        let found = match rest.chars().next() {
            Some(found) => format!("`{found}`"),
            None => "the end".to_owned(),
        };
        let column = self.text[..self.position].chars().count() + 1;
        format!("`{}`: expected {expected} at character {column}, found {found}", self.text)
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExpressionVisitor;

        impl Visitor<'_> for ExpressionVisitor {
            type Value = Expression;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or an expression such as \"100000 * scale\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Expression, E> {
                Ok(Expression::Number(number as f64))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Expression, E> {
                Ok(Expression::Number(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Expression, E> {
                Expression::parse(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(ExpressionVisitor)
    }
}
