//! Paths of the host, which answers do not show.

/// Replaces each absolute path in a text by its last component: `/var/lib/egret/branches/state.db`
/// becomes `…/state.db`. Paths of this API stay.
pub(crate) fn redact(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(character) = rest.chars().next() {
        let path = if character == '/' && can_precede_path(previous) {
            leading_host_path(rest)
        } else {
            None
        };
        match path {
            Some(path) => {
                let name = path.trim_end_matches('/').rsplit('/').next();
                redacted.push_str("…/");
                redacted.push_str(name.unwrap_or_default());
                rest = &rest[path.len()..];
                previous = '/';
            }
            None => {
                redacted.push(character);
                rest = &rest[character.len_utf8()..];
                previous = character;
            }
        }
    }
    redacted
}

/// Whether a path may begin behind this character.
fn can_precede_path(previous: char) -> bool {
    previous.is_whitespace() || matches!(previous, '`' | '\'' | '"' | '(' | '[' | '=' | ':' | ',')
}

/// The path of the host that a text begins with.
fn leading_host_path(text: &str) -> Option<&str> {
    let is_end = |character: char| {
        character.is_whitespace()
            || matches!(character, '`' | '\'' | '"' | ')' | ']' | ',' | ';' | ':')
    };
    let path = &text[..text.find(is_end).unwrap_or(text.len())];
    let components = path.split('/').filter(|part| !part.is_empty()).count();
    let api_prefixes = ["/v1/", "/prometheus/", "/docs", "/errors", "/debug/"];
    let is_api_path = api_prefixes.iter().any(|prefix| path.starts_with(prefix));
    (components > 1 && !is_api_path && !path.starts_with("//")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn keeps_the_last_component_of_a_path_and_all_else() {
        for (text, expected) in [
            (
                "cannot open /var/lib/egret/state.db: no such file",
                "cannot open …/state.db: no such file",
            ),
            ("read `/srv/eg/x/pg.sock`", "read `…/pg.sock`"),
            ("postgresql at /run/a/b", "postgresql at …/b"),
            ("see /v1/queues/mail: 1/2 done", "see /v1/queues/mail: 1/2 done"),
            ("a ratio of 3 / 4, and /", "a ratio of 3 / 4, and /"),
            ("https://example.org/a/b", "https://example.org/a/b"),
            ("", ""),
        ] {
            assert_eq!(redact(text), expected);
        }
    }
}
