//! Names and origins are validated.

use proptest::prelude::*;

use super::*;

#[test]
fn names() {
    for good in ["a", "pr-42", "0", "feature_x", &"x".repeat(63)] {
        assert!(good.parse::<BranchName>().is_ok(), "{good}");
    }
    for bad in
        ["", "-a", "_a", "A", "a b", "a@b", "a.b", "../x", "a/b", "ä", &"x".repeat(64), "a\0"]
    {
        assert!(bad.parse::<BranchName>().is_err(), "{bad}");
    }
}

#[test]
fn origins_read_what_they_show() {
    let id = TemplateId::new(Timestamp::from_micros(1), [7; 10]);
    for origin in [
        BranchSource::NewestTemplate,
        BranchSource::Head,
        BranchSource::Template(id),
        BranchSource::Branch("pr-1".parse().unwrap()),
    ] {
        assert_eq!(origin.to_string().parse(), Ok(origin));
    }
    for bad in ["", "tip", "branch:", "branch:A", "template:x"] {
        assert!(bad.parse::<BranchSource>().is_err(), "{bad}");
    }
}

#[test]
fn passwords_are_not_shown_by_debug() {
    let credentials =
        Credentials { user: "egret_branch".to_owned(), password: "secret".to_owned() };
    assert!(!format!("{credentials:?}").contains("secret"));
}

proptest! {
    #[test]
    fn a_valid_name_is_safe_as_a_file_name_and_in_a_connection_string(text in ".{0,80}") {
        if let Ok(name) = text.parse::<BranchName>() {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            prop_assert!(name.as_str().chars().all(plain));
            prop_assert!(!name.as_str().starts_with('-'));
        }
    }
}
