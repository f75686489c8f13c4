//! An owner that cannot write: waiting writes fail with the error, and the condition lasts until
//! writes succeed. A write that ends its session is answered too, and others are carried out.

use std::sync::Arc;
use std::time::Duration;

use egret_base::settings::ConfigDuration;
use egret_base_test::{ConditionLog, eventually};
use egret_documents::api::{BatchWrite, WriteOp};
use egret_documents::core::decision::Condition;
use egret_documents::model::{DocumentId, WriteReceipt};
use egret_documents::{DocumentsConfig, DocumentsError};
use egret_postgres_test::{TestDatabase, shared_server};
use futures_util::future::join_all;
use serde_json::json;

use crate::world::{FLIGHTS, World, collection_name, default_parts, engine_at};

/// Timeout for writes that would wait forever if Egret were wrong.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A world whose engine connects as a role that owns the database and is no superuser.
async fn world_of_owner(name: &str, owner_timeout: ConfigDuration) -> (World, String) {
    let shared = tokio::task::spawn_blocking(|| shared_server(18)).await.unwrap();
    let database = Arc::new(TestDatabase::create_in(shared, name.to_owned()).await);
    let role = format!("{name}_owner");
    let make = format!("CREATE ROLE {role}; ALTER DATABASE {name} OWNER TO {role}");
    let admin = database.connect().await;
    admin.batch_execute(&make).await.unwrap();
    let mut connection = database.connection();
    connection.options(format!("-c role={role}"));
    let (_, clock, entropy) = default_parts();
    let config = DocumentsConfig { owner_timeout, ..DocumentsConfig::default() };
    let documents = engine_at(connection, (config, clock, entropy), None);
    let world = World::on_database(database, documents).await;
    world.apply(FLIGHTS).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    (world, role)
}

/// Writes until an error with this text is returned.
async fn await_refusal(world: &World, text: &str) {
    eventually("a write that cannot be done is answered", async || {
        let written = world.post("airports", &json!({"faa": "LGA"})).await;
        // A terminated session is noticed when it is used.
        match written {
            Err(error) if error.to_string().contains(text) => Ok(()),
            other => Err(other.map(drop)),
        }
    })
    .await;
}

/// Writes until it succeeds.
async fn await_written(world: &World) {
    eventually("documents are written again", async || {
        world.post("airports", &json!({"faa": "LGA"})).await
    })
    .await;
}

/// Writes airports as one group. Returns their results.
async fn write_together(
    world: &World,
    names: [&str; 3],
) -> Vec<Result<WriteReceipt, DocumentsError>> {
    let operation = |faa: &str| BatchWrite {
        collection: collection_name("airports"),
        op: WriteOp::Put(None, json!({"faa": faa}).to_string().into_bytes()),
        condition: Condition::Always,
    };
    let operations = names.map(operation).to_vec();
    let written = world.documents.batch_each(&world.caller, operations);
    let answered = tokio::time::timeout(ANSWER_MAX, written).await;
    answered.expect("each write is answered").unwrap()
}

/// The first and the last of three writes succeeded; the other one failed with a retryable error.
fn check_others_are_done(answers: &[Result<WriteReceipt, DocumentsError>]) {
    let [Ok(_), Err(refused), Ok(_)] = answers else {
        panic!("{answers:?}");
    };
    assert!(egret_base::CodedError::retryable(refused), "{refused}");
}

/// Creates the airport `BAD`, and has the server run `action` whenever a session of Egret reads it.
async fn hinder_reading(world: &World, action: &str) -> DocumentId {
    let bad = world.create("airports", &json!({"faa": "BAD"})).await.id;
    let hinder = format!(
        "CREATE SEQUENCE public.reads;
        CREATE FUNCTION public.is_readable(body jsonb) RETURNS boolean
        LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            IF body ->> 'faa' = 'BAD' THEN
                {action};
            END IF;
            RETURN true;
        END $$;
        CREATE POLICY readable ON egret.document USING (public.is_readable(body));
        ALTER TABLE egret.document ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
    );
    world.client.batch_execute(&hinder).await.unwrap();
    bad
}

/// Removes the policy of [`hinder_reading`].
async fn mend_reading(world: &World) {
    let mend = "ALTER TABLE egret.document DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
        DROP POLICY readable ON egret.document";
    world.client.batch_execute(mend).await.unwrap();
}

/// The lock's session works; write sessions cannot prepare their statements.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_without_sessions_to_write_by_gives_up_what_waits_and_stays_unwritable() {
    let (world, _) = world_of_owner("owner_without_sessions", ConfigDuration::ms(500)).await;
    let log = ConditionLog::watch("documents_unwritable", &world.database.name);
    let hinder = "ALTER FUNCTION egret.document_write RENAME TO document_write_put_aside";
    world.client.batch_execute(hinder).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    world.client.batch_execute(end).await.unwrap();
    await_refusal(&world, "document_write").await;
    let epoch = "SELECT epoch FROM egret.document_owner";
    let owned = world.query_number(epoch).await;
    eventually("the owner has tried three times", async || {
        assert!(log.is_active());
        world.query_number(epoch).await >= owned + 3
    })
    .await;
    assert_eq!(log.levels(), ["WARN"]);
    let mend = "ALTER FUNCTION egret.document_write_put_aside RENAME TO document_write";
    world.client.batch_execute(mend).await.unwrap();
    await_written(&world).await;
    eventually("the condition ends", async || !log.is_active()).await;
    assert_eq!(log.levels(), ["WARN", "INFO"]);
    world.stop().await;
}

/// Write sessions can be opened, and fail at their first write.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_sessions_fail_at_every_write_gives_up_what_waits() {
    let (world, role) = world_of_owner("owner_without_rights", ConfigDuration::secs(2)).await;
    let revoke = format!("REVOKE SELECT ON egret.document_alias FROM {role}");
    world.client.batch_execute(&revoke).await.unwrap();
    await_refusal(&world, "permission denied").await;
    let grant = format!("GRANT SELECT ON egret.document_alias TO {role}");
    world.client.batch_execute(&grant).await.unwrap();
    await_written(&world).await;
    world.stop().await;
}

/// Has the server run `action` whenever the airport `BAD` is written. The session ends by it each
/// time: the write is answered after the third time, and others are carried out.
async fn check_write_that_ends_sessions(name: &str, action: &str) {
    let (world, _) = world_of_owner(name, ConfigDuration::secs(30)).await;
    let hinder = format!(
        "CREATE SEQUENCE public.lost;
        CREATE FUNCTION public.end_session() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            IF NEW.body ->> 'faa' = 'BAD' THEN
                PERFORM nextval('public.lost');
                {action};
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER end_session BEFORE INSERT ON egret.document
            FOR EACH ROW EXECUTE FUNCTION public.end_session()"
    );
    world.client.batch_execute(&hinder).await.unwrap();
    check_others_are_done(&write_together(&world, ["ONE", "BAD", "TWO"]).await);
    let lost = "SELECT last_value FROM public.lost";
    assert_eq!(world.query_number(lost).await, 3);
    await_written(&world).await;
    let mend = "DROP TRIGGER end_session ON egret.document";
    world.client.batch_execute(mend).await.unwrap();
    world.create("airports", &json!({"faa": "BAD"})).await;
    world.stop().await;
}

/// As a crash of the session's process does.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_ends_its_session_each_time_is_answered_and_others_are_done() {
    let end = "PERFORM pg_terminate_backend(pg_backend_pid())";
    check_write_that_ends_sessions("owner_of_a_write_that_ends", end).await;
}

/// By this code Egret knows that another one has become the owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_trigger_raises_the_code_of_another_owner_is_answered() {
    let raise = "RAISE EXCEPTION 'not now' USING ERRCODE = '55000'";
    check_write_that_ends_sessions("owner_of_a_write_like_fenced", raise).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_look_up_ends_its_session_is_answered_and_others_are_done() {
    let (world, _) = world_of_owner("owner_of_a_look_up_that_ends", ConfigDuration::secs(30)).await;
    let end = "PERFORM nextval('public.reads'); PERFORM pg_terminate_backend(pg_backend_pid())";
    hinder_reading(&world, end).await;
    check_others_are_done(&write_together(&world, ["ONE", "BAD", "TWO"]).await);
    let reads = "SELECT last_value FROM public.reads";
    assert_eq!(world.query_number(reads).await, 3);
    mend_reading(&world).await;
    await_written(&world).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_look_up_is_refused_takes_no_other_with_it() {
    let (world, _) = world_of_owner("owner_of_a_look_up_that_fails", ConfigDuration::secs(5)).await;
    let log = ConditionLog::watch("documents_unwritable", &world.database.name);
    hinder_reading(&world, "RAISE EXCEPTION 'this airport is not read'").await;
    for round in 0..5 {
        let (before, after) = (format!("B{round}"), format!("A{round}"));
        let answers = write_together(&world, [&before, "BAD", &after]).await;
        check_others_are_done(&answers);
        // By itself.
        let refused = world.post("airports", &json!({"faa": "BAD"})).await.unwrap_err().to_string();
        assert!(refused.contains("this airport is not read"), "{refused}");
    }
    assert_eq!(log.levels(), [""; 0]);
    mend_reading(&world).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_whose_referrers_cannot_be_read_is_refused_by_itself() {
    let (world, _) = world_of_owner("owner_of_unread_referrers", ConfigDuration::secs(5)).await;
    let log = ConditionLog::watch("documents_unwritable", &world.database.name);
    let jfk = world.create("airports", &json!({"faa": "JFK"})).await.id;
    let flight = json!({"number": 1, "origin": "JFK"});
    world.create("flights", &flight).await;
    let hinder = "CREATE FUNCTION public.is_readable(target bigint) RETURNS boolean
        LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'this reference is not read';
        END $$;
        CREATE POLICY readable ON egret.document_edge USING (public.is_readable(target));
        ALTER TABLE egret.document_edge ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY";
    world.client.batch_execute(hinder).await.unwrap();
    let operation = |op: WriteOp<Vec<u8>>| BatchWrite {
        collection: collection_name("airports"),
        op,
        condition: Condition::Always,
    };
    let other = json!({"faa": "LGA"}).to_string().into_bytes();
    let operations = [WriteOp::Delete(jfk), WriteOp::Put(None, other)].map(operation);
    let removed = world.documents.batch_atomic(&world.caller, operations.to_vec());
    let answered = tokio::time::timeout(ANSWER_MAX, removed).await;
    let refused = answered.expect("a removal is answered").unwrap_err().error.to_string();
    assert!(refused.contains("this reference is not read"), "{refused}");
    await_written(&world).await;
    assert_eq!(log.levels(), [""; 0]);
    let mend =
        "ALTER TABLE egret.document_edge DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
        DROP POLICY readable ON egret.document_edge";
    world.client.batch_execute(mend).await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_cannot_be_read_keeps_no_other_from_being_read() {
    let (world, _) = world_of_owner("owner_of_an_unread_document", ConfigDuration::secs(5)).await;
    let good = world.create("airports", &json!({"faa": "LGA"})).await.id;
    let bad = hinder_reading(&world, "RAISE EXCEPTION 'this airport is not read'").await;
    // Those that wait for an answer at the same time are asked for together.
    let ids = [[bad, good, good, good]; 16].concat();
    let read = ids.iter().map(|id| world.get("airports", *id));
    for (id, read) in ids.iter().zip(join_all(read).await) {
        assert_eq!(read.is_ok(), *id == good, "{read:?}");
    }
    mend_reading(&world).await;
    world.stop().await;
}
