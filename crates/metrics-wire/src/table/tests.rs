//! Tables that are written are read again.

use egret_metrics_model::Labels;
use egret_metrics_model::NORMAL_NAN_BITS;

use super::{TableColumns, append_header, append_row};

#[test]
fn what_is_written_is_read_again() {
    let labels = Labels::new([("__name__", "a"), ("b", "x,\"y\""), ("d", "z")]);
    let head = ["b", "c", "d"].map(str::to_owned);
    let mut text = String::new();
    append_header(&head, &mut text);
    append_row(&head, &labels, 1_356_998_400_123, 1e-7, &mut text);
    assert_eq!(
        text,
        "time,metric,value,b,c,d\n2013-01-01T00:00:00.123Z,a,1e-7,\"x,\"\"y\"\"\",,z\n"
    );
    let columns = TableColumns::parse_header(text.lines().next().unwrap().split(',')).unwrap();
    let cells = ["2013-01-01T00:00:00.123Z", "a", "1e-7", "x,\"y\"", "", "z"];
    let row = columns.parse_row(|at| cells.get(at).copied()).unwrap();
    assert_eq!(Labels::new(row.labels.iter().copied()), labels);
    assert_eq!((row.time_ms, row.value), (Some(1_356_998_400_123), 1e-7));
}

#[test]
fn what_is_missing_is_told() {
    let read = |head: &str| TableColumns::parse_header(head.split(','));
    assert_eq!(read("time,value").unwrap_err(), "the header has no column `metric`");
    assert_eq!(read("metric,value").unwrap_err(), "the header has no column `time`");
    assert_eq!(read("metric,time").unwrap_err(), "the header has no column `value`");
    let columns = read("timestamp,value,metric").unwrap();
    let cells = |line: &'static str| move |at| line.split(',').nth(at);
    let refused = |line| columns.parse_row(cells(line)).unwrap_err();
    assert_eq!(refused("1,x,a"), "the value \"x\" is not a number");
    assert_eq!(refused("1"), "it has no value");
    assert!(refused("soon,1,a").contains("soon"));
    assert_eq!(columns.parse_row(cells(",1,a")).unwrap().time_ms, None);
    // Whatever others write: it is the same as in other texts.
    for text in ["1,NaN,a", "1,nan,a", "1,-NaN,a"] {
        let value = columns.parse_row(cells(text)).unwrap().value;
        assert_eq!(value.to_bits(), NORMAL_NAN_BITS, "{text}");
    }
}
