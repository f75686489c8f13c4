//! Followers receive the changes of every refresh in order; summed up, they are the view.

use std::collections::BTreeMap;

use egret_views::{FollowMode, Follower};

use super::*;

/// What a view has, by its rows as JSON, as a follower adds it up.
#[derive(Default)]
struct Mirror {
    rows: BTreeMap<String, i64>,
    resets: Vec<String>,
}

impl Mirror {
    /// Reads the view, and where it is.
    async fn read_view(rig: &Rig, name: &str) -> (Self, i64) {
        // One statement has one snapshot.
        let sql = format!(
            "SELECT egret.change_sequence('{name}'), (SELECT array_agg(row_to_json(one.*)::text) FROM {name} AS one)"
        );
        let row = rig.client.query_one(&sql, &[]).await.unwrap();
        let mut mirror = Self::default();
        for content in row.get::<_, Option<Vec<String>>>(1).unwrap_or_default() {
            mirror.add(&content, 1);
        }
        (mirror, row.get(0))
    }

    fn add(&mut self, content: &str, weight: i64) {
        let count = self.rows.entry(content.to_owned()).or_default();
        *count += weight;
        assert!(*count >= 0, "{content} was never there");
        if *count == 0 {
            self.rows.remove(content);
        }
    }

    /// Takes in everything that is there to be told, up to where the view is now; then it is the
    /// view.
    async fn catch_up(&mut self, rig: &Rig, follower: &mut Follower, name: &str) {
        let (now, sequence) = Self::read_view(rig, name).await;
        let mut is_read = false;
        while follower.sequence() < sequence {
            let page = next_page(follower).await;
            if let Some(reset) = page.reset {
                // One that is made anew is empty at first.
                is_read = reset != "repaired";
                self.rows = if is_read { now.rows.clone() } else { BTreeMap::new() };
                self.resets.push(reset);
            }
            if is_read {
                continue;
            }
            for row in &page.rows {
                self.add(&row.content, row.weight);
            }
        }
        assert_eq!(self.rows, now.rows, "{name} at {sequence}");
    }
}

async fn next_page(follower: &mut Follower) -> egret_views::model::ChangePage {
    let next = tokio::time::timeout(Duration::from_secs(60), follower.next());
    next.await.expect("it is told").unwrap()
}

async fn follow_view(rig: &Rig, name: &str, after: Option<i64>) -> Result<Follower, ViewsError> {
    rig.views.follow(&view_ref(name), after, FollowMode::StartRetention).await
}

const HAVING: &str = "SELECT g, count(*) AS n, avg(v)::numeric(10, 2) AS \"Mean\" FROM t GROUP BY g HAVING count(*) > 3";

#[tokio::test]
async fn what_followers_add_up_is_the_view() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(TABLES).await;
        let all = [
            (
                "plain",
                "SELECT id, g, v::float8 / 3 AS third, 'a\nb'::text AS lines FROM t WHERE v > 10",
            ),
            ("bag", "SELECT g FROM t"),
            ("sums", HAVING),
            ("outer_", "SELECT u.name, t.id FROM u LEFT JOIN t ON t.g = u.g AND t.v > 50"),
            ("above", "SELECT s.n, p.id FROM sums AS s JOIN plain AS p ON p.g = s.g"),
            ("latest", "SELECT g AS shown, max(third) AS told FROM plain GROUP BY g"),
        ];
        let mut followed = Vec::new();
        for (name, query) in all {
            let mode = match name {
                "bag" => Mode::Auto,
                _ => Mode::Incremental,
            };
            rig.create(NewView { mode, ..new_view(name, query) }).await.unwrap();
            let follower = follow_view(&rig, name, None).await.unwrap();
            let (mirror, sequence) = Mirror::read_view(&rig, name).await;
            assert_eq!(follower.sequence(), sequence);
            followed.push((name, mirror, follower));
        }
        for round in 0..12 {
            rig.execute(&format!(
                "UPDATE t SET v = v + 7, g = (g + 1) % 6 WHERE id % 9 = {round}; DELETE FROM t WHERE id % 17 = {round}; \
                 INSERT INTO t SELECT {round} * 100 + 1000 + i, i, 12 FROM generate_series(1, {round}) AS i; \
                 UPDATE u SET name = name || 'x' WHERE g = {round}; DELETE FROM u WHERE g = 6 - {round}"
            ))
            .await;
            if round == 8 {
                rig.execute(
                    "TRUNCATE t; INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 40) AS i",
                )
                .await;
            }
            rig.refresh("above").await;
            rig.refresh("bag").await;
            if round % 3 == 2 {
                for (name, mirror, follower) in &mut followed {
                    rig.refresh(name).await;
                    mirror.catch_up(&rig, follower, name).await;
                }
            }
        }
        for (name, mirror, _) in &followed {
            assert_eq!(mirror.resets, [""; 0], "{name}");
        }
    }
}

#[tokio::test]
async fn a_refresh_that_changes_nothing_that_is_seen_tells_nothing() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", HAVING)).await.unwrap();
    let mut follower = follow_view(&rig, "sums", None).await.unwrap();
    let begun = follower.sequence();
    // A group that is kept, and not shown.
    rig.execute("INSERT INTO t VALUES (1000, 77, 1)").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    rig.execute("UPDATE t SET v = v + 1 WHERE id = 1; UPDATE t SET v = v - 1 WHERE id = 1").await;
    rig.refresh("sums").await;
    rig.execute("INSERT INTO t VALUES (1001, 1, 1)").await;
    rig.refresh("sums").await;
    let page = next_page(&mut follower).await;
    assert_eq!((page.sequence, page.changes, page.has_more), (begun + 1, 2, false));
    let rows: Vec<(i64, &str)> =
        page.rows.iter().map(|row| (row.weight, row.content.as_str())).collect();
    let told = [(-1, r#"{"g":1,"n":20,"Mean":48.50}"#), (1, r#"{"g":1,"n":21,"Mean":46.24}"#)];
    assert_eq!(rows, told);
}

#[tokio::test]
async fn a_refresh_that_is_rolled_back_tells_nothing() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("base", "SELECT id, g, v FROM t")).await.unwrap();
    rig.create(new_view("shares", "SELECT id, 100 / v AS share FROM base")).await.unwrap();
    let mut follower = follow_view(&rig, "shares", None).await.unwrap();
    let base = follow_view(&rig, "base", None).await.unwrap();
    let begun = follower.sequence();
    rig.execute("UPDATE t SET v = 50 WHERE id = 3; UPDATE t SET v = 0 WHERE id = 4").await;
    let failed = rig.views.refresh(&view_ref("shares")).await;
    assert_eq!(error_code(failed), "view_refresh_failed");
    let sets = "SELECT count(*) FROM egret.view_change_set WHERE reset IS NULL";
    // What it reads was refreshed, and has told that.
    assert_eq!(rig.query_number(sets).await, 1);
    rig.execute("UPDATE t SET v = 4 WHERE id = 4").await;
    rig.refresh("shares").await;
    let page = next_page(&mut follower).await;
    assert_eq!((page.sequence, page.changes), (begun + 1, 2));
    assert_eq!(rig.query_number(sets).await, 3);
    drop(base);
}

#[tokio::test]
async fn a_large_change_set_comes_in_parts_and_a_larger_one_is_not_kept() {
    let config = ViewsConfig {
        change_event_size: ByteSize(1_000),
        change_set_rows_max: 600,
        ..ViewsConfig::default()
    };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    rig.create(new_view("plain", "SELECT id, v FROM t")).await.unwrap();
    let mut follower = follow_view(&rig, "plain", None).await.unwrap();
    let (mut mirror, begun) = Mirror::read_view(&rig, "plain").await;
    rig.execute("INSERT INTO t SELECT i, 1, 1 FROM generate_series(1001, 1500) AS i").await;
    rig.refresh("plain").await;
    let first = next_page(&mut follower).await;
    assert!(first.has_more && first.rows.len() < 100, "{first:?}");
    // A follower that received a part starts again with the whole change set.
    assert_eq!(follower.sequence(), begun);
    let mut again = follow_view(&rig, "plain", Some(begun)).await.unwrap();
    assert_eq!(next_page(&mut again).await, first);
    let mut again = follow_view(&rig, "plain", Some(begun)).await.unwrap();
    mirror.catch_up(&rig, &mut again, "plain").await;
    rig.execute("UPDATE t SET v = v + 1").await;
    rig.refresh("plain").await;
    let too_much = next_page(&mut again).await;
    assert_eq!((too_much.reset.as_deref(), too_much.rows.len()), (Some("too_much"), 0));
    let (_, sequence) = Mirror::read_view(&rig, "plain").await;
    assert_eq!(too_much.sequence, sequence);
}

#[tokio::test]
async fn followers_are_told_of_what_they_cannot_be_told() {
    let config = ViewsConfig { change_sets_size_max: ByteSize(1_200), ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    rig.create(new_view("plain", "SELECT id, v FROM t")).await.unwrap();
    let mut slow = follow_view(&rig, "plain", None).await.unwrap();
    let begun = slow.sequence();
    for round in 0..9 {
        rig.execute(&format!("UPDATE t SET v = v + 1 WHERE id = {}", round + 1)).await;
        rig.refresh("plain").await;
    }
    assert_eq!(next_page(&mut slow).await.sequence, begun + 1);
    let kept = |span: &str| Alteration {
        retention: Some(Some(
            span.parse::<Schedule>()
                .map(|lag| match lag {
                    Schedule::Lag(span) => span,
                    _ => panic!("no duration"),
                })
                .unwrap(),
        )),
        ..Alteration::default()
    };
    // Some are forgotten by their bytes, and then all but the last by their time.
    for span in ["1h", "1ms"] {
        let report =
            rig.views.alter(&view_ref("plain"), kept(span), ReadableViews::All).await.unwrap();
        let changes = report.changes.unwrap();
        assert_eq!(changes.sequence, begun + 9);
        assert!(changes.sets < 9, "{changes:?}");
        if span == "1ms" {
            assert_eq!(changes.sets, 1);
        }
    }
    let gone = slow.next().await;
    assert_eq!(error_code(gone), "view_changes_gone");
    for after in [begun + 1, begun + 10, -5] {
        let refused = follow_view(&rig, "plain", Some(after)).await.map(|_| ());
        let said = refused.as_ref().unwrap_err().to_string();
        assert_eq!(error_code(refused), "view_changes_gone");
        assert!(said.contains(&format!("but those from {} on", begun + 9)), "{said}");
    }
    let mut ahead = follow_view(&rig, "plain", Some(begun + 8)).await.unwrap();
    assert_eq!(next_page(&mut ahead).await.sequence, begun + 9);
}

#[tokio::test]
async fn following_that_ended_and_began_again_is_not_taken_for_what_it_was() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("plain", "SELECT id, v FROM t")).await.unwrap();
    let mut ahead = follow_view(&rig, "plain", None).await.unwrap();
    let last = ahead.sequence();
    // Numbers go on after an interruption, so that none is taken for another.
    let off = Alteration { retention: Some(None), ..Alteration::default() };
    assert_eq!(
        rig.views.alter(&view_ref("plain"), off, ReadableViews::All).await.unwrap().changes,
        None
    );
    assert_eq!(error_code(ahead.next().await), "view_changes_gone");
    assert_eq!(rig.query_number("SELECT count(*) FROM egret.view_change").await, 0);
    let not_kept = rig.views.follow(&view_ref("plain"), None, FollowMode::RequireRetention).await;
    assert_eq!(error_code(not_kept.map(|_| ())), "view_not_followed");
    let again = follow_view(&rig, "plain", None).await.unwrap();
    assert!(again.sequence() > last);
    let mut old = follow_view(&rig, "plain", Some(last)).await.unwrap();
    assert_eq!(next_page(&mut old).await.reset.as_deref(), Some("begun"));
    rig.views.drop(&view_ref("plain")).await.unwrap();
    assert_eq!(error_code(old.next().await), "view_not_found");
}

#[tokio::test]
async fn a_view_that_is_made_anew_is_read_anew() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(TABLES).await;
        rig.create(new_view("plain", "SELECT id, v FROM t")).await.unwrap();
        let mut follower = follow_view(&rig, "plain", None).await.unwrap();
        let (mut mirror, _) = Mirror::read_view(&rig, "plain").await;
        rig.execute("UPDATE t SET v = v + 1 WHERE id = 1").await;
        rig.views.repair(&view_ref("plain"), &MakerRights::administrator()).await.unwrap();
        mirror.catch_up(&rig, &mut follower, "plain").await;
        assert_eq!(mirror.resets, ["repaired"]);
        // What is only computed anew is told as what it comes to.
        rig.execute("UPDATE t SET v = v + 1 WHERE id = 1; UPDATE egret.view SET snapshot = NULL")
            .await;
        assert_eq!(rig.refresh("plain").await.outcome, "full");
        mirror.catch_up(&rig, &mut follower, "plain").await;
        assert_eq!(mirror.resets, ["repaired"]);
        // A database that was restored.
        rig.execute("UPDATE egret.view SET stamp = 'elsewhere'").await;
        let elsewhere = new_engine(&rig.database, ViewsConfig::default());
        rig.execute("UPDATE t SET v = v + 1 WHERE id = 1").await;
        elsewhere.refresh(&view_ref("plain")).await.unwrap();
        mirror.catch_up(&rig, &mut follower, "plain").await;
        assert_eq!(mirror.resets, ["repaired", "restored"]);
    }
}

#[tokio::test]
async fn a_view_of_another_role_tells_with_the_rights_of_that_role() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        let role = format!("teller_{}", rig.database.name);
        rig.execute(TABLES).await;
        rig.execute(&format!(
            "CREATE ROLE {role}; GRANT CREATE ON SCHEMA public TO {role}; GRANT SELECT ON t, u TO {role};
             CREATE TABLE seen (who name);
             CREATE FUNCTION who(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT current_user::text || n $$"
        ))
        .await;
        // What is computed when the view is read is computed when it is told.
        let theirs = NewView {
            owner: Some(role.clone()),
            ..new_view(
                "theirs",
                "SELECT g, who(count(*)) AS who FROM t GROUP BY g HAVING count(*) > 3",
            )
        };
        rig.create(theirs).await.unwrap();
        let mut follower = follow_view(&rig, "theirs", None).await.unwrap();
        rig.execute("DELETE FROM t WHERE id = 5").await;
        rig.refresh("theirs").await;
        let page = next_page(&mut follower).await;
        let contents: Vec<&str> = page.rows.iter().map(|row| row.content.as_str()).collect();
        let told = [20, 19].map(|n| format!("{{\"g\":0,\"who\":\"{role}{n}\"}}"));
        assert_eq!(contents, told);
        rig.views.uninstall(None, true).await.unwrap();
        rig.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

#[tokio::test]
async fn a_view_that_nobody_follows_is_refreshed_by_the_statements_that_it_was() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.execute("CREATE TABLE written (what text); GRANT INSERT ON written TO public; CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.written VALUES (TG_TABLE_NAME || ' ' || TG_OP); RETURN NULL; END $$").await;
    rig.create(new_view("sums", HAVING)).await.unwrap();
    for table in ["view_change_set", "view_change", "view", "told_1_0"] {
        rig.execute(&format!(
            "CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON egret.{table} FOR EACH STATEMENT EXECUTE FUNCTION note()"
        ))
        .await;
    }
    let written = "SELECT count(*) FROM written WHERE what <> 'view UPDATE'";
    rig.execute("DELETE FROM t WHERE id = 5").await;
    rig.refresh("sums").await;
    assert_eq!(
        (rig.query_number(written).await, rig.query_number("SELECT count(*) FROM written").await),
        (0, 1)
    );
    let follower = follow_view(&rig, "sums", None).await.unwrap();
    rig.execute("TRUNCATE written; DELETE FROM t WHERE id = 6").await;
    rig.refresh("sums").await;
    assert!(rig.query_number(written).await > 0);
    drop(follower);
}
