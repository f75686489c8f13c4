//! Code of users in what a view reads and calls: it has the rights of role `egret_views`, never
//! those of a superuser.

use egret_postgres_test::attacker_sql;
use egret_views::model::{Mode, NewView};

use super::{Rig, TABLES, error_code, new_view as manual, view_ref};

/// A view in a mode, refreshed on request where that is possible.
fn new_view_in_mode(mode: Mode, name: &str, query: &str) -> NewView {
    let asked = manual(name, query);
    NewView { mode, schedule: asked.schedule.clone().filter(|_| mode != Mode::Immediate), ..asked }
}

const MODES: [Mode; 3] = [Mode::Incremental, Mode::Full, Mode::Immediate];

const AS_SUPERUSER: &str = "SELECT count(*) FROM mallory.seen WHERE is_super = 'true'";

#[tokio::test]
async fn code_of_a_role_is_not_run_as_a_superuser() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        let role = format!("mallory_{}", rig.database.name);
        rig.execute(TABLES).await;
        rig.execute(&attacker_sql(&role, "public.t")).await;
        let queries = [
            ("SELECT mallory.steal(id) AS s, id FROM mallory.plain", false),
            ("SELECT mallory.steal(1) AS s, id FROM public.t", false),
            ("SELECT id OPERATOR(mallory.##) id AS s, id FROM mallory.plain", false),
            ("SELECT b::text AS s, id FROM mallory.plain", false),
            ("SELECT id::mallory.checked AS s, id FROM mallory.plain", false),
            ("SELECT '{1}'::mallory.checked[] AS s, id FROM mallory.plain", false),
            ("SELECT mallory.gathered(id) AS s FROM mallory.plain", false),
            ("SELECT count(*) AS s FROM mallory.indexed", false),
            ("SELECT id FROM mallory.partly", false),
            ("SELECT id FROM mallory.constrained", false),
            ("SELECT id, of_domain FROM mallory.ranged", false),
            ("SELECT id FROM mallory.secured", false),
            ("SELECT s, id FROM mallory.shown", false),
            ("SELECT id, g FROM mallory.generated", true),
            ("SELECT id, d FROM mallory.defaulted", true),
            ("SELECT id FROM mallory.\"a\"\"; DROP TABLE public.t; --\"", true),
        ];
        for (number, (query, is_possible)) in queries.iter().enumerate() {
            for mode in MODES {
                let asked =
                    new_view_in_mode(mode, &format!("v{number}_{mode:?}").to_lowercase(), query);
                let made = rig.create(asked).await;
                assert_eq!(made.is_ok(), *is_possible, "{query} {mode:?}: {made:?}");
            }
            assert_eq!(rig.query_number(AS_SUPERUSER).await, 0, "{query}");
        }
        // What writers fire, and what refreshes read of it. The function has reset the role of this
        // session each time.
        rig.execute("INSERT INTO mallory.generated (id) VALUES (7); TRUNCATE mallory.seen").await;
        rig.execute(&format!(
            "SET ROLE {role}; INSERT INTO mallory.generated (id) VALUES (8); SET ROLE {role}; INSERT INTO mallory.defaulted (id) VALUES (8); RESET ROLE"
        ))
        .await;
        rig.refresh("v13_incremental").await;
        rig.verify(&["v13_incremental", "v13_full", "v14_immediate"]).await;
        assert_eq!(rig.query_number(AS_SUPERUSER).await, 0);
        assert_eq!(rig.query_number("SELECT count(*) FROM t").await, 100);
        rig.views.uninstall(None, true).await.unwrap();
        rig.execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await;
    }
}

#[tokio::test]
async fn secrets_are_read_by_no_view() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(manual("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
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
    let queries = queries.iter().copied().chain(several.iter().map(String::as_str));
    for query in queries {
        for mode in MODES {
            let asked = new_view_in_mode(mode, "secret", query);
            let refused = error_code(rig.create(asked).await);
            let codes = ["view_unsupported", "view_query_refused", "view_not_filled"];
            assert!(codes.contains(&refused), "{query} {mode:?}: {refused}");
        }
    }
    let sql = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{intruder}'");
    assert_eq!(rig.query_number(&sql).await, 0);
}

#[tokio::test]
async fn the_role_of_views_is_nobodys_login_and_loses_what_is_revoked() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    for mode in MODES {
        let asked =
            new_view_in_mode(mode, &format!("{mode:?}").to_lowercase(), "SELECT id, v FROM t");
        rig.create(asked).await.unwrap();
    }
    let sql = "SELECT count(*) FROM pg_roles AS role WHERE rolname = 'egret_views' AND NOT (rolsuper OR rolcanlogin OR rolcreaterole \
               OR rolcreatedb OR rolreplication OR rolbypassrls) AND NOT EXISTS (SELECT FROM pg_auth_members WHERE roleid = role.oid)";
    assert_eq!(rig.query_number(sql).await, 1);
    let sql =
        "SELECT count(*) FROM pg_views WHERE schemaname = 'public' AND viewowner = 'egret_views'";
    assert_eq!(rig.query_number(sql).await, 3);
    let sql = "SELECT count(*) FROM pg_proc AS routine JOIN pg_roles AS owner ON owner.oid = routine.proowner \
               WHERE routine.pronamespace = 'egret'::regnamespace AND proname ~ '^(before|catch_up|fail)_' AND rolname <> 'egret_views'";
    assert_eq!(rig.query_number(sql).await, 0);
    rig.execute("UPDATE t SET v = 1 WHERE id = 1").await;
    assert_eq!(rig.query_number("SELECT count(*) FROM immediate WHERE id = 1 AND v = 1").await, 1);
    rig.refresh("incremental").await;
    rig.verify(&["incremental", "full", "immediate"]).await;
    rig.execute("REVOKE SELECT ON t FROM egret_views; UPDATE t SET v = 2 WHERE id = 1").await;
    for name in ["incremental", "full"] {
        let refused = error_code(rig.views.refresh(&view_ref(name)).await);
        assert_eq!(refused, "view_refresh_failed", "{name}");
    }
}

#[tokio::test]
async fn views_of_superusers_are_given_to_the_role_of_views() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    for mode in [Mode::Incremental, Mode::Immediate] {
        let asked =
            new_view_in_mode(mode, &format!("{mode:?}").to_lowercase(), "SELECT id, v FROM t");
        rig.create(asked).await.unwrap();
    }
    // As an earlier version has left them.
    rig.execute(
        "UPDATE egret.view SET owner = current_user; ALTER VIEW incremental OWNER TO CURRENT_USER; \
         ALTER VIEW immediate OWNER TO CURRENT_USER; REVOKE SELECT ON t FROM egret_views",
    )
    .await;
    let later = super::new_engine(&rig.database, egret_views::ViewsConfig::default());
    assert_eq!(later.list(None).await.unwrap().len(), 2);
    let sql = "SELECT count(*) FROM egret.view WHERE owner = 'egret_views'";
    assert_eq!(rig.query_number(sql).await, 2);
    rig.execute("INSERT INTO t VALUES (500, 1, 500)").await;
    later.refresh(&view_ref("incremental")).await.unwrap();
    for name in ["incremental", "immediate"] {
        let found = later.verify(&view_ref(name)).await.unwrap();
        assert_eq!((found.missing, found.extra), (0, 0), "{name}");
    }
}
