//! Executes a parsed template and writes its output.

use std::collections::HashMap;

use super::functions::{EvaluationMode, FunctionContext, TemplateFunction};
use super::print::format_value;
use super::tree::{
    Base, Binding, Branch, CommandHead, Inclusion, Operand, Pipeline, TemplateCommand,
    TemplateNode, Tree,
};
use super::value::TemplateValue;
use super::{DEPTH_MAX, OUTPUT_BYTES_MAX, Outcome, fail_at};

struct Machine<'a> {
    context: &'a FunctionContext<'a>,
    variables: Vec<(&'a str, TemplateValue)>,
    definitions: &'a HashMap<Box<str>, Vec<TemplateNode>>,
    /// Nesting of lists of nodes: a template may include itself.
    depth: usize,
    output: String,
    line: u32,
}

/// How the execution of nodes ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// Executes a template and returns its output.
pub(super) fn execute<'a>(
    tree: &'a Tree,
    root: TemplateValue,
    variables: Vec<(&'a str, TemplateValue)>,
    context: &'a FunctionContext<'a>,
) -> Outcome<String> {
    let mut machine = Machine {
        context,
        variables,
        definitions: &tree.definitions,
        depth: 0,
        output: String::new(),
        line: 1,
    };
    machine.run_nodes(&tree.nodes, &root)?;
    Ok(machine.output)
}

impl<'a> Machine<'a> {
    fn with_line<T>(&self, result: Result<T, String>) -> Outcome<T> {
        result.or_else(|message| fail_at(self.line, message))
    }

    fn write(&mut self, text: &str) -> Outcome<()> {
        self.output.push_str(text);
        if self.output.len() > OUTPUT_BYTES_MAX {
            fail_at(self.line, format!("more than {OUTPUT_BYTES_MAX} bytes of output"))
        } else {
            Ok(())
        }
    }

    fn run_nodes(&mut self, nodes: &'a [TemplateNode], dot: &TemplateValue) -> Outcome<Flow> {
        // The parser lets blocks of one text be so deep, below the text itself.
        if self.depth > DEPTH_MAX {
            let message = format!("more than {DEPTH_MAX} levels are too deep");
            return fail_at(self.line, message);
        }
        self.depth += 1;
        let flow = self.walk_nodes(nodes, dot);
        self.depth -= 1;
        flow
    }

    fn walk_nodes(&mut self, nodes: &'a [TemplateNode], dot: &TemplateValue) -> Outcome<Flow> {
        for node in nodes {
            let budget = self.context.spend_steps(1);
            self.with_line(budget)?;
            match node {
                TemplateNode::Text(text) => self.write(text)?,
                TemplateNode::Print(pipeline) => {
                    let value = self.evaluate_pipeline(pipeline, dot)?;
                    self.write(&format_value(&value))?;
                }
                TemplateNode::Set(pipeline) => {
                    let value = self.evaluate_pipeline(pipeline, dot)?;
                    self.bind_variables(pipeline, &[value]);
                }
                TemplateNode::Break => return Ok(Flow::Break),
                TemplateNode::Continue => return Ok(Flow::Continue),
                TemplateNode::Include(inclusion) => self.run_inclusion(inclusion, dot)?,
                TemplateNode::If(branch) | TemplateNode::With(branch) => {
                    let is_with = matches!(node, TemplateNode::With(_));
                    match self.run_branch(branch, dot, is_with)? {
                        Flow::Next => {}
                        other => return Ok(other),
                    }
                }
                TemplateNode::Range(branch) => match self.run_range(branch, dot)? {
                    Flow::Next => {}
                    other => return Ok(other),
                },
            }
        }
        Ok(Flow::Next)
    }

    fn run_inclusion(&mut self, inclusion: &'a Inclusion, dot: &TemplateValue) -> Outcome<()> {
        let dot = match &inclusion.pipeline {
            Some(pipeline) => self.evaluate_pipeline(pipeline, dot)?,
            None => TemplateValue::Nil,
        };
        let body = self
            .definitions
            .get(&inclusion.name)
            .expect("the parser refuses names that are not defined");
        let outer_variables = std::mem::replace(&mut self.variables, vec![("$", dot.clone())]);
        self.run_nodes(body, &dot)?;
        self.variables = outer_variables;
        Ok(())
    }

    fn bind_variables(&mut self, pipeline: &'a Pipeline, values: &[TemplateValue]) {
        for (name, value) in pipeline.variables.iter().zip(values) {
            match pipeline.binding {
                Binding::Declare => self.variables.push((name, value.clone())),
                Binding::Assign => {
                    let mut declared = self.variables.iter_mut().rev();
                    if let Some(known) = declared.find(|(known, _)| **known == **name) {
                        known.1 = value.clone();
                    }
                }
            }
        }
    }

    fn run_branch(
        &mut self,
        branch: &'a Branch,
        dot: &TemplateValue,
        is_with: bool,
    ) -> Outcome<Flow> {
        let visible_count = self.variables.len();
        let value = self.evaluate_pipeline(&branch.pipeline, dot)?;
        self.bind_variables(&branch.pipeline, std::slice::from_ref(&value));
        let flow = match (value.is_true(), is_with) {
            (true, true) => self.run_nodes(&branch.body, &value),
            (true, false) => self.run_nodes(&branch.body, dot),
            (false, _) => self.run_nodes(&branch.else_nodes, dot),
        };
        self.variables.truncate(visible_count);
        flow
    }

    fn run_range(&mut self, branch: &'a Branch, dot: &TemplateValue) -> Outcome<Flow> {
        let visible_count = self.variables.len();
        let iterated = self.evaluate_pipeline(&branch.pipeline, dot)?;
        let pairs: Vec<(TemplateValue, TemplateValue)> = match &iterated {
            TemplateValue::List(list) => {
                (0..).map(TemplateValue::Int).zip(list.iter().cloned()).collect()
            }
            TemplateValue::Map(map) => map
                .iter()
                .map(|(key, value)| (TemplateValue::text(&**key), value.clone()))
                .collect(),
            TemplateValue::Labels(labels) => labels
                .iter()
                .map(|(name, value)| (TemplateValue::text(name), TemplateValue::text(value)))
                .collect(),
            TemplateValue::Int(count) => {
                let budget = self.context.spend_steps(usize::try_from(*count).unwrap_or(0));
                self.with_line(budget)?;
                (0..*count)
                    .map(|number| (TemplateValue::Int(number), TemplateValue::Int(number)))
                    .collect()
            }
            TemplateValue::Nil => Vec::new(),
            other => {
                let message = format!("range can't iterate over a {}", other.type_name());
                return fail_at(branch.pipeline.line, message);
            }
        };
        if pairs.is_empty() {
            return self.run_nodes(&branch.else_nodes, dot);
        }
        for (key, element) in pairs {
            match branch.pipeline.variables.len() {
                2 => self.bind_variables(&branch.pipeline, &[key, element.clone()]),
                _ => self.bind_variables(&branch.pipeline, std::slice::from_ref(&element)),
            }
            let flow = self.run_nodes(&branch.body, &element)?;
            self.variables.truncate(visible_count);
            let spent = self.context.spend_steps(1);
            self.with_line(spent)?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    fn evaluate_pipeline(
        &mut self,
        pipeline: &'a Pipeline,
        dot: &TemplateValue,
    ) -> Outcome<TemplateValue> {
        self.line = pipeline.line;
        let mut value = None;
        for command in &pipeline.commands {
            value = Some(self.evaluate_command(command, dot, value)?);
        }
        Ok(value.expect("the parser makes no pipeline without a command"))
    }

    /// `last` is the result of the previous command: an additional last argument.
    fn evaluate_command(
        &mut self,
        command: &'a TemplateCommand,
        dot: &TemplateValue,
        piped_value: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        match &command.head {
            CommandHead::Call(function) => {
                self.call_function(*function, &command.arguments, dot, piped_value)
            }
            CommandHead::Operand(operand) => self.evaluate_operand(operand, dot),
        }
    }

    fn call_function(
        &mut self,
        function: TemplateFunction,
        operands: &'a [Operand],
        dot: &TemplateValue,
        piped_value: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        let budget = self.context.spend_steps(1);
        self.with_line(budget)?;
        let entry = function.0;
        let count = operands.len() + usize::from(piped_value.is_some());
        if count < entry.arguments_min || count > entry.arguments_max {
            let (name, least) = (entry.name, entry.arguments_min);
            let message = format!("wrong number of args for {name}: want {least} got {count}");
            return fail_at(self.line, message);
        }
        let work = match entry.evaluation {
            EvaluationMode::All(work) => work,
            lazy => {
                return self.evaluate_lazily(
                    matches!(lazy, EvaluationMode::Or),
                    operands,
                    dot,
                    piped_value,
                );
            }
        };
        let mut arguments = Vec::with_capacity(count);
        for operand in operands {
            arguments.push(self.evaluate_operand(operand, dot)?);
        }
        arguments.extend(piped_value);
        let result = entry.call(work, self.context, &arguments);
        self.with_line(result)
    }

    fn evaluate_lazily(
        &mut self,
        deciding_truth: bool,
        operands: &'a [Operand],
        dot: &TemplateValue,
        piped_value: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        let mut value = TemplateValue::Nil;
        for operand in operands {
            value = self.evaluate_operand(operand, dot)?;
            if value.is_true() == deciding_truth {
                return Ok(value);
            }
        }
        Ok(piped_value.unwrap_or(value))
    }

    fn evaluate_operand(
        &mut self,
        operand: &'a Operand,
        dot: &TemplateValue,
    ) -> Outcome<TemplateValue> {
        let mut value = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Constant(value) => value.clone(),
            Base::Variable(name) => {
                let mut declared = self.variables.iter().rev();
                let variable = declared.find(|(known, _)| **known == **name);
                // The parser has seen its declaration.
                variable.map_or(TemplateValue::Nil, |(_, value)| value.clone())
            }
            Base::Call(function) => self.call_function(*function, &[], dot, None)?,
            Base::Pipeline(pipeline) => self.evaluate_pipeline(pipeline, dot)?,
        };
        for field in &operand.fields {
            let field_value = value.field(field);
            value = self.with_line(field_value)?;
        }
        Ok(value)
    }
}
