//! Numbers of things in messages.

/// `1 row` or `2 rows`, of a noun whose plural is regular.
pub(super) fn number_of(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// The verb that goes with a number of things.
pub(super) fn is_or_are(count: u64) -> &'static str {
    match count {
        1 => "is",
        _ => "are",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        let said = |count| format!("{} {} gone", number_of(count, "view"), is_or_are(count));
        assert_eq!(said(0), "0 views are gone");
        assert_eq!(said(1), "1 view is gone");
        assert_eq!(said(2), "2 views are gone");
    }
}
