//! How series are put together.

use egret_metrics_model::Labels;

use super::super::keys::Keys;
use super::super::syntax::Grouping;

#[test]
fn a_group_has_the_labels_it_is_told_by() {
    let labels = Labels::new([("__name__", "x"), ("a", "1"), ("b", "2")]);
    let of = |only, listed: &[&str]| {
        let listed = listed.iter().map(|name| (*name).into()).collect();
        let grouping = Grouping::new(only, listed);
        Keys::new(&grouping).group_labels(&labels).to_string()
    };
    assert_eq!(of(true, &[]), "{}");
    assert_eq!(of(true, &["__name__", "b", "c"]), "x{b=\"2\"}");
    assert_eq!(of(false, &["b"]), "{a=\"1\"}");
}
