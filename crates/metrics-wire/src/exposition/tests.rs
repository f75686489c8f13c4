//! Texts as exporters write them, and malformed ones.

use expect_test::{Expect, expect};

use super::*;

fn show(text: &str, format: TextFormat) -> String {
    let mut reader = TextReader::new(text, format);
    let mut out = String::new();
    while let Some(item) = reader.next() {
        let line = match item {
            Ok(TextItem::Sample { labels, value, time_ms }) => {
                let labels: Vec<String> =
                    labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                format!("{} {value} {time_ms:?}", labels.join(","))
            }
            Ok(item) => format!("{item:?}"),
            Err(error) => error.to_string(),
        };
        out.push_str(&line);
        out.push('\n');
    }
    if reader.has_ended() {
        out.push_str("ended\n");
    }
    out
}

fn check(text: &str, format: TextFormat, expected: Expect) {
    expected.assert_eq(&show(text, format));
}

#[test]
fn the_text_format() {
    let text = r#"# HELP http_requests_total Requests \\ by\ncode.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total { method = "post" , code = "400" , }    3
# A comment
	no_labels 12.47e1

# TYPE latency histogram
latency_bucket{le="+Inf",path="C:\\DIR\\\"x\"\n\q"} +Inf -3982045
not_a_number NaN
negative{} -Inf
#TYPE is none
"#;
    check(
        text,
        TextFormat::Prometheus,
        expect![[r#"
            Help("http_requests_total", "Requests \\ by\ncode.")
            Kind("http_requests_total", Counter)
            __name__="http_requests_total",method="post",code="200" 1027 Some(1395066363000)
            __name__="http_requests_total",method="post",code="400" 3 None
            __name__="no_labels" 124.7 None
            Kind("latency", Histogram)
            __name__="latency_bucket",le="+Inf",path="C:\\DIR\\\"x\"\n\\q" inf Some(-3982045)
            __name__="not_a_number" NaN None
            __name__="negative" -inf None
        "#]],
    );
}

#[test]
fn names_in_quotes() {
    let text = "# HELP \"http.requests\" Requests.\n# TYPE \"http.requests\" gauge\n\
        {\"http.requests\",\"the.code\"=\"200\",plain=\"ä\"} 1\n{\"a\\\"b\"} 2\n{__name__=\"up\"} 3\n";
    check(
        text,
        TextFormat::Prometheus,
        expect![[r#"
            Help("http.requests", "Requests.")
            Kind("http.requests", Gauge)
            __name__="http.requests",the.code="200",plain="ä" 1 None
            __name__="a\"b" 2 None
            __name__="up" 3 None
        "#]],
    );
}

#[test]
fn open_metrics() {
    let text = "# TYPE acme_http counter\n# UNIT acme_seconds seconds\n# HELP acme_http A \\\"quoted\\\" word.\n\
        acme_http_total{path=\"/\"} 5 1520879607.789 # {trace_id=\"KOO\"} 0.67 1520879607.0\n\
        acme_created -0 -0.5\nacme_bucket{le=\"1\"} 8 # {} 0.054\nbad 1 # {} x\n# EOF\nlate 1\n";
    check(
        text,
        TextFormat::OpenMetrics,
        expect![[r#"
            Kind("acme_http", Counter)
            Unit("acme_seconds", "seconds")
            Help("acme_http", "A \"quoted\" word.")
            __name__="acme_http_total",path="/" 5 Some(1520879607789)
            __name__="acme_created" -0 Some(-500)
            __name__="acme_bucket",le="1" 8 None
            line 7, byte 13: the value is not a number
            line 9, byte 1: nothing is expected after # EOF
            ended
        "#]],
    );
}

#[test]
fn a_bad_line_says_where_and_does_not_spoil_the_next() {
    let text = "1a 1\na{b=\"c\n{} 1\na{b} 1\na{b=c} 1\na{b=\"c\"d=\"e\"} 1\na\na \na one\na 1 two\na 1 2 3\n\
        a{\"\"=\"x\"} 1\n# TYPE a what\n{\"a\",\"b\"} 1\na{1=\"x\"} 1\nä 1\na 1 # {} 1\ngood 1";
    check(
        text,
        TextFormat::Prometheus,
        expect![[r#"
            line 1, byte 1: a name is expected: letters, digits and _, or anything in quotes
            line 2, byte 6: a quote is not closed
            line 3, byte 4: the metric has no name
            line 4, byte 4: = is expected after a label's name
            line 5, byte 5: a label's value is expected in quotes
            line 6, byte 8: , or } is expected after a label
            line 7, byte 2: { or a blank is expected after the metric's name
            line 8, byte 3: a value is expected
            line 9, byte 6: the value is not a number
            line 10, byte 8: the time is not a whole number of milliseconds
            line 11, byte 7: nothing is expected after value and time
            line 12, byte 5: a name is empty
            line 13, byte 14: the type is unknown
            line 14, byte 9: = is expected after a label's name
            line 15, byte 3: a name is expected: letters, digits and _, or anything in quotes
            line 16, byte 1: a name is expected: letters, digits and _, or anything in quotes
            line 17, byte 5: nothing is expected after value and time
            __name__="good" 1 None
        "#]],
    );
}

#[test]
fn what_is_written() {
    let mut out = String::new();
    for format in [TextFormat::Prometheus, TextFormat::OpenMetrics] {
        append_metadata("up", MetricKind::Unknown, "a\\b\n\"c\"", "seconds", format, &mut out);
        let labels = [("__name__", "up"), ("job", "a\"\\\n")];
        append_sample(labels.into_iter(), 1.5, Some(-1_500), format, &mut out);
        let labels = [("__name__", "dotted.name"), ("the.job", "ä")];
        append_sample(labels.into_iter(), 1e300, None, format, &mut out);
        append_sample([("__name__", "up")].into_iter(), f64::NAN, None, format, &mut out);
        append_end(format, &mut out);
    }
    expect![[r##"
        # HELP up a\\b\n"c"
        # TYPE up untyped
        up{job="a\"\\\n"} 1.5 -1500
        {"dotted.name","the.job"="ä"} 1e300
        up NaN
        # HELP up a\\b\n\"c\"
        # TYPE up unknown
        # UNIT up seconds
        up{job="a\"\\\n"} 1.5 -1.500
        {"dotted.name","the.job"="ä"} 1e300
        up NaN
        # EOF
    "##]]
    .assert_eq(&out);
}

mod written_is_read {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_the_same(
            name in "\\PC{1,12}",
            labels in proptest::collection::vec(("\\PC{1,8}", any::<String>()), 0..4),
            value in any::<f64>().prop_filter("NaN has many forms", |value| !value.is_nan()),
            time_ms in proptest::option::of(-1_000_000_000_000i64..4_000_000_000_000),
            is_open in any::<bool>(),
        ) {
            let format = if is_open { TextFormat::OpenMetrics } else { TextFormat::Prometheus };
            let mut pairs = vec![("__name__", name.as_str())];
            let labels = labels.iter().filter(|(name, _)| name != "__name__");
            pairs.extend(labels.map(|(name, value)| (name.as_str(), value.as_str())));
            let mut text = String::new();
            append_sample(pairs.clone().into_iter(), value, time_ms, format, &mut text);
            let mut reader = TextReader::new(&text, format);
            let Some(Ok(TextItem::Sample { labels, value: found, time_ms: time })) = reader.next() else {
                panic!("cannot be read: {text:?}");
            };
            let found_labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            prop_assert_eq!(found_labels, pairs);
            prop_assert_eq!(found.to_bits(), value.to_bits());
            prop_assert_eq!(time, time_ms);
            prop_assert!(reader.next().is_none());
        }
    }
}
