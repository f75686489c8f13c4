//! Types with an equality of their own, in constructs for which the server prints no operator.

use egret_views::model::{Mode, NewView};

use super::{Rig, error_code, new_view as manual, view_ref};
use crate::world::query_rows;

const TABLES: &str = "CREATE EXTENSION citext;
     CREATE TABLE u (id int PRIMARY KEY, email citext, n int, v varchar(9));
     CREATE TABLE l (id int PRIMARY KEY, email citext, k int);
     INSERT INTO u VALUES (1, 'Ada@x.org', 5, 'a'), (2, 'ben@x.org', NULL, 'b'), (3, NULL, 0, NULL);
     INSERT INTO l VALUES (1, 'ada@x.org', 1), (2, 'BEN@x.org', 2), (3, NULL, 3), (4, 'eve@x.org', 4)";

const QUERIES: [&str; 11] = [
    "SELECT email, u.n FROM u JOIN l USING (email)",
    "SELECT u.id, l.k FROM u LEFT JOIN l USING (email)",
    "SELECT a.id, l.k FROM u AS a JOIN u AS b USING (email, id) JOIN l ON l.email = b.email",
    "SELECT q.id, l.k FROM (SELECT u.id, u.email FROM u) AS q JOIN l USING (email)",
    "SELECT id FROM u WHERE email IS DISTINCT FROM 'ADA@X.ORG'",
    "SELECT l.id FROM l WHERE EXISTS (SELECT FROM u WHERE u.email IS NOT DISTINCT FROM l.email)",
    "SELECT id, CASE email WHEN 'ADA@x.org' THEN 'A' WHEN 'BEN@x.org' THEN 'B' ELSE 'other' END AS w FROM u",
    "SELECT id, NULLIF(email, 'ada@x.org') AS e FROM u",
    "WITH e AS (SELECT NULLIF(email, 'BEN@x.org') AS e, NULLIF(n, 5) AS n FROM u) SELECT e, count(n) AS c FROM e GROUP BY e",
    // Neither of these compares a value of such a type, though the table has one.
    "SELECT id, NULLIF(n, 0) AS n, n IS DISTINCT FROM 5 AS d, CASE n WHEN 5 THEN 1 END AS c FROM u",
    "SELECT u.id, NULLIF(u.v, 'A') AS v, l.k FROM u JOIN l USING (id)",
];

#[tokio::test]
async fn every_mode_compares_as_a_plain_view_does() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(TABLES).await;
        let modes = [Mode::Full, Mode::Incremental, Mode::Immediate];
        let mut names = Vec::new();
        for (number, query) in QUERIES.iter().enumerate() {
            rig.execute(&format!("CREATE VIEW plain{number} AS {query}")).await;
            for mode in modes {
                let name = format!("v{number}_{mode:?}").to_lowercase();
                let asked = manual(&name, query);
                let schedule = asked.schedule.clone().filter(|_| mode != Mode::Immediate);
                rig.create(NewView { mode, schedule, ..asked })
                    .await
                    .unwrap_or_else(|error| panic!("{query} {mode:?}: {error}"));
                names.push((name, number));
            }
        }
        for change in [
            "SELECT",
            "UPDATE u SET email = upper(email::text) WHERE id = 2; DELETE FROM l WHERE id = 1",
            "INSERT INTO u VALUES (4, 'EVE@X.ORG', 5, 'A'), (5, 'ada@x.org', 1, 'x'); INSERT INTO l VALUES (1, 'aDa@x.org', 9)",
        ] {
            rig.execute(change).await;
            for (name, number) in &names {
                rig.refresh(name).await;
                let plain = query_rows(&rig.client, &format!("TABLE plain{number}")).await;
                let shown = query_rows(&rig.client, &format!("TABLE {name}")).await;
                assert_eq!(shown, plain, "{name} {}", QUERIES[*number]);
                rig.verify(&[name]).await;
            }
        }
    }
}

#[tokio::test]
async fn a_comparison_that_cannot_be_written_out_is_refused() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.execute("CREATE VIEW spelled AS SELECT id, NULLIF(email, 'ada@x.org') AS e FROM u").await;
    let merged = "SELECT email, u.n FROM u FULL JOIN l USING (email)";
    let through_view = "SELECT e, count(*) AS n FROM spelled GROUP BY e";
    for (query, mode, expected) in [
        (merged, Mode::Full, "view_unsupported"),
        (merged, Mode::Incremental, "view_unsupported"),
        (through_view, Mode::Incremental, "view_unsupported"),
        (through_view, Mode::Full, "fine"),
    ] {
        let asked = NewView { mode, ..manual("v", query) };
        assert_eq!(error_code(rig.create(asked).await), expected, "{query} {mode:?}");
    }
    let plain = query_rows(&rig.client, through_view).await;
    assert_eq!(query_rows(&rig.client, "TABLE v").await, plain);
}

/// A definition of an earlier version has no operators: a repair finds what the query means.
#[tokio::test]
async fn a_repair_mends_definitions_of_earlier_versions() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let query = QUERIES[4];
    let asked = NewView { mode: Mode::Full, ..manual("v", query) };
    rig.create(asked).await.unwrap();
    rig.execute("UPDATE egret.view SET definition = ' SELECT id FROM public.u WHERE email IS DISTINCT FROM ''ADA@X.ORG''::public.citext'")
        .await;
    rig.execute("INSERT INTO u VALUES (9, 'ADA@x.org')").await;
    rig.refresh("v").await;
    let plain = query_rows(&rig.client, query).await;
    assert_ne!(query_rows(&rig.client, "TABLE v").await, plain);
    let rights = egret_views::model::MakerRights::administrator();
    rig.views.repair(&view_ref("v"), &rights).await.unwrap();
    assert_eq!(query_rows(&rig.client, "TABLE v").await, plain);
    rig.verify(&["v"]).await;
}
