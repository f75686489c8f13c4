//! Maps positions in a query with resolved names to the query as the caller wrote it.
//!
//! Both have the same words in the same order, except for added column names, schemas, brackets and
//! casts. So if both contain a word equally often, its nth occurrence in one corresponds to the nth
//! in the other.

use super::functions::is_clock;

/// SQL keywords that read the clock; they are reserved, so no unquoted name equals them.
const CLOCK_WORDS: [&str; 5] = [
    "current_date",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
];

/// Position in `written` of the word at `position` of `resolved`, both in bytes from 1; none if it
/// is ambiguous.
pub fn locate(resolved: &str, position: usize, written: &str) -> Option<usize> {
    let (resolved, written) = (words(resolved)?, words(written)?);
    let at = resolved
        .iter()
        .position(|(start, _)| *start + 1 == position)?;
    // Of a name with its schema the last part is what was written for certain.
    let is_dot = |at: usize| resolved.get(at).is_some_and(|(_, word)| word == ".");
    let at = if is_dot(at + 1) { at + 2 } else { at };
    // The server has brackets of its own.
    let is_bracket = |(_, word): &&(usize, String)| word == "(";
    let at = at + resolved[at..].iter().take_while(is_bracket).count();
    let (_, wanted) = resolved.get(at)?;
    let before = resolved[..at].iter().filter(|(_, word)| word == wanted);
    let nth = before.count();
    let total = resolved.iter().filter(|(_, word)| word == wanted).count();
    let same: Vec<usize> = written
        .iter()
        .filter(|(_, word)| word == wanted)
        .map(|(start, _)| *start)
        .collect();
    (same.len() == total).then(|| same[nth] + 1)
}

/// Position of the first call of a function by this name, in bytes from 1.
pub(crate) fn call_of(query: &str, function: &str) -> Option<usize> {
    let words = words(query)?;
    let is_call = |pair: &&[(usize, String)]| pair[0].1 == function && pair[1].1 == "(";
    let call = words.windows(2).find(is_call)?;
    Some(call[0].0 + 1)
}

/// Whether a query calls the clock.
pub(crate) fn names_clock(query: &str) -> bool {
    // A query that cannot be scanned may call it.
    let Some(words) = all_words(query) else {
        return true;
    };
    let mut pairs = words.windows(2);
    words
        .iter()
        .any(|(_, word)| CLOCK_WORDS.contains(&word.as_str()))
        || pairs.any(|pair| is_clock(&pair[0].1) && pair[1].1 == "(")
}

/// The words of a query in lower case, each with its offset in bytes. Names after AS are left out:
/// most of them are added by the server.
fn words(query: &str) -> Option<Vec<(usize, String)>> {
    let mut is_named = false;
    let mut words = all_words(query)?;
    words.retain(|(_, word)| !std::mem::replace(&mut is_named, word == "as"));
    Some(words)
}

/// All words of a query in lower case, names after AS included.
fn all_words(query: &str) -> Option<Vec<(usize, String)>> {
    let scanned = pg_query::scan(query).ok()?;
    let tokens = scanned.tokens.into_iter().map(|token| {
        let (start, end) = (token.start as usize, token.end as usize);
        Some((start, query.get(start..end)?.to_lowercase()))
    });
    tokens.collect()
}

#[cfg(test)]
mod tests;
