//! Writes to what users read are refused, and differences are found and mended.

use egret_views::model::{MakerRights, Mode, NewView};

use egret_views::ViewsConfig;

use super::{ReadableViews, Rig, TABLES, new_engine, new_view as manual, view_ref};

/// Writes to view `kept`, also those that would change no row.
const WRITES: [&str; 6] = [
    "INSERT INTO kept VALUES (7, 7)",
    "UPDATE kept SET v = 99 WHERE id = 1",
    "UPDATE kept SET v = 99 WHERE false",
    "DELETE FROM kept WHERE id = 2",
    "DELETE FROM kept",
    "COPY kept FROM PROGRAM 'echo'",
];

const QUERY: &str = "SELECT id, v FROM t";

/// The error of each write, as a role.
async fn refusals(rig: &Rig, role: &str) -> Vec<String> {
    let mut messages = Vec::new();
    for write in WRITES {
        if role != "none" && write.starts_with("COPY") {
            continue;
        }
        rig.execute(&format!("SET ROLE {role}")).await;
        let refused = rig.client.batch_execute(write).await.expect_err(write);
        rig.execute("RESET ROLE").await;
        let refused = refused.as_db_error().unwrap();
        messages.push(format!("{}: {}", refused.code().code(), refused.message()));
    }
    messages
}

#[tokio::test]
async fn writes_to_a_view_are_refused_for_everybody() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        let owner = format!("owner_{}", rig.database.name);
        rig.execute(TABLES).await;
        rig.execute(&format!(
            "CREATE ROLE {owner}; GRANT CREATE ON SCHEMA public TO {owner}; GRANT SELECT ON t TO {owner}"
        ))
        .await;
        let cases = [
            (Mode::Incremental, None),
            (Mode::Full, None),
            (Mode::Immediate, None),
            (Mode::Incremental, Some(owner.clone())),
        ];
        for (mode, role) in cases {
            let what = format!("{version} {mode:?} {role:?}");
            let asked = manual("kept", QUERY);
            let schedule = asked.schedule.clone().filter(|_| mode != Mode::Immediate);
            rig.create(NewView { mode, schedule, owner: role.clone(), ..asked }).await.unwrap();
            // The superuser, and the owner: `egret_views` where none is named.
            let owner = role.unwrap_or_else(|| "egret_views".to_owned());
            for role in ["none", &owner] {
                for message in refusals(&rig, role).await {
                    assert!(message.starts_with("55000: cannot "), "{what}: {message}");
                    let reason =
                        "view public.kept: Egret keeps it equal to the result of its query";
                    assert!(message.ends_with(reason), "{what}: {message}");
                }
            }
            rig.execute("UPDATE t SET v = v + 1 WHERE id = 1").await;
            rig.refresh("kept").await;
            rig.verify(&["kept"]).await;
            rig.views.repair(&view_ref("kept"), &MakerRights::administrator()).await.unwrap();
            refusals(&rig, &owner).await;
            rig.verify(&["kept"]).await;
            rig.views.drop(&view_ref("kept")).await.unwrap();
        }
        rig.views.uninstall(None, true).await.unwrap();
        rig.execute(&format!("DROP OWNED BY {owner}; DROP ROLE {owner}")).await;
    }
}

#[tokio::test]
async fn views_of_an_earlier_version_refuse_writes_from_the_next_start_on() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(TABLES).await;
        rig.create(manual("kept", QUERY)).await.unwrap();
        rig.create(manual("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
        rig.execute(
            "DROP FUNCTION egret.refuse_write CASCADE; UPDATE kept SET v = 99 WHERE id = 1",
        )
        .await;
        let found = rig.views.verify(&view_ref("kept")).await.unwrap();
        assert_eq!((found.missing, found.extra), (1, 1));
        // What the last migrations have made is not there yet.
        rig.execute(
            "DROP FUNCTION egret.require_live_view, egret.view_is_live, egret.immediate_stamp, egret.view_dependency_versions; \
             ALTER TABLE egret.view_capture DROP COLUMN columns, DROP COLUMN triggers; \
             ALTER TABLE egret.view DROP COLUMN depends_on; \
             DELETE FROM egret.migration WHERE engine = 'views' AND name IN ('write guard', 'read guard', 'dependencies')",
        )
        .await;
        let later = new_engine(&rig.database, ViewsConfig::default());
        later.validate(None, QUERY, &ReadableViews::All).await.unwrap();
        assert_eq!(refusals(&rig, "none").await.len(), WRITES.len());
        let found = later.verify(&view_ref("kept")).await.unwrap();
        assert_eq!((found.missing, found.extra), (1, 1), "no refresh mends it");
        later.repair(&view_ref("kept"), &MakerRights::administrator()).await.unwrap();
        rig.verify(&["kept", "sums"]).await;
    }
}

/// What is not Egret's own view any more is left alone.
#[tokio::test]
async fn a_view_that_a_user_has_put_in_the_place_of_one_is_not_guarded() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(manual("kept", QUERY)).await.unwrap();
    rig.execute("DROP VIEW kept; CREATE VIEW kept AS SELECT id, v FROM t").await;
    let later = new_engine(&rig.database, ViewsConfig::default());
    later.validate(None, QUERY, &ReadableViews::All).await.unwrap();
    let guards = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'kept'::regclass";
    assert_eq!(rig.query_number(guards).await, 0);
}
