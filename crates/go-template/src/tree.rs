//! Syntax tree of a parsed template.

use std::collections::HashMap;

use super::functions::TemplateFunction;
use super::value::TemplateValue;

#[derive(Debug)]
pub(super) struct Tree {
    pub nodes: Vec<TemplateNode>,
    /// The templates that it defines, by name.
    pub definitions: HashMap<Box<str>, Vec<TemplateNode>>,
}

#[derive(Debug)]
pub(super) enum TemplateNode {
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

/// An inclusion, such as `{{template "name" pipeline}}`.
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
    pub body: Vec<TemplateNode>,
    pub else_nodes: Vec<TemplateNode>,
}

#[derive(Debug)]
pub(super) struct Pipeline {
    pub line: u32,
    /// Of a `range` there may be two.
    pub variables: Vec<Box<str>>,
    pub binding: Binding,
    /// Commands of the pipeline, at least one.
    pub commands: Vec<TemplateCommand>,
}

/// What a pipeline does with its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// `:=`, until the end of the block.
    Declare,
    /// `=`, to a variable that is declared.
    Assign,
}

#[derive(Debug)]
pub(super) struct TemplateCommand {
    pub head: CommandHead,
    pub arguments: Vec<Operand>,
}

#[derive(Debug)]
pub(super) enum CommandHead {
    Call(TemplateFunction),
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
    Constant(TemplateValue),
    /// A function that is called without arguments.
    Call(TemplateFunction),
    Pipeline(Box<Pipeline>),
}
