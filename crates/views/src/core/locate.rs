//! Maps positions in a query with resolved names to the query as the caller wrote it.
//!
//! Both have the same words in the same order, except for added column names, schemas, brackets and
//! casts. So if both contain a word equally often, its nth occurrence in one corresponds to the nth
//! in the other.

use super::functions::is_clock_function;

/// SQL keywords that read the clock; they are reserved, so no unquoted name equals them.
const CLOCK_WORDS: [&str; 5] =
    ["current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"];

/// Position in `written` of the word at `position` of `resolved`, both in bytes from 1; none if it
/// is ambiguous.
pub(crate) fn locate_position(resolved: &str, position: usize, written: &str) -> Option<usize> {
    let (resolved, written) = (comparable_words(resolved)?, comparable_words(written)?);
    let word_index = resolved.iter().position(|(start, _)| *start + 1 == position)?;
    // Of a name with its schema the last part is what was written for certain.
    let is_dot = |at: usize| resolved.get(at).is_some_and(|(_, word)| word == ".");
    let at = if is_dot(word_index + 1) { word_index + 2 } else { word_index };
    // The server has brackets of its own.
    let is_bracket = |(_, word): &&(usize, String)| word == "(";
    let at = at + resolved[at..].iter().take_while(is_bracket).count();
    let (_, target_word) = resolved.get(at)?;
    let earlier = resolved[..at].iter().filter(|(_, word)| word == target_word);
    let nth = earlier.count();
    let total = resolved.iter().filter(|(_, word)| word == target_word).count();
    let candidates: Vec<usize> =
        written.iter().filter(|(_, word)| word == target_word).map(|(start, _)| *start).collect();
    (candidates.len() == total).then(|| candidates[nth] + 1)
}

/// Position of the first call of a function by this name, in bytes from 1.
pub(crate) fn find_call(query: &str, function: &str) -> Option<usize> {
    let words = comparable_words(query)?;
    let is_call = |pair: &&[(usize, String)]| pair[0].1 == function && pair[1].1 == "(";
    let call = words.windows(2).find(is_call)?;
    Some(call[0].0 + 1)
}

/// Whether a query calls the clock.
pub(crate) fn calls_clock(query: &str) -> bool {
    // A query that cannot be scanned may call it.
    let Some(words) = all_words(query) else {
        return true;
    };
    let mut pairs = words.windows(2);
    words.iter().any(|(_, word)| CLOCK_WORDS.contains(&word.as_str()))
        || pairs.any(|pair| is_clock_function(&pair[0].1) && pair[1].1 == "(")
}

/// The words of a query in lower case, each with its offset in bytes. Names after AS are left out:
/// most of them are added by the server.
fn comparable_words(query: &str) -> Option<Vec<(usize, String)>> {
    let mut follows_as = false;
    let mut words = all_words(query)?;
    words.retain(|(_, word)| !std::mem::replace(&mut follows_as, word == "as"));
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
