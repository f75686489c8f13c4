//! The databases of a server, and sessions in them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use egret_base::CodedError;
use egret_base::condition::ConditionSet;
use egret_base::lifecycle::Readiness;
use egret_base_test::eventually;
use egret_postgres::database_watch::{DatabaseVisitor, DatabaseWatch};
use egret_postgres::databases::is_database_missing;
use egret_postgres::{Databases, PostgresError, pool};
use egret_postgres_test::TestDatabase;
use tokio::sync::{Notify, watch};

/// Every database of the server that the tests share; all of them may make some.
fn every(database: &TestDatabase) -> Databases {
    let connection = database.connection();
    Databases::all(move |name| {
        let mut connection = connection.clone();
        connection.dbname(name).application_name("egret/databases");
        connection
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_databases_are_listed_without_templates() {
    let database = TestDatabase::create(18).await;
    let databases = every(&database);
    assert!(!databases.is_remote());
    let names = databases.names().await.unwrap();
    assert!(names.contains(&database.name) && names.contains(&"postgres".to_owned()));
    assert!(!names.contains(&"template1".to_owned()), "{names:?}");
    let chosen = databases.choose(Some(&database.name)).await.unwrap();
    assert_eq!(chosen, database.name);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_settings_of_its_own_whatever_its_database_says() {
    let database = TestDatabase::create(15).await;
    let alter = format!(
        "ALTER DATABASE {} SET search_path = public; ALTER DATABASE {0} SET statement_timeout = 50",
        database.name
    );
    database.connect().await.batch_execute(&alter).await.unwrap();
    let (every, one) = (every(&database), Databases::single(database.connection()));
    for databases in [every, one] {
        let client = databases.client(&database.name).await.unwrap();
        let sql = "SELECT current_database()::text, current_setting('search_path'),
                   current_setting('statement_timeout')";
        let row = client.query_one(sql, &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), database.name);
        let found: [String; 2] = [row.get(1), row.get(2)];
        assert_eq!(found, ["pg_catalog, pg_temp", "0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_gone_is_told_from_other_failures() {
    let database = TestDatabase::create(18).await;
    let databases = every(&database);
    let Err(error) = databases.client("not_there").await else {
        panic!("there is such a database")
    };
    assert!(is_database_missing(&error), "{error}");
    let mut connection = database.connection();
    connection.user("nobody_of_this_name");
    let Err(error) = Databases::single(connection).client(&database.name).await else {
        panic!("there is such a role")
    };
    assert!(!is_database_missing(&error), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_sessions_is_there_and_named() {
    let database = TestDatabase::create(18).await;
    let elsewhere = TestDatabase::create(18).await;
    let name = &database.name;
    let (databases, admin) = (every(&database), elsewhere.connect().await);
    let refused = async || {
        let asked = databases.choose(Some(name)).await.unwrap();
        let Err(error) = databases.client(&asked).await else { panic!("a session is opened") };
        assert_eq!(error.code(), "postgres_database_unreachable", "{error}");
        assert!(error.retryable() && !is_database_missing(&error), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    };
    let preload = format!("ALTER DATABASE {name} SET session_preload_libraries = 'not_there'");
    admin.batch_execute(&preload).await.unwrap();
    refused().await;
    assert!(!databases.is_closed(name).await.unwrap());
    // Sessions of Egret as superuser load nothing.
    let mut connection = database.connection();
    connection.options("-c session_preload_libraries=");
    pool::connect(&connection).await.unwrap();
    let close = format!(
        "ALTER DATABASE {name} RESET session_preload_libraries; ALTER DATABASE {name} ALLOW_CONNECTIONS false"
    );
    admin.batch_execute(&close).await.unwrap();
    refused().await;
    assert!(databases.is_closed(name).await.unwrap());
    assert!(!databases.names().await.unwrap().contains(name));
    let open = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true");
    admin.batch_execute(&open).await.unwrap();
    databases.client(name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_server_opens_no_session_is_not_ready_until_it_does() {
    let database = TestDatabase::create(18).await;
    let elsewhere = TestDatabase::create(18).await;
    let admin = elsewhere.connect().await;
    let (name, databases) = (&database.name, Databases::single(database.connection()));
    let allow = async |allowed: &str| {
        let sql = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}");
        admin.batch_execute(&sql).await.unwrap();
    };
    allow("false").await;
    databases.client(name).await.map(|_| ()).unwrap_err();
    let reason = eventually("the engine is not ready", async || match databases.readiness() {
        Readiness::Ready => None,
        Readiness::NotReady(reason) | Readiness::Failed(reason) => Some(reason),
    })
    .await;
    let expected = "PostgreSQL: it opens no session: the server refuses it (SQLSTATE 55000)";
    assert_eq!(reason, expected);
    allow("true").await;
    // No session is asked for.
    eventually("the engine is ready", async || match databases.readiness() {
        Readiness::Ready => Ok(()),
        other => Err(other),
    })
    .await;
    // What one database of several refuses is not the server's.
    let every = every(&database);
    every.client("not_there").await.map(|_| ()).unwrap_err();
    assert_eq!(every.readiness(), Readiness::Ready);
}

/// Counts visits, and fails in one database until it was visited often enough.
struct CountingVisitor {
    visits: Mutex<BTreeMap<String, u32>>,
    failing: String,
    is_done: watch::Sender<bool>,
}

impl CountingVisitor {
    /// Visits of the failing database after which the test ends; fewer than make a condition.
    const ENOUGH: u32 = 5;

    fn visits(&self, database: &str) -> u32 {
        let visits = self.visits.lock().unwrap();
        visits.get(database).copied().unwrap_or(0)
    }
}

impl DatabaseVisitor for CountingVisitor {
    type Error = PostgresError;

    async fn visit(&self, database: &str) -> Result<(), PostgresError> {
        let mut visits = self.visits.lock().unwrap();
        let count = visits.entry(database.to_owned()).or_insert(0);
        *count += 1;
        if database != self.failing {
            return Ok(());
        }
        if *count >= Self::ENOUGH {
            self.is_done.send_replace(true);
        }
        Err(PostgresError::NotRunning { reason: "the test says so".to_owned() })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_fails_is_visited_again_without_the_others() {
    let database = TestDatabase::create(18).await;
    let faults = ConditionSet::new("views_databases_unreadable");
    let watched = DatabaseWatch::new(every(&database), faults, "views");
    let (is_done, stopping) = watch::channel(false);
    let visitor =
        CountingVisitor { visits: Mutex::default(), failing: database.name.clone(), is_done };
    let nothing_changes = Notify::new();
    watched.run(&visitor, Duration::ZERO, &nothing_changes, stopping).await;
    assert_eq!(visitor.visits(&database.name), CountingVisitor::ENOUGH);
    let others = visitor.visits("postgres");
    assert!(others < CountingVisitor::ENOUGH, "{others} visits of another one");
}
