//! Statements of a workload: `:name` is a value, everything else is PostgreSQL's.

/// A statement cut at its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Sql(String),
    Value(String),
}

/// What a statement does to the transaction around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Begins a transaction: `BEGIN`, `START TRANSACTION`
    Begin,
    /// `COMMIT`, `END`, `ROLLBACK`, `ABORT`, `PREPARE TRANSACTION`
    End,
    /// Any other statement of a transaction
    Work,
}

impl Statement {
    /// Reads a statement.
    ///
    /// # Errors
    /// When something is not closed, or `$1` stands where `:name` should.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_end_matches(';').trim_end();
        if text.is_empty() {
            return Err("a statement is empty".to_owned());
        }
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_after_word = plain.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let length = match first {
                '\'' => string_length(rest, has_escape_prefix(&plain))?,
                '"' => quoted_length(rest, '"')?,
                '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("/*") => comment_length(rest)?,
                '$' if !is_after_word => dollar_quoted_length(rest)?,
                // A cast, or an assignment in a call.
                ':' if rest.starts_with("::") || rest.starts_with(":=") => 2,
                ':' => match leading_name(&rest[1..]) {
                    // A slice, e.g. [1:2].
                    "" => 1,
                    name => {
                        pieces.push(Piece::Sql(std::mem::take(&mut plain)));
                        pieces.push(Piece::Value(name.to_owned()));
                        rest = &rest[1 + name.len()..];
                        continue;
                    }
                },
                other => other.len_utf8(),
            };
            plain.push_str(&rest[..length]);
            rest = &rest[length..];
        }
        pieces.push(Piece::Sql(plain));
        pieces.retain(|piece| !matches!(piece, Piece::Sql(sql) if sql.is_empty()));
        Ok(Self { pieces })
    }

    /// The names of its values, each once, in the order in which they appear.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for piece in &self.pieces {
            if let Piece::Value(name) = piece
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    /// With `$1`, `$2` … in place of [`Statement::names`].
    pub(crate) fn with_placeholders(&self) -> String {
        let names = self.names();
        let number =
            |name: &str| names.iter().position(|other| *other == name).map_or(0, |at| at + 1);
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Sql(sql) => sql.clone(),
                Piece::Value(name) => format!("${}", number(name)),
            })
            .collect()
    }

    /// With literals in place of the values; `value` is asked for each.
    pub(crate) fn with_literals<'a>(&self, value: impl Fn(&str) -> &'a str) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Sql(sql) => text.push_str(sql),
                Piece::Value(name) => push_literal(&mut text, value(name)),
            }
        }
        text
    }

    /// What it does to the transaction around it.
    pub fn role(&self) -> Role {
        match self.keyword().as_str() {
            "BEGIN" | "START" => Role::Begin,
            // Not `ROLLBACK TO`: it stays in the transaction.
            "ROLLBACK" if self.words().any(|word| word.eq_ignore_ascii_case("TO")) => Role::Work,
            "COMMIT" | "END" | "ROLLBACK" | "ABORT" => Role::End,
            "PREPARE"
                if self
                    .words()
                    .nth(1)
                    .is_some_and(|word| word.eq_ignore_ascii_case("TRANSACTION")) =>
            {
                Role::End
            }
            _ => Role::Work,
        }
    }

    /// Whether EXPLAIN takes it.
    pub(crate) fn is_explainable(&self) -> bool {
        ["SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "WITH", "TABLE"]
            .contains(&self.keyword().as_str())
    }

    fn keyword(&self) -> String {
        self.words().next().unwrap_or_default().to_ascii_uppercase()
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        let first = match self.pieces.first() {
            Some(Piece::Sql(sql)) => sql.as_str(),
            _ => "",
        };
        first.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty())
    }
}

/// The name at the begin of `text`; empty where there is none.
fn leading_name(text: &str) -> &str {
    if !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return "";
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// Whether the string that follows is an `E'…'`, in which a backslash escapes.
fn has_escape_prefix(before: &str) -> bool {
    let mut last = before.chars().rev();
    matches!(last.next(), Some('e' | 'E'))
        && last.next().is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
}

/// The length of the string at the begin of `text`.
fn string_length(text: &str, has_escapes: bool) -> Result<usize, String> {
    if !has_escapes {
        return quoted_length(text, '\'');
    }
    let mut is_escaped = false;
    for (offset, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' => return Ok(offset + 1),
            _ => {}
        }
    }
    Err(unclosed_error(text))
}

/// The length of what is quoted at the begin of `text`. A doubled quote ends one piece and begins
/// the next, which comes to the same.
fn quoted_length(text: &str, quote: char) -> Result<usize, String> {
    let end = text[1..].find(quote).ok_or_else(|| unclosed_error(text))?;
    Ok(end + 2)
}

/// The length of the comment at the begin of `text`; comments nest.
fn comment_length(text: &str) -> Result<usize, String> {
    let (mut depth, mut offset) = (0u32, 0);
    while offset < text.len() {
        let rest = &text[offset..];
        if rest.starts_with("/*") {
            depth += 1;
            offset += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            offset += 2;
            if depth == 0 {
                return Ok(offset);
            }
        } else {
            offset += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    Err(unclosed_error(text))
}

/// The length of the `$tag$…$tag$` at the begin of `text`.
fn dollar_quoted_length(text: &str) -> Result<usize, String> {
    if text[1..].starts_with(|c: char| c.is_ascii_digit()) {
        let number: String = text.chars().take(4).collect();
        return Err(format!("`{number}`: parameters are written as :name, not as numbers"));
    }
    let Some(end) = text[1..].find('$').map(|at| at + 2) else {
        return Ok(1);
    };
    let tag = &text[..end];
    if !tag[1..end - 1].chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Ok(1);
    }
    let close = text[end..].find(tag).ok_or_else(|| unclosed_error(text))?;
    Ok(end + close + tag.len())
}

fn unclosed_error(text: &str) -> String {
    let begin: String = text.chars().take(20).collect();
    format!("`{begin}` is not closed")
}

/// A number as it is; anything else as a string literal.
fn push_literal(text: &mut String, value: &str) {
    if value.parse::<f64>().is_ok_and(f64::is_finite) {
        // Parentheses, so that a sign cannot run together with what stands before it.
        text.push('(');
        text.push_str(value);
        text.push(')');
        return;
    }
    let needs_escapes = value.contains('\\');
    text.push_str(if needs_escapes { " E'" } else { "'" });
    for character in value.chars() {
        if character == '\'' || (needs_escapes && character == '\\') {
            text.push(character);
        }
        text.push(character);
    }
    text.push('\'');
}
