//! Which run is the median one.

use super::*;
use crate::record::scalar;
use crate::result::Better;

fn check(values: &[f64], expected: usize) {
    let runs: Vec<Run> = values
        .iter()
        .map(|value| Run {
            started_at: jiff::Timestamp::UNIX_EPOCH,
            metrics: [("rate".to_owned(), scalar("1/s", Better::Higher, *value, 1))].into(),
            errors: Default::default(),
        })
        .collect();
    assert_eq!(median(&runs, "rate"), Some(expected), "{values:?}");
}

#[test]
fn the_median_run_is_one_of_the_runs() {
    check(&[5.0], 0);
    check(&[5.0, 1.0], 1);
    check(&[5.0, 1.0, 3.0], 2);
    check(&[4.0, 1.0, 3.0, 2.0], 3);
    assert_eq!(median(&[], "rate"), None);
}

#[test]
fn a_result_that_cannot_be_written_is_refused_before_measuring() {
    let directory = tempfile::tempdir().unwrap();
    check_out(&directory.path().join("x.json")).unwrap();
    check_out(Path::new("x.json")).unwrap();
    let error = check_out(&directory.path().join("missing/x.json")).unwrap_err();
    assert!(error.downcast_ref::<crate::Refusal>().is_some(), "{error}");
    assert!(check_out(directory.path()).is_err());
}
