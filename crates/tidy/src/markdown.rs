//! Rules for Markdown: links and anchors resolve, shown commands exist, pages keep their length.

use std::path::{Component, Path, PathBuf};

use crate::Finding;
use crate::tree::File;

const CRATE_README_LINES_MAX: usize = 120;
const ARCHITECTURE_LINES_MAX: usize = 300;
const README_LINES_MAX: usize = 150;
/// The directory that `make docs` builds as a book, and its table of contents.
const BOOK: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";
const SHELL_FENCES: [&str; 4] = ["console", "sh", "shell", "bash"];

/// A command that a page shows in a shell block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The line, counted from one.
    pub line: usize,
    /// The words after the prompt, quotes removed.
    pub words: Vec<String>,
}

/// A page longer than its kind allows.
pub fn check_length(file: &File) -> Option<Finding> {
    let lines = file.text.lines().count();
    let max = match file.path.as_str() {
        "ARCHITECTURE.md" => ARCHITECTURE_LINES_MAX,
        "README.md" => README_LINES_MAX,
        path if path.starts_with("crates/") && path.ends_with("/README.md") => {
            CRATE_README_LINES_MAX
        }
        _ => return None,
    };
    (lines > max)
        .then(|| Finding::new("long-page", &file.path, lines, format!("at most {max} lines")))
}

/// Relative links of `file` that lead nowhere, or from a page of the book out of it. `pages` are
/// all files of the checkout; `exists` says whether a path that is no text file is there (a
/// picture, a directory).
pub fn check_links(file: &File, pages: &[File], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    link_targets(&file.text)
        .into_iter()
        .filter(|(_, target)| !is_resolvable(file, target, pages, &exists))
        .map(|(line, target)| Finding::new("broken-link", &file.path, line, target))
        .collect()
}

/// Pages of the book that its table of contents does not link to: the book would lack them.
pub fn check_summary(pages: &[File]) -> Vec<Finding> {
    let summary = pages.iter().find(|page| page.path == SUMMARY);
    let linked: Vec<String> = summary
        .map(|page| link_targets(&page.text))
        .unwrap_or_default()
        .into_iter()
        .map(|(_, target)| format!("{BOOK}{target}"))
        .collect();
    pages
        .iter()
        .filter(|page| page.path.starts_with(BOOK) && page.path.ends_with(".md"))
        .filter(|page| page.path != SUMMARY && !linked.contains(&page.path))
        .map(|page| Finding::new("unlisted-page", &page.path, 1, SUMMARY))
        .collect()
}

/// `make` commands, in shell blocks and in code spans, that name no target of the Makefile.
pub fn check_make_targets(file: &File, makefile: &str) -> Vec<Finding> {
    let targets: Vec<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .collect();
    let mut findings = Vec::new();
    for command in shell_commands(&file.text).into_iter().chain(code_span_commands(&file.text)) {
        let mut words = command.words.iter().map(String::as_str);
        if words.next() != Some("make") {
            continue;
        }
        let is_name = |word: &&str| !word.starts_with('-') && !word.contains('=');
        for target in words.filter(is_name).filter(|word| !targets.contains(word)) {
            findings.push(Finding::new("no-such-target", &file.path, command.line, target));
        }
    }
    findings
}

/// The commands shown in the shell blocks of a page. In a block with prompts (`$ `) only the lines
/// with one are commands, the rest is output; a trailing `\` joins lines.
pub fn shell_commands(text: &str) -> Vec<Command> {
    let mut found = Vec::new();
    for block in fenced_blocks(text) {
        if !SHELL_FENCES.contains(&block.language) {
            continue;
        }
        let has_prompts = block.language == "console"
            || block.lines.iter().any(|(_, line)| strip_prompt(line).is_some());
        let mut lines = block.lines.iter();
        while let Some((number, line)) = lines.next() {
            let text = if has_prompts { strip_prompt(line) } else { Some(line.trim()) };
            let Some(mut text) = text.map(str::to_owned) else {
                continue;
            };
            while text.ends_with('\\') {
                text.pop();
                text.push_str(lines.next().map_or("", |(_, next)| next.trim()));
            }
            found.extend(
                simple_commands(&text).into_iter().map(|words| Command { line: *number, words }),
            );
        }
    }
    found
}

struct Block<'a> {
    language: &'a str,
    lines: Vec<(usize, &'a str)>,
}

fn parse_fence(line: &str) -> Option<(&str, &str)> {
    let trimmed = line.trim_start();
    let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark))?;
    Some((mark, trimmed.trim_start_matches(['`', '~']).trim()))
}

fn fenced_blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open_block: Option<(&str, Block<'_>)> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open_block, parse_fence(line)) {
            (Some((mark, _)), Some((closing, ""))) if *mark == closing => {
                blocks.extend(open_block.take().map(|(_, block)| block));
            }
            (Some((_, block)), _) => block.lines.push((index + 1, line)),
            (None, Some((mark, info))) => {
                let language = info.split([' ', ',']).next().unwrap_or_default();
                open_block = Some((mark, Block { language, lines: Vec::new() }));
            }
            (None, None) => {}
        }
    }
    blocks.extend(open_block.map(|(_, block)| block));
    blocks
}

/// The lines outside fenced blocks.
fn prose_lines(text: &str) -> Vec<(usize, &str)> {
    let fenced: Vec<usize> = fenced_blocks(text)
        .iter()
        .flat_map(|block| block.lines.iter().map(|(number, _)| *number))
        .collect();
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(number, line)| !fenced.contains(number) && parse_fence(line).is_none())
        .collect()
}

fn strip_prompt(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    trimmed.strip_prefix("$ ").or_else(|| trimmed.strip_prefix("# ")).map(str::trim)
}

/// Splits a shell line at `;`, `&&`, `||` and `|`, drops comments, assignments and redirections.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    for word in shell_words(line) {
        match word.as_str() {
            ";" | "&&" | "||" | "|" | "&" => commands.push(Vec::new()),
            _ => commands.last_mut().expect("never empty").push(word),
        }
    }
    for words in &mut commands {
        let redirected =
            words.iter().position(|word| word.starts_with(['>', '<']) || word.starts_with("2>"));
        words.truncate(redirected.unwrap_or(words.len()));
        let assignments = words.iter().take_while(|word| is_assignment(word)).count();
        words.drain(..assignments);
        if words.first().is_some_and(|word| word == "sudo") {
            words.remove(0);
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
    })
}

fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in line.chars() {
        match quote {
            Some(mark) if character == mark => quote = None,
            Some(_) => word.get_or_insert_default().push(character),
            None => match character {
                '\'' | '"' => {
                    quote = Some(character);
                    word.get_or_insert_default();
                }
                '#' if word.is_none() => break,
                ';' | '|' | '&'
                    if word.as_deref() != Some(&character.to_string())
                        && !is_redirection(&word) =>
                {
                    words.extend(word.replace(character.to_string()));
                }
                other if other.is_whitespace() => words.extend(word.take()),
                other => {
                    if word
                        .as_deref()
                        .is_some_and(|text| matches!(text, ";" | "|" | "&" | "||" | "&&"))
                        && !"|&".contains(other)
                    {
                        words.extend(word.take());
                    }
                    word.get_or_insert_default().push(other);
                }
            },
        }
    }
    words.extend(word);
    words
}

/// `2>&1`: the ampersand belongs to the redirection.
fn is_redirection(word: &Option<String>) -> bool {
    word.as_deref().is_some_and(|text| text.ends_with('>'))
}

fn code_span_commands(text: &str) -> Vec<Command> {
    let mut commands = Vec::new();
    for (line, prose) in prose_lines(text) {
        for span in prose.split('`').skip(1).step_by(2) {
            let words: Vec<String> = span.split_whitespace().map(str::to_owned).collect();
            if !words.is_empty() {
                commands.push(Command { line, words });
            }
        }
    }
    commands
}

/// Every link target with its line: `[text](target)`, `![picture](target)` and `[name]: target`.
fn link_targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (line, prose) in prose_lines(text) {
        let visible: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (_, rest) in visible
            .match_indices("](")
            .map(|(offset, mark)| (offset, &visible[offset + mark.len()..]))
        {
            if let Some(end) = rest.find(')') {
                let target = rest[..end].split_whitespace().next().unwrap_or_default();
                targets.push((line, target.trim_matches(['<', '>']).to_owned()));
            }
        }
        if let Some((name, target)) = visible.split_once("]: ")
            && name.starts_with('[')
        {
            targets.push((line, target.trim().to_owned()));
        }
    }
    targets
}

fn is_resolvable(
    file: &File,
    target: &str,
    pages: &[File],
    exists: &impl Fn(&str) -> bool,
) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, anchor) =
        target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() {
        file.path.clone()
    } else {
        let directory = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        match normalize_path(&directory.join(path)) {
            Some(path) => path,
            None => return false,
        }
    };
    if file.path.starts_with(BOOK) && !path.starts_with(BOOK) {
        return false;
    }
    match (pages.iter().find(|page| page.path == path), anchor) {
        (Some(page), Some(anchor)) if path.ends_with(".md") => {
            heading_anchors(&page.text).iter().any(|found| found == anchor)
        }
        (Some(_), _) => true,
        (None, _) => exists(&path),
    }
}

/// The path without `.` and `..`; `None` when it leaves the checkout.
fn normalize_path(path: &Path) -> Option<String> {
    let mut parts = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir if parts.pop() => {}
            _ => return None,
        }
    }
    Some(parts.to_string_lossy().into_owned())
}

/// The anchors that GitHub and mdBook make of a page's headings.
fn heading_anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in prose_lines(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let earlier = found.iter().filter(|other| **other == anchor).count();
        found.push(if earlier == 0 { anchor } else { format!("{anchor}-{earlier}") });
    }
    found
}

#[cfg(test)]
mod tests;
