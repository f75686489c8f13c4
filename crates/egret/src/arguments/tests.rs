//! What is masked in the process list, and what is left as it is.

use super::*;

fn shown(word: &str) -> String {
    mask_argument(OsStr::new(word)).into_string().unwrap()
}

#[test]
fn passwords_are_masked_and_nothing_else() {
    for (word, expected) in [
        ("postgres://u:TOPSECRET@h:5/db?x=y", "postgres://u:••••••@h:5/db?x=y"),
        ("postgres:///db?password=TOPSECRET", "postgres:///db?password=••••••"),
        ("host=h password=TOPSECRET user=u", "host=h password=••••••"),
        (
            "--set=postgres.url=postgres://u:TOPSECRET@h/d",
            "--set=postgres.url=postgres://u:••••••@h/d",
        ),
        ("postgres.url=postgres://u:TOPSECRET@h/d", "postgres.url=postgres://u:••••••@h/d"),
        ("postgres.url=host=h password=TOPSECRET", "postgres.url=host=h password=••••••"),
        ("--url=https://u:TOPSECRET@h", "--url=https://u:••••••@h"),
        ("https://hooks.example/services/TOPSECRET", "https://hooks.example/••••••"),
        (
            "--callback-url=HTTPS://u:TOPSECRET@h:8/?key=TOPSECRET",
            "--callback-url=HTTPS://u:••••••@h:8/••••••",
        ),
        ("--webhook=https://h?TOPSECRET", "--webhook=https://h?••••••"),
    ] {
        assert_eq!(shown(word), expected);
    }
    for word in [
        "serve",
        "--set",
        "server.port=1",
        "--label",
        "a=b",
        "http://h:7070",
        "http://h:7070/",
        "--json",
    ] {
        assert_eq!(shown(word), word);
    }
}
