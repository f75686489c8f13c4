//! From the parameters of a startup packet to the branch they mean. Pure.

use std::collections::BTreeMap;

use super::directory::ConnectionRefusal;

/// The name under which a branch is given in `options`.
const BRANCH_OPTION: &str = "egret.branch";

/// The database a client asked for and the branch it is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The database's name inside of the branch.
    pub database: String,
    /// The branch's name, as the client wrote it.
    pub branch: String,
}

/// The session that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionRequest {
    pub user: String,
    pub route: Route,
    /// The database's name as the client wrote it, with the branch. A test runner that was given
    /// `app@pr-42` creates a database `test_app@pr-42` and connects to it: it exists under this
    /// whole name.
    pub full_name: String,
    /// What the branch's server gets to see: everything the client set, without the branch.
    pub parameters: Vec<(String, String)>,
}

impl SessionRequest {
    /// Parses the parameters of a startup packet.
    pub(super) fn parse(
        mut parameters: BTreeMap<String, String>,
    ) -> Result<Self, ConnectionRefusal> {
        let user = parameters.remove("user").unwrap_or_default();
        if user.is_empty() {
            return Err(ConnectionRefusal::new(
                "28000",
                "no PostgreSQL user name specified in startup packet",
            ));
        }
        if parameters.remove("replication").is_some_and(|value| asks_for_replication(&value)) {
            return Err(ConnectionRefusal::new(
                "0A000",
                "replication does not pass through the proxy",
            )
            .with_hint("connect to the branch's source itself"));
        }
        // PostgreSQL's default for the database is the user's name.
        let full_name = parameters
            .remove("database")
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| user.clone());
        let options = parameters.remove("options").unwrap_or_default();
        let (options, option_branch) = extract_branch(&options);
        if !options.is_empty() {
            parameters.insert("options".to_owned(), options);
        }
        Ok(Self {
            user,
            route: parse_route(&full_name, option_branch)?,
            full_name,
            parameters: parameters.into_iter().collect(),
        })
    }
}

/// Splits `app@pr-42`. With a branch in the options the name is taken as it is, unless it ends with
/// that branch.
fn parse_route(full_name: &str, option_branch: Option<String>) -> Result<Route, ConnectionRefusal> {
    let (database, branch) = match (full_name.rsplit_once('@'), option_branch) {
        (Some((database, branch)), None) => (database, branch.to_owned()),
        (Some((database, branch)), Some(option)) if branch == option => (database, option),
        (_, option) => (full_name, option.unwrap_or_default()),
    };
    if branch.is_empty() || database.is_empty() {
        let missing = if branch.is_empty() { "branch" } else { "database" };
        return Err(ConnectionRefusal::new("3D000", format!("\"{full_name}\" names no {missing}"))
            .with_hint(format!(
                "write database@branch, for example \"{}@pr-42\", or add the option \
                 -c {BRANCH_OPTION}=pr-42",
                if database.is_empty() { "app" } else { database }
            )));
    }
    Ok(Route { database: database.to_owned(), branch })
}

/// PostgreSQL reads this parameter as a boolean or the word `database`.
fn asks_for_replication(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let is_false = ["false", "no", "off", "0"]
        .iter()
        .any(|no| !value.is_empty() && no.starts_with(&value) && value != "o");
    !is_false
}

/// Takes the branch out of command-line options; the rest stays as it was.
fn extract_branch(options: &str) -> (String, Option<String>) {
    let mut branch = None;
    let mut kept = Vec::new();
    let mut words = split_options(options).into_iter();
    while let Some(word) = words.next() {
        let mut option_words = vec![word];
        if option_words[0] == "-c" {
            option_words.extend(words.next());
        }
        let setting = match option_words.as_slice() {
            [_, setting] => Some(setting.as_str()),
            [word] => word.strip_prefix("--").or(word.strip_prefix("-c")),
            _ => None,
        };
        match setting.and_then(|setting| setting.split_once('=')) {
            Some((name, value)) if name.eq_ignore_ascii_case(BRANCH_OPTION) => {
                branch = Some(value.to_owned());
            }
            _ => kept.extend(option_words),
        }
    }
    if branch.is_none() {
        return (options.to_owned(), None);
    }
    let kept: Vec<String> = kept.iter().map(|word| escape_option(word)).collect();
    (kept.join(" "), branch)
}

/// Splits at white space; a backslash takes the next character as it is (`pg_split_opts`).
fn split_options(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => word.get_or_insert_default().extend(characters.next()),
            space if is_space(space) => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

fn escape_option(word: &str) -> String {
    let mut escaped = String::with_capacity(word.len());
    for character in word.chars() {
        if character == '\\' || is_space(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// White space as C's `isspace` knows it.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

#[cfg(test)]
mod tests;
