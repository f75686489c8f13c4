//! Lines of a password file.

use super::*;

#[test]
fn the_first_line_that_fits_counts() {
    let text = "# db:5432:app:me:no\nother:*:*:*:no\ndb:5433:*:me:wr\\:ong\n*:*:app:me:ri\\:ght\\\\\n*:*:*:*:late\n";
    let of = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        matching_password(text, &pairs.collect())
    };
    let right = of(&[("host", "db,spare"), ("dbname", "app"), ("user", "me")]);
    assert_eq!(right.as_deref(), Some("ri:ght\\"));
    let late = of(&[("host", "/run"), ("user", "you")]);
    assert_eq!(late.as_deref(), Some("late"));
}
