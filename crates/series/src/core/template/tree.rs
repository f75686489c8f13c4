//! What a template is once it was parsed.

use super::functions::Function;
use super::value::Value;

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
