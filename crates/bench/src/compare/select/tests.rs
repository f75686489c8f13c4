//! Names of figures, and which are chosen without any.

use super::*;
use crate::sample;

fn chosen(named: &[&str]) -> Result<Vec<String>, String> {
    let file = sample::file();
    let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
    figures(&named, &runs(&file), &runs(&file))
        .map(|figures| figures.iter().map(Figure::to_string).collect())
        .map_err(|error| error.to_string())
}

#[test]
fn without_names_all_with_a_direction_are_chosen() {
    assert_eq!(chosen(&[]).unwrap(), ["create.p50", "rate"]);
}

#[test]
fn a_name_may_say_which_statistic() {
    let names = ["create", "create.p50", "create.p95", "create.mean", "create.max", "rate"];
    let expected = ["create.p50", "create.p95", "create", "create.max", "rate"];
    assert_eq!(chosen(&names).unwrap(), expected);
}

#[test]
fn a_name_may_have_points_of_its_own() {
    let mut file = sample::file();
    let create = file.metrics["create"].clone();
    file.metrics.insert("scan.0.1.full".to_owned(), create);
    for (text, expected) in [
        ("scan.0.1.full", "scan.0.1.full.p50"),
        ("scan.0.1.full.p95", "scan.0.1.full.p95"),
        ("scan.0.1.full.p99.9", "scan.0.1.full.p999"),
    ] {
        let figure = Figure::parse(text, &file.metrics).unwrap();
        assert_eq!(figure.to_string(), expected);
    }
}

#[test]
fn what_cannot_be_judged_says_why() {
    for (name, reason) in [
        ("weather", "A has no metric weather; A has cores, create, rate"),
        (
            "create.p98",
            "metric create.p98: p98 is not a statistic: use p50, p90, p95, p99, p999, max or mean",
        ),
        (
            "create.p99.9",
            "run 1 of A has no create.p999: too few samples, or all operations failed",
        ),
        (
            "cores",
            "cores: it is neither better higher nor better lower, so there is no verdict on it",
        ),
    ] {
        assert_eq!(chosen(&[name]).unwrap_err(), reason);
    }
}

#[test]
fn a_metric_of_another_unit_is_another_metric() {
    let (a, mut b) = (sample::file(), sample::file());
    b.metrics.get_mut("rate").unwrap().unit = "ms".to_owned();
    let refused = figures(&[], &runs(&a), &runs(&b)).unwrap_err();
    assert!(refused.to_string().starts_with("rate is not the same metric in both"));
}

#[test]
fn what_a_run_lacks_is_left_out_unless_named() {
    let a = sample::file();
    let mut b = sample::file();
    b.metrics.remove("rate");
    let found = figures(&[], &runs(&a), &runs(&b)).unwrap();
    assert_eq!(found.len(), 1);
    b.metrics.clear();
    assert!(figures(&[], &runs(&a), &runs(&b)).is_err());
}
