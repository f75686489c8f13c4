//! Salvage of damaged files, interrupted at every step.

use std::os::unix::fs::PermissionsExt;

use rusqlite::config::DbConfig;

use super::files::StepHook;
use super::*;
use crate::{Database, Migration, set_aside_if_corrupt};
use egret_base::Timestamp;

/// Rows on many pages.
const ROWS: u64 = 2_000;

const PAGE_BYTES: usize = 4_096;

const TABLES: [Migration; 1] = [Migration {
    name: "tables",
    sql: "CREATE TABLE token (id TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
          CREATE TABLE password (branch TEXT, role TEXT, PRIMARY KEY (branch, role)) STRICT, WITHOUT ROWID;
          CREATE INDEX token_text ON token (text)",
}];

struct Rig {
    directory: tempfile::TempDir,
    path: PathBuf,
}

fn rig() -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let database = Database::open(&path, "tokens", &TABLES).unwrap();
    let connection = database.lock();
    connection.execute_batch("BEGIN").unwrap();
    for number in 0..ROWS {
        let text = format!("{number:0100}");
        connection
            .execute("INSERT INTO token VALUES (?1, ?2)", [format!("t{number:05}"), text])
            .unwrap();
        connection
            .execute("INSERT INTO password VALUES (?1, 'app')", [format!("b{number:05}")])
            .unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    drop(connection);
    drop(database);
    Rig { directory, path }
}

impl Rig {
    /// Overwrites a page that holds rows of a table.
    fn damage_page_of(&self, table: &str) {
        let connection = Connection::open(&self.path).unwrap();
        let root: u32 = connection
            .query_row("SELECT rootpage FROM sqlite_master WHERE name = ?1", [table], |row| {
                row.get(0)
            })
            .unwrap();
        drop(connection);
        let (root, mut content) = (root as usize, fs::read(&self.path).unwrap());
        // The root is an inner page; a child in its middle is a leaf.
        let page = &content[(root - 1) * PAGE_BYTES..root * PAGE_BYTES];
        let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
        let pointer = 12 + 2 * (cells / 2);
        let cell = usize::from(u16::from_be_bytes([page[pointer], page[pointer + 1]]));
        let child = u32::from_be_bytes(page[cell..cell + 4].try_into().unwrap()) as usize;
        content[(child - 1) * PAGE_BYTES..child * PAGE_BYTES].fill(0xa5);
        fs::write(&self.path, content).unwrap();
    }

    fn count(&self, table: &str) -> u64 {
        let database = Database::open(&self.path, "tokens", &TABLES).unwrap();
        let sql = format!("SELECT count(*) FROM {table}");
        let count: i64 = database.lock().query_row(&sql, [], |row| row.get(0)).unwrap();
        count.unsigned_abs()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn table<'d>(damage: &'d Damage, name: &str) -> &'d SalvagedTable {
    damage.tables.iter().find(|table| table.name == name).unwrap()
}

#[test]
fn a_sound_file_is_left_alone() {
    let rig = rig();
    assert_eq!(examine(&rig.path).unwrap(), None);
    assert_eq!(examine(&rig.directory.path().join("none")).unwrap(), None);
    assert_eq!(rig.names(), ["state.db"]);
}

#[test]
fn rows_on_both_sides_of_a_damaged_page_are_kept() {
    for (damaged, whole) in [("token", "password"), ("password", "token")] {
        let rig = rig();
        rig.damage_page_of(damaged);
        let original = fs::read(&rig.path).unwrap();
        let damage = examine(&rig.path).unwrap().unwrap();
        assert_eq!(rig.names(), ["state.db"]);
        assert_eq!(fs::read(&rig.path).unwrap(), original);
        let found = table(&damage, damaged);
        assert!(!found.is_whole && found.rows < ROWS && found.rows > ROWS / 2, "{found:?}");
        let other = table(&damage, whole);
        assert!(other.is_whole && other.rows == ROWS, "{other:?}");
        repair(&rig.path, "20260101T000000Z").unwrap();
        assert_eq!(rig.names(), ["state.db", "state.db.damaged-20260101T000000Z"]);
        let kept = rig.directory.path().join("state.db.damaged-20260101T000000Z");
        assert_eq!(fs::read(kept).unwrap(), original);
        assert_eq!(examine(&rig.path).unwrap(), None);
        assert_eq!(rig.count(damaged), found.rows);
        assert_eq!(rig.count(whole), ROWS);
        let mode = fs::metadata(&rig.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn an_index_that_is_damaged_costs_no_row() {
    let rig = rig();
    rig.damage_page_of("token_text");
    let damage = examine(&rig.path).unwrap().unwrap();
    assert!(damage.tables.iter().all(|table| table.is_whole), "{damage:?}");
    repair(&rig.path, "1").unwrap();
    assert_eq!(rig.count("token"), ROWS);
}

#[test]
fn a_directory_in_the_place_of_a_log_is_named_and_kept_aside() {
    let rig = rig();
    rig.damage_page_of("token");
    fs::create_dir(with_suffix(&rig.path, WAL_SUFFIX)).unwrap();
    fs::write(with_suffix(&rig.path, WAL_SUFFIX).join("note"), "mine").unwrap();
    let damage = examine(&rig.path).unwrap().unwrap();
    assert!(damage.problem.contains("state.db-wal is not a file"), "{}", damage.problem);
    repair(&rig.path, "1").unwrap();
    assert_eq!(rig.names(), ["state.db", "state.db.damaged-1", "state.db.damaged-1-wal"]);
    let kept = rig.directory.path().join("state.db.damaged-1-wal/note");
    assert_eq!(fs::read_to_string(kept).unwrap(), "mine");
    assert_eq!(rig.count("password"), ROWS);
    assert_eq!(examine(&rig.path).unwrap(), None);
}

#[test]
fn nothing_is_made_of_what_is_no_database() {
    let rig = rig();
    fs::write(&rig.path, "this is no database, whatever its name says").unwrap();
    let damage = examine(&rig.path).unwrap().unwrap();
    assert_eq!(damage.tables, []);
    repair(&rig.path, "1").unwrap();
    assert_eq!(rig.names(), ["state.db.damaged-1"]);
}

#[test]
fn without_knowing_what_has_run_nothing_is_made_of_it() {
    let rig = rig();
    let connection = Connection::open(&rig.path).unwrap();
    connection.execute("DELETE FROM migration", []).unwrap();
    drop(connection);
    rig.damage_page_of("token");
    assert_eq!(examine(&rig.path).unwrap().unwrap().tables, []);
}

#[test]
fn rows_of_a_file_that_was_set_aside_are_put_back() {
    let rig = rig();
    rig.damage_page_of("token");
    let aside = set_aside_if_corrupt(&rig.path, Timestamp::from_micros(7)).unwrap().unwrap();
    assert_eq!(files_set_aside(&rig.path).unwrap(), std::slice::from_ref(&aside));
    let database = Database::open(&rig.path, "tokens", &TABLES).unwrap();
    let insert = "INSERT INTO token VALUES ('t00000', 'new'), ('admin', 'new')";
    database.lock().execute(insert, []).unwrap();
    drop(database);
    let (damage, missing) = examine_set_aside(&aside, &rig.path, "token").unwrap();
    assert_eq!(missing, table(&damage, "token").rows - 1);
    assert_eq!(rig.count("token"), 2);
    restore_rows(&aside, &rig.path, "token", "1").unwrap();
    assert_eq!(rig.count("token"), missing + 2);
    // Rows of other tables are not restored: those are rebuilt from the data on disk.
    assert_eq!(rig.count("password"), 0);
    let database = Database::open(&rig.path, "tokens", &TABLES).unwrap();
    let select = "SELECT text FROM token WHERE id = 't00000'";
    let text: String = database.lock().query_row(select, [], |row| row.get(0)).unwrap();
    assert_eq!(text, "new");
    assert!(files_set_aside(&rig.path).unwrap().is_empty());
    assert!(rig.names().contains(&"state.db.damaged-1".to_owned()));
}

#[test]
fn a_file_that_was_set_aside_comes_back_where_there_is_no_other() {
    let rig = rig();
    rig.damage_page_of("token");
    let aside = set_aside_if_corrupt(&rig.path, Timestamp::from_micros(7)).unwrap().unwrap();
    restore_rows(&aside, &rig.path, "token", "1").unwrap();
    assert!(rig.count("token") > ROWS / 2);
    assert_eq!(rig.count("password"), ROWS);
}

#[test]
fn rows_come_back_to_a_table_that_has_more_columns_since() {
    let rig = rig();
    rig.damage_page_of("token");
    let aside = set_aside_if_corrupt(&rig.path, Timestamp::from_micros(7)).unwrap().unwrap();
    let column = Migration {
        name: "note",
        sql: "ALTER TABLE token ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",
    };
    let [tables] = TABLES;
    drop(Database::open(&rig.path, "tokens", &[tables, column]).unwrap());
    let (damage, missing) = examine_set_aside(&aside, &rig.path, "token").unwrap();
    assert_eq!(missing, table(&damage, "token").rows);
    restore_rows(&aside, &rig.path, "token", "1").unwrap();
    let connection = Connection::open(&rig.path).unwrap();
    let select = "SELECT count(*) FROM token WHERE note = 'none'";
    let count: i64 = connection.query_row(select, [], |row| row.get(0)).unwrap();
    assert_eq!(count.unsigned_abs(), missing);
}

/// A rig whose file has a damaged page, and a row that only its log has.
fn rig_with_log() -> Rig {
    let rig = rig();
    rig.damage_page_of("token");
    let connection = Connection::open(&rig.path).unwrap();
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    let insert = "INSERT INTO password VALUES ('logged', 'app')";
    connection.execute(insert, []).unwrap();
    drop(connection);
    assert!(with_suffix(&rig.path, WAL_SUFFIX).exists());
    rig
}

/// Whether SQLite finds the row that only the log had.
fn has_logged_row(path: &Path) -> bool {
    let connection = Connection::open(path).unwrap();
    let select = "SELECT count(*) FROM password WHERE branch = 'logged'";
    let count: i64 = connection.query_row(select, [], |row| row.get(0)).unwrap();
    count == 1
}

/// Refuses a step of a repair, as a kill before it would end it. Returns whether there was such a
/// step.
fn is_stopped_before(
    step: usize,
    repair: impl FnOnce(StepHook<'_>) -> Result<(), StateError>,
) -> bool {
    let taken = std::cell::Cell::new(0);
    let stop = |name: &str| {
        if taken.replace(taken.get() + 1) == step {
            return Err(file_error(Path::new(name))(io::ErrorKind::Interrupted.into()));
        }
        Ok(())
    };
    let repaired = repair(&stop);
    assert_eq!(repaired.is_ok(), taken.get() <= step, "{repaired:?}");
    repaired.is_err()
}

#[test]
fn a_repair_that_is_stopped_leaves_the_original_with_its_log_or_a_complete_file() {
    let mut seen = Vec::new();
    for step in 0.. {
        let rig = rig_with_log();
        let salvaged = table(&examine(&rig.path).unwrap().unwrap(), "token").rows;
        let is_stopped = is_stopped_before(step, |stop| restore(&rig.path, &rig.path, "1", stop));
        let kept = with_suffix(&rig.path, ".damaged-1");
        let is_damaged = examine(&rig.path).unwrap().is_some();
        assert!(has_logged_row(&rig.path), "before step {step}");
        // A start of Egret writes to the file, and empties its log.
        drop(Database::open(&rig.path, "tokens", &TABLES));
        if !is_damaged {
            assert_eq!(rig.count("token"), salvaged, "before step {step}");
        }
        assert!(has_logged_row(&kept), "before step {step}");
        assert!(examine(&kept).unwrap().is_some(), "before step {step}");
        seen.push(is_damaged);
        if !is_stopped {
            break;
        }
        // The next repair completes an interrupted one.
        if is_damaged {
            repair(&rig.path, "2").unwrap();
        }
        assert_eq!(examine(&rig.path).unwrap(), None);
        assert_eq!(rig.count("token"), salvaged);
    }
    assert_eq!(seen, [true, false, false, false, false, false]);
}

#[test]
fn a_file_of_which_nothing_can_be_made_goes_before_its_log() {
    for step in 0.. {
        let rig = rig_with_log();
        let connection = Connection::open(&rig.path).unwrap();
        connection.execute("DELETE FROM migration", []).unwrap();
        drop(connection);
        fs::write(with_suffix(&rig.path, WAL_SUFFIX), "a log of nothing").unwrap();
        let is_stopped = is_stopped_before(step, |stop| restore(&rig.path, &rig.path, "1", stop));
        if rig.path.exists() {
            assert_eq!(step, 0);
        } else {
            // The next start begins a file, to which no log is applied.
            assert_eq!(rig.count("token"), 0);
        }
        if !is_stopped {
            assert_eq!(step, 4);
            break;
        }
    }
}

#[test]
fn a_file_that_comes_back_has_no_log_of_another() {
    for step in 0.. {
        let rig = rig_with_log();
        let log = fs::read(with_suffix(&rig.path, WAL_SUFFIX)).unwrap();
        let aside = set_aside_if_corrupt(&rig.path, Timestamp::from_micros(7)).unwrap().unwrap();
        assert!(has_logged_row(&aside));
        fs::write(with_suffix(&rig.path, WAL_SUFFIX), log).unwrap();
        let is_stopped = is_stopped_before(step, |stop| restore(&aside, &rig.path, "1", stop));
        if rig.path.exists() {
            assert!(has_logged_row(&rig.path), "before step {step}");
            assert!(rig.count("token") > ROWS / 2, "before step {step}");
        } else {
            assert!(has_logged_row(&aside), "before step {step}");
        }
        if !is_stopped {
            assert_eq!(step, 8);
            break;
        }
    }
}
