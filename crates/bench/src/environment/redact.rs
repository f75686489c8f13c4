//! Command lines without their secrets. Where it is not clear how far a secret goes, more is
//! masked.

const MASK: &str = "***";

/// Keys whose values are secrets; also as the end of a longer key, `sslpassword`.
const SECRET_KEYS: [&str; 4] = ["password", "passwd", "token", "secret"];

/// The command line of this process with what may be secret masked.
pub(crate) fn command_line() -> String {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        // Where the program is says nothing about what it measured.
        *program = "egret".to_owned();
    }
    redact(&words)
}

/// Masks passwords in connection strings, of URL or keyword form, and quotes as a shell wants it.
pub(crate) fn redact(words: &[String]) -> String {
    let masked: Vec<String> = words.iter().map(|word| redact_word(word)).collect();
    shlex::try_join(masked.iter().map(String::as_str)).unwrap_or_else(|_| masked.join(" "))
}

/// The value of the setting `key` with what may be secret masked.
pub(crate) fn redact_setting(key: &str, value: &str) -> String {
    let is_secret = SECRET_KEYS.iter().any(|secret| key.contains(secret));
    if is_secret {
        return MASK.to_owned();
    }
    redact_word(value)
}

fn redact_word(word: &str) -> String {
    let mut word = word.to_owned();
    let host_start = word.find("://").map(|scheme| scheme + 3);
    if let Some(from) = host_start {
        redact_credentials(&mut word, from);
    }
    for key in SECRET_KEYS {
        let mut from = 0;
        while let Some(begin) = value_begin(&word, key, from) {
            let end = value_end(&word, begin, host_start);
            word.replace_range(begin..end, MASK);
            from = begin + MASK.len();
        }
    }
    word
}

/// Masks the password of `user:password@host` from `from` on. The password may hold `/`, `?` and
/// `@`: clients differ on which of them ends it, so it goes to the last `@` that there is.
fn redact_credentials(word: &mut String, from: usize) {
    let rest = &word[from..];
    if let Some(at) = rest.rfind('@')
        && let Some(colon) = rest[..at].find(':')
    {
        word.replace_range(from + colon + 1..from + at, MASK);
    }
}

/// Where the first value of `key` after `from` begins. Blanks may stand around its `=`.
fn value_begin(word: &str, key: &str, mut from: usize) -> Option<usize> {
    // Of the same length, so that places are those of the word.
    let lower = word.to_ascii_lowercase();
    while let Some(found) = lower[from..].find(key) {
        from += found + key.len();
        if let Some(value) = word[from..].trim_start().strip_prefix('=') {
            return Some(word.len() - value.trim_start().len());
        }
    }
    None
}

/// Where the value that begins at `begin` ends. In the query of a URL (`host_start` is where its
/// host begins) that is at `&`; else with its closing quote, or at a blank that no backslash stands
/// before.
fn value_end(word: &str, begin: usize, host_start: Option<usize>) -> usize {
    let value = &word[begin..];
    let is_in_query = host_start.is_some_and(|url| url < begin && word[url..begin].contains('?'));
    if is_in_query {
        return begin + value.find('&').unwrap_or(value.len());
    }
    let is_quoted = value.starts_with('\'');
    let mut is_escaped = false;
    for (offset, character) in value.char_indices().skip(usize::from(is_quoted)) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' if is_quoted => return begin + offset + 1,
            blank if !is_quoted && blank.is_whitespace() => return begin + offset,
            _ => {}
        }
    }
    word.len()
}

#[cfg(test)]
mod tests;
