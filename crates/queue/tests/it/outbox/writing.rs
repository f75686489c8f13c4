//! The functions: keys, transactions, values out of range, rights, removal.

use egret_base::{CodedError, Kind};
use egret_postgres::installation::inventory;
use egret_queue::{Format, QueueError};

use super::rig::{Rig, count, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_enqueued_arrives_as_it_was_meant() {
    for major in 15..=18 {
        let rig = Rig::start(major).await;
        let sql = r#"SELECT egret.enqueue('q', '{"n": 1}', priority => 7, ordering_key => 'k',
            delay => '1 hour', max_attempts => 3, unique_key => 'u', unique_window => '1 day',
            tags => '{red,blue}', metadata => '{"who": "me"}', callback_url => 'http://localhost/x',
            timeout => '90 s')::text"#;
        let key: String = rig.client.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(key.as_bytes()[14], b'7', "{major}: {key}");
        rig.await_drained().await;
        let task = rig.only_task("q").await;
        assert_eq!(task.payload, br#"{"n": 1}"#);
        assert_eq!(task.format, Format::Json);
        assert_eq!((task.priority, task.max_attempts), (7, 3));
        assert_eq!((&*task.ordering_key, &*task.unique_key), ("k", "u"));
        assert_eq!(task.tags, ["red", "blue"]);
        assert_eq!(task.metadata["who"], "me");
        assert_eq!(task.callback_url, "http://localhost/x");
        assert!(task.run_at_ms > task.id.created_ms() + 3_500_000);

        // The same within its window is the same task, though its row has another key.
        let again = "SELECT egret.enqueue('q', '{}', ordering_key => 'k', unique_key => 'u')";
        rig.client.batch_execute(again).await.unwrap();
        rig.await_drained().await;
        assert_eq!(rig.tasks("q").await.len(), 1);

        let bytes = r"SELECT egret.enqueue_bytes('b', '\x00ff')";
        let settings = egret_queue::SettingsChange::default();
        let made = rig.queues.put_queue(super::rig::TENANT, "b", &settings);
        made.await.unwrap();
        rig.client.batch_execute(bytes).await.unwrap();
        rig.await_drained().await;
        let task = rig.only_task("b").await;
        assert_eq!((&*task.payload, task.format), (&b"\x00\xff"[..], Format::Bytes));
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_uuids_of_version_7_in_the_order_of_their_making() {
    for major in 15..=18 {
        let rig = Rig::install(major).await;
        let sql = "SELECT egret.outbox_key()::text FROM generate_series(1, 1000)";
        let rows = rig.client.query(sql, &[]).await.unwrap();
        let keys: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        for key in &keys {
            let version = key.as_bytes()[14];
            let variant = key.as_bytes()[19];
            assert!(version == b'7' && b"89ab".contains(&variant), "{key}");
        }
        let (first, last) = (&keys[0], &keys[999]);
        assert!(first[..18] <= last[..18], "{first} {last}");
        let now = "SELECT abs(('x' || lpad(left(replace(egret.outbox_key()::text, '-', ''), 12), 16, '0'))::bit(64)::bigint
                   - (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
        assert!(count(&rig.client, now).await < 1_000);
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_committed_becomes_a_task() {
    let rig = Rig::start(18).await;
    let script = "BEGIN; SELECT egret.enqueue('q', '1'); ROLLBACK;
         BEGIN; SELECT egret.enqueue('q', '2');
           SAVEPOINT s; SELECT egret.enqueue('q', '3'); ROLLBACK TO SAVEPOINT s;
           SELECT egret.enqueue('q', '4');
           SAVEPOINT t; SELECT egret.enqueue('q', '5'); RELEASE SAVEPOINT t; COMMIT;
         DO $$ BEGIN
             PERFORM egret.enqueue('q', '6');
             BEGIN PERFORM egret.enqueue('q', '7'); PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN NULL; END;
         END $$";
    for statement in script.split_inclusive("COMMIT;") {
        rig.client.batch_execute(statement).await.unwrap();
    }
    // Also in a transaction of two phases, where notifying is to be left out.
    let prepared = "BEGIN; SET LOCAL egret.outbox_notify = off; SELECT egret.enqueue('q', '8');
         PREPARE TRANSACTION 'outbox_8'";
    rig.client.batch_execute(prepared).await.unwrap();
    rig.await_drained().await;
    assert_eq!(super::rig::payloads(&rig.queues, "q").await, ["2", "4", "5", "6"]);
    let commit = "COMMIT PREPARED 'outbox_8'";
    rig.client.batch_execute(commit).await.unwrap();
    rig.await_drained().await;
    assert_eq!(rig.tasks("q").await.len(), 5);
    rig.stop().await;
}

/// Arguments, the SQLSTATE they are refused with, and what the message says.
const OUT_OF_RANGE: [(&str, &str, &str); 22] = [
    ("NULL, '1'", "22023", "queue: NULL is not 1 to 128 letters"),
    ("'-q', '1'", "22023", "queue: '-q' is not"),
    ("'a b', '1'", "22023", "queue: 'a b' is not"),
    ("'q', NULL", "22004", "payload: it is null"),
    (
        "'q', to_jsonb(repeat('x', 1048576))",
        "54000",
        "payload: it has 1048578 bytes, but queue.payload_bytes_max is 1048576",
    ),
    ("'q', '1', priority => 10", "22023", "priority: 10 is not from 0 to 9"),
    ("'q', '1', priority => -1", "22023", "priority: -1 is not"),
    ("'q', '1', max_attempts => 0", "22023", "max_attempts: 0 is not from 1 to 10000"),
    ("'q', '1', run_at => now(), delay => '1 s'", "22023", "run_at: it is given beside delay"),
    ("'q', '1', run_at => 'infinity'", "22023", "run_at: infinity is not"),
    ("'q', '1', delay => '-1 s'", "22023", "delay: -00:00:01 is not from zero to ten years"),
    ("'q', '1', delay => '11 years'", "22023", "delay: 11 years is not"),
    ("'q', '1', timeout => '11 years'", "22023", "timeout: 11 years is not"),
    ("'q', '1', unique_window => '1 s'", "22023", "unique_window: it is given without unique_key"),
    (
        "'q', '1', unique_key => repeat('k', 1025)",
        "54000",
        "unique_key: it has 1025 bytes, at most 1024",
    ),
    ("'q', '1', ordering_key => repeat('ä', 513)", "54000", "ordering_key: it has 1026 bytes"),
    ("'q', '1', tags => array_fill('t'::text, '{65}')", "54000", "tags: 65 are given, at most 64"),
    ("'q', '1', tags => '{a,NULL}'", "22004", "tags: one of them is null"),
    ("'q', '1', tags => ARRAY[repeat('t', 1025)]", "54000", "tags: it has 1025 bytes"),
    ("'q', '1', metadata => '[]'", "22023", "metadata: it is not an object"),
    ("'q', '1', metadata => '{\"a\": 1}'", "22023", "metadata: the value of 'a' is not a text"),
    ("'q', '1', callback_url => 'ftp://x'", "22023", "callback_url: it must begin with http"),
];

#[tokio::test(flavor = "multi_thread")]
async fn values_out_of_range_are_refused_where_they_are_given() {
    let rig = Rig::install(15).await;
    for (arguments, code, says) in OUT_OF_RANGE {
        let (found, message) = rig.refusal(&format!("SELECT egret.enqueue({arguments})")).await;
        assert_eq!(found, code, "{arguments}: {message}");
        assert!(message.contains(says), "{arguments}: {message}");
    }
    assert_eq!(count(&rig.client, "SELECT count(*) FROM egret.outbox").await, 0);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_enqueue_reads_nothing() {
    let rig = Rig::install(18).await;
    let role = format!("app_{}", rig.database.name);
    let sql = format!("CREATE ROLE {role}");
    rig.client.batch_execute(&sql).await.unwrap();
    let app = rig.database.connect().await;
    let sql = format!("SET ROLE {role}");
    app.batch_execute(&sql).await.unwrap();
    let enqueue = "SELECT egret.enqueue('q', '{}')";
    let (code, message) = refusal(&app, enqueue).await;
    assert_eq!(code, "42501", "{message}");

    rig.outbox.install(None, std::slice::from_ref(&role)).await.unwrap();
    app.batch_execute(enqueue).await.unwrap();
    for sql in [
        "SELECT * FROM egret.outbox",
        "INSERT INTO egret.outbox (queue, payload, is_json) VALUES ('q', '', false)",
        "DELETE FROM egret.outbox",
        "SELECT * FROM egret.outbox_rejected",
        "SELECT * FROM egret.migration",
        "UPDATE egret.outbox_limit SET payload_bytes_max = 1",
        "SELECT egret.outbox_put('q', '', false, 1, '', NULL, NULL, 1, NULL, '', NULL, NULL, NULL, '', '')",
    ] {
        let (code, message) = refusal(&app, sql).await;
        assert_eq!(code, "42501", "{sql}: {message}");
    }
    // Names that the caller puts in the way are not looked at.
    app.batch_execute(
        "CREATE TEMPORARY TABLE outbox (key uuid);
         CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT 1/0';
         SET search_path = pg_temp, pg_catalog; SELECT egret.enqueue('q', '{}')",
    )
    .await
    .unwrap();
    assert_eq!(count(&rig.client, "SELECT count(*) FROM egret.outbox").await, 2);
    let by = format!("SELECT count(*) FROM egret.outbox WHERE enqueued_by = '{role}'");
    // The role that is logged in, not the one set by `SET ROLE`.
    assert_eq!(count(&rig.client, &by).await, 0);
    drop(app);
    let sql = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    rig.client.batch_execute(&sql).await.unwrap();
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_removed_without_a_trace_but_not_with_rows() {
    let rig = Rig::install(18).await;
    let enqueue = "SELECT egret.enqueue('q', '{}')";
    rig.client.batch_execute(enqueue).await.unwrap();
    let error = rig.outbox.remove(None, false).await.unwrap_err();
    let QueueError::OutboxInUse { waiting: 1, rejected: 0, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(rig.view().await.waiting, 1);
    let (database, rows) = rig.outbox.remove(None, true).await.unwrap();
    assert_eq!((&*database, rows), (&*rig.database.name, 1));
    let left = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relkind = 'r'
                        AND relname <> 'migration')
                     + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'egret'::regnamespace AND proname <> 'guard_schema')
                     + (SELECT count(*) FROM egret.migration)";
    assert_eq!(count(&rig.client, left).await, 0);
    assert_eq!(rig.outbox.list().await.unwrap().outboxes, []);
    let error = rig.outbox.remove(None, false).await.unwrap_err();
    assert!(error.to_string().contains("no database has an outbox"), "{error}");
    rig.outbox.install(None, &[]).await.unwrap();
    rig.client.batch_execute(enqueue).await.unwrap();
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_exist_is_not_found_whatever_is_to_be_done_with_it() {
    let rig = Rig::install(18).await;
    let nowhere = Some("not_there");
    let refused = [
        rig.outbox.install(nowhere, &[]).await.map(drop),
        rig.outbox.remove(nowhere, false).await.map(drop),
        rig.outbox.retry_rejected(nowhere).await.map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert_eq!((error.code(), error.kind()), ("database_not_found", Kind::NotFound));
        let message = error.to_string();
        let expected = "database: `not_there` does not exist; there are: ";
        assert!(message.starts_with(expected), "{message}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_outbox_is_taken_for_a_users() {
    let rig = Rig::install(18).await;
    let found = inventory(&rig.client).await.unwrap().unwrap();
    assert_eq!(found.obstacles, []);
    assert_eq!(found.indexes, Vec::<String>::new());
    rig.stop().await;
}
