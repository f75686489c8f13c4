//! Signatures, and numbers with numbers.

use egret_metrics_model::Labels;

use super::super::keys::Keys;
use super::super::syntax::{Grouping, Operator};
use super::operate::scalar_operation;

#[test]
fn a_signature_leaves_the_name_out_unless_asked_for_it() {
    let labels = Labels::new([("__name__", "x"), ("a", "1"), ("b", "2")]);
    let of = |only, name: &str| {
        let matching = Grouping::new(only, vec![name.into()]);
        Keys::new(&matching).group_labels(&labels).to_string()
    };
    assert_eq!(of(false, "a"), "{b=\"2\"}");
    assert_eq!(of(true, "a"), "{a=\"1\"}");
    assert_eq!(of(true, "__name__"), "x");
}

#[test]
fn operators_are_those_of_floating_point() {
    assert_eq!(scalar_operation(Operator::Mod, -7.0, 3.0), -1.0);
    assert!(scalar_operation(Operator::Mod, 1.0, 0.0).is_nan());
    assert_eq!(scalar_operation(Operator::Pow, 2.0, -1.0), 0.5);
    assert_eq!(scalar_operation(Operator::NotEqual, f64::NAN, f64::NAN), 1.0);
    assert_eq!(scalar_operation(Operator::Div, 1.0, 0.0), f64::INFINITY);
}
