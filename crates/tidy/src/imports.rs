//! Imports between the files of a crate: rooms import downwards only, and circles stay small.
//!
//! A file imports another one when a path in it leads into the other's module: in a `use`, or
//! anywhere else from `crate`, `self`, `super` or a child module on. A name that a module
//! re-exports counts as the file that defines it. Code under `#[cfg(test)]` is left out.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::Finding;
use crate::rust::{identifier, is_punct, is_test_file};
use crate::tree::File;

/// Files that may import each other in a circle.
const CIRCLE_FILES_MAX: usize = 5;

/// Rooms of an engine, from the lowest on: a room uses those below it only.
const ROOMS: [&str; 4] = ["core", "store", "worker", "api"];

/// Re-exports of re-exports that are followed.
const REEXPORTS_MAX: usize = 8;

/// Path of a module from the crate's root on; the root's own is empty.
type ModulePath = Vec<String>;

/// A source file of a library and what it imports.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// Absolute paths of all that it names.
    imports: BTreeSet<Vec<String>>,
    /// Names that it re-exports, with their absolute paths.
    reexports: BTreeMap<String, Vec<String>>,
    /// Its child modules under `#[cfg(test)]`.
    test_modules: BTreeSet<String>,
}

/// Breaches in the libraries of all crates.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, BTreeMap<ModulePath, &File>> = BTreeMap::new();
    for file in files {
        if let Some((name, module)) = parse_module_path(&file.path) {
            crates.entry(name).or_default().insert(module, file);
        }
    }
    let mut findings = Vec::new();
    for sources in crates.values() {
        let modules = read_modules(sources);
        let edges = import_edges(&modules);
        check_rooms(&modules, &edges, &mut findings);
        check_circles(&modules, &edges, &mut findings);
    }
    findings
}

/// Crate and module of a library's source file that is no test.
fn parse_module_path(path: &str) -> Option<(&str, ModulePath)> {
    let (name, source) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let source = source.strip_suffix(".rs")?;
    if is_test_file(path) || source == "main" {
        return None;
    }
    let mut parts: ModulePath = source.split('/').map(str::to_owned).collect();
    if source == "lib" || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    Some((name, parts))
}

fn read_modules(sources: &BTreeMap<ModulePath, &File>) -> BTreeMap<ModulePath, Module> {
    let mut modules = BTreeMap::new();
    for (path, file) in sources {
        let mut reader = ImportReader {
            sources,
            path,
            module: Module { file: file.path.clone(), ..Module::default() },
        };
        // What cannot be read is found by another rule.
        if let Ok(tokens) = file.text.parse::<TokenStream>() {
            reader.walk(&tokens.into_iter().collect::<Vec<_>>());
        }
        modules.insert(path.clone(), reader.module);
    }
    let tests: BTreeSet<ModulePath> = modules
        .iter()
        .flat_map(|(path, module)| {
            let child = |name: &String| [path.as_slice(), std::slice::from_ref(name)].concat();
            module.test_modules.iter().map(child)
        })
        .collect();
    modules.retain(|path, _| !(0..=path.len()).any(|length| tests.contains(&path[..length])));
    modules
}

struct ImportReader<'a> {
    sources: &'a BTreeMap<ModulePath, &'a File>,
    path: &'a ModulePath,
    module: Module,
}

impl ImportReader<'_> {
    fn walk(&mut self, tokens: &[TokenTree]) {
        let mut position = 0;
        while let Some(token) = tokens.get(position) {
            if is_test_attribute(tokens, position) {
                let item = &tokens[position + 2..];
                if let [TokenTree::Ident(keyword), TokenTree::Ident(name), ..] = item
                    && keyword == "mod"
                {
                    self.module.test_modules.insert(name.to_string());
                }
                position = end_of_item(tokens, position + 2);
                continue;
            }
            match token {
                TokenTree::Ident(ident) if ident == "use" => {
                    let end = end_of_item(tokens, position);
                    let is_public = is_public(&tokens[..position]);
                    self.read_use_tree(&tokens[position + 1..end - 1], &[], is_public);
                    position = end;
                }
                // The path in `pub(in …)` names no item.
                TokenTree::Ident(ident) if ident == "pub" => {
                    let is_restricted = matches!(
                        tokens.get(position + 1),
                        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis
                    );
                    position += 1 + usize::from(is_restricted);
                }
                TokenTree::Ident(_) if !follows_path(tokens, position) => {
                    let (path, end) = read_path(tokens, position);
                    if path.len() > 1 {
                        self.add_import(&path);
                    }
                    position = end;
                }
                TokenTree::Group(group) => {
                    self.walk(&group.stream().into_iter().collect::<Vec<_>>());
                    position += 1;
                }
                _ => position += 1,
            }
        }
    }

    /// Reads a tree of `use` behind `prefix`.
    fn read_use_tree(&mut self, tokens: &[TokenTree], prefix: &[String], is_public: bool) {
        let parts = tokens.split(|token| is_punct(token, ','));
        // Nothing follows a comma at the end.
        for part in parts.filter(|part| !part.is_empty()) {
            let (mut path, end) = read_path(part, 0);
            path.splice(0..0, prefix.iter().cloned());
            match part.get(end..) {
                Some([.., TokenTree::Group(group)]) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.read_use_tree(&inner, &path, is_public);
                }
                Some([TokenTree::Ident(word), TokenTree::Ident(alias)]) if word == "as" => {
                    self.add_use(&alias.to_string(), &path, is_public);
                }
                _ => {
                    if let Some(name) = path.last().cloned() {
                        self.add_use(&name, &path, is_public);
                    }
                }
            }
        }
    }

    fn add_use(&mut self, name: &str, path: &[String], is_public: bool) {
        let Some(absolute) = self.resolve_path(path) else {
            return;
        };
        if is_public {
            self.module.reexports.insert(name.to_owned(), absolute.clone());
        }
        self.module.imports.insert(absolute);
    }

    fn add_import(&mut self, path: &[String]) {
        self.module.imports.extend(self.resolve_path(path));
    }

    /// A path from the crate's root on; `None` for what is of another crate.
    fn resolve_path(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut base = self.path.clone();
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" | "super" => {
                let mut rest = path;
                while let [word, more @ ..] = rest
                    && (word == "self" || word == "super")
                {
                    if word == "super" {
                        base.pop();
                    }
                    rest = more;
                }
                base.extend_from_slice(rest);
            }
            child => {
                base.push(child.to_owned());
                if !self.sources.contains_key(&base) {
                    return None;
                }
                base.extend_from_slice(rest);
            }
        }
        Some(base)
    }
}

/// Whether `#[cfg(test)]` is here.
fn is_test_attribute(tokens: &[TokenTree], position: usize) -> bool {
    let [hash, TokenTree::Group(group), ..] = &tokens[position..] else {
        return false;
    };
    is_punct(hash, '#') && group.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// Place behind the item that begins here: behind its `;` or its braces.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let is_use = matches!(tokens.get(from), Some(TokenTree::Ident(ident)) if ident == "use");
    let end = tokens[from..].iter().position(|token| {
        let is_body =
            matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        is_punct(token, ';') || (is_body && !is_use)
    });
    end.map_or(tokens.len(), |end| from + end + 1)
}

/// Whether the item behind these tokens is `pub` or `pub(…)`.
fn is_public(preceding: &[TokenTree]) -> bool {
    let before = match preceding {
        [rest @ .., TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => rest,
        all => all,
    };
    before.last().is_some_and(|token| identifier(token) == Some("pub".to_owned()))
}

/// Whether this continues a path, as behind `::`, or a call of a method.
fn follows_path(tokens: &[TokenTree], position: usize) -> bool {
    position > 0
        && (is_punct(&tokens[position - 1], ':')
            && position > 1
            && is_punct(&tokens[position - 2], ':'))
}

/// The path of names that begins here, and the place behind it.
fn read_path(tokens: &[TokenTree], from: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    let mut position = from;
    while let Some(TokenTree::Ident(ident)) = tokens.get(position) {
        path.push(ident.to_string());
        position += 1;
        let is_separator = |at| tokens.get(at).is_some_and(|token| is_punct(token, ':'));
        if !(is_separator(position) && is_separator(position + 1)) {
            break;
        }
        position += 2;
    }
    (path, position.max(from + 1).min(tokens.len()))
}

/// The file of the module that a path leads to.
fn target_module(modules: &BTreeMap<ModulePath, Module>, path: &[String]) -> Option<ModulePath> {
    let mut path = path.to_vec();
    for _ in 0..REEXPORTS_MAX {
        let length =
            (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
        let module = &modules[&path[..length]];
        let reexported = path.get(length).and_then(|name| module.reexports.get(name));
        match reexported {
            Some(real) if real != &path => {
                path = real.iter().chain(&path[length + 1..]).cloned().collect();
            }
            _ => return Some(path[..length].to_vec()),
        }
    }
    None
}

/// The modules that each module imports. The crate's root is left out: it names all.
fn import_edges(
    modules: &BTreeMap<ModulePath, Module>,
) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
    modules
        .iter()
        .filter(|(path, _)| !path.is_empty())
        .map(|(path, module)| {
            let targets = module.imports.iter().filter_map(|import| target_module(modules, import));
            let others = targets.filter(|target| !target.is_empty() && target != path);
            (path, others.collect())
        })
        .collect()
}

fn check_rooms(
    modules: &BTreeMap<ModulePath, Module>,
    edges: &BTreeMap<&ModulePath, BTreeSet<ModulePath>>,
    findings: &mut Vec<Finding>,
) {
    let room = |path: &ModulePath| {
        ROOMS.iter().position(|room| path.first().is_some_and(|first| first == room))
    };
    for (path, targets) in edges {
        for target in targets {
            if let (Some(from), Some(to)) = (room(path), room(target))
                && to > from
            {
                let subject = format!("{} imports {}", ROOMS[from], target.join("::"));
                findings.push(Finding::new("room-import", &modules[*path].file, 1, subject));
            }
        }
    }
}

fn check_circles(
    modules: &BTreeMap<ModulePath, Module>,
    edges: &BTreeMap<&ModulePath, BTreeSet<ModulePath>>,
    findings: &mut Vec<Finding>,
) {
    let reachable_modules: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        edges.keys().map(|path| (*path, reachable(edges, path))).collect();
    let mut reported: BTreeSet<&ModulePath> = BTreeSet::new();
    for path in edges.keys() {
        let circle: Vec<&ModulePath> = reachable_modules[path]
            .iter()
            .copied()
            .filter(|other| reachable_modules[other].contains(path))
            .collect();
        if circle.len() > CIRCLE_FILES_MAX && reported.insert(circle[0]) {
            let names: Vec<String> = circle.iter().map(|path| path.join("::")).collect();
            let subject = if circle.iter().all(|path| path.starts_with(circle[0])) {
                format!("{} and files below it", names[0])
            } else {
                format!("{} files: {}", names.len(), names.join(", "))
            };
            findings.push(Finding::new("import-circle", &modules[circle[0]].file, 1, subject));
        }
    }
}

/// Modules to which imports lead from this one, in any number of steps.
fn reachable<'a>(
    edges: &'a BTreeMap<&'a ModulePath, BTreeSet<ModulePath>>,
    from: &ModulePath,
) -> BTreeSet<&'a ModulePath> {
    let mut visited = BTreeSet::new();
    let mut pending: Vec<&ModulePath> = edges.get(from).into_iter().flatten().collect();
    while let Some(path) = pending.pop() {
        if visited.insert(path) {
            pending.extend(edges.get(path).into_iter().flatten());
        }
    }
    visited
}

#[cfg(test)]
mod tests;
