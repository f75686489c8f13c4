//! What the owner of a database on an external server defines there does not run in Egret's
//! sessions.

use std::future::pending;

use egret_postgres::external::{self, ManagedLock, check};
use egret_postgres::listen::{ListenEvent, Listener, ListeningSession, connect_listening};
use egret_postgres::lock_owner::LockOwner;
use egret_postgres::pool::{self, Pool};
use egret_postgres::{Databases, installation, migrate};
use egret_postgres_test::{TestDatabase, trap_sql};
use tokio_postgres::{Client, GenericClient};

/// Whether something of the owner has run.
async fn is_caught(client: &Client) -> bool {
    let sql = "SELECT is_called OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) $1)
        FROM trap.caught";
    let role = owner_of(client).await;
    client.query_one(sql, &[&role]).await.unwrap().get(0)
}

/// The name of the role that owns the session's database.
async fn owner_of(client: &Client) -> String {
    let sql = "SELECT pg_catalog.concat('owner_', pg_catalog.current_database())";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// A database that belongs to a role which has laid traps.
async fn trapped(major: u32) -> TestDatabase {
    let database = TestDatabase::create(major).await;
    let owner = format!("owner_{}", database.name);
    let client = database.connect().await;
    let sql = trap_sql(&owner, &database.name);
    client.batch_execute(&sql).await.unwrap();
    database
}

/// The settings that a session has, and its role.
async fn settings(client: &impl GenericClient) -> Vec<String> {
    let names = [
        "search_path",
        "role",
        "default_transaction_read_only",
        "default_transaction_isolation",
        "default_transaction_deferrable",
        "statement_timeout",
        "lock_timeout",
        "idle_session_timeout",
        "idle_in_transaction_session_timeout",
        "row_security",
        "standard_conforming_strings",
        "quote_all_identifiers",
    ];
    let mut values = Vec::new();
    for name in names {
        let sql = "SELECT pg_catalog.current_setting($1)";
        values.push(client.query_one(sql, &[&name]).await.unwrap().get(0));
    }
    values
}

const EXPECTED: [&str; 12] = [
    "pg_catalog, pg_temp",
    "none",
    "off",
    "read committed",
    "off",
    "0",
    "0",
    "0",
    "0",
    "on",
    "on",
    "off",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_trap_of_a_databases_owner_catches_a_session() {
    for major in [15, 18] {
        let database = trapped(major).await;
        let connection = database.connection();
        let report = check(&connection).await.unwrap();
        assert!(report.is_usable(), "{report:?}");

        let mut single = pool::connect(&connection).await.unwrap();
        assert_eq!(settings(&single).await, EXPECTED);
        let kept = external::connect(&connection).await.unwrap();
        assert_eq!(settings(&kept).await, EXPECTED);
        let shared = Pool::new(connection.clone(), 1).unwrap();
        let lent = shared.get().await.unwrap();
        assert_eq!(settings(&**lent).await, EXPECTED);
        let databases = Databases::single(connection.clone());
        let client = databases.client(&database.name).await.unwrap();
        assert_eq!(settings(&client).await, EXPECTED);
        let ListeningSession { client, .. } =
            connect_listening(&connection, "news", pending()).await.unwrap();
        assert_eq!(settings(&client).await, EXPECTED);
        let mut listener = Listener::start(connection.clone(), vec!["news".to_owned()]);
        assert_eq!(listener.next().await, Some(ListenEvent::Connected));
        client.batch_execute("NOTIFY news").await.unwrap();
        assert!(matches!(listener.next().await, Some(ListenEvent::Notified { .. })));

        let owner = LockOwner::unique();
        let held = ManagedLock::acquire(&connection, &owner).await.unwrap();
        ManagedLock::acquire(&connection, &LockOwner::unique()).await.map(|_| ()).unwrap_err();
        // Of the same owner it is taken from the first session.
        let again = ManagedLock::acquire(&connection, &owner).await.unwrap();
        assert!(!held.is_held().await);
        assert!(again.is_held().await);
        migrate::migrate(&mut single, "test", &[]).await.unwrap();
        let found = installation::inventory(&single).await.unwrap();
        assert!(found.is_some());
        installation::uninstall(&mut single, false).await.unwrap();

        assert!(!is_caught(&single).await, "PostgreSQL {major}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_traps_catch_a_session_with_the_defaults_of_its_database() {
    for sql in [
        "SELECT now()",
        "SELECT 1 FROM pg_class LIMIT 1",
        "SELECT 'a'::name",
        "SELECT 1 WHERE 1 = 2",
    ] {
        let database = trapped(18).await;
        let connection = database.connection();
        let careless = pool::connect_with_defaults(&connection).await.unwrap();
        let caught = format!("SET ROLE NONE; {sql}");
        careless.batch_execute("SET default_transaction_read_only = off").await.unwrap();
        careless.batch_execute(&caught).await.unwrap();
        let careful = pool::connect(&connection).await.unwrap();
        assert!(is_caught(&careful).await, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_the_operator_has_set_is_kept() {
    let database = trapped(18).await;
    let (login, group) = (format!("login_{}", database.name), format!("group_{}", database.name));
    let made = format!(
        "CREATE ROLE {group}; CREATE ROLE {login} LOGIN SUPERUSER PASSWORD 'p' IN ROLE {group}; ALTER ROLE {login} SET role = {group}"
    );
    let admin = database.connect().await;
    admin.batch_execute("SET ROLE NONE; SET default_transaction_read_only = off").await.unwrap();
    admin.batch_execute(&made).await.unwrap();
    let role = async |connection: &tokio_postgres::Config| -> String {
        let client = pool::connect(connection).await.unwrap();
        let row = client.query_one("SELECT current_user::text", &[]).await;
        row.unwrap().get(0)
    };
    let mut connection = database.connection();
    let own = role(&connection).await;
    assert_eq!(own, connection.get_user().unwrap());
    connection.user(&login).password("p");
    assert_eq!(role(&connection).await, group);
    let mut named = database.connection();
    named.options(format!("-c role={group}"));
    assert_eq!(role(&named).await, group);
}
