//! Code of users in what a view reads and calls: it has the rights of role `egret_views`, never those of a superuser.

use egret_views::model::{Mode, NewView};

use super::{Rig, TABLES, at, code, view as manual};

/// A view in a mode, refreshed on request where that is possible.
fn in_mode(mode: Mode, name: &str, query: &str) -> NewView {
    let asked = manual(name, query);
    NewView {
        mode,
        schedule: asked.schedule.clone().filter(|_| mode != Mode::Immediate),
        ..asked
    }
}

const MODES: [Mode; 3] = [Mode::Incremental, Mode::Full, Mode::Immediate];

/// A role without rights, and functions of its own that note as whom they are run, in everything that a query may reach.
fn attacker(role: &str) -> String {
    format!(
        "CREATE ROLE {role}; CREATE SCHEMA m AUTHORIZATION {role}; SET ROLE {role};
        CREATE TABLE m.seen (who text, is_super text);
        GRANT INSERT ON m.seen TO public;
        GRANT USAGE ON SCHEMA m TO public;
        CREATE FUNCTION m.note() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
        BEGIN
            INSERT INTO m.seen SELECT current_user, (SELECT rolsuper::text FROM pg_catalog.pg_roles WHERE rolname = current_user);
            BEGIN EXECUTE 'RESET ROLE'; EXCEPTION WHEN OTHERS THEN NULL; END;
            RETURN pg_catalog.pg_read_file('/etc/passwd', 0, 60);
        END $$;
        CREATE FUNCTION m.steal(int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN RETURN m.note(); EXCEPTION WHEN insufficient_privilege THEN RETURN 'x'; END $$;
        CREATE FUNCTION m.holds(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN PERFORM m.steal($1); RETURN true; END $$;
        CREATE FUNCTION m.joined(int, int) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT m.steal($1)';
        CREATE OPERATOR m.## (LEFTARG = int, RIGHTARG = int, FUNCTION = m.joined);
        CREATE TYPE m.box AS (content int);
        CREATE FUNCTION m.unboxed(m.box) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT m.steal(1)';
        CREATE CAST (m.box AS text) WITH FUNCTION m.unboxed(m.box);
        CREATE DOMAIN m.checked AS int CHECK (m.holds(VALUE));
        CREATE AGGREGATE m.gathered(int) (SFUNC = int4pl, STYPE = int, FINALFUNC = m.steal);
        CREATE TABLE m.plain (id int PRIMARY KEY, b m.box);
        INSERT INTO m.plain VALUES (1, ROW(1));
        CREATE TABLE m.indexed (id int PRIMARY KEY);
        CREATE INDEX ON m.indexed ((m.steal(1)));
        CREATE TABLE m.partly (id int PRIMARY KEY);
        CREATE INDEX ON m.partly (id) WHERE m.holds(1);
        CREATE TABLE m.constrained (id int PRIMARY KEY CHECK (m.holds(id)));
        CREATE TABLE m.ranged (id int PRIMARY KEY, of_domain m.checked);
        CREATE TABLE m.generated (id int PRIMARY KEY, g text GENERATED ALWAYS AS (m.steal(1)) STORED);
        CREATE TABLE m.defaulted (id int PRIMARY KEY, d text DEFAULT m.steal(1));
        CREATE TABLE m.secured (id int PRIMARY KEY);
        ALTER TABLE m.secured ENABLE ROW LEVEL SECURITY;
        CREATE POLICY p ON m.secured USING (m.holds(id));
        CREATE VIEW m.shown AS SELECT m.steal(id) AS s, id FROM m.plain;
        CREATE TABLE m.\"a\"\"; DROP TABLE public.t; --\" (id int PRIMARY KEY);
        RESET ROLE; TRUNCATE m.seen"
    )
}

const AS_SUPERUSER: &str = "SELECT count(*) FROM m.seen WHERE is_super = 'true'";

#[tokio::test]
async fn code_of_a_role_is_not_run_as_a_superuser() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        let role = format!("mallory_{}", rig.database.name);
        rig.run(TABLES).await;
        rig.run(&attacker(&role)).await;
        let queries = [
            ("SELECT m.steal(id) AS s, id FROM m.plain", false),
            ("SELECT m.steal(1) AS s, id FROM public.t", false),
            ("SELECT id OPERATOR(m.##) id AS s, id FROM m.plain", false),
            ("SELECT b::text AS s, id FROM m.plain", false),
            ("SELECT id::m.checked AS s, id FROM m.plain", false),
            ("SELECT '{1}'::m.checked[] AS s, id FROM m.plain", false),
            ("SELECT m.gathered(id) AS s FROM m.plain", false),
            ("SELECT count(*) AS s FROM m.indexed", false),
            ("SELECT id FROM m.partly", false),
            ("SELECT id FROM m.constrained", false),
            ("SELECT id, of_domain FROM m.ranged", false),
            ("SELECT id FROM m.secured", false),
            ("SELECT s, id FROM m.shown", false),
            ("SELECT id, g FROM m.generated", true),
            ("SELECT id, d FROM m.defaulted", true),
            ("SELECT id FROM m.\"a\"\"; DROP TABLE public.t; --\"", true),
        ];
        for (number, (query, is_possible)) in queries.iter().enumerate() {
            for mode in MODES {
                let asked = in_mode(mode, &format!("v{number}_{mode:?}").to_lowercase(), query);
                let made = rig.create(asked).await;
                assert_eq!(made.is_ok(), *is_possible, "{query} {mode:?}: {made:?}");
            }
            assert_eq!(rig.number(AS_SUPERUSER).await, 0, "{query}");
        }
        // What writers fire, and what refreshes read of it. The function has reset the role of this session each time.
        rig.run("INSERT INTO m.generated (id) VALUES (7); TRUNCATE m.seen")
            .await;
        rig.run(&format!(
            "SET ROLE {role}; INSERT INTO m.generated (id) VALUES (8); SET ROLE {role}; INSERT INTO m.defaulted (id) VALUES (8); RESET ROLE"
        ))
        .await;
        rig.refresh("v13_incremental").await;
        rig.verify(&["v13_incremental", "v13_full", "v14_immediate"])
            .await;
        assert_eq!(rig.number(AS_SUPERUSER).await, 0);
        assert_eq!(rig.number("SELECT count(*) FROM t").await, 100);
        rig.views.uninstall(None, true).await.unwrap();
        rig.run(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"))
            .await;
    }
}

#[tokio::test]
async fn secrets_are_read_by_no_view() {
    let rig = Rig::new(18).await;
    rig.run(TABLES).await;
    rig.create(manual("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g"))
        .await
        .unwrap();
    let intruder = format!("intruder_{}", rig.database.name);
    let several = [
        format!("SELECT 1 AS x; CREATE ROLE {intruder} SUPERUSER"),
        format!("SELECT 1 AS x) ; CREATE ROLE {intruder} SUPERUSER; --"),
    ];
    let queries = [
        "SELECT rolname::text AS r, rolpassword AS p FROM pg_authid",
        "SELECT usename::text AS r, passwd AS p FROM pg_shadow",
        "SELECT table_to_xml('pg_authid', true, true, '')::text AS x",
        "SELECT query_to_xml('select * from pg_authid', true, true, '')::text AS x",
        "SELECT schema_to_xml('egret', true, true, '')::text AS x",
        "SELECT pg_read_file('/etc/passwd') AS x",
        "SELECT pg_ls_dir('/') AS x",
        "SELECT id, query FROM egret.view",
        "SELECT capture, reads FROM egret.view_table",
        "SELECT set_config('role', 'egret', false) AS x",
    ];
    let queries = queries
        .iter()
        .copied()
        .chain(several.iter().map(String::as_str));
    for query in queries {
        for mode in MODES {
            let asked = in_mode(mode, "secret", query);
            let refused = code(rig.create(asked).await);
            let codes = ["view_unsupported", "view_query_refused", "view_not_filled"];
            assert!(codes.contains(&refused), "{query} {mode:?}: {refused}");
        }
    }
    let sql = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{intruder}'");
    assert_eq!(rig.number(&sql).await, 0);
}

#[tokio::test]
async fn the_role_of_views_is_nobodys_login_and_loses_what_is_revoked() {
    let rig = Rig::new(18).await;
    rig.run(TABLES).await;
    for mode in MODES {
        let asked = in_mode(
            mode,
            &format!("{mode:?}").to_lowercase(),
            "SELECT id, v FROM t",
        );
        rig.create(asked).await.unwrap();
    }
    let sql = "SELECT count(*) FROM pg_roles AS role WHERE rolname = 'egret_views' AND NOT (rolsuper OR rolcanlogin OR rolcreaterole \
               OR rolcreatedb OR rolreplication OR rolbypassrls) AND NOT EXISTS (SELECT FROM pg_auth_members WHERE roleid = role.oid)";
    assert_eq!(rig.number(sql).await, 1);
    let sql =
        "SELECT count(*) FROM pg_views WHERE schemaname = 'public' AND viewowner = 'egret_views'";
    assert_eq!(rig.number(sql).await, 3);
    let sql = "SELECT count(*) FROM pg_proc AS routine JOIN pg_roles AS owner ON owner.oid = routine.proowner \
               WHERE routine.pronamespace = 'egret'::regnamespace AND proname ~ '^(before|catch_up|fail)_' AND rolname <> 'egret_views'";
    assert_eq!(rig.number(sql).await, 0);
    rig.run("UPDATE t SET v = 1 WHERE id = 1").await;
    assert_eq!(
        rig.number("SELECT count(*) FROM immediate WHERE id = 1 AND v = 1")
            .await,
        1
    );
    rig.refresh("incremental").await;
    rig.verify(&["incremental", "full", "immediate"]).await;
    rig.run("REVOKE SELECT ON t FROM egret_views; UPDATE t SET v = 2 WHERE id = 1")
        .await;
    for name in ["incremental", "full"] {
        let refused = code(rig.views.refresh(&at(name)).await);
        assert_eq!(refused, "view_refresh_failed", "{name}");
    }
}

#[tokio::test]
async fn views_of_superusers_are_given_to_the_role_of_views() {
    let rig = Rig::new(18).await;
    rig.run(TABLES).await;
    for mode in [Mode::Incremental, Mode::Immediate] {
        let asked = in_mode(
            mode,
            &format!("{mode:?}").to_lowercase(),
            "SELECT id, v FROM t",
        );
        rig.create(asked).await.unwrap();
    }
    // As an earlier version has left them.
    rig.run(
        "UPDATE egret.view SET owner = current_user; ALTER VIEW incremental OWNER TO CURRENT_USER; \
         ALTER VIEW immediate OWNER TO CURRENT_USER; REVOKE SELECT ON t FROM egret_views",
    )
    .await;
    let later = super::engine(&rig.database, egret_views::ViewsConfig::default());
    assert_eq!(later.list(None).await.unwrap().len(), 2);
    let sql = "SELECT count(*) FROM egret.view WHERE owner = 'egret_views'";
    assert_eq!(rig.number(sql).await, 2);
    rig.run("INSERT INTO t VALUES (500, 1, 500)").await;
    later.refresh(&at("incremental")).await.unwrap();
    for name in ["incremental", "immediate"] {
        let found = later.verify(&at(name)).await.unwrap();
        assert_eq!((found.missing, found.extra), (0, 0), "{name}");
    }
}
