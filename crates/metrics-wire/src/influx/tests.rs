//! Lines as Telegraf and others write them.

use expect_test::{Expect, expect};

use super::*;

fn check(text: &str, precision: Precision, expected: Expect) {
    let mut reader = LineReader::new(text, precision);
    let mut out = String::new();
    while let Some(point) = reader.next() {
        match point {
            Ok(point) => {
                let mut name = String::new();
                for (field, value) in &point.fields {
                    point.metric_name(field, &mut name);
                    out.push_str(&format!("{name} {value} "));
                }
                let tags = &point.tags;
                out.push_str(&format!(
                    "{tags:?} at {:?}, {} strings\n",
                    point.time_ms, point.skipped_strings
                ));
            }
            Err(error) => out.push_str(&format!("{error}\n")),
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn lines_of_every_type() {
    let text = "weather,location=us-midwest,season= temperature=82.5,n=-3i,u=18446744073709551615u 1465839830100400200\n\
        # a comment\n\r\n  cpu value=1e3,t=t,T=TRUE,f=False \r\nnotime x=1\n,host=a x=.5 -1\n";
    check(
        text,
        Precision::Nanoseconds,
        expect![[r#"
            weather_temperature 82.5 weather_n -3 weather_u 18446744073709552000 [("location", "us-midwest")] at Some(1465839830100), 0 strings
            cpu_value 1000 cpu_t 1 cpu_T 1 cpu_f 0 [] at None, 0 strings
            notime_x 1 [] at None, 0 strings
            x 0.5 [("host", "a")] at Some(-1), 0 strings
        "#]],
    );
}

#[test]
fn what_a_backslash_protects() {
    let text =
        r#"my\ meas\,ure,tag\ key\==v\,a\ l\=ue,path=C:\dir\\x s="a \"quoted\" , = \\",n\,m=1 5"#;
    check(
        text,
        Precision::Seconds,
        expect![[r#"
            my meas,ure_n,m 1 [("tag key=", "v,a l=ue"), ("path", "C:\\dir\\x")] at Some(5000), 1 strings
        "#]],
    );
}

#[test]
fn a_string_may_have_newlines_and_lines_are_counted_on() {
    let text = "m s=\"one\ntwo\",x=1\nbad\nm x=2\n";
    check(
        text,
        Precision::Seconds,
        expect![[r#"
            m_x 1 [] at None, 1 strings
            line 3, byte 4: a blank and fields are expected after measurement and tags
            m_x 2 [] at None, 0 strings
        "#]],
    );
}

#[test]
fn a_bad_line_says_where_and_does_not_spoil_the_next() {
    let text = "m\nm,a x=1\nm,=b x=1\nm,a=b=c x=1\nm,a=b\nm x\nm x=\nm x=1,\nm x=abc\nm x=NaN\nm x=1.5i\nm x=-1u\n\
        m x=1 1.5\nm x=1 9223372036854775807\nm x=1 5 6\nm x=1\"\nm s=\"open\nm x=1\n";
    check(
        text,
        Precision::Hours,
        expect![[r#"
            line 1, byte 2: a blank and fields are expected after measurement and tags
            line 2, byte 4: = is expected after a name
            line 3, byte 3: a name is expected
            line 4, byte 6: a tag's value has a = without a backslash
            line 5, byte 6: a blank and fields are expected after measurement and tags
            line 6, byte 4: = is expected after a name
            line 7, byte 5: a field's value is not a number, a boolean or a quoted string
            line 8, byte 7: a name is expected
            line 9, byte 8: a field's value is not a number, a boolean or a quoted string
            line 10, byte 8: a field's value is not a number, a boolean or a quoted string
            line 11, byte 9: a value with suffix i is not an integer of 64 bits
            line 12, byte 8: a value with suffix u is not an unsigned integer of 64 bits
            line 13, byte 8: nothing is expected after the time
            line 14, byte 26: the time is not a whole number, or too large
            line 15, byte 9: nothing is expected after the time
            line 16, byte 7: a field's value is not a number, a boolean or a quoted string
            line 17, byte 10: a quote is not closed
            m_x 1 [] at None, 0 strings
        "#]],
    );
}

#[test]
fn precisions_have_names() {
    for (name, time, expected) in [
        ("", 1_999_999, Some(1)),
        ("ns", -1, Some(-1)),
        ("u", 1_999, Some(1)),
        ("ms", 7, Some(7)),
        ("s", 7, Some(7_000)),
        ("m", 1, Some(60_000)),
        ("h", i64::MAX, None),
    ] {
        let precision = Precision::from_name(name).expect("it is known");
        assert_eq!(precision.to_ms(time), expected, "{name}");
    }
    assert_eq!(Precision::from_name("fortnight"), None);
}
