//! LISTEN over an interruption.

use egret_postgres::listen::{Heard, Listener, quote_identifier, quote_literal};
use egret_postgres::test_support::TestDatabase;

#[tokio::test(flavor = "multi_thread")]
async fn notifications_arrive_and_a_lost_connection_is_made_again() {
    let database = TestDatabase::create(18).await;
    let mut connection = database.connection();
    connection.application_name("egret/listener");
    let mut listener = Listener::start(connection, vec!["Odd \"channel\"".to_owned()]);
    let client = database.connect().await;
    assert_eq!(listener.next().await, Some(Heard::Connected));
    let notify = format!("NOTIFY {}, 'one'", quote_identifier("Odd \"channel\""));
    client.batch_execute(&notify).await.unwrap();
    let one = Heard::Notified {
        channel: "Odd \"channel\"".to_owned(),
        payload: "one".to_owned(),
    };
    assert_eq!(listener.next().await, Some(one.clone()));

    let ended = client
        .execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE application_name = 'egret/listener' AND datname = current_database()",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(ended, 1);
    assert_eq!(listener.next().await, Some(Heard::Connected));
    client.batch_execute(&notify).await.unwrap();
    assert_eq!(listener.next().await, Some(one));
}

#[tokio::test(flavor = "multi_thread")]
async fn quoted_names_and_texts_mean_themselves() {
    let database = TestDatabase::create(15).await;
    let client = database.connect().await;
    for text in ["plain", "it's", "a\\b", "\\'; DROP", "\"x\""] {
        let sql = format!(
            "SELECT {}::text AS {}",
            quote_literal(text),
            quote_identifier(text)
        );
        let row = client.query_one(&sql, &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), text);
        assert_eq!(row.columns()[0].name(), text);
    }
}
