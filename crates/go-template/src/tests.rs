//! Templates with the outputs that Prometheus's documentation and tests give for them, and
//! templates made to harm.

use expect_test::{Expect, expect};

use super::*;

fn subject() -> Subject {
    Subject {
        labels: Labels::new([
            ("__name__", "up"),
            ("instance", "db-1.example.org:9187"),
            ("job", "postgres"),
        ]),
        external_labels: Labels::new([("cluster", "eu-1")]),
        external_url: "https://egret.example.org/base/path".into(),
        value: 1_234_567.5,
    }
}

fn run_query(text: &str) -> Result<Vec<(Labels, f64)>, String> {
    let sample = |instance: &str, value| {
        let labels = [("__name__", "metric"), ("instance", instance), ("__value__", "v")];
        (Labels::new(labels), value)
    };
    match text {
        "metric" => Ok(vec![sample("b", 21.0), sample("a", 11.0)]),
        "none" => Ok(Vec::new()),
        "many" => Ok(vec![sample("a", 1.0); 20_000]),
        _ => Err(format!("no answer to {text}")),
    }
}

fn expand_text(text: &str) -> String {
    let template = Template::parse(text);
    let expanded = template.and_then(|it| it.expand(&subject(), 1_435_065_584_128, &run_query));
    expanded.unwrap_or_else(|error| format!("error: {error}"))
}

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&expand_text(text));
}

fn check_each(texts: &[&str], expected: Expect) {
    let lines = texts.iter().map(|text| format!("{text} -> {}\n", expand_text(text)));
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn templates_are_defined_and_used() {
    check_each(
        &[
            "{{ define \"t\" }}hello {{ .arg0 }}{{ end }}{{ template \"t\" (args \"world\") }}",
            "{{ template \"t\" . }}{{ define \"t\" }}{{ $.Labels.job }}, {{ .Value }}{{ end }}!",
            "{{ define \"a\" }}[{{ . }}]{{ end }}{{ define \"b\" }}{{ template \"a\" . }}{{ end }}{{ range 2 }}{{ template \"b\" . }}{{ end }}",
            "{{ $x := 1 }}{{ block \"t\" $x }}{{ $x := . }}<{{ $x }}>{{ end }}{{ $x }}",
            "{{ define \"t\" }}{{ if . }}{{ . }}{{ else }}nothing{{ end }}{{ end }}{{ template \"t\" }}",
            "{{ define \"t\" }}{{ template \"t\" . }}{{ end }}{{ template \"t\" 1 }}",
            "{{ define \"t\" }}{{ template \"u\" . }}{{ template \"u\" . }}{{ end }}{{ define \"u\" }}{{ range 9 }}{{ template \"t\" . }}{{ end }}{{ end }}{{ template \"t\" 1 }}",
        ],
        expect![[r#"
            {{ define "t" }}hello {{ .arg0 }}{{ end }}{{ template "t" (args "world") }} -> hello world
            {{ template "t" . }}{{ define "t" }}{{ $.Labels.job }}, {{ .Value }}{{ end }}! -> postgres, 1.2345675e+06!
            {{ define "a" }}[{{ . }}]{{ end }}{{ define "b" }}{{ template "a" . }}{{ end }}{{ range 2 }}{{ template "b" . }}{{ end }} -> [0][1]
            {{ $x := 1 }}{{ block "t" $x }}{{ $x := . }}<{{ $x }}>{{ end }}{{ $x }} -> <1>1
            {{ define "t" }}{{ if . }}{{ . }}{{ else }}nothing{{ end }}{{ end }}{{ template "t" }} -> nothing
            {{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" 1 }} -> error: template line 1: more than 48 levels are too deep
            {{ define "t" }}{{ template "u" . }}{{ template "u" . }}{{ end }}{{ define "u" }}{{ range 9 }}{{ template "t" . }}{{ end }}{{ end }}{{ template "t" 1 }} -> error: template line 1: more than 48 levels are too deep
        "#]],
    );
}

#[test]
fn typical_alert_texts_are_expanded() {
    check(
        "Instance {{ $labels.instance }} of {{ .Labels.job }} in {{ $externalLabels.cluster }} is at {{ $value }} \
         ({{ .Value | humanize }}B){{ $labels.missing }}, see {{ $externalURL }}{{ pathPrefix }}",
        expect![
            "Instance db-1.example.org:9187 of postgres in eu-1 is at 1.2345675e+06 (1.235MB), see https://egret.example.org/base/path/base/path"
        ],
    );
    check(
        "{{ range query \"metric\" | sortByLabel \"instance\" }}{{ .Labels.instance }}={{ .Value }};{{ else }}none{{ end }}",
        expect!["a=11;b=21;"],
    );
    check(
        "{{ with query \"metric\" }}{{ . | first | value | humanize }} {{ first . | label \"instance\" }} \
         {{ . | first | strvalue }} {{ len . }}{{ end }}{{ range query \"none\" }}x{{ else }}, none{{ end }}",
        expect!["21 b v 2, none"],
    );
    check(
        "{{ with $x := query \"none\" }}some{{ else with query \"metric\" }}{{ len . }}{{ else }}nothing{{ end }}",
        expect!["2"],
    );
}

#[test]
fn numbers_are_humanized() {
    check_each(
        &[
            "{{ humanize 0.0 }} {{ humanize 1.0 }} {{ humanize 1234567.0 }} {{ humanize .12 }} {{ humanize \"-1000\" }}",
            "{{ humanize1024 0.0 }} {{ humanize1024 1.0 }} {{ humanize1024 1048576.0 }} {{ humanize1024 .12 }}",
            "{{ humanizeDuration 0 }} {{ humanizeDuration 1 }} {{ humanizeDuration 60 }} {{ humanizeDuration 3600 }}",
            "{{ humanizeDuration 86400 }} {{ humanizeDuration 90000 }} {{ humanizeDuration -183845 }} {{ humanizeDuration 899.99 }}",
            "{{ humanizeDuration .1 }} {{ humanizeDuration .0001 }} {{ humanizeDuration .12345 }} {{ humanizeDuration 60.1 }}",
            "{{ humanizePercentage -0.22222 }} {{ humanizePercentage 0.0 }} {{ humanizePercentage 0.1234567 }} {{ humanizePercentage 1.23456 }}",
            "{{ humanizeTimestamp 1435065584.128 }} {{ 0 | toTime }} {{ 90.5 | toDuration }} {{ 0.0015 | toDuration }}",
            "{{ parseDuration \"1h2m10ms\" }} {{ now }} {{ parseDuration \"x\" }}",
        ],
        expect![[r#"
            {{ humanize 0.0 }} {{ humanize 1.0 }} {{ humanize 1234567.0 }} {{ humanize .12 }} {{ humanize "-1000" }} -> 0 1 1.235M 120m -1k
            {{ humanize1024 0.0 }} {{ humanize1024 1.0 }} {{ humanize1024 1048576.0 }} {{ humanize1024 .12 }} -> 0 1 1Mi 0.12
            {{ humanizeDuration 0 }} {{ humanizeDuration 1 }} {{ humanizeDuration 60 }} {{ humanizeDuration 3600 }} -> 0s 1s 1m 0s 1h 0m 0s
            {{ humanizeDuration 86400 }} {{ humanizeDuration 90000 }} {{ humanizeDuration -183845 }} {{ humanizeDuration 899.99 }} -> 1d 0h 0m 0s 1d 1h 0m 0s -2d 3h 4m 5s 14m 59s
            {{ humanizeDuration .1 }} {{ humanizeDuration .0001 }} {{ humanizeDuration .12345 }} {{ humanizeDuration 60.1 }} -> 100ms 100us 123.5ms 1m 0s
            {{ humanizePercentage -0.22222 }} {{ humanizePercentage 0.0 }} {{ humanizePercentage 0.1234567 }} {{ humanizePercentage 1.23456 }} -> -22.22% 0% 12.35% 123.5%
            {{ humanizeTimestamp 1435065584.128 }} {{ 0 | toTime }} {{ 90.5 | toDuration }} {{ 0.0015 | toDuration }} -> 2015-06-23 13:19:44.128 +0000 UTC 1970-01-01 00:00:00 +0000 UTC 1m30.5s 1.5ms
            {{ parseDuration "1h2m10ms" }} {{ now }} {{ parseDuration "x" }} -> error: template line 1: parseDuration: "x" is not a duration
        "#]],
    );
}

#[test]
fn printf_formats_like_go() {
    check_each(
        &[
            "{{ printf \"%s|%5s|%-5s|%.2s|%q|%x\" \"abc\" \"abc\" \"abc\" \"abc\" \"a\\\"b\" \"hi\" }}",
            "{{ printf \"%d|%5d|%-5d|%05d|%+d|%x|%c\" 42 42 42 42 42 255 65 }}",
            "{{ printf \"%f|%.2f|%8.3f|%e|%g|%.3g|%v\" 3.14159 2.5 2.5 12345.678 1e21 1234567.0 1000000.0 }}",
            "{{ printf \"%08.3f|%+.1f|%.0f|%6.2f%%\" -3.14159 1.25 2.5 99.5 }}",
            "{{ printf \"%d %s %t\" 1.5 true true }} {{ printf \"%d\" }} {{ printf \"%d\" 1 2 }} {{ printf \"%!\" }} {{ printf \"%\" }}",
            "{{ printf \"%v %v\" $externalLabels (query \"metric\") }}",
            "{{ $value | printf \"%.2f\" }} {{ print 1 2 \"a\" 3 }} {{ println \"x\" 1 }}",
        ],
        expect![[r#"
            {{ printf "%s|%5s|%-5s|%.2s|%q|%x" "abc" "abc" "abc" "abc" "a\"b" "hi" }} -> abc|  abc|abc  |ab|"a\"b"|6869
            {{ printf "%d|%5d|%-5d|%05d|%+d|%x|%c" 42 42 42 42 42 255 65 }} -> 42|   42|42   |00042|+42|ff|A
            {{ printf "%f|%.2f|%8.3f|%e|%g|%.3g|%v" 3.14159 2.5 2.5 12345.678 1e21 1234567.0 1000000.0 }} -> 3.141590|2.50|   2.500|1.234568e+04|1e+21|1.23e+06|1e+06
            {{ printf "%08.3f|%+.1f|%.0f|%6.2f%%" -3.14159 1.25 2.5 99.5 }} -> -003.142|+1.2|2| 99.50%
            {{ printf "%d %s %t" 1.5 true true }} {{ printf "%d" }} {{ printf "%d" 1 2 }} {{ printf "%!" }} {{ printf "%" }} -> %!d(float64=1.5) %!s(bool=true) true %!d(MISSING) 1%!(EXTRA int=2) %!!(MISSING) %!(NOVERB)
            {{ printf "%v %v" $externalLabels (query "metric") }} -> map[cluster:eu-1] [{map[__name__:metric __value__:v instance:b] 21} {map[__name__:metric __value__:v instance:a] 11}]
            {{ $value | printf "%.2f" }} {{ print 1 2 "a" 3 }} {{ println "x" 1 }} -> 1234567.50 1 2a3 x 1

        "#]],
    );
}

#[test]
fn text_functions_return_what_prometheus_does() {
    check_each(
        &[
            "{{ toUpper \"foo\" }} {{ toLower \"FOO\" }} {{ title \"aa bb CC d_e\" }} {{ safeHtml \"<b>\" }} {{ html \"<b>&\" }}",
            "{{ match \"a+\" \"aa\" }} {{ match \"^b\" \"ab\" }} {{ reReplaceAll \"(a)b\" \"x$1${1}y\" \"ab cab\" }}",
            "{{ stripPort \"a.b:80\" }} {{ stripPort \"[::1]:80\" }} {{ stripPort \"a:b:80\" }} {{ stripPort \"plain\" }}",
            "{{ stripDomain \"host.example.org:80\" }} {{ stripDomain \"10.1.2.3:80\" }} {{ stripDomain \"host.x\" }}",
            "{{ graphLink \"up == 1\" }} {{ tableLink \"up{a='b'}\" }} {{ urlquery \"a b\" }}",
            "{{ len \"abc\" }} {{ index $labels \"job\" }} {{ index (query \"metric\") 1 | value }} {{ index \"abc\" 1 }}",
            "{{ (args 1 \"b\").arg1 }} {{ with args 1 }}{{ .arg0 }}{{ .arg7 }}{{ end }} {{ externalURL }}",
        ],
        expect![[r#"
            {{ toUpper "foo" }} {{ toLower "FOO" }} {{ title "aa bb CC d_e" }} {{ safeHtml "<b>" }} {{ html "<b>&" }} -> FOO foo Aa Bb CC D_e <b> &lt;b&gt;&amp;
            {{ match "a+" "aa" }} {{ match "^b" "ab" }} {{ reReplaceAll "(a)b" "x$1${1}y" "ab cab" }} -> true false xaay cxaay
            {{ stripPort "a.b:80" }} {{ stripPort "[::1]:80" }} {{ stripPort "a:b:80" }} {{ stripPort "plain" }} -> a.b ::1 a:b:80 plain
            {{ stripDomain "host.example.org:80" }} {{ stripDomain "10.1.2.3:80" }} {{ stripDomain "host.x" }} -> host:80 10.1.2.3:80 host
            {{ graphLink "up == 1" }} {{ tableLink "up{a='b'}" }} {{ urlquery "a b" }} -> /graph?g0.expr=up+%3D%3D+1&g0.tab=0 /graph?g0.expr=up%7Ba%3D%27b%27%7D&g0.tab=1 a+b
            {{ len "abc" }} {{ index $labels "job" }} {{ index (query "metric") 1 | value }} {{ index "abc" 1 }} -> 3 postgres 11 98
            {{ (args 1 "b").arg1 }} {{ with args 1 }}{{ .arg0 }}{{ .arg7 }}{{ end }} {{ externalURL }} -> b 1<no value> https://egret.example.org/base/path
        "#]],
    );
}

#[test]
fn control_structures_are_executed() {
    check_each(
        &[
            "{{ if gt $value 10 }}high{{ else if eq $value 5.0 }}five{{ else }}low{{ end }}",
            "{{ if and (eq $labels.job \"mysql\" \"postgres\") (not (lt 2 1)) (ne 1 2) }}yes{{ end }}",
            "{{ if or \"\" 0 }}yes{{ else }}no{{ end }} {{ or \"\" \"x\" }} {{ and 1 0 2 }} {{ and false (query \"bad\") }}",
            "{{ range $i, $v := query \"metric\" }}{{ $i }}:{{ $v.Value }} {{ end }}{{ range $k, $v := $externalLabels }}{{ $k }}={{ $v }}{{ end }}",
            "{{ $n := 0 }}{{ range 5 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ if eq . 4 }}{{ break }}{{ end }}{{ $n = . }}{{ . }}{{ end }}/{{ $n }}",
            "{{- \" a \" -}}  b  {{- /* nothing */ -}}  c {{ `raw\\n` }} {{ 'x' }} {{ 0x10 }} {{ -3 }} {{ 1_000 }} {{ nil | not }} {{ true }}",
            "{{ le 1 1.0 }} {{ ge \"a\" \"b\" }} {{ eq 1 \"a\" }}",
        ],
        expect![[r#"
            {{ if gt $value 10 }}high{{ else if eq $value 5.0 }}five{{ else }}low{{ end }} -> high
            {{ if and (eq $labels.job "mysql" "postgres") (not (lt 2 1)) (ne 1 2) }}yes{{ end }} -> yes
            {{ if or "" 0 }}yes{{ else }}no{{ end }} {{ or "" "x" }} {{ and 1 0 2 }} {{ and false (query "bad") }} -> no x 0 false
            {{ range $i, $v := query "metric" }}{{ $i }}:{{ $v.Value }} {{ end }}{{ range $k, $v := $externalLabels }}{{ $k }}={{ $v }}{{ end }} -> 0:21 1:11 cluster=eu-1
            {{ $n := 0 }}{{ range 5 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ if eq . 4 }}{{ break }}{{ end }}{{ $n = . }}{{ . }}{{ end }}/{{ $n }} -> 023/3
            {{- " a " -}}  b  {{- /* nothing */ -}}  c {{ `raw\n` }} {{ 'x' }} {{ 0x10 }} {{ -3 }} {{ 1_000 }} {{ nil | not }} {{ true }} ->  a bc raw\n 120 16 -3 1000 true true
            {{ le 1 1.0 }} {{ ge "a" "b" }} {{ eq 1 "a" }} -> error: template line 1: eq: incompatible types for comparison: int and string
        "#]],
    );
}

#[test]
fn malformed_templates_are_refused_when_parsed() {
    let texts = [
        "{{ $labelz.x }}",
        "{{ nothing 1 }}",
        "a\n{{ if true }}b",
        "{{ end }}",
        "{{ else }}",
        "{{ if true }}{{ else }}{{ else }}{{ end }}",
        "{{ $x",
        "{{ \"a }}",
        "{{ 1 2 }}",
        "{{ 1 | 2 }}",
        "{{ }}",
        "{{ ( }}",
        "{{ (1 }}",
        "{{ $x = 1 }}",
        "{{ with $x := 1 }}{{ end }}{{ $x }}",
        "{{ break }}",
        "{{ define \"x\" }}{{ end }}{{ define \"x\" }}{{ end }}",
        "{{ define x }}{{ end }}",
        "{{ define \"x\" }}",
        "{{ define \"x\" }}{{ $value }}{{ end }}",
        "{{ if true }}{{ define \"x\" }}{{ end }}{{ end }}",
        "{{ template \"y\" }}",
        "{{ block \"x\" }}{{ end }}",
        "{{ 1x }}",
        "{{ '' }}",
        "{{ \"\\z\" }}",
        "{{ /* }}",
        "{{ ; }}",
    ];
    check_each(
        &texts,
        expect![[r#"
            {{ $labelz.x }} -> error: template line 1: undefined variable "$labelz"
            {{ nothing 1 }} -> error: template line 1: function "nothing" is not defined
            a
            {{ if true }}b -> error: template line 2: {{if}} has no {{end}}
            {{ end }} -> error: template line 1: {{end}} without a block to close
            {{ else }} -> error: template line 1: {{else}} belongs to nothing
            {{ if true }}{{ else }}{{ else }}{{ end }} -> error: template line 1: a block has two {{else}}
            {{ $x -> error: template line 1: an action is not closed: }} is expected
            {{ "a }} -> error: template line 1: a string is not closed
            {{ 1 2 }} -> error: template line 1: only functions take arguments
            {{ 1 | 2 }} -> error: template line 1: what follows | must be a function
            {{ }} -> error: template line 1: a value is expected
            {{ ( }} -> error: template line 1: a value is expected
            {{ (1 }} -> error: template line 1: ) is expected
            {{ $x = 1 }} -> error: template line 1: undefined variable "$x"
            {{ with $x := 1 }}{{ end }}{{ $x }} -> error: template line 1: undefined variable "$x"
            {{ break }} -> error: template line 1: {{break}} stands outside of a range
            {{ define "x" }}{{ end }}{{ define "x" }}{{ end }} -> error: template line 1: template "x" is defined twice
            {{ define x }}{{ end }} -> error: template line 1: the name of a template is expected, in quotes
            {{ define "x" }} -> error: template line 1: {{define}} has no {{end}}
            {{ define "x" }}{{ $value }}{{ end }} -> error: template line 1: undefined variable "$value"
            {{ if true }}{{ define "x" }}{{ end }}{{ end }} -> error: template line 1: {{define}} stands within another block
            {{ template "y" }} -> error: template line 1: template "y" is not defined
            {{ block "x" }}{{ end }} -> error: template line 1: a value is expected
            {{ 1x }} -> error: template line 1: "1x" is not a number
            {{ '' }} -> error: template line 1: one character is expected between '…'
            {{ "\z" }} -> error: template line 1: \z is not an escape sequence
            {{ /* }} -> error: template line 1: a comment is not closed: */ is expected
            {{ ; }} -> error: template line 1: ';' is not expected in an action
        "#]],
    );
}

#[test]
fn templates_made_to_harm_are_errors() {
    let doubling = format!("{{{{ $x := \"ab\" }}}}{}", "{{ $x = print $x $x }}".repeat(40));
    let wide = format!("{{{{ printf \"{}\"{} }}}}", "%4096d".repeat(99), " 1".repeat(99));
    let replaced = "{{ $x := \"ab\" }}{{ range 14 }}{{ $x = print $x $x }}{{ end }}{{ reReplaceAll \".*\" \"$0$0$0$0$0$0$0$0$0\" $x }}";
    let deep = format!("{}1{}", "{{ ".to_owned() + &"(".repeat(5_000), ")".repeat(5_000) + " }}");
    let blocks = "{{ if true }}".repeat(2_000) + &"{{ end }}".repeat(2_000);
    let loops = "{{ range 100000 }}{{ range 100000 }}x{{ end }}{{ end }}";
    let regexes = "{{ range 90000 }}{{ match \"a{1,900}\" \"a\" }}{{ end }}";
    let texts = [
        doubling.as_str(),
        &wide,
        replaced,
        &deep,
        &blocks,
        loops,
        regexes,
        "{{ match \"(a{1,1000}){1,1000}\" \"a\" }}",
        "{{ len (query \"many\") }}",
        "{{ range 1000 }}{{ query \"metric\" }}{{ end }}",
        "{{ args (args 1) }}",
        &"x".repeat(TEXT_BYTES_MAX + 1),
        "{{ range 99999999999999 }}{{ end }}",
    ];
    let shown = texts.map(|text| expand_text(text).chars().take(120).collect::<String>() + "\n");
    expect![[r#"
        error: template line 1: print: more than 262144 bytes of text
        error: template line 1: printf: printf writes more than 262144 bytes
        error: template line 1: reReplaceAll: more than 262144 bytes of text
        error: template line 1: more than 48 levels are too deep
        error: template line 1: more than 48 levels are too deep
        error: template line 1: more than 100000 steps: simplify the template
        error: template line 1: match: more than 100000 steps: simplify the template
        error: template line 1: match: error parsing regexp `(a{1,1000}){1,1000}`: Compiled regex exceeds size limit of 1048576 
        error: template line 1: query: 20000 samples are more than 10000, the maximum of one template query
        error: template line 1: query: more than 100000 steps: simplify the template
        error: template line 1: args: an argument is itself made by args
        error: template line 1: 65537 bytes are more than 65536, the maximum of a template
        error: template line 1: more than 100000 steps: simplify the template
    "#]]
    .assert_eq(&shown.concat());
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(\\{\\{|\\}\\}|[-$.|()=:a-z\"`' 0-9\n]|if|range|end|else|with|printf|%[0-9.]*[dsfgqvx]|é){0,40}") {
        let _ = expand_text(&text);
    }
}
