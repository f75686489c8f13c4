//! External servers: the report, and the lock that keeps a second Egret away.

use std::time::Duration;

use egret_base::{CodedError, Kind};
use egret_base_test::eventually;
use egret_postgres::external::{CheckStatus, ManagedLock, check, check_within, parse};
use egret_postgres::installation::inventory;
use egret_postgres::lock_owner::{LockOutcome, LockOwner};
use egret_postgres::pool::Pool;
use egret_postgres::tokio_postgres::Config;
use egret_postgres::tokio_postgres::config::Host;
use egret_postgres::{PostgresError, databases, pool};
use egret_postgres_test::{TestDatabase, free_port, start_own_server};

#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_finds_everything_met() {
    for major in 15..=18 {
        let database = TestDatabase::create(major).await;
        let report = check(&database.connection()).await.unwrap();
        assert!(report.is_usable(), "{report:?}");
        assert!(report.checks.iter().all(|finding| finding.status == CheckStatus::Met));
        assert_eq!(report.grants, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_are_reported_with_the_command_that_grants_them() {
    let database = TestDatabase::create(18).await;
    let role = format!("poor_{}", database.name);
    let client = database.connect().await;
    client.batch_execute(&format!("CREATE ROLE {role}")).await.unwrap();
    let mut connection = database.connection();
    connection.options(format!("-c role={role}"));
    let report = check(&connection).await.unwrap();
    assert!(!report.is_usable());
    let rights = report.checks.iter().find(|finding| finding.subject == "rights").unwrap();
    let command = format!("GRANT CREATE ON DATABASE {} TO {role}", database.name);
    assert!(rights.detail.contains(&command), "{}", rights.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_grant_that_views_and_metrics_need_is_named_until_it_is_given() {
    for major in [15, 18] {
        let database = TestDatabase::create(major).await;
        let (name, role) = (&database.name, format!("plain_{}", database.name));
        let client = database.connect().await;
        let make = format!(
            "CREATE ROLE {role}; GRANT CREATE ON DATABASE {name} TO {role};
             REVOKE TEMPORARY ON DATABASE {name} FROM public; CREATE SCHEMA shop;
             CREATE TABLE public.orders (id int); CREATE TABLE shop.\"Items\" (id int);
             GRANT SELECT ON public.orders TO {role}"
        );
        client.batch_execute(&make).await.unwrap();
        let mut connection = database.connection();
        connection.options(format!("-c role={role}"));
        let report = check(&connection).await.unwrap();
        assert!(report.is_usable(), "{report:?}");
        let details: Vec<&str> = report.grants.iter().map(|found| found.detail.as_str()).collect();
        for grant in [
            format!("GRANT TEMPORARY ON DATABASE {name} TO {role}"),
            format!("GRANT CREATE ON SCHEMA public TO {role}"),
            format!("GRANT USAGE ON SCHEMA shop TO {role}"),
            format!("GRANT pg_monitor TO {role}"),
            format!("GRANT TRIGGER ON public.orders TO {role}"),
            format!("GRANT SELECT, TRIGGER ON shop.\"Items\" TO {role}"),
        ] {
            let is_named = details.iter().any(|detail| detail.ends_with(&grant));
            assert!(is_named, "{grant}: {details:?}");
        }
        for detail in &details {
            let (_, grant) = detail.split_once(": ").unwrap();
            client.batch_execute(grant).await.unwrap();
        }
        let report = check(&connection).await.unwrap();
        assert_eq!(report.grants, []);
        let remove = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        client.batch_execute(&remove).await.unwrap();
    }
}

/// A lock holds the check up while its sessions are open already.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_freezes_in_the_middle_of_a_check_ends_it_with_an_error() {
    const STEP_MAX: Duration = Duration::from_secs(5);
    let database =
        TestDatabase::create_in(start_own_server(18).await, "frozen_check".to_owned()).await;
    let client = database.connect().await;
    let make =
        "CREATE SCHEMA egret; CREATE TABLE egret.view (); CREATE TABLE egret.view_capture ()";
    client.batch_execute(make).await.unwrap();
    let hold_up = "BEGIN; LOCK TABLE egret.view IN ACCESS EXCLUSIVE MODE";
    client.batch_execute(hold_up).await.unwrap();
    let observer = database.connect().await;
    let freezing = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("both sessions wait for the lock", async || {
            let row = observer.query_one(waiting, &[]).await.unwrap();
            row.get::<_, i64>(0) > 1
        })
        .await;
        database.server.freeze()
    };
    let connection = database.connection();
    let session = pool::connect(&connection).await.unwrap();
    let looking = inventory(&session);
    let looking = pool::within_answer_time(STEP_MAX, "look at schema egret", looking);
    let checking = check_within(&connection, STEP_MAX);
    let (checked, looked, _frozen) = tokio::join!(checking, looking, freezing);
    for error in [checked.unwrap_err(), looked.unwrap_err()] {
        assert_eq!((error.code(), error.retryable()), ("postgres_answer_timeout", true));
        let message = error.to_string();
        assert!(message.starts_with("look at schema egret: "), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_egret_on_one_database_is_refused_by_name() {
    let database = TestDatabase::create(18).await;
    let acquire = async |database: &TestDatabase| {
        ManagedLock::acquire(&database.connection(), &LockOwner::unique()).await
    };
    let first = acquire(&database).await.unwrap();
    let error = acquire(&database).await.map(|_| ()).unwrap_err();
    let PostgresError::ManagedElsewhere { holder, .. } = &error else {
        panic!("{error}");
    };
    assert!(holder.contains("egret/test"), "{holder}");
    let other = TestDatabase::create(18).await;
    acquire(&other).await.unwrap();
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_lost_session_of_its_owner_has_is_taken_from_it() {
    const LOCK: i64 = 42;
    let database = TestDatabase::create(18).await;
    let (owner, other) = (LockOwner::unique(), LockOwner::unique());
    let sessions = [database.connect().await, database.connect().await, database.connect().await];
    let try_lock = async |owner: &LockOwner, session: usize| {
        owner.try_lock(&sessions[session], LOCK).await.unwrap()
    };
    assert_eq!(try_lock(&owner, 0).await, LockOutcome::Taken);
    assert_eq!(try_lock(&owner, 0).await, LockOutcome::Taken);
    assert_eq!(try_lock(&other, 1).await, LockOutcome::HeldElsewhere);
    assert_eq!(try_lock(&owner, 2).await, LockOutcome::Taken);
    let ended = sessions[0].batch_execute("").await.unwrap_err();
    assert!(egret_postgres::retry::is_transient(&ended), "{ended}");
    assert_eq!(try_lock(&other, 1).await, LockOutcome::HeldElsewhere);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_hands_out_connections_again_and_pipelines() {
    let database = TestDatabase::create(18).await;
    let pool = Pool::new(database.connection(), 1).unwrap();
    for _ in 0..3 {
        let connection = pool.get().await.unwrap();
        let (one, two) = tokio::join!(
            connection.query_one("SELECT 1", &[]),
            connection.query_one("SELECT 2", &[]),
        );
        assert_eq!((one.unwrap().get::<_, i32>(0), two.unwrap().get::<_, i32>(0)), (1, 2));
    }
    pool.close();
    assert!(matches!(pool.get().await.map(|_| ()).unwrap_err(), PostgresError::Pool { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_replaces_a_connection_that_the_server_ended() {
    let database = TestDatabase::create(18).await;
    let pool = Pool::new(database.connection(), 1).unwrap();
    let connection = pool.get().await.unwrap();
    let pid: i32 = connection.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let admin = pool::connect(&database.connection()).await.unwrap();
    admin.execute("SELECT pg_terminate_backend($1, 10000)", &[&pid]).await.unwrap();
    let ended = connection.query_one("SELECT 1", &[]).await.unwrap_err();
    assert!(egret_postgres::retry::is_transient(&ended), "{ended}");
    drop(connection);
    let next = pool.get().await.unwrap();
    next.query_one("SELECT 1", &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_hosts_that_fail_each_is_named_with_its_error() {
    let (one, two) = (free_port(), free_port());
    let url = format!("postgres://me@127.0.0.1:{one},localhost:{two}/app?sslmode=disable");
    let connection = parse(&url, "test").unwrap();
    let error = pool::connect(&connection).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, PostgresError::NoHost { .. }), "{error}");
    let message = error.to_string();
    for host in [format!("127.0.0.1:{one}: "), format!("localhost:{two}: ")] {
        assert!(message.contains(&host), "{message}");
    }
    assert_eq!(message.matches("refused").count(), 2, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_the_primary_lacks_is_gone_though_another_host_is_down() {
    let database = TestDatabase::create(18).await;
    let there = database.connection();
    let (host, port) = (&there.get_hosts()[0], there.get_ports()[0]);
    let unreachable = Host::Tcp("127.0.0.1".to_owned());
    let (there, away) = ((host, port), (&unreachable, free_port()));
    for (hosts, expected) in [
        ([there, away], Kind::NotFound),
        ([away, there], Kind::NotFound),
        ([there, there], Kind::NotFound),
        ([away, away], Kind::Unavailable),
    ] {
        let mut connection = Config::new();
        connection.dbname("absent");
        connection.user(database.connection().get_user().unwrap());
        for (host, port) in hosts {
            match host {
                Host::Tcp(name) => connection.host(name),
                Host::Unix(path) => connection.host_path(path),
            };
            connection.port(port);
        }
        let error = pool::connect(&connection).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, PostgresError::NoHost { .. }), "{error}");
        assert_eq!(error.kind(), expected, "{error}");
        let is_gone = expected == Kind::NotFound;
        assert_eq!(databases::is_database_missing(&error), is_gone, "{error}");
    }
}
