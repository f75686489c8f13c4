//! `pub` items that no other crate names: a text search, which knows neither paths nor types.
//!
//! An item counts as used when a token outside its library spells its name: another crate, or the
//! tests, benches, examples and `main.rs` beside the library. A method also needs its type to be
//! used. What the signature of a used item names is used too, as a public signature cannot name a
//! private type. Fields and re-exports are not looked at. An unused item with a common name is
//! missed; an item that other crates reach only through a macro of the library is not reported.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::Finding;
use crate::rust::{flatten, identifier, is_brace, is_punct, is_test_file, opens_test_module};

/// The bit of everything that is no library.
const OUTSIDE_LIBRARIES: u32 = 63;

/// A `pub` item, or an `impl` block with what its types must be visible for.
#[derive(Debug)]
struct Item {
    /// `None` for an `impl` block, which is used when its owner is.
    name: Option<String>,
    /// The type whose `impl` block holds it.
    owner: Option<String>,
    path: String,
    line: usize,
    /// Names in its public signature.
    signature: Vec<String>,
}

#[derive(Debug, Default)]
struct Library {
    bit: u32,
    items: Vec<Item>,
    /// All types that it defines, public or not.
    types: HashSet<String>,
    /// Names in its macros, which expand in other crates.
    macro_words: HashSet<String>,
}

/// The items of all libraries, and the names that each crate spells.
#[derive(Debug, Default)]
pub(super) struct Exports {
    libraries: BTreeMap<String, Library>,
    /// Which libraries spell a name, one bit for each.
    spelling_crates: HashMap<String, u64>,
}

impl Exports {
    pub(super) fn add(&mut self, path: &str, tokens: TokenStream) {
        let mut bit = OUTSIDE_LIBRARIES;
        if let Some(name) = library_of(path) {
            let next = u32::try_from(self.libraries.len()).unwrap_or(u32::MAX);
            let library = self
                .libraries
                .entry(name.to_owned())
                .or_insert_with(|| Library { bit: next, ..Library::default() });
            assert!(library.bit < OUTSIDE_LIBRARIES, "a bit for each library");
            bit = library.bit;
            if !is_test_file(path) {
                let mut reader = Reader { path, library };
                reader.walk(tokens.clone(), None);
            }
        }
        for name in identifiers(tokens) {
            *self.spelling_crates.entry(name).or_default() |= 1 << bit;
        }
    }

    /// The `pub` items that nothing outside their library uses.
    pub(super) fn unused(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for library in self.libraries.values() {
            let used = self.used_names(library);
            for item in &library.items {
                if let Some(name) = &item.name
                    && !self.is_used(item, library, &used)
                {
                    let subject = match &item.owner {
                        Some(owner) => format!("{owner}::{name}"),
                        None => name.clone(),
                    };
                    findings.push(Finding::new("unused-pub", &item.path, item.line, subject));
                }
            }
        }
        findings
    }

    fn is_spelled_outside(&self, name: &str, library: &Library) -> bool {
        let elsewhere =
            self.spelling_crates.get(name).copied().unwrap_or_default() & !(1 << library.bit);
        elsewhere != 0 || library.macro_words.contains(name)
    }

    /// Names of items outside `impl` blocks that are spelled elsewhere, or stand in the signature
    /// of a used item.
    fn used_names(&self, library: &Library) -> BTreeSet<String> {
        let free_items = || library.items.iter().filter(|item| item.owner.is_none());
        let names: HashSet<&String> = free_items().filter_map(|item| item.name.as_ref()).collect();
        let mut used: BTreeSet<String> = names
            .iter()
            .filter(|name| self.is_spelled_outside(name, library))
            .map(|name| (*name).clone())
            .collect();
        loop {
            let signature_names: Vec<String> = library
                .items
                .iter()
                .filter(|item| self.is_used(item, library, &used))
                .flat_map(|item| &item.signature)
                .filter(|name| names.contains(name) && !used.contains(*name))
                .cloned()
                .collect();
            if signature_names.is_empty() {
                return used;
            }
            used.extend(signature_names);
        }
    }

    fn is_used(&self, item: &Item, library: &Library, used: &BTreeSet<String>) -> bool {
        let owner_is_used = item
            .owner
            .as_ref()
            .is_none_or(|owner| used.contains(owner) || !library.types.contains(owner));
        match &item.name {
            Some(name) if item.owner.is_some() => {
                owner_is_used && self.is_spelled_outside(name, library)
            }
            Some(name) => used.contains(name),
            None => owner_is_used,
        }
    }
}

/// The crate whose library holds a file; tests, benches, examples and programs are crates of their
/// own.
pub(super) fn library_of(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_program = file == "main.rs" || file.starts_with("bin/");
    (!name.contains('/') && !is_program).then_some(name)
}

fn identifiers(tokens: TokenStream) -> Vec<String> {
    flatten(tokens).iter().filter_map(identifier).collect()
}

/// The tokens before the first one for which `is_end` holds.
fn take_until(trees: &[TokenTree], is_end: impl Fn(&TokenTree) -> bool) -> &[TokenTree] {
    let end = trees.iter().position(is_end).unwrap_or(trees.len());
    &trees[..end]
}

fn identifiers_of(trees: &[TokenTree]) -> Vec<String> {
    identifiers(trees.iter().cloned().collect())
}

struct Reader<'a> {
    path: &'a str,
    library: &'a mut Library,
}

impl Reader<'_> {
    fn walk(&mut self, stream: TokenStream, owner: Option<&str>) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut position = 0;
        while position < trees.len() {
            let (preceding, rest) = trees.split_at(position);
            position += 1;
            if let TokenTree::Group(group) = &rest[0] {
                if !opens_test_module(preceding) {
                    self.walk(group.stream(), owner);
                }
                continue;
            }
            match identifier(&rest[0]).as_deref() {
                Some("pub") => self.read_item(&rest[1..], owner),
                Some("struct" | "enum" | "trait" | "union") => {
                    self.library.types.extend(rest.get(1).and_then(identifier));
                }
                Some("macro_rules") => {
                    let definition = rest.iter().take(4);
                    for tree in definition {
                        if let TokenTree::Group(group) = tree {
                            self.library.macro_words.extend(identifiers(group.stream()));
                        }
                    }
                    position = (position + 3).min(trees.len());
                }
                Some("impl") if opens_item(preceding) => {
                    let header = take_until(&rest[1..], is_brace);
                    if let Some(TokenTree::Group(body)) = rest.get(1 + header.len()) {
                        self.read_impl(header, body);
                        position += 1 + header.len();
                    }
                }
                _ => {}
            }
        }
    }

    fn read_impl(&mut self, header: &[TokenTree], body: &Group) {
        let Some(owner) = implemented_type(header) else {
            return;
        };
        let mut signature = identifiers_of(header);
        let trees: Vec<TokenTree> = body.stream().into_iter().collect();
        for (position, tree) in trees.iter().enumerate() {
            if identifier(tree).as_deref() == Some("type") {
                signature.extend(identifiers_of(take_until(&trees[position..], |tree| {
                    is_punct(tree, ';')
                })));
            }
        }
        self.library.items.push(Item {
            name: None,
            owner: Some(owner.clone()),
            path: self.path.to_owned(),
            line: 0,
            signature,
        });
        self.walk(body.stream(), Some(&owner));
    }

    /// `after_pub` begins with what follows `pub`; fields, re-exports and `pub(…)` are no items.
    fn read_item(&mut self, after_pub: &[TokenTree], owner: Option<&str>) {
        let mut rest = after_pub;
        while let [modifier, next, ..] = rest {
            let is_modifier = match identifier(modifier).as_deref() {
                Some("unsafe" | "async" | "extern" | "default") => true,
                Some("const") => {
                    matches!(identifier(next).as_deref(), Some("fn" | "unsafe" | "async"))
                }
                _ => matches!(modifier, TokenTree::Literal(_)),
            };
            if !is_modifier {
                break;
            }
            rest = &rest[1..];
        }
        let [keyword, TokenTree::Ident(name), after_name @ ..] = rest else {
            return;
        };
        let to_body = |tree: &TokenTree| is_brace(tree) || is_punct(tree, ';');
        let signature = match identifier(keyword).as_deref() {
            Some("fn") => identifiers_of(take_until(after_name, to_body)),
            Some("struct" | "union") => fields_signature(after_name),
            Some("enum" | "trait") => {
                let header = take_until(after_name, is_brace);
                identifiers_of(&after_name[..after_name.len().min(header.len() + 1)])
            }
            Some("type") => identifiers_of(take_until(after_name, |tree| is_punct(tree, ';'))),
            Some("const" | "static") => {
                identifiers_of(take_until(after_name, |tree| is_punct(tree, '=')))
            }
            Some("mod") => Vec::new(),
            _ => return,
        };
        self.library.items.push(Item {
            name: Some(name.to_string()),
            owner: owner.map(str::to_owned),
            path: self.path.to_owned(),
            line: keyword.span().start().line,
            signature,
        });
    }
}

/// Whether an item may begin after `preceding`: elsewhere `impl` stands for a type.
fn opens_item(preceding: &[TokenTree]) -> bool {
    match preceding.last() {
        None => true,
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Parenthesis,
        Some(other) => is_punct(other, ';') || identifier(other).as_deref() == Some("unsafe"),
    }
}

/// The last name, outside of angle brackets, of the type after `for`, or else of the only one.
fn implemented_type(header: &[TokenTree]) -> Option<String> {
    let mut depth = 0_usize;
    let mut after_dash = false;
    let mut last = None;
    for tree in header {
        if is_punct(tree, '<') {
            depth += 1;
        } else if is_punct(tree, '>') && !after_dash {
            depth = depth.saturating_sub(1);
        }
        after_dash = is_punct(tree, '-');
        if depth == 0
            && let Some(name) = identifier(tree)
        {
            match name.as_str() {
                "where" => break,
                "for" => last = None,
                _ => last = Some(name),
            }
        }
    }
    last
}

/// Names in a struct's generics and in the types of its public fields.
fn fields_signature(after_name: &[TokenTree]) -> Vec<String> {
    let header = take_until(after_name, |tree| is_brace(tree) || is_punct(tree, ';'));
    let body = after_name.get(header.len()).filter(|tree| is_brace(tree));
    let mut signature = Vec::new();
    for tree in header.iter().chain(body) {
        match tree {
            TokenTree::Group(fields) => {
                let trees: Vec<TokenTree> = fields.stream().into_iter().collect();
                let field_tokens = trees.split(|tree| is_punct(tree, ','));
                for field in field_tokens.filter(|field| is_public(field)) {
                    signature.extend(identifiers_of(field));
                }
            }
            other => signature.extend(identifier(other)),
        }
    }
    signature
}

/// A comma within angle brackets ends what is taken for a field early: the rest of its type is not
/// public then, which only matters to types that nothing else names.
fn is_public(field: &[TokenTree]) -> bool {
    field.iter().enumerate().any(|(position, tree)| {
        let is_restricted = matches!(field.get(position + 1), Some(TokenTree::Group(group))
            if group.delimiter() == Delimiter::Parenthesis);
        identifier(tree).as_deref() == Some("pub") && !is_restricted
    })
}

#[cfg(test)]
mod tests;
