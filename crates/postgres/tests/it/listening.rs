//! LISTEN over an interruption.

use std::future::pending;

use egret_postgres::external::parse;
use egret_postgres::listen::{
    ListenEvent, Listener, connect_listening, quote_identifier, quote_literal,
};
use egret_postgres_test::{TestDatabase, free_port};

#[tokio::test(flavor = "multi_thread")]
async fn notifications_arrive_and_a_lost_connection_is_made_again() {
    let database = TestDatabase::create(18).await;
    let mut connection = database.connection();
    connection.application_name("egret/listener");
    let mut listener = Listener::start(connection, vec!["Odd \"channel\"".to_owned()]);
    let client = database.connect().await;
    assert_eq!(listener.next().await, Some(ListenEvent::Connected));
    let notify = format!("NOTIFY {}, 'one'", quote_identifier("Odd \"channel\""));
    client.batch_execute(&notify).await.unwrap();
    let one =
        ListenEvent::Notified { channel: "Odd \"channel\"".to_owned(), payload: "one".to_owned() };
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
    assert_eq!(listener.next().await, Some(ListenEvent::Connected));
    client.batch_execute(&notify).await.unwrap();
    assert_eq!(listener.next().await, Some(one));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_hosts_that_fail_a_listener_names_each_once() {
    let (one, two) = (free_port(), free_port());
    let url = format!("postgres://me@127.0.0.1:{one},localhost:{two}/app?sslmode=disable");
    let connection = parse(&url, "test").unwrap();
    let attended = connect_listening(&connection, "news", pending()).await.map(|_| ());
    let message = attended.unwrap_err().to_string();
    for host in [format!("127.0.0.1:{one}: "), format!("localhost:{two}: ")] {
        assert_eq!(message.matches(&host).count(), 1, "{message}");
    }
    assert_eq!(message.matches("refused").count(), 2, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn quoted_names_and_texts_mean_themselves() {
    let database = TestDatabase::create(15).await;
    let client = database.connect().await;
    for text in ["plain", "it's", "a\\b", "\\'; DROP", "\"x\""] {
        let sql = format!("SELECT {}::text AS {}", quote_literal(text), quote_identifier(text));
        let row = client.query_one(&sql, &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), text);
        assert_eq!(row.columns()[0].name(), text);
    }
}
