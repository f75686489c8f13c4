//! Executes a parsed template and writes its output.

use std::collections::HashMap;

use super::functions::{EvaluationMode, FunctionContext, TemplateFunction};
use super::print::plain;
use super::tree::{
    Base, Binding, Branch, CommandHead, Inclusion, Operand, Pipeline, TemplateCommand,
    TemplateNode, Tree,
};
use super::value::TemplateValue;
use super::{DEPTH_MAX, OUTPUT_BYTES_MAX, Outcome, refuse};

struct Machine<'a> {
    around: &'a FunctionContext<'a>,
    variables: Vec<(&'a str, TemplateValue)>,
    defined: &'a HashMap<Box<str>, Vec<TemplateNode>>,
    /// Nesting of lists of nodes: a template may include itself.
    depth: usize,
    out: String,
    line: u32,
}

/// How the execution of nodes ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

/// Executes a template and returns its output.
pub(super) fn run<'a>(
    tree: &'a Tree,
    root: TemplateValue,
    variables: Vec<(&'a str, TemplateValue)>,
    around: &'a FunctionContext<'a>,
) -> Outcome<String> {
    let mut machine = Machine {
        around,
        variables,
        defined: &tree.defined,
        depth: 0,
        out: String::new(),
        line: 1,
    };
    machine.list(&tree.nodes, &root)?;
    Ok(machine.out)
}

impl<'a> Machine<'a> {
    fn said<T>(&self, result: Result<T, String>) -> Outcome<T> {
        result.or_else(|message| refuse(self.line, message))
    }

    fn write(&mut self, text: &str) -> Outcome<()> {
        self.out.push_str(text);
        if self.out.len() > OUTPUT_BYTES_MAX {
            refuse(
                self.line,
                format!("more than {OUTPUT_BYTES_MAX} bytes of output"),
            )
        } else {
            Ok(())
        }
    }

    fn list(&mut self, nodes: &'a [TemplateNode], dot: &TemplateValue) -> Outcome<Flow> {
        // The parser lets blocks of one text be so deep, below the text itself.
        if self.depth > DEPTH_MAX {
            let message = format!("more than {DEPTH_MAX} levels are too deep");
            return refuse(self.line, message);
        }
        self.depth += 1;
        let flow = self.walk(nodes, dot);
        self.depth -= 1;
        flow
    }

    fn walk(&mut self, nodes: &'a [TemplateNode], dot: &TemplateValue) -> Outcome<Flow> {
        for node in nodes {
            let spent = self.around.spend(1);
            self.said(spent)?;
            match node {
                TemplateNode::Text(text) => self.write(text)?,
                TemplateNode::Print(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    self.write(&plain(&value))?;
                }
                TemplateNode::Set(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    self.bind(pipeline, &[value]);
                }
                TemplateNode::Break => return Ok(Flow::Break),
                TemplateNode::Continue => return Ok(Flow::Continue),
                TemplateNode::Include(inclusion) => self.include(inclusion, dot)?,
                TemplateNode::If(branch) | TemplateNode::With(branch) => {
                    let is_with = matches!(node, TemplateNode::With(_));
                    match self.choice(branch, dot, is_with)? {
                        Flow::On => {}
                        other => return Ok(other),
                    }
                }
                TemplateNode::Range(branch) => match self.range(branch, dot)? {
                    Flow::On => {}
                    other => return Ok(other),
                },
            }
        }
        Ok(Flow::On)
    }

    fn include(&mut self, inclusion: &'a Inclusion, dot: &TemplateValue) -> Outcome<()> {
        let dot = match &inclusion.pipeline {
            Some(pipeline) => self.pipeline(pipeline, dot)?,
            None => TemplateValue::Nil,
        };
        let body = self
            .defined
            .get(&inclusion.name)
            .expect("the parser refuses names that are not defined");
        let outside = std::mem::replace(&mut self.variables, vec![("$", dot.clone())]);
        self.list(body, &dot)?;
        self.variables = outside;
        Ok(())
    }

    fn bind(&mut self, pipeline: &'a Pipeline, values: &[TemplateValue]) {
        for (name, value) in pipeline.variables.iter().zip(values) {
            match pipeline.binding {
                Binding::Declare => self.variables.push((name, value.clone())),
                Binding::Assign => {
                    let mut known = self.variables.iter_mut().rev();
                    if let Some(known) = known.find(|(known, _)| **known == **name) {
                        known.1 = value.clone();
                    }
                }
            }
        }
    }

    fn choice(&mut self, branch: &'a Branch, dot: &TemplateValue, is_with: bool) -> Outcome<Flow> {
        let visible = self.variables.len();
        let value = self.pipeline(&branch.pipeline, dot)?;
        self.bind(&branch.pipeline, std::slice::from_ref(&value));
        let flow = match (value.is_true(), is_with) {
            (true, true) => self.list(&branch.body, &value),
            (true, false) => self.list(&branch.body, dot),
            (false, _) => self.list(&branch.otherwise, dot),
        };
        self.variables.truncate(visible);
        flow
    }

    fn range(&mut self, branch: &'a Branch, dot: &TemplateValue) -> Outcome<Flow> {
        let visible = self.variables.len();
        let over = self.pipeline(&branch.pipeline, dot)?;
        let pairs: Vec<(TemplateValue, TemplateValue)> = match &over {
            TemplateValue::List(list) => (0..)
                .map(TemplateValue::Int)
                .zip(list.iter().cloned())
                .collect(),
            TemplateValue::Map(map) => map
                .iter()
                .map(|(key, value)| (TemplateValue::text(&**key), value.clone()))
                .collect(),
            TemplateValue::Labels(labels) => labels
                .iter()
                .map(|(name, value)| (TemplateValue::text(name), TemplateValue::text(value)))
                .collect(),
            TemplateValue::Int(count) => {
                let spent = self.around.spend(usize::try_from(*count).unwrap_or(0));
                self.said(spent)?;
                (0..*count)
                    .map(|at| (TemplateValue::Int(at), TemplateValue::Int(at)))
                    .collect()
            }
            TemplateValue::Nil => Vec::new(),
            other => {
                let message = format!("range can't iterate over a {}", other.kind());
                return refuse(branch.pipeline.line, message);
            }
        };
        if pairs.is_empty() {
            return self.list(&branch.otherwise, dot);
        }
        for (key, element) in pairs {
            match branch.pipeline.variables.len() {
                2 => self.bind(&branch.pipeline, &[key, element.clone()]),
                _ => self.bind(&branch.pipeline, std::slice::from_ref(&element)),
            }
            let flow = self.list(&branch.body, &element)?;
            self.variables.truncate(visible);
            let spent = self.around.spend(1);
            self.said(spent)?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::On)
    }

    fn pipeline(&mut self, pipeline: &'a Pipeline, dot: &TemplateValue) -> Outcome<TemplateValue> {
        self.line = pipeline.line;
        let mut value = None;
        for command in &pipeline.commands {
            value = Some(self.command(command, dot, value)?);
        }
        Ok(value.expect("the parser makes no pipeline without a command"))
    }

    /// `last` is the result of the previous command: an additional last argument.
    fn command(
        &mut self,
        command: &'a TemplateCommand,
        dot: &TemplateValue,
        last: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        match &command.head {
            CommandHead::Call(function) => self.call(*function, &command.arguments, dot, last),
            CommandHead::Operand(operand) => self.operand(operand, dot),
        }
    }

    fn call(
        &mut self,
        function: TemplateFunction,
        operands: &'a [Operand],
        dot: &TemplateValue,
        last: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        let spent = self.around.spend(1);
        self.said(spent)?;
        let entry = function.0;
        let count = operands.len() + usize::from(last.is_some());
        if count < entry.least || count > entry.most {
            let (name, least) = (entry.name, entry.least);
            let message = format!("wrong number of args for {name}: want {least} got {count}");
            return refuse(self.line, message);
        }
        let work = match entry.work {
            EvaluationMode::All(work) => work,
            lazy => {
                return self.first_that_decides(
                    matches!(lazy, EvaluationMode::Or),
                    operands,
                    dot,
                    last,
                );
            }
        };
        let mut arguments = Vec::with_capacity(count);
        for operand in operands {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(last);
        let result = entry.call(work, self.around, &arguments);
        self.said(result)
    }

    fn first_that_decides(
        &mut self,
        decides: bool,
        operands: &'a [Operand],
        dot: &TemplateValue,
        last: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        let mut value = TemplateValue::Nil;
        for operand in operands {
            value = self.operand(operand, dot)?;
            if value.is_true() == decides {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn operand(&mut self, operand: &'a Operand, dot: &TemplateValue) -> Outcome<TemplateValue> {
        let mut value = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Constant(value) => value.clone(),
            Base::Variable(name) => {
                let mut known = self.variables.iter().rev();
                let found = known.find(|(known, _)| **known == **name);
                // The parser has seen its declaration.
                found.map_or(TemplateValue::Nil, |(_, value)| value.clone())
            }
            Base::Call(function) => self.call(*function, &[], dot, None)?,
            Base::Pipeline(pipeline) => self.pipeline(pipeline, dot)?,
        };
        for field in &operand.fields {
            let found = value.field(field);
            value = self.said(found)?;
        }
        Ok(value)
    }
}
