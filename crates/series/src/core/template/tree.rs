//! What a template is once it was parsed.

use std::collections::HashMap;

use super::functions::Function;
use super::value::Value;

/// A parsed text.
#[derive(Debug)]
pub(super) struct Tree {
    /// What it writes.
    pub nodes: Vec<Node>,
    /// The templates that it defines, by name.
    pub defined: HashMap<Box<str>, Vec<Node>>,
}

#[derive(Debug)]
pub(super) enum Node {
    Text(Box<str>),
    Print(Pipeline),
    /// A pipeline that declares or sets a variable and prints nothing.
    Set(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    Break,
    Continue,
    Include(Inclusion),
}

/// `{{template "name" pipeline}}`
#[derive(Debug)]
pub(super) struct Inclusion {
    /// One that the text defines.
    pub name: Box<str>,
    /// The dot of the template; none is `nil`.
    pub pipeline: Option<Pipeline>,
}

#[derive(Debug)]
pub(super) struct Branch {
    pub pipeline: Pipeline,
    pub body: Vec<Node>,
    pub otherwise: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Pipeline {
    pub line: u32,
    /// Of a `range` there may be two.
    pub variables: Vec<Box<str>>,
    pub binding: Binding,
    /// At least one.
    pub commands: Vec<Command>,
}

/// What a pipeline does with its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// `:=`, until the end of the block.
    Declare,
    /// `=`
    Assign,
}

#[derive(Debug)]
pub(super) struct Command {
    pub head: Head,
    pub arguments: Vec<Operand>,
}

#[derive(Debug)]
pub(super) enum Head {
    Call(Function),
    Operand(Operand),
}

#[derive(Debug)]
pub(super) struct Operand {
    pub base: Base,
    /// Fields of it, of fields of it…
    pub fields: Vec<Box<str>>,
}

#[derive(Debug)]
pub(super) enum Base {
    Dot,
    Variable(Box<str>),
    Constant(Value),
    /// A function that is called without arguments.
    Call(Function),
    Pipeline(Box<Pipeline>),
}
