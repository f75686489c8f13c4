//! Advisory locks that one owner takes again.

use egret_postgres::lock_owner::{LockOutcome, LockOwner};
use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;

const LOCK: i64 = 42;

/// The number of the shared lock of a session, once it has one.
const SHARED: &str = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND mode = 'ShareLock' AND pid = $1";

async fn pid(client: &Client) -> i32 {
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
    row.unwrap().get(0)
}

#[tokio::test]
async fn who_takes_an_owners_private_number_does_not_hold_it_up() {
    let database = TestDatabase::create(18).await;
    let (first, next) = (database.connect().await, database.connect().await);
    let squatter = database.connect().await;
    let owner = LockOwner::unique();
    let taken = owner.try_lock(&first, LOCK).await.unwrap();
    assert_eq!(taken, LockOutcome::Taken);
    let first_pid = pid(&first).await;
    let row = squatter.query_one(SHARED, &[&first_pid]).await.unwrap();
    let number: i64 = row.get(0);
    drop(first);
    // Waits for the end of the session.
    let squat = "SELECT pg_advisory_lock($1)";
    squatter.execute(squat, &[&number]).await.unwrap();
    let taken = owner.try_lock(&next, LOCK).await.unwrap();
    assert_eq!(taken, LockOutcome::Taken);
    let other = LockOwner::unique().try_lock(&squatter, LOCK).await.unwrap();
    assert_eq!(other, LockOutcome::HeldElsewhere);
}

#[tokio::test]
async fn a_lost_session_of_the_same_owner_is_ended() {
    let database = TestDatabase::create(18).await;
    let (lost, next) = (database.connect().await, database.connect().await);
    let owner = LockOwner::unique();
    assert_eq!(owner.try_lock(&lost, LOCK).await.unwrap(), LockOutcome::Taken);
    assert_eq!(owner.try_lock(&next, LOCK).await.unwrap(), LockOutcome::Taken);
    assert!(lost.query_one("SELECT 1", &[]).await.is_err());
}
