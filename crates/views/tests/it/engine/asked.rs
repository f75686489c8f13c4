//! Views that are asked for from SQL, by a role that may.

use egret_postgres::tokio_postgres::Client;

use super::*;

/// Waits until what a statement asks for is done.
async fn wait_for_request(client: &Client, sql: &str) -> Result<(), String> {
    let request: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    let asked = format!("SELECT egret.request_done({request})");
    eventually("the request is done", async || match client.query_one(&asked, &[]).await {
        Ok(row) if row.get(0) => Some(Ok(())),
        Ok(_) => None,
        Err(error) => Some(Err(egret_base::error::chain(&error).to_string())),
    })
    .await
}

/// A role that may ask, and its name.
async fn rig_with_role(version: u32) -> (Rig, String) {
    let rig = Rig::new(version).await;
    let role = format!("asker_{}", rig.database.name);
    rig.execute(TABLES).await;
    rig.execute(&format!(
        "CREATE ROLE {role}; GRANT USAGE, CREATE ON SCHEMA public TO {role}; GRANT SELECT ON t, u TO {role}"
    ))
    .await;
    let roles = std::slice::from_ref(&role);
    rig.views.allow(None, roles).await.unwrap();
    rig.views.start().await.unwrap();
    (rig, role)
}

async fn tear_down(rig: Rig, role: &str) {
    rig.views.stop().await;
    rig.views.uninstall(None, true).await.unwrap();
    rig.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

const CREATE: &str =
    "SELECT egret.create_view('mine', $$SELECT g, count(*) AS n FROM t GROUP BY g$$, lag => '1h')";
const CURRENT: &str = "SELECT is_current::int::bigint FROM egret.freshness('mine')";

#[tokio::test]
async fn views_are_made_refreshed_and_dropped_from_sql() {
    for version in [18, 15] {
        let (rig, role) = rig_with_role(version).await;
        let client = &rig.client;
        rig.execute(&format!("SET ROLE {role}; SET TimeZone = 'Asia/Tokyo'")).await;
        wait_for_request(client, CREATE).await.unwrap();
        let shown = "SELECT count(*) FROM mine";
        assert_eq!((rig.query_number(shown).await, rig.query_number(CURRENT).await), (5, 1));
        let again = client.query_one(CREATE, &[]).await.unwrap_err();
        let again = again.as_db_error().unwrap().message().to_owned();
        assert!(again.contains("exists"), "{again}");
        let not_covered = "SELECT egret.create_view('top', 'SELECT id, ctid FROM t')";
        let refused = wait_for_request(client, not_covered).await.unwrap_err();
        assert!(refused.contains("ctid"), "{refused}");
        rig.execute("RESET ROLE; INSERT INTO t VALUES (700, 70, 1)").await;
        let settings = "SELECT count(*) FROM egret.view WHERE settings LIKE '%Asia/Tokyo%'";
        assert_eq!((rig.query_number(settings).await, rig.query_number(CURRENT).await), (1, 0));
        rig.execute(&format!("SET ROLE {role}")).await;
        wait_for_request(client, "SELECT egret.refresh('mine')").await.unwrap();
        assert_eq!((rig.query_number(shown).await, rig.query_number(CURRENT).await), (6, 1));
        wait_for_request(client, "SELECT egret.drop_view('mine')").await.unwrap();
        rig.execute("RESET ROLE").await;
        tear_down(rig, &role).await;
    }
}

#[tokio::test]
async fn nothing_can_be_asked_of_the_views_of_others_or_as_somebody_else() {
    let (rig, role) = rig_with_role(18).await;
    rig.create(new_view("others", "SELECT id FROM t")).await.unwrap();
    rig.execute(&format!("SET SESSION AUTHORIZATION {role}")).await;
    for sql in [
        "SELECT egret.drop_view('others')",
        "SELECT egret.request_view('drop', '{public,others}', NULL, NULL, NULL, NULL, 'postgres')",
        "SELECT count(*) FROM egret.view",
    ] {
        assert!(rig.client.query_one(sql, &[]).await.is_err(), "{sql}");
    }
    rig.execute("RESET SESSION AUTHORIZATION").await;
    tear_down(rig, &role).await;
}

/// The state that the server refuses a statement with.
async fn refusal_message(client: &Client, sql: &str) -> String {
    let error = client.query_one(sql, &[]).await.unwrap_err();
    let told = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    told.code().code().to_owned()
}

#[tokio::test]
async fn what_is_asked_for_has_bounds() {
    for version in [18, 15] {
        let (rig, role) = rig_with_role(version).await;
        // Nothing is done of what waits.
        rig.views.stop().await;
        let client = &rig.client;
        rig.execute(&format!("SET SESSION AUTHORIZATION {role}")).await;
        let asked = |name: &str, query: &str, definition: &str| {
            format!(
                "SELECT egret.request_view('create', ARRAY['public', {name}], {query}, {definition}, 'auto', NULL, '{role}')"
            )
        };
        let long = "repeat('x', 64)";
        assert_eq!(refusal_message(client, &asked(long, "'q'", "'q'")).await, "42602");
        assert_eq!(refusal_message(client, &asked("NULL", "'q'", "'q'")).await, "42602");
        let query = "repeat('x', 262145)";
        assert_eq!(refusal_message(client, &asked("'a'", query, "'q'")).await, "54000");
        let definition = "repeat('x', 1048577)";
        assert_eq!(refusal_message(client, &asked("'a'", "'q'", definition)).await, "54000");
        let selected =
            "SELECT egret.create_view('a', 'SELECT ' || repeat('1+', 140000) || '1 AS n')";
        assert!(client.query_one(selected, &[]).await.is_err());
        let schedule = format!(
            "SELECT egret.request_view('create', '{{public,a}}', 'q', 'q', 'auto', repeat('x', 257), '{role}')"
        );
        assert_eq!(refusal_message(client, &schedule).await, "23514");
        let what = format!(
            "SELECT egret.request_view('burn', '{{public,a}}', 'q', 'q', 'auto', NULL, '{role}')"
        );
        assert!(client.query_one(&what, &[]).await.is_err());
        let many = format!(
            "SELECT count(egret.request_view('create', ARRAY['public', 'v' || n], 'q', 'q', 'auto', NULL, '{role}')) \
             FROM generate_series(1, 1000) AS n"
        );
        assert_eq!(rig.query_number(&many).await, 1_000);
        assert_eq!(refusal_message(client, &asked("'a'", "'q'", "'q'")).await, "53400");
        rig.execute("RESET SESSION AUTHORIZATION; DELETE FROM egret.view_request").await;
        rig.execute(&format!("SET SESSION AUTHORIZATION {role}")).await;
        let large = format!(
            "SELECT count(egret.request_view('create', ARRAY['public', 'v' || n], 'q', repeat('x', 1048576), 'auto', NULL, '{role}')) \
             FROM generate_series(1, 16) AS n"
        );
        assert_eq!(rig.query_number(&large).await, 16);
        assert_eq!(refusal_message(client, &asked("'a'", "'q'", "'q'")).await, "53400");
        rig.execute("RESET SESSION AUTHORIZATION").await;
        tear_down(rig, &role).await;
    }
}

/// What a request or a view failed of may quote rows: it is told to those whose it is.
#[tokio::test]
async fn errors_are_told_to_those_whose_request_or_view_it_is() {
    let (rig, role) = rig_with_role(18).await;
    let client = &rig.client;
    let other = format!("other_{}", rig.database.name);
    rig.execute(&format!("CREATE ROLE {other}")).await;
    rig.views.allow(None, std::slice::from_ref(&other)).await.unwrap();
    rig.execute(&format!("SET SESSION AUTHORIZATION {role}")).await;
    wait_for_request(client, CREATE).await.unwrap();
    let failing = "SELECT egret.create_view('top', 'SELECT id, ctid FROM t')";
    let request: i64 = client.query_one(failing, &[]).await.unwrap().get(0);
    let asked = format!("SELECT egret.request_done({request})");
    let told = async || -> Result<bool, String> {
        match client.query_one(&asked, &[]).await {
            Ok(row) => Ok(row.get(0)),
            Err(error) => Err(egret_base::error::chain(&error).to_string()),
        }
    };
    let own = eventually("the request fails", async || told().await.err()).await;
    assert!(own.contains("ctid"), "{own}");
    rig.execute(&format!(
        "RESET SESSION AUTHORIZATION; UPDATE egret.view SET reason = 'it quotes a row'; SET SESSION AUTHORIZATION {other}"
    ))
    .await;
    let hidden = told().await.unwrap_err();
    assert!(hidden.contains("there is no request") && !hidden.contains("ctid"), "{hidden}");
    let reason = "SELECT count(reason) FROM egret.freshness('mine')";
    assert_eq!(rig.query_number(reason).await, 0);
    // After SET ROLE it is the role that counts.
    rig.execute(&format!("RESET SESSION AUTHORIZATION; SET ROLE {other}")).await;
    assert!(told().await.unwrap_err().contains("there is no request"));
    rig.execute(&format!("SET SESSION AUTHORIZATION {role}")).await;
    assert_eq!(rig.query_number(reason).await, 1);
    rig.execute(&format!("RESET SESSION AUTHORIZATION; DROP OWNED BY {other}; DROP ROLE {other}"))
        .await;
    tear_down(rig, &role).await;
}

/// Constants whose meaning depends on settings, and what they are in a session with
/// [`FOREIGN_SETTINGS`].
const CONSTANTS: &str = "SELECT id, date '01/02/2020' AS day, interval '-1 2:03:04' AS span, \
    timestamptz '03/04/2020 12:00' AS moment FROM t WHERE d < date '01/02/2020'";
const FOREIGN_SETTINGS: &str =
    "SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'; SET TimeZone = 'Asia/Tokyo'";
const EXPECTED: &str = "SELECT count(*) FROM constants WHERE day = date '2020-02-01' AND moment = timestamptz '2020-04-03 03:00Z' \
    AND span = interval '-1 day -2 hours -3 minutes -4 seconds'";

#[tokio::test]
async fn constants_mean_what_they_did_in_the_session_that_asked() {
    for mode in ["incremental", "full"] {
        let (rig, role) = rig_with_role(18).await;
        rig.execute("ALTER TABLE t ADD d date NOT NULL DEFAULT '2020-01-15'").await;
        rig.execute(&format!("SET ROLE {role}; {FOREIGN_SETTINGS}")).await;
        let create =
            format!("SELECT egret.create_view('constants', $${CONSTANTS}$$, mode => '{mode}')");
        wait_for_request(&rig.client, &create).await.unwrap();
        rig.execute("RESET ROLE; RESET DateStyle; RESET IntervalStyle; RESET TimeZone").await;
        assert_eq!(rig.query_number(EXPECTED).await, 100, "{mode}");
        rig.execute("INSERT INTO t VALUES (101, 1, 1, '2020-01-31'), (102, 1, 1, '2020-02-01')")
            .await;
        rig.views.repair(&view_ref("constants"), &MakerRights::administrator()).await.unwrap();
        assert_eq!(rig.query_number(EXPECTED).await, 101, "{mode}");
        rig.execute("INSERT INTO t VALUES (103, 1, 1, '2020-01-31'), (104, 1, 1, '2020-02-01')")
            .await;
        // One that has loaded nothing yet.
        let other = new_engine(&rig.database, ViewsConfig::default());
        other.refresh(&view_ref("constants")).await.unwrap();
        assert_eq!(rig.query_number(EXPECTED).await, 102, "{mode}");
        tear_down(rig, &role).await;
    }
}

/// What a user's query gives in the same database is what its view shows.
#[tokio::test]
async fn constants_of_a_view_mean_what_the_settings_of_its_database_say() {
    let rig = Rig::new(18).await;
    let name = &rig.database.name;
    for setting in FOREIGN_SETTINGS.split("; ") {
        rig.execute(&format!("ALTER DATABASE {name} {setting}")).await;
    }
    rig.execute(TABLES).await;
    rig.execute("ALTER TABLE t ADD d date NOT NULL DEFAULT '2020-01-15'").await;
    rig.create(new_view("constants", CONSTANTS)).await.unwrap();
    assert_eq!(rig.query_number(EXPECTED).await, 100);
    // What is altered later changes no view.
    for setting in ["DateStyle", "IntervalStyle", "TimeZone"] {
        rig.execute(&format!("ALTER DATABASE {name} RESET {setting}")).await;
    }
    let other = new_engine(&rig.database, ViewsConfig::default());
    rig.execute("INSERT INTO t VALUES (101, 1, 1, '2020-01-31')").await;
    other.refresh(&view_ref("constants")).await.unwrap();
    other.repair(&view_ref("constants"), &MakerRights::administrator()).await.unwrap();
    assert_eq!(rig.query_number(EXPECTED).await, 101);
    let found = other.verify(&view_ref("constants")).await.unwrap();
    assert_eq!((found.missing, found.extra), (0, 0));
}

/// A setting that the server refuses by now concerns the view that was made with it, and no other
/// one over the same tables.
#[tokio::test]
async fn a_setting_that_is_refused_stops_its_view_alone() {
    let (rig, role) = rig_with_role(18).await;
    rig.execute("CREATE TEXT SEARCH CONFIGURATION public.mine (COPY = pg_catalog.simple)").await;
    rig.execute(&format!("SET ROLE {role}; SET default_text_search_config = 'public.mine'")).await;
    let create = "SELECT egret.create_view('own', 'SELECT id FROM public.t')";
    wait_for_request(&rig.client, create).await.unwrap();
    rig.execute("RESET ROLE; RESET default_text_search_config").await;
    rig.create(new_view("shared", "SELECT id FROM t")).await.unwrap();
    rig.execute("DROP TEXT SEARCH CONFIGURATION public.mine; INSERT INTO t VALUES (101, 1, 1)")
        .await;
    let other = new_engine(&rig.database, ViewsConfig::default());
    other.refresh(&view_ref("shared")).await.unwrap();
    assert_eq!(rig.query_number("SELECT count(*) FROM shared").await, 101);
    let refused = other.refresh(&view_ref("own")).await.unwrap_err();
    let message = refused.to_string();
    assert!(message.contains("default_text_search_config"), "{message}");
    assert_eq!(rig.query_number("SELECT count(*) FROM own").await, 100);
    tear_down(rig, &role).await;
}
