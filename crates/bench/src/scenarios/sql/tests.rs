//! Workload files, statements, expressions and distributions.

use proptest::prelude::*;

use super::draw::{Distribution, Draw};
use super::expression::{Expression, Variables};
use super::statement::{Role, Statement};
use super::workload::Workload;
use crate::schedule::seeded_random;

fn value(text: &str) -> Result<f64, String> {
    let variables = Variables::from([("scale".to_owned(), 10.0), ("one".to_owned(), 1.0)]);
    Expression::parse(text)?.evaluate(&variables)
}

#[test]
fn expressions_are_arithmetic() {
    let check = |text: &str, expected: f64| assert_eq!(value(text), Ok(expected), "{text}");
    check("100_000 * scale", 1_000_000.0);
    check("1 + 2 * 3 - 4 / 2", 5.0);
    check("(1 + 2) * -(3 - 4)", 3.0);
    check("10 - 4 - 3", 3.0);
    check("--one", 1.0);
    check(" .5 ", 0.5);
}

#[test]
fn what_is_no_expression_is_said_with_its_place() {
    let check = |text: &str, expected: &str| {
        let error = value(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    check("1 +", "expected a number, a variable or `(` at character 4, found the end");
    check("(1", "expected `)`");
    check("1 2", "expected an operator at character 3, found `2`");
    check("1..2", "expected a number at character 1");
    check("sclae", "there is no variable `sclae`: did you mean `scale`?");
    check("zzz", "declared are one, scale");
    check("1 / 0", "not a finite number");
    check(&"(".repeat(10_000), "nested more than 64 levels deep");
    check(&"-".repeat(10_000), "nested more than 64 levels deep");
}

fn parse_numbered(text: &str) -> (String, Vec<String>) {
    let statement = Statement::parse(text).unwrap();
    let names = statement.names().into_iter().map(str::to_owned).collect();
    (statement.with_placeholders(), names)
}

#[test]
fn values_are_found_where_sql_has_none_of_its_own() {
    let check = |text: &str, expected: &str, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(parse_numbered(text), (expected.to_owned(), names));
    };
    check("SELECT :a + :b - :a;", "SELECT $1 + $2 - $1", &["a", "b"]);
    check("SELECT :a::int, x::text", "SELECT $1::int, x::text", &["a"]);
    check("SELECT ':a', \":b\", :c", "SELECT ':a', \":b\", $1", &["c"]);
    check("SELECT 'it''s :a', :b", "SELECT 'it''s :a', $1", &["b"]);
    check(r"SELECT E'\':a', :b", r"SELECT E'\':a', $1", &["b"]);
    check(r"SELECT '\', :b", r"SELECT '\', $1", &["b"]);
    check("SELECT $$:a$$, $x$:b$$$x$, :c", "SELECT $$:a$$, $x$:b$$$x$, $1", &["c"]);
    check("SELECT 1 -- :a\n, :b", "SELECT 1 -- :a\n, $1", &["b"]);
    check("SELECT /* :a /* :b */ */ :c", "SELECT /* :a /* :b */ */ $1", &["c"]);
    check("SELECT x[1:2], f(a := 1)", "SELECT x[1:2], f(a := 1)", &[]);
    check("SELECT a$b$c, :d", "SELECT a$b$c, $1", &["d"]);
    check("SELECT 'ü', :größe", "SELECT 'ü', $1öße", &["gr"]);
}

#[test]
fn what_is_not_closed_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = Statement::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    check("SELECT 'a", "`'a` is not closed");
    check("SELECT \"a", "is not closed");
    check("SELECT $$a", "is not closed");
    check("SELECT /* a", "is not closed");
    check("SELECT $1", "parameters are written as :name");
    check(" ; ", "a statement is empty");
}

#[test]
fn literals_cannot_break_out() {
    let filled = |value: &'static str| {
        let statement = Statement::parse("SELECT 1-:a").unwrap();
        statement.with_literals(|_| value)
    };
    assert_eq!(filled("-5"), "SELECT 1-(-5)");
    assert_eq!(filled("it's"), "SELECT 1-'it''s'");
    assert_eq!(filled("a\\'b"), "SELECT 1- E'a\\\\''b'");
    assert_eq!(filled("nan"), "SELECT 1-'nan'");
}

#[test]
fn transactions_are_recognised() {
    let check = |text: &str, expected: Role| {
        assert_eq!(Statement::parse(text).unwrap().role(), expected, "{text}");
    };
    check("begin isolation level serializable", Role::Begin);
    check("START TRANSACTION", Role::Begin);
    check("Commit", Role::End);
    check("END;", Role::End);
    check("ROLLBACK", Role::End);
    check("ROLLBACK TO SAVEPOINT x", Role::Work);
    check("PREPARE TRANSACTION 'x'", Role::End);
    check("PREPARE x AS SELECT 1", Role::Work);
    check("SELECT 1", Role::Work);
    check("ENDPOINT", Role::Work);
}

fn draws(toml: &str, count: u64) -> Result<Vec<String>, String> {
    #[derive(serde::Deserialize)]
    struct DistributionField {
        of: Distribution,
    }
    let of: DistributionField =
        toml::from_str(&format!("of = {toml}")).map_err(|error| error.to_string())?;
    let draw: Draw = of.of.resolve(&Variables::from([("n".to_owned(), 1_000.0)]))?;
    let drawn = (0..count).map(|index| {
        let mut text = String::new();
        draw.write_value(index, &mut seeded_random(3, index), &mut text);
        text
    });
    Ok(drawn.collect())
}

fn numbers(toml: &str) -> Vec<f64> {
    let texts = draws(toml, 20_000).unwrap();
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Share of the values for which something holds.
fn share(values: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    values.iter().filter(|value| holds(**value)).count() as f64 / values.len() as f64
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.015, "{found} is not {expected}");
}

#[test]
fn values_follow_their_distribution() {
    let uniform = numbers("{ uniform = { min = 1, max = \"n\" } }");
    assert!(uniform.iter().all(|value| (1.0..=1_000.0).contains(value) && value.fract() == 0.0));
    assert_near(share(&uniform, |value| value <= 250.0), 0.25);

    let decimals = numbers("{ uniform = { min = 0, max = 1, decimals = 2 } }");
    assert_near(share(&decimals, |value| value < 0.5), 0.5);

    // P(1) = 1 / H(1000) = 0.1336 for Zipf's law over 1,000.
    let zipf = numbers("{ zipf = { min = 1, max = \"n\", skew = 1 } }");
    assert_near(share(&zipf, |value| value == 1.0), 0.1336);
    assert_near(share(&zipf, |value| value == 2.0), 0.0668);

    // pgbench's manual: with parameter 2.5, 67% are within the middle 1/2.5 … of the range.
    let gaussian = numbers("{ normal = { min = 1, max = \"n\", parameter = 2.5 } }");
    assert_near(share(&gaussian, |value| (300.0..=700.0).contains(&value)), 0.69);
    assert!(gaussian.iter().all(|value| (1.0..=1_000.0).contains(value)));

    // (1 - e^-0.5) / (1 - e^-5) of the first tenth.
    let exponential = numbers("{ exponential = { min = 1, max = \"n\", parameter = 5 } }");
    assert_near(share(&exponential, |value| value <= 100.0), 0.3962);

    let sequence = draws("{ sequence = { start = 10, step = 5 } }", 3).unwrap();
    assert_eq!(sequence, ["10", "15", "20"]);
    assert_eq!(draws("{ constant = \"n / 8\" }", 1).unwrap(), ["125"]);

    let chosen =
        draws("{ choice = { values = [\"a\", 2, true], weights = [1, 0, 3] } }", 20_000).unwrap();
    assert!(!chosen.contains(&"2".to_owned()));
    let a = chosen.iter().filter(|text| *text == "a").count() as f64;
    assert_near(a / 20_000.0, 0.25);
}

#[test]
fn distributions_that_cannot_be_are_refused() {
    let check = |toml: &str, expected: &str| {
        let error = draws(toml, 1).unwrap_err();
        assert!(error.contains(expected), "{toml}: {error}");
    };
    check("{ uniform = { min = 2, max = 1 } }", "min 2 is above max 1");
    check("{ uniform = { min = 2, maximum = 1 } }", "available keys: min, max, decimals");
    check("{ gaussian = { min = 1, max = 2, parameter = 1 } }", "parameter 1 is below 2");
    check("{ zipf = { min = 1, max = 2, skew = -1 } }", "skew -1 is below 0");
    check("{ exponential = { min = 1, max = 2, parameter = 0 } }", "below");
    check("{ choice = { values = [] } }", "no values to choose from");
    check("{ choice = { values = [1], weights = [1, 2] } }", "1 values have 2 weights");
    check("{ choice = { values = [1], weights = [-1] } }", "weight -1 is not");
    check("{ uniform = { min = 1, max = 1e300 } }", "is beyond 2^53");
    check("{ unifrom = { min = 1, max = 2 } }", "unknown variant `unifrom`");
}

fn workload(text: &str) -> Result<Workload, String> {
    Workload::parse(text)
}

const WHOLE: &str = r#"
name = "x"
setup = ["CREATE TABLE t (n int)"]
[variables]
rows = "10 * scale"
scale = 3
[[transaction]]
name = "read"
weight = 3
statements = ["SELECT :rows + :key"]
[transaction.parameters]
key = { uniform = { min = 1, max = "rows" } }
[[transaction]]
name = "write"
statements = ["INSERT INTO t VALUES (1)"]
"#;

#[test]
fn a_workload_is_read() {
    let mut read = workload(WHOLE).unwrap();
    assert_eq!(read.transactions.len(), 2);
    let variables = read.evaluate(&Variables::new()).unwrap();
    assert_eq!(variables["rows"], 30.0);
    let draws = read.bind_parameters(&variables).unwrap();
    let names: Vec<&str> = draws[0].draws.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["key", "rows"]);
    read.set_variable("scale", "2 * 2").unwrap();
    assert_eq!(read.evaluate(&Variables::new()).unwrap()["rows"], 40.0);
    let error = read.set_variable("scael", "1").unwrap_err();
    assert!(error.contains("did you mean `scale`"), "{error}");
}

#[test]
fn what_is_wrong_in_a_workload_is_said() {
    let check = |from: &str, to: &str, expected: &str| {
        assert!(WHOLE.contains(from), "{from}");
        let error = workload(&WHOLE.replacen(from, to, 1))
            .and_then(|read| {
                let variables = read.evaluate(&Variables::new())?;
                read.bind_parameters(&variables).map(drop)
            })
            .unwrap_err();
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    };
    check("weight = 3", "wieght = 3", "did you mean `weight`?");
    check("weight = 3", "wieght = 3", "line 9");
    check("weight = 3", "weight = -3", "weight -3 is not a number from 0 on");
    check("name = \"x\"", "", "missing field `name`");
    check("\"write\"", "\"read\"", "there are two transactions `read`");
    check("\"write\"", "\"late\"", "the result uses that name");
    check(":key", ":kye", "there is no parameter or variable `kye`: did you mean `key`?");
    check(" + :key", "", "parameter `key` is used in no statement");
    check("\"rows\"", "\"row\"", "there is no variable `row`: did you mean `rows`?");
    check("\"rows\"", "\"rows *\"", "expected a number, a variable or `(`");
    check("scale = 3", "scale = \"rows\"", "variable `rows`");
    check("scale = 3", "scale = [1]", "a variable is a number");
    check("scale = 3", "scale = { sql = \"x\" }", "a variable's table is");
    check("scale = 3", "scale = -3", "min 1 is above max -30");
    check("(n int)", "(n int) AS :x", "setup or teardown: there is no variable `x`");
    let empty = workload("name = \"x\"\ntransaction = []").unwrap_err();
    assert!(empty.contains("there is no [[transaction]]"), "{empty}");
}

#[test]
fn workloads_that_are_built_in_can_be_read() {
    for name in ["tpcb-like.toml", "select-only.toml"] {
        Workload::load(std::path::Path::new(name)).unwrap();
    }
    let error = Workload::load(std::path::Path::new("tpcb.toml")).unwrap_err();
    assert!(error.to_string().contains("built in are tpcb-like.toml"), "{error}");
}

proptest! {
    /// Whatever stands in a file, it is read or refused; nothing else happens.
    #[test]
    fn no_text_breaks_the_readers(text in "[ -~\\n]{0,200}|(\\PC|[\"':$=\\[\\]{}()]){0,60}") {
        let _ = workload(&text);
        let _ = Expression::parse(&text);
        let _ = Statement::parse(&text);
    }

    /// A workload with something in it replaced by anything.
    #[test]
    fn no_damage_breaks_the_reader(from in 0..WHOLE.len(), len in 0..30usize, put in "[ -~\\n]{0,20}") {
        let to = (from + len).min(WHOLE.len());
        let damaged = format!("{}{put}{}", &WHOLE[..from], &WHOLE[to..]);
        if let Ok(read) = workload(&damaged)
            && let Ok(variables) = read.evaluate(&Variables::new())
        {
            let _ = read.bind_parameters(&variables);
        }
    }

    /// Cutting a statement at its values loses nothing.
    #[test]
    fn statements_are_kept_whole(
        parts in proptest::collection::vec("[a-z]{1,5}|'[a-z:]{0,5}'|\\$\\$[a-z:]{0,4}\\$\\$|::int|/\\*[a-z:]{0,4}\\*/", 1..10),
        name in "[a-z]{1,5}",
    ) {
        let text = format!("SELECT {} :{name}", parts.join(" "));
        let statement = Statement::parse(&text).unwrap();
        prop_assert_eq!(statement.with_placeholders(), text.replace(&format!(" :{name}"), " $1"));
        prop_assert_eq!(statement.names(), [name.as_str()]);
    }
}
