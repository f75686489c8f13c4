//! The lock of a managed server outlives an interruption.

use egret_base::lifecycle::{Readiness, Service};
use egret_postgres::managed::ManagedServer;
use egret_postgres::test_support::TestDatabase;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_lost_with_its_connection_is_taken_again() {
    let database = TestDatabase::create(18).await;
    let mut connection = database.connection();
    connection.application_name("egret/lock-holder");
    let server = ManagedServer::new(connection);
    server.start().await.unwrap();
    assert_eq!(server.ready(), Readiness::Ready);
    let second = ManagedServer::new(database.connection());
    let refused = second.start().await.unwrap_err().to_string();
    assert!(refused.contains("egret/lock-holder"), "{refused}");

    let client = database.connect().await;
    let ended = client
        .execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE application_name = 'egret/lock-holder'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(ended, 1);
    let held = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
                WHERE locktype = 'advisory' AND application_name = 'egret/lock-holder'";
    while client.query_one(held, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
}
