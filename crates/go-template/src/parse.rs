//! Parses tokens to a tree. Names of functions and variables are checked here, so that a rule with
//! a misspelt name is refused when it is loaded and not when it fires.

use std::collections::HashMap;

use super::functions::TemplateFunction;
use super::lex::{Lexeme, TemplateToken};
use super::tree::{
    Base, Binding, Branch, CommandHead, Inclusion, Operand, Pipeline, TemplateCommand,
    TemplateNode, Tree,
};
use super::value::TemplateValue;
use super::{DEPTH_MAX, Outcome, fail_at};

struct TemplateParser {
    tokens: Vec<Lexeme>,
    /// Index of the next token.
    position: usize,
    line: u32,
    depth: usize,
    /// Number of enclosing `range` blocks.
    range_depth: usize,
    /// Variables in scope, innermost last.
    variables: Vec<Box<str>>,
    definitions: HashMap<Box<str>, Vec<TemplateNode>>,
    /// Lines and names of the templates that are used.
    inclusions: Vec<(u32, Box<str>)>,
}

/// Where a list of nodes ends.
enum Terminator {
    Text,
    End,
    Else,
}

/// The tree of a template.
pub(super) fn parse_tree(tokens: Vec<Lexeme>, predefined: &[&str]) -> Outcome<Tree> {
    let mut parser = TemplateParser {
        tokens,
        position: 0,
        line: 1,
        depth: 0,
        range_depth: 0,
        variables: predefined.iter().map(|name| (*name).into()).collect(),
        definitions: HashMap::new(),
        inclusions: Vec::new(),
    };
    let nodes = match parser.parse_nodes()? {
        (nodes, Terminator::Text) => nodes,
        (_, Terminator::End) => return fail_at(parser.line, "{{end}} without a block to close"),
        (_, Terminator::Else) => return fail_at(parser.line, "{{else}} belongs to nothing"),
    };
    let TemplateParser { definitions: defined, inclusions: included, .. } = parser;
    let mut inclusions = included.into_iter();
    match inclusions.find(|(_, name)| !defined.contains_key(name)) {
        Some((line, name)) => fail_at(line, format!("template {name:?} is not defined")),
        None => Ok(Tree { nodes, definitions: defined }),
    }
}

impl TemplateParser {
    fn next_token(&mut self) -> Option<TemplateToken> {
        let lexeme = self.tokens.get_mut(self.position)?;
        self.position += 1;
        self.line = lexeme.line;
        // The parser never looks back, so the token can be moved out.
        Some(std::mem::replace(&mut lexeme.token, TemplateToken::Close))
    }

    fn peek_at(&self, offset: usize) -> Option<&TemplateToken> {
        self.tokens.get(self.position + offset).map(|lexeme| &lexeme.token)
    }

    fn peek(&self) -> Option<&TemplateToken> {
        self.peek_at(0)
    }

    fn consume(&mut self, token: &TemplateToken) -> bool {
        let is_next = self.peek() == Some(token);
        if is_next {
            self.next_token();
        }
        is_next
    }

    fn consume_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.peek(), Some(TemplateToken::Word(found)) if found == word);
        if is_next {
            self.next_token();
        }
        is_next
    }

    fn expect_close(&mut self) -> Outcome<()> {
        if self.consume(&TemplateToken::Close) {
            Ok(())
        } else {
            fail_at(self.line, "}} is expected")
        }
    }

    fn with_deeper_level<T>(&mut self, parse: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return fail_at(self.line, format!("more than {DEPTH_MAX} levels are too deep"));
        }
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Parses nodes up to the end of the text, `{{end}}` or `{{else`.
    fn parse_nodes(&mut self) -> Outcome<(Vec<TemplateNode>, Terminator)> {
        let mut nodes = Vec::new();
        loop {
            match self.next_token() {
                None => return Ok((nodes, Terminator::Text)),
                Some(TemplateToken::Text(text)) => nodes.push(TemplateNode::Text(text.into())),
                Some(_) => {
                    if self.consume_word("end") {
                        self.expect_close()?;
                        return Ok((nodes, Terminator::End));
                    }
                    if self.consume_word("else") {
                        return Ok((nodes, Terminator::Else));
                    }
                    if self.consume_word("define") {
                        self.parse_define()?;
                        continue;
                    }
                    nodes.push(self.parse_action()?);
                }
            }
        }
    }

    fn parse_action(&mut self) -> Outcome<TemplateNode> {
        for (word, node) in [("break", TemplateNode::Break), ("continue", TemplateNode::Continue)] {
            if self.consume_word(word) {
                if self.range_depth == 0 {
                    return fail_at(self.line, format!("{{{{{word}}}}} stands outside of a range"));
                }
                self.expect_close()?;
                return Ok(node);
            }
        }
        if self.consume_word("if") {
            return self.parse_branch("if", 1).map(TemplateNode::If);
        }
        if self.consume_word("with") {
            return self.parse_branch("with", 1).map(TemplateNode::With);
        }
        if self.consume_word("range") {
            return self.parse_branch("range", 2).map(TemplateNode::Range);
        }
        if self.consume_word("template") {
            return self.parse_inclusion().map(TemplateNode::Include);
        }
        if self.consume_word("block") {
            return self.parse_block().map(TemplateNode::Include);
        }
        let pipeline = self.parse_pipeline(1)?;
        self.expect_close()?;
        Ok(if pipeline.variables.is_empty() {
            TemplateNode::Print(pipeline)
        } else {
            TemplateNode::Set(pipeline)
        })
    }

    /// Parses a definition, after its `{{define`.
    fn parse_define(&mut self) -> Outcome<()> {
        if self.depth > 0 {
            return fail_at(self.line, "{{define}} stands within another block");
        }
        let name = self.parse_template_name()?;
        self.expect_close()?;
        self.parse_definition("define", name)
    }

    /// Parses an inclusion, after its `{{template`.
    fn parse_inclusion(&mut self) -> Outcome<Inclusion> {
        let name = self.parse_template_name()?;
        self.inclusions.push((self.line, name.clone()));
        let pipeline = match self.peek() {
            Some(TemplateToken::Close) => None,
            _ => Some(self.parse_pipeline(0)?),
        };
        self.expect_close()?;
        Ok(Inclusion { name, pipeline })
    }

    /// After `{{block`: a definition and its use.
    fn parse_block(&mut self) -> Outcome<Inclusion> {
        let inclusion = self.parse_inclusion()?;
        if inclusion.pipeline.is_none() {
            return fail_at(self.line, "a value is expected");
        }
        self.parse_definition("block", inclusion.name.clone())?;
        Ok(inclusion)
    }

    fn parse_template_name(&mut self) -> Outcome<Box<str>> {
        match self.next_token() {
            Some(TemplateToken::Quoted(name)) => Ok(name.into()),
            _ => fail_at(self.line, "the name of a template is expected, in quotes"),
        }
    }

    /// The body of a template, up to its `{{end}}`. Of the variables outside, it sees none.
    fn parse_definition(&mut self, word: &str, name: Box<str>) -> Outcome<()> {
        let line = self.line;
        let variables = std::mem::replace(&mut self.variables, vec!["$".into()]);
        let range_depth = std::mem::take(&mut self.range_depth);
        let nodes = match self.with_deeper_level(Self::parse_nodes)? {
            (nodes, Terminator::End) => nodes,
            (_, Terminator::Else) => return fail_at(self.line, "{{else}} belongs to nothing"),
            (_, Terminator::Text) => {
                return fail_at(line, format!("{{{{{word}}}}} has no {{{{end}}}}"));
            }
        };
        self.variables = variables;
        self.range_depth = range_depth;
        if self.definitions.contains_key(&name) {
            return fail_at(line, format!("template {name:?} is defined twice"));
        }
        self.definitions.insert(name, nodes);
        Ok(())
    }

    fn parse_branch(&mut self, word: &'static str, variables_max: usize) -> Outcome<Branch> {
        let line = self.line;
        let visible_count = self.variables.len();
        let branch = self.with_deeper_level(|parser| {
            let pipeline = parser.parse_pipeline(variables_max)?;
            parser.expect_close()?;
            let is_range = word == "range";
            parser.range_depth += usize::from(is_range);
            let inner_count = parser.variables.len();
            let (body, end) = parser.parse_nodes()?;
            parser.variables.truncate(inner_count);
            parser.range_depth -= usize::from(is_range);
            let else_nodes = match end {
                Terminator::Text => {
                    return fail_at(line, format!("{{{{{word}}}}} has no {{{{end}}}}"));
                }
                Terminator::End => Vec::new(),
                Terminator::Else => parser.parse_else(line, word)?,
            };
            Ok(Branch { pipeline, body, else_nodes })
        });
        self.variables.truncate(visible_count);
        branch
    }

    /// Parses the else branch, after its `{{else`.
    fn parse_else(&mut self, line: u32, word: &'static str) -> Outcome<Vec<TemplateNode>> {
        if word == "if" && self.consume_word("if") {
            return Ok(vec![TemplateNode::If(self.parse_branch("if", 1)?)]);
        }
        if word == "with" && self.consume_word("with") {
            return Ok(vec![TemplateNode::With(self.parse_branch("with", 1)?)]);
        }
        self.expect_close()?;
        match self.parse_nodes()? {
            (nodes, Terminator::End) => Ok(nodes),
            (_, Terminator::Else) => fail_at(self.line, "a block has two {{else}}"),
            (_, Terminator::Text) => fail_at(line, format!("{{{{{word}}}}} has no {{{{end}}}}")),
        }
    }

    fn parse_pipeline(&mut self, variables_max: usize) -> Outcome<Pipeline> {
        let (variables, binding) = self.parse_binding(variables_max)?;
        let mut commands = vec![self.parse_command()?];
        let line = self.line;
        while self.consume(&TemplateToken::Pipe) {
            let command = self.parse_command()?;
            if !matches!(command.head, CommandHead::Call(_)) {
                return fail_at(self.line, "what follows | must be a function");
            }
            commands.push(command);
        }
        if binding == Binding::Declare {
            self.variables.extend(variables.iter().cloned());
        } else if let Some(unknown) = variables.iter().find(|name| !self.is_declared(name)) {
            return fail_at(line, format!("undefined variable {unknown:?}"));
        }
        Ok(Pipeline { line, variables, binding, commands })
    }

    fn is_declared(&self, name: &str) -> bool {
        self.variables.iter().any(|variable| **variable == *name)
    }

    /// `$x :=`, `$x =`, `$i, $x :=`, or nothing.
    fn parse_binding(&mut self, variables_max: usize) -> Outcome<(Vec<Box<str>>, Binding)> {
        let none = (Vec::new(), Binding::Declare);
        let Some(TemplateToken::Variable(first)) = self.peek_at(0) else {
            return Ok(none);
        };
        let mut variables: Vec<Box<str>> = vec![first.as_str().into()];
        let mut token_count = 1;
        if self.peek_at(1) == Some(&TemplateToken::Comma) {
            let Some(TemplateToken::Variable(second)) = self.peek_at(2) else {
                return fail_at(self.line, "a variable is expected after ,");
            };
            variables.push(second.as_str().into());
            token_count = 3;
        }
        let binding = match self.peek_at(token_count) {
            Some(TemplateToken::Declare) => Binding::Declare,
            Some(TemplateToken::Assign) => Binding::Assign,
            _ => return Ok(none),
        };
        if variables.len() > variables_max {
            return fail_at(self.line, "too many variables are declared here");
        }
        self.position += token_count + 1;
        Ok((variables, binding))
    }

    fn parse_command(&mut self) -> Outcome<TemplateCommand> {
        let head = match self.parse_operand()? {
            None => return fail_at(self.line, "a value is expected"),
            Some(Operand { base: Base::Call(function), fields }) if fields.is_empty() => {
                CommandHead::Call(function)
            }
            Some(operand) => CommandHead::Operand(operand),
        };
        let mut arguments = Vec::new();
        while let Some(operand) = self.parse_operand()? {
            arguments.push(operand);
        }
        if !arguments.is_empty() && !matches!(head, CommandHead::Call(_)) {
            return fail_at(self.line, "only functions take arguments");
        }
        Ok(TemplateCommand { head, arguments })
    }

    /// The next value, if there is one.
    fn parse_operand(&mut self) -> Outcome<Option<Operand>> {
        if matches!(
            self.peek(),
            None | Some(
                TemplateToken::Close | TemplateToken::Pipe | TemplateToken::RightParenthesis
            )
        ) {
            return Ok(None);
        }
        let mut fields = Vec::new();
        let base = match self.next_token() {
            Some(TemplateToken::Dot) => Base::Dot,
            Some(TemplateToken::Field(name)) => {
                fields.push(name.into());
                Base::Dot
            }
            Some(TemplateToken::Variable(name)) => {
                if self.is_declared(&name) {
                    Base::Variable(name.into())
                } else {
                    return fail_at(self.line, format!("undefined variable {name:?}"));
                }
            }
            Some(TemplateToken::Int(number)) => Base::Constant(TemplateValue::Int(number)),
            Some(TemplateToken::Float(number)) => Base::Constant(TemplateValue::Float(number)),
            Some(TemplateToken::Quoted(text)) => Base::Constant(TemplateValue::Text(text.into())),
            Some(TemplateToken::Word(word)) => match word.as_str() {
                "true" => Base::Constant(TemplateValue::Bool(true)),
                "false" => Base::Constant(TemplateValue::Bool(false)),
                "nil" => Base::Constant(TemplateValue::Nil),
                _ => match TemplateFunction::find(&word) {
                    Some(function) => Base::Call(function),
                    None => return fail_at(self.line, format!("function {word:?} is not defined")),
                },
            },
            Some(TemplateToken::LeftParenthesis) => {
                let pipeline = self.with_deeper_level(|parser| parser.parse_pipeline(0))?;
                if !self.consume(&TemplateToken::RightParenthesis) {
                    return fail_at(self.line, ") is expected");
                }
                Base::Pipeline(Box::new(pipeline))
            }
            _ => return fail_at(self.line, "a value is expected"),
        };
        while let Some(lexeme) = self.tokens.get(self.position)
            && !lexeme.follows_blank
            && let TemplateToken::Field(name) = &lexeme.token
        {
            fields.push(name.as_str().into());
            self.next_token();
        }
        Ok(Some(Operand { base, fields }))
    }
}
