//! Answers as Prometheus writes them, in one piece and in many.

use std::sync::Arc;

use egret_metrics_model::Labels;
use egret_promql::{Answer, FloatHistogram, InstantSample, QueryResult, SampleValue, SeriesPoints};
use expect_test::{Expect, expect};

use super::{CHUNK_BYTES, ResponseEncoder};

fn answer(result: QueryResult) -> Answer {
    Answer { result, warnings: Vec::new(), infos: Vec::new(), is_ordered: false }
}

fn render(answer: Answer, limit: usize) -> (String, usize) {
    let chunks: Vec<_> = ResponseEncoder::new(answer, limit).collect();
    let text = String::from_utf8(chunks.concat()).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).expect("it is JSON");
    (text, chunks.len())
}

fn check(answer: Answer, limit: usize, expected: &Expect) {
    expected.assert_eq(&render(answer, limit).0);
}

fn sample(name: &str, value: f64) -> InstantSample {
    InstantSample {
        labels: Labels::new([("__name__", name), ("job", "a\"b")]),
        time: 1_500,
        value: SampleValue::Float(value),
    }
}

#[test]
fn vectors() {
    let mut two = answer(QueryResult::Vector(vec![sample("up", 1.0), sample("down", f64::NAN)]));
    two.infos.push("PromQL info: x".to_owned());
    check(
        two.clone(),
        2,
        &expect![[
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","job":"a\"b"},"value":[1.500,"1"]},{"metric":{"__name__":"down","job":"a\"b"},"value":[1.500,"NaN"]}]},"infos":["PromQL info: x"]}"#
        ]],
    );
    two.is_ordered = true;
    check(
        two.clone(),
        1,
        &expect![[
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","job":"a\"b"},"value":[1.500,"1"]}]},"warnings":["results truncated due to limit"],"infos":["PromQL info: x"]}"#
        ]],
    );
    // Those that are kept do not depend on the order they come in, unless that means something.
    two.is_ordered = false;
    check(
        two,
        1,
        &expect![[
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"down","job":"a\"b"},"value":[1.500,"NaN"]}]},"warnings":["results truncated due to limit"],"infos":["PromQL info: x"]}"#
        ]],
    );
    let none = answer(QueryResult::Vector(Vec::new()));
    check(
        none,
        1,
        &expect![[r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#]],
    );
}

#[test]
fn numbers_and_texts() {
    let number = answer(QueryResult::Scalar(1_000, 1e30));
    check(
        number,
        1,
        &expect![[
            r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1000000000000000000000000000000"]}}"#
        ]],
    );
    let text = answer(QueryResult::Text(-5, "a".to_owned()));
    check(
        text,
        1,
        &expect![[r#"{"status":"success","data":{"resultType":"string","result":[-0.005,"a"]}}"#]],
    );
}

#[test]
fn ranges_and_histograms() {
    let histogram = Arc::new(FloatHistogram {
        count: 5.0,
        sum: 18.4,
        zero_threshold: 0.001,
        zero_count: 2.0,
        positive: vec![(1, 3.0)],
        ..FloatHistogram::default()
    });
    let series = SeriesPoints {
        labels: Labels::default(),
        floats: vec![(0, 0.5), (15_000, 2.0)],
        histograms: vec![(30_000, histogram)],
    };
    check(
        answer(QueryResult::Matrix(vec![series])),
        9,
        &expect![[
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[0,"0.5"],[15,"2"]],"histograms":[[30,{"count":"5","sum":"18.4","buckets":[[3,"-0.001","0.001","2"],[0,"1","2","3"]]}]]}]}}"#
        ]],
    );
}

#[test]
fn a_large_answer_comes_in_pieces() {
    let samples: Vec<_> = (0..10_000).map(|n| sample(&format!("m{n}"), f64::from(n))).collect();
    let count = samples.len();
    let (text, chunks) = render(answer(QueryResult::Vector(samples)), usize::MAX);
    assert!(chunks > text.len() / CHUNK_BYTES / 2 && chunks > 5, "{chunks}");
    assert_eq!(text.matches("\"metric\"").count(), count);
}
