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
use super::{DEPTH_MAX, Outcome, refuse};

struct TemplateParser {
    tokens: Vec<Lexeme>,
    /// Index of the next token.
    at: usize,
    line: u32,
    depth: usize,
    /// Number of enclosing `range` blocks.
    ranges: usize,
    /// Variables in scope, innermost last.
    variables: Vec<Box<str>>,
    defined: HashMap<Box<str>, Vec<TemplateNode>>,
    /// Lines and names of the templates that are used.
    included: Vec<(u32, Box<str>)>,
}

/// Where a list of nodes ends.
enum Terminator {
    Text,
    End,
    Else,
}

/// The tree of a template.
pub(super) fn tree(tokens: Vec<Lexeme>, given: &[&str]) -> Outcome<Tree> {
    let mut parser = TemplateParser {
        tokens,
        at: 0,
        line: 1,
        depth: 0,
        ranges: 0,
        variables: given.iter().map(|name| (*name).into()).collect(),
        defined: HashMap::new(),
        included: Vec::new(),
    };
    let nodes = match parser.list()? {
        (nodes, Terminator::Text) => nodes,
        (_, Terminator::End) => return refuse(parser.line, "{{end}} without a block to close"),
        (_, Terminator::Else) => return refuse(parser.line, "{{else}} belongs to nothing"),
    };
    let TemplateParser {
        defined, included, ..
    } = parser;
    let mut included = included.into_iter();
    match included.find(|(_, name)| !defined.contains_key(name)) {
        Some((line, name)) => refuse(line, format!("template {name:?} is not defined")),
        None => Ok(Tree { nodes, defined }),
    }
}

impl TemplateParser {
    fn next(&mut self) -> Option<TemplateToken> {
        let lexeme = self.tokens.get_mut(self.at)?;
        self.at += 1;
        self.line = lexeme.line;
        // The parser never looks back, so the token can be moved out.
        Some(std::mem::replace(&mut lexeme.token, TemplateToken::Close))
    }

    fn ahead(&self, by: usize) -> Option<&TemplateToken> {
        self.tokens.get(self.at + by).map(|lexeme| &lexeme.token)
    }

    fn peek(&self) -> Option<&TemplateToken> {
        self.ahead(0)
    }

    fn eat(&mut self, token: &TemplateToken) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.next();
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(TemplateToken::Word(found)) if found == word);
        if found {
            self.next();
        }
        found
    }

    fn close(&mut self) -> Outcome<()> {
        if self.eat(&TemplateToken::Close) {
            Ok(())
        } else {
            refuse(self.line, "}} is expected")
        }
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return refuse(
                self.line,
                format!("more than {DEPTH_MAX} levels are too deep"),
            );
        }
        let done = inner(self);
        self.depth -= 1;
        done
    }

    /// Parses nodes up to the end of the text, `{{end}}` or `{{else`.
    fn list(&mut self) -> Outcome<(Vec<TemplateNode>, Terminator)> {
        let mut nodes = Vec::new();
        loop {
            match self.next() {
                None => return Ok((nodes, Terminator::Text)),
                Some(TemplateToken::Text(text)) => nodes.push(TemplateNode::Text(text.into())),
                Some(_) => {
                    if self.eat_word("end") {
                        self.close()?;
                        return Ok((nodes, Terminator::End));
                    }
                    if self.eat_word("else") {
                        return Ok((nodes, Terminator::Else));
                    }
                    if self.eat_word("define") {
                        self.define()?;
                        continue;
                    }
                    nodes.push(self.action()?);
                }
            }
        }
    }

    fn action(&mut self) -> Outcome<TemplateNode> {
        for (word, node) in [
            ("break", TemplateNode::Break),
            ("continue", TemplateNode::Continue),
        ] {
            if self.eat_word(word) {
                if self.ranges == 0 {
                    return refuse(
                        self.line,
                        format!("{{{{{word}}}}} stands outside of a range"),
                    );
                }
                self.close()?;
                return Ok(node);
            }
        }
        if self.eat_word("if") {
            return self.branch("if", 1).map(TemplateNode::If);
        }
        if self.eat_word("with") {
            return self.branch("with", 1).map(TemplateNode::With);
        }
        if self.eat_word("range") {
            return self.branch("range", 2).map(TemplateNode::Range);
        }
        if self.eat_word("template") {
            return self.inclusion().map(TemplateNode::Include);
        }
        if self.eat_word("block") {
            return self.block().map(TemplateNode::Include);
        }
        let pipeline = self.pipeline(1)?;
        self.close()?;
        Ok(if pipeline.variables.is_empty() {
            TemplateNode::Print(pipeline)
        } else {
            TemplateNode::Set(pipeline)
        })
    }

    /// Parses a definition, after its `{{define`.
    fn define(&mut self) -> Outcome<()> {
        if self.depth > 0 {
            return refuse(self.line, "{{define}} stands within another block");
        }
        let name = self.template_name()?;
        self.close()?;
        self.definition("define", name)
    }

    /// Parses an inclusion, after its `{{template`.
    fn inclusion(&mut self) -> Outcome<Inclusion> {
        let name = self.template_name()?;
        self.included.push((self.line, name.clone()));
        let pipeline = match self.peek() {
            Some(TemplateToken::Close) => None,
            _ => Some(self.pipeline(0)?),
        };
        self.close()?;
        Ok(Inclusion { name, pipeline })
    }

    /// After `{{block`: a definition and its use.
    fn block(&mut self) -> Outcome<Inclusion> {
        let inclusion = self.inclusion()?;
        if inclusion.pipeline.is_none() {
            return refuse(self.line, "a value is expected");
        }
        self.definition("block", inclusion.name.clone())?;
        Ok(inclusion)
    }

    fn template_name(&mut self) -> Outcome<Box<str>> {
        match self.next() {
            Some(TemplateToken::Quoted(name)) => Ok(name.into()),
            _ => refuse(self.line, "the name of a template is expected, in quotes"),
        }
    }

    /// The body of a template, up to its `{{end}}`. Of the variables outside, it sees none.
    fn definition(&mut self, word: &str, name: Box<str>) -> Outcome<()> {
        let line = self.line;
        let variables = std::mem::replace(&mut self.variables, vec!["$".into()]);
        let ranges = std::mem::take(&mut self.ranges);
        let nodes = match self.deeper(Self::list)? {
            (nodes, Terminator::End) => nodes,
            (_, Terminator::Else) => return refuse(self.line, "{{else}} belongs to nothing"),
            (_, Terminator::Text) => {
                return refuse(line, format!("{{{{{word}}}}} has no {{{{end}}}}"));
            }
        };
        self.variables = variables;
        self.ranges = ranges;
        if self.defined.contains_key(&name) {
            return refuse(line, format!("template {name:?} is defined twice"));
        }
        self.defined.insert(name, nodes);
        Ok(())
    }

    fn branch(&mut self, word: &'static str, variables_max: usize) -> Outcome<Branch> {
        let line = self.line;
        let visible = self.variables.len();
        let branch = self.deeper(|parser| {
            let pipeline = parser.pipeline(variables_max)?;
            parser.close()?;
            let is_range = word == "range";
            parser.ranges += usize::from(is_range);
            let inner = parser.variables.len();
            let (body, end) = parser.list()?;
            parser.variables.truncate(inner);
            parser.ranges -= usize::from(is_range);
            let otherwise = match end {
                Terminator::Text => {
                    return refuse(line, format!("{{{{{word}}}}} has no {{{{end}}}}"));
                }
                Terminator::End => Vec::new(),
                Terminator::Else => parser.otherwise(line, word)?,
            };
            Ok(Branch {
                pipeline,
                body,
                otherwise,
            })
        });
        self.variables.truncate(visible);
        branch
    }

    /// Parses the else branch, after its `{{else`.
    fn otherwise(&mut self, line: u32, word: &'static str) -> Outcome<Vec<TemplateNode>> {
        if word == "if" && self.eat_word("if") {
            return Ok(vec![TemplateNode::If(self.branch("if", 1)?)]);
        }
        if word == "with" && self.eat_word("with") {
            return Ok(vec![TemplateNode::With(self.branch("with", 1)?)]);
        }
        self.close()?;
        match self.list()? {
            (nodes, Terminator::End) => Ok(nodes),
            (_, Terminator::Else) => refuse(self.line, "a block has two {{else}}"),
            (_, Terminator::Text) => refuse(line, format!("{{{{{word}}}}} has no {{{{end}}}}")),
        }
    }

    fn pipeline(&mut self, variables_max: usize) -> Outcome<Pipeline> {
        let (variables, binding) = self.binding(variables_max)?;
        let mut commands = vec![self.command()?];
        let line = self.line;
        while self.eat(&TemplateToken::Pipe) {
            let command = self.command()?;
            if !matches!(command.head, CommandHead::Call(_)) {
                return refuse(self.line, "what follows | must be a function");
            }
            commands.push(command);
        }
        if binding == Binding::Declare {
            self.variables.extend(variables.iter().cloned());
        } else if let Some(unknown) = variables.iter().find(|name| !self.is_visible(name)) {
            return refuse(line, format!("undefined variable {unknown:?}"));
        }
        Ok(Pipeline {
            line,
            variables,
            binding,
            commands,
        })
    }

    fn is_visible(&self, name: &str) -> bool {
        self.variables.iter().any(|known| **known == *name)
    }

    /// `$x :=`, `$x =`, `$i, $x :=`, or nothing.
    fn binding(&mut self, variables_max: usize) -> Outcome<(Vec<Box<str>>, Binding)> {
        let none = (Vec::new(), Binding::Declare);
        let Some(TemplateToken::Variable(first)) = self.ahead(0) else {
            return Ok(none);
        };
        let mut variables: Vec<Box<str>> = vec![first.as_str().into()];
        let mut read = 1;
        if self.ahead(1) == Some(&TemplateToken::Comma) {
            let Some(TemplateToken::Variable(second)) = self.ahead(2) else {
                return refuse(self.line, "a variable is expected after ,");
            };
            variables.push(second.as_str().into());
            read = 3;
        }
        let binding = match self.ahead(read) {
            Some(TemplateToken::Declare) => Binding::Declare,
            Some(TemplateToken::Assign) => Binding::Assign,
            _ => return Ok(none),
        };
        if variables.len() > variables_max {
            return refuse(self.line, "too many variables are declared here");
        }
        self.at += read + 1;
        Ok((variables, binding))
    }

    fn command(&mut self) -> Outcome<TemplateCommand> {
        let head = match self.operand()? {
            None => return refuse(self.line, "a value is expected"),
            Some(Operand {
                base: Base::Call(function),
                fields,
            }) if fields.is_empty() => CommandHead::Call(function),
            Some(operand) => CommandHead::Operand(operand),
        };
        let mut arguments = Vec::new();
        while let Some(operand) = self.operand()? {
            arguments.push(operand);
        }
        if !arguments.is_empty() && !matches!(head, CommandHead::Call(_)) {
            return refuse(self.line, "only functions take arguments");
        }
        Ok(TemplateCommand { head, arguments })
    }

    /// The next value, if there is one.
    fn operand(&mut self) -> Outcome<Option<Operand>> {
        if matches!(
            self.peek(),
            None | Some(TemplateToken::Close | TemplateToken::Pipe | TemplateToken::Right)
        ) {
            return Ok(None);
        }
        let mut fields = Vec::new();
        let base = match self.next() {
            Some(TemplateToken::Dot) => Base::Dot,
            Some(TemplateToken::Field(name)) => {
                fields.push(name.into());
                Base::Dot
            }
            Some(TemplateToken::Variable(name)) => {
                if self.is_visible(&name) {
                    Base::Variable(name.into())
                } else {
                    return refuse(self.line, format!("undefined variable {name:?}"));
                }
            }
            Some(TemplateToken::Int(number)) => Base::Constant(TemplateValue::Int(number)),
            Some(TemplateToken::Float(number)) => Base::Constant(TemplateValue::Float(number)),
            Some(TemplateToken::Quoted(text)) => Base::Constant(TemplateValue::Text(text.into())),
            Some(TemplateToken::Word(word)) => match word.as_str() {
                "true" => Base::Constant(TemplateValue::Bool(true)),
                "false" => Base::Constant(TemplateValue::Bool(false)),
                "nil" => Base::Constant(TemplateValue::Nil),
                _ => match TemplateFunction::named(&word) {
                    Some(function) => Base::Call(function),
                    None => return refuse(self.line, format!("function {word:?} is not defined")),
                },
            },
            Some(TemplateToken::Left) => {
                let pipeline = self.deeper(|parser| parser.pipeline(0))?;
                if !self.eat(&TemplateToken::Right) {
                    return refuse(self.line, ") is expected");
                }
                Base::Pipeline(Box::new(pipeline))
            }
            _ => return refuse(self.line, "a value is expected"),
        };
        while let Some(lexeme) = self.tokens.get(self.at)
            && !lexeme.is_apart
            && let TemplateToken::Field(name) = &lexeme.token
        {
            fields.push(name.as_str().into());
            self.next();
        }
        Ok(Some(Operand { base, fields }))
    }
}
