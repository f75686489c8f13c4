//! Layers win in order, unknown keys are refused with a suggestion, values name their origin.

use super::*;

crate::settings! {
    /// Settings for these tests.
    pub struct Demo in "demo" {
        /// How large it may grow.
        size_max: ByteSize = ByteSize::mib(16),
        /// How long it may live.
        ttl: Option<ConfigDuration> = None,
        /// How many there may be.
        count_max: u32 = 10; positive,
    }
}

fn file() -> Origin {
    Origin::File("egret.toml".to_owned())
}

#[test]
fn later_layers_win_and_say_where_they_stand() {
    let mut layers = Layers::default();
    layers.put("demo.count_max", "11", file());
    layers.put("demo.count_max", "12", Origin::Flag("--set".to_owned()));
    let demo: Demo = layers.section().unwrap();
    assert_eq!(demo.count_max, 12);
    assert_eq!(demo.size_max, ByteSize::mib(16));
    assert_eq!(layers.origin("demo.count_max").to_string(), "flag --set");
    assert_eq!(layers.origin("demo.ttl"), Origin::Default);
    assert_eq!(demo.get("ttl").as_deref(), Some(""));
}

#[test]
fn unknown_keys_are_refused_with_a_suggestion() {
    let mut layers = Layers::default();
    layers.put("demo.cuont_max", "1", file());
    let error = layers.reject_unknown(&Demo::declared()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "egret.toml: unknown setting `demo.cuont_max`: did you mean `demo.count_max`?"
    );
    let mut layers = Layers::default();
    let origin = Origin::Environment("EGRET_DEMO_COUNT".to_owned());
    layers.put("demo.count", "1", origin);
    let error = layers.reject_unknown(&Demo::declared()).unwrap_err();
    assert!(error.to_string().contains("`EGRET_DEMO_COUNT_MAX`"), "{error}");
}

#[test]
fn a_wrong_value_names_key_and_origin() {
    let mut layers = Layers::default();
    layers.put("demo.ttl", "soon", file());
    let error = layers.section::<Demo>().unwrap_err().to_string();
    assert!(error.starts_with("egret.toml: demo.ttl: `soon` is not a duration"), "{error}");
}

#[test]
fn declared_settings_carry_their_documentation() {
    let declared = Demo::declared();
    assert_eq!(declared[0].key, "demo.size_max");
    assert_eq!(declared[0].default, "16MB");
    assert_eq!(declared[0].doc.trim(), "How large it may grow.");
    assert_eq!(environment_name("demo.size_max"), "EGRET_DEMO_SIZE_MAX");
}

#[test]
fn what_must_be_above_zero_is_refused_at_zero() {
    let refused = |key: &str, text: &str| {
        let mut layers = Layers::default();
        layers.put(key, text, file());
        layers.section::<Demo>().unwrap_err().to_string()
    };
    assert_eq!(
        refused("demo.count_max", "0"),
        "egret.toml: demo.count_max: `0` is not a whole number from 1 to 4294967295"
    );
    let forms: Vec<String> =
        [Range::Positive.form::<ConfigDuration>(), Range::Positive.form::<Option<ByteSize>>()]
            .to_vec();
    assert!(forms.iter().all(|form| form.ends_with("; above 0")), "{forms:?}");
    assert!(Range::Positive.read::<ConfigDuration>("0").is_err());
    assert!(Range::Positive.read::<Option<ByteSize>>("0kB").is_err());
    assert_eq!(Range::Positive.read::<Option<ByteSize>>(""), Ok(None));
    assert_eq!(Range::Any.read("0"), Ok(ConfigDuration(0)));
    let least = Range::AtLeast(10);
    assert_eq!(least.form::<u16>(), "a whole number from 10 to 65535");
    assert!(least.read::<u32>("9").is_err());
    assert_eq!(least.read("10"), Ok(10_u32));
}
