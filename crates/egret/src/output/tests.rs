//! Text for people, without colours.

use expect_test::expect;

use super::*;

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

#[test]
fn listings_line_up() {
    let text =
        listing(&["name", "state"], [row(&["demo", "running"]), row(&["a-longer-name", ""])]);
    expect![[r#"
        NAME           STATE
        demo           running
        a-longer-name"#]]
    .assert_eq(&plain(&text));
}

#[test]
fn facts_leave_out_what_is_empty() {
    let text = format_fields(&[
        ("name", "demo".to_owned()),
        ("failure", String::new()),
        ("lsn", "0/1".to_owned()),
    ]);
    expect![[r#"
        name  demo
        lsn   0/1
    "#]]
    .assert_eq(&plain(&text));
}

#[test]
fn rows_look_as_in_psql() {
    let text = grid(row(&["carrier", "flights"]), [row(&["UA", "58665"]), row(&["B6", "54635"])]);
    expect![[r#"
         carrier | flights
        ---------+---------
         UA      | 58665
         B6      | 54635"#]]
    .assert_eq(&text);
}

#[test]
fn durations_and_sizes_are_short() {
    for (ms, text) in [
        (0, "0ms"),
        (950, "950ms"),
        (61_000, "1min 1s"),
        (7_200_000, "2h"),
        (7_499_000, "2h 4min"),
        (694_800_000, "8d 1h"),
    ] {
        assert_eq!(format_duration(ms), text);
    }
    for (count, text) in [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_536, "1.5 kB"),
        (5 << 40, "5.0 TB"),
        (5 << 50, "5120.0 TB"),
    ] {
        assert_eq!(format_bytes(count), text);
    }
}
