//! What a view depends on besides its tables: functions, operators, types, domains, casts.

use egret_views::ViewsConfig;
use egret_views::model::{Mode, NewView, State};

use super::{Rig, new_engine, new_view as manual, view_ref};
use crate::world::query_rows;

const TABLES: &str = "CREATE TYPE mood AS ENUM ('sad', 'glad');
     CREATE TABLE t (id int PRIMARY KEY, v int, m mood);
     INSERT INTO t VALUES (1, 1, 'sad'), (2, 2, 'glad'), (3, NULL, NULL);
     CREATE FUNCTION tax(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x * 2';
     CREATE FUNCTION rate(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN x + 1; END';
     CREATE FUNCTION gross(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN public.rate(x) * 2; END';
     CREATE FUNCTION near(a int, b int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT abs(a - b) < 2';
     CREATE OPERATOR ~~~ (LEFTARG = int, RIGHTARG = int, FUNCTION = near);
     CREATE FUNCTION add_twice(s int, x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT s + coalesce(2 * x, 0)';
     CREATE AGGREGATE twice(int) (SFUNC = add_twice, STYPE = int, INITCOND = '0');
     CREATE VIEW taxed AS SELECT id, tax(v) AS d FROM t;
     CREATE FUNCTION shown(x mood) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT x::text';";

/// Queries, and a change of what each depends on.
const CASES: [(&str, &str); 8] = [
    (
        "SELECT id, tax(v) AS d FROM t",
        "CREATE OR REPLACE FUNCTION tax(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x * 10'",
    ),
    (
        "SELECT sum(tax(v)) AS s FROM t",
        "CREATE OR REPLACE FUNCTION tax(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x * 11'",
    ),
    (
        "SELECT id, d FROM taxed WHERE d > 0",
        "CREATE OR REPLACE FUNCTION tax(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x * 12'",
    ),
    // Called by the text of another one.
    (
        "SELECT id, gross(v) AS d FROM t",
        "CREATE OR REPLACE FUNCTION rate(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN x + 5; END'",
    ),
    ("SELECT id, tax(v) AS d FROM t WHERE v IS NULL", "ALTER FUNCTION tax STRICT"),
    (
        "SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.v ~~~ b.v",
        "CREATE OR REPLACE FUNCTION near(a int, b int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT a < b'",
    ),
    (
        "SELECT m, twice(v) AS s FROM t GROUP BY m",
        "CREATE OR REPLACE FUNCTION add_twice(s int, x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT s + coalesce(3 * x, 0)'",
    ),
    ("SELECT id, shown(m) AS m FROM t", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
];

const MODES: [Mode; 3] = [Mode::Full, Mode::Incremental, Mode::Immediate];

fn new_view_in_mode(mode: Mode, name: &str, query: &str) -> NewView {
    let asked = manual(name, query);
    NewView { mode, schedule: asked.schedule.clone().filter(|_| mode != Mode::Immediate), ..asked }
}

#[tokio::test]
async fn a_view_is_computed_anew_when_what_it_depends_on_has_changed() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(TABLES).await;
        for (number, (query, _)) in CASES.iter().enumerate() {
            for mode in MODES {
                let name = format!("v{number}_{mode:?}").to_lowercase();
                rig.create(new_view_in_mode(mode, &name, query))
                    .await
                    .unwrap_or_else(|error| panic!("{query} {mode:?}: {error}"));
                rig.refresh(&name).await;
            }
        }
        for (number, (query, change)) in CASES.iter().enumerate() {
            rig.execute(change).await;
            for mode in MODES {
                let name = format!("v{number}_{mode:?}").to_lowercase();
                let current =
                    format!("SELECT is_current::int::bigint FROM egret.freshness('{name}')");
                assert_eq!(rig.query_number(&current).await, 0, "{version} {name}: {change}");
                if mode == Mode::Immediate {
                    let read = rig.client.query(&format!("TABLE {name}"), &[]).await;
                    let code = read.expect_err(change).code().map(|code| code.code().to_owned());
                    assert_eq!(code.as_deref(), Some("55000"), "{change}");
                }
                rig.refresh(&name).await;
                assert_eq!(rig.query_number(&current).await, 1, "{version} {name}: {change}");
                let shown = query_rows(&rig.client, &format!("TABLE {name}")).await;
                assert_eq!(
                    shown,
                    query_rows(&rig.client, query).await,
                    "{version} {name}: {change}"
                );
                assert_ne!(rig.refresh(&name).await.outcome, "full", "{name}");
            }
        }
        // Changes of rows go on being applied.
        rig.execute("UPDATE t SET v = 7 WHERE id = 1; INSERT INTO t VALUES (4, 4, 'glad')").await;
        for (number, (query, _)) in CASES.iter().enumerate() {
            for mode in MODES {
                let name = format!("v{number}_{mode:?}").to_lowercase();
                rig.refresh(&name).await;
                let shown = query_rows(&rig.client, &format!("TABLE {name}")).await;
                assert_eq!(shown, query_rows(&rig.client, query).await, "{version} {name}");
            }
        }
    }
}

#[tokio::test]
async fn a_function_that_becomes_volatile_suspends_the_view_and_is_named() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(manual("taxes", CASES[0].0)).await.unwrap();
    rig.execute("ALTER FUNCTION tax VOLATILE").await;
    let refused = rig.views.refresh(&view_ref("taxes")).await.unwrap_err().to_string();
    assert!(refused.contains("public.tax"), "{refused}");
    let report = rig.views.show(&view_ref("taxes")).await.unwrap();
    assert_eq!(report.state, State::Suspended);
}

/// What an earlier version has not stored is found when the view is loaded.
#[tokio::test]
async fn a_view_of_an_earlier_version_finds_what_it_depends_on() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    for mode in MODES {
        let name = format!("{mode:?}").to_lowercase();
        rig.create(new_view_in_mode(mode, &name, CASES[0].0)).await.unwrap();
    }
    rig.execute("UPDATE egret.view SET depends_on = '{}'").await;
    rig.execute(CASES[0].1).await;
    let later = new_engine(&rig.database, ViewsConfig::default());
    for mode in MODES {
        let name = format!("{mode:?}").to_lowercase();
        later.refresh(&view_ref(&name)).await.unwrap();
        let shown = query_rows(&rig.client, &format!("TABLE \"{name}\"")).await;
        assert_eq!(shown, query_rows(&rig.client, CASES[0].0).await, "{name}");
    }
}
