//! Migrations run once and in order; a corrupt file is set aside; the file is private.

use super::*;

const FIRST: Migration =
    Migration { name: "first", sql: "CREATE TABLE thing (id INTEGER PRIMARY KEY) STRICT" };
const SECOND: Migration =
    Migration { name: "second", sql: "ALTER TABLE thing ADD COLUMN name TEXT" };

fn count_things(database: &Database) -> i64 {
    let connection = database.lock();
    connection.query_row("SELECT count(*) FROM thing", [], |row| row.get(0)).unwrap()
}

#[test]
fn migrations_run_once_and_keep_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let database = Database::open(&path, "things", &[FIRST]).unwrap();
    database.lock().execute("INSERT INTO thing VALUES (1)", []).unwrap();
    drop(database);
    let database = Database::open(&path, "things", &[FIRST, SECOND]).unwrap();
    assert_eq!(count_things(&database), 1);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let error = Database::open(&path, "things", &[FIRST]).unwrap_err();
    assert_eq!(error.code(), "state_newer");
}

#[test]
fn a_changed_migration_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    Database::open(&path, "things", &[FIRST]).unwrap();
    let changed = Migration { name: "first", sql: SECOND.sql };
    let error = Database::open(&path, "things", &[changed]).unwrap_err();
    assert!(error.to_string().contains("things/first has changed"), "{error}");
}

#[test]
fn a_failed_migration_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let wrong = Migration {
        name: "wrong",
        sql: "CREATE TABLE thing (id INTEGER PRIMARY KEY); SELECT * FROM nowhere",
    };
    Database::open(&path, "things", &[wrong]).unwrap_err();
    let database = Database::open(&path, "things", &[FIRST]).unwrap();
    assert_eq!(count_things(&database), 0);
}

#[test]
fn a_corrupt_file_is_set_aside_and_a_sound_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let now = Timestamp::from_micros(5);
    assert_eq!(set_aside_if_corrupt(&path, now).unwrap(), None);
    drop(Database::open(&path, "things", &[FIRST]).unwrap());
    assert_eq!(set_aside_if_corrupt(&path, now).unwrap(), None);
    fs::write(&path, "this is no database, whatever its name says").unwrap();
    let aside = set_aside_if_corrupt(&path, now).unwrap().unwrap();
    assert!(aside.ends_with("state.db.corrupt-5"), "{aside:?}");
    assert!(!path.exists());
    let database = Database::open(&path, "things", &[FIRST]).unwrap();
    assert_eq!(count_things(&database), 0);
}

#[test]
fn a_sealed_file_is_whole_without_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let database = Database::open(&path, "things", &[FIRST]).unwrap();
    let relaxed = Database::open_relaxed(&path).unwrap();
    for (number, database) in [&database, &relaxed].into_iter().enumerate() {
        let insert = format!("INSERT INTO thing VALUES ({number})");
        database.lock().execute(&insert, []).unwrap();
    }
    // Both stay open, as they do in a server that stops.
    checkpoint_and_truncate(&path).unwrap();
    assert_eq!(fs::metadata(with_suffix(&path, "-wal")).unwrap().len(), 0);
    let copy = directory.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    assert_eq!(count_things(&Database::open_relaxed(&copy).unwrap()), 2);
}

#[test]
fn tables_that_are_missing_are_named_and_made_anew() {
    const PARTS: [Tables; 1] = [Tables { component: "things", migrations: &[FIRST, SECOND] }];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    // Also of a file that an earlier version wrote.
    for migrations in [&PARTS[0].migrations[..1], PARTS[0].migrations] {
        drop(Database::open(&path, "things", migrations).unwrap());
        assert_eq!(missing_tables(&path, &PARTS).unwrap(), [""; 0]);
    }
    let database = Database::open_relaxed(&path).unwrap();
    database.lock().execute_batch("DROP TABLE thing").unwrap();
    drop(database);
    assert_eq!(missing_tables(&path, &PARTS).unwrap(), ["thing"]);
    create_missing_tables(&path, &PARTS).unwrap();
    assert_eq!(missing_tables(&path, &PARTS).unwrap(), [""; 0]);
    let database = Database::open(&path, "things", PARTS[0].migrations).unwrap();
    assert_eq!(count_things(&database), 0);
    drop(database);
    let other = directory.path().join("other.db");
    fs::write(&other, "").unwrap();
    assert_eq!(missing_tables(&other, &PARTS).unwrap(), ["migration"]);
}

#[test]
fn a_log_that_is_no_file_is_set_aside_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let now = Timestamp::from_micros(5);
    let database = Database::open(&path, "things", &[FIRST]).unwrap();
    let insert = "INSERT INTO thing VALUES (1)";
    database.lock().execute(insert, []).unwrap();
    assert_eq!(set_aside_non_file_logs(&path, now).unwrap(), [""; 0].map(PathBuf::from));
    checkpoint_and_truncate(&path).unwrap();
    drop(database);
    fs::create_dir(with_suffix(&path, WAL_SUFFIX)).unwrap();
    assert_eq!(repair::examine(&path).unwrap(), None);
    let aside = directory.path().join("state.db-wal.corrupt-5");
    assert_eq!(set_aside_non_file_logs(&path, now).unwrap(), std::slice::from_ref(&aside));
    assert!(aside.is_dir());
    assert_eq!(set_aside_if_corrupt(&path, now).unwrap(), None);
    let database = Database::open(&path, "things", &[FIRST]).unwrap();
    assert_eq!(count_things(&database), 1);
}

#[test]
fn what_is_no_file_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    fs::create_dir(&path).unwrap();
    let now = Timestamp::from_micros(5);
    let aside = set_aside_if_corrupt(&path, now).unwrap().unwrap();
    assert!(aside.is_dir() && !path.exists());
    repair::restore_rows(&aside, &path, "token", "stamp").unwrap();
    assert!(directory.path().join("state.db.damaged-stamp").is_dir());
}
