//! What Egret does with a branch whose superuser expects it: code, settings and files that wait
//! there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use egret_base_test::eventually_blocking;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;

use super::{ask, hostile};
use crate::place::{Place, text};

/// Code that runs in every session, at every definition and in place of what Egret asks for.
fn traps(witness: &Path) -> String {
    TRAPS.replace("WITNESS", &witness.display().to_string())
}

/// SQL that [`traps`] completes.
const TRAPS: &str = "SET allow_system_table_mods = on;
    CREATE FUNCTION spring() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        BEGIN COPY (SELECT session_user) TO PROGRAM 'cat > WITNESS'; EXCEPTION WHEN OTHERS THEN END;
        BEGIN COPY (SELECT session_user) TO 'WITNESS'; EXCEPTION WHEN OTHERS THEN END;
    END $$;
    CREATE EVENT TRIGGER on_login ON login EXECUTE FUNCTION spring();
    ALTER EVENT TRIGGER on_login ENABLE ALWAYS;
    CREATE EVENT TRIGGER on_ddl ON ddl_command_start EXECUTE FUNCTION spring();
    ALTER EVENT TRIGGER on_ddl ENABLE ALWAYS;
    CREATE OR REPLACE VIEW pg_catalog.pg_prepared_xacts AS
        SELECT '0'::xid AS transaction, '''; CREATE ROLE sprung SUPERUSER; --'::text AS gid, now() AS prepared,
            'x'::name AS owner, current_database() AS database;
    ALTER ROLE egret SET search_path = public";

#[test]
fn code_that_waits_for_egret_in_a_branch_gains_nothing() {
    let place = Place::new("branch-traps");
    let server = place.start(&["serve"]);
    let url = hostile(&place, "admin");
    // Where every user of the machine may write.
    let witness = std::env::temp_dir().join(format!("egret-sprung-{}", std::process::id()));
    ask(&url, &traps(&witness)).unwrap();
    place.json(&["branch", "suspend", "admin"]);
    place.json(&["branch", "resume", "admin"]);
    let proof = place.json(&["branch", "verify", "admin", "--database", "postgres"]);
    assert_eq!(proof["source_unchanged"], true, "{proof}");
    // The name of a transaction that is none: the builder's server refuses it, and the child with
    // it.
    let child = place.run(&["branch", "create", "child", "--from", "branch:admin"]);
    let error = text(&child.stderr);
    assert!(
        !child.status.success() && error.contains("roll back a prepared transaction"),
        "{error}"
    );
    place.json(&["branch", "reset", "admin"]);
    let events = "SELECT count(*) FROM pg_event_trigger";
    assert_eq!(ask(&url, events).unwrap(), "0");
    let intruders = "SELECT count(*) FROM pg_roles WHERE rolname = 'sprung'";
    let source = place.source("postgres");
    for url in [&url, &source] {
        assert_eq!(ask(url, intruders).unwrap(), "0");
    }
    assert!(!witness.exists());
    server.stop(Signal::TERM);
}

#[test]
fn settings_that_a_superuser_leaves_behind_reach_nothing_after_a_restart() {
    let place = Place::new("branch-settings");
    let server = place.start(&["serve"]);
    let url = hostile(&place, "admin");
    let data = place.data_dir().display().to_string();
    let witness = |what: &str| {
        let name = format!("egret-{what}-{}", std::process::id());
        std::env::temp_dir().join(name).display().to_string()
    };
    let (archived, pid_file) = (witness("archived"), witness("pid"));
    let archive = format!("touch {archived}");
    for (setting, value) in [
        ("archive_mode", "on"),
        ("archive_command", &archive),
        ("listen_addresses", "*"),
        ("unix_socket_directories", "/tmp"),
        ("logging_collector", "on"),
        ("log_directory", &data),
        ("external_pid_file", &pid_file),
        ("shared_preload_libraries", "nonexistent"),
        ("ssl", "on"),
    ] {
        ask(&url, &format!("ALTER SYSTEM SET {setting} = '{value}'")).unwrap();
    }
    place.json(&["branch", "suspend", "admin"]);
    let settings = "SELECT string_agg(current_setting(name), ' ' ORDER BY name) FROM
        unnest('{archive_mode,listen_addresses,logging_collector,shared_preload_libraries}'::text[]) AS name";
    // The next session starts it.
    assert_eq!(ask(&url, settings).unwrap(), "off  off");
    let sockets = "SELECT current_setting('unix_socket_directories') = '/tmp'";
    assert_eq!(ask(&url, sockets).unwrap(), "f");
    ask(&url, "SELECT pg_switch_wal()").unwrap();
    for path in [archived, pid_file] {
        assert!(!Path::new(&path).exists(), "{path}");
    }
    server.stop(Signal::TERM);
}

/// A directory beside the branches with a file that nothing may touch.
fn victim(place: &Place) -> PathBuf {
    let directory = place.directory.join("victim");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("file"), "precious").unwrap();
    directory
}

/// Leaves in a data directory what a server never makes, as code of a superuser could.
fn plant(data: &Path, victim: &Path) {
    rustix::fs::mknodat(CWD, data.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0)
        .unwrap();
    rustix::fs::mknodat(
        CWD,
        data.join("device"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 5),
    )
    .unwrap();
    drop(std::os::unix::net::UnixListener::bind(data.join("base/socket")).unwrap());
    fs::write(data.join(OsStr::from_bytes(b"odd \xff\n'\"; --")), "x").unwrap();
    // A file of a terabyte that takes one block at its end.
    let huge = fs::File::create(data.join("base/huge")).unwrap();
    huge.write_all_at(b"end", 1 << 40).unwrap();
    fs::hard_link(data.join("PG_VERSION"), data.join("linked")).unwrap();
    fs::create_dir(data.join("nested")).unwrap();
    fs::write(data.join("nested/pipe"), victim.as_os_str().as_bytes()).unwrap();
}

fn data_of(place: &Place, branch: &str) -> PathBuf {
    let shown = place.json(&["branch", "show", branch]);
    let id = shown["id"].as_str().expect("an id").replace('-', "");
    place.data_dir().join("volume/branches").join(id)
}

#[test]
fn files_that_a_superuser_leaves_behind_lead_egret_nowhere() {
    if !rustix::process::geteuid().is_root() {
        egret_base_test::not_checked("devices and files of another user take root");
        return;
    }
    for driver in ["auto", "copy"] {
        let mut place = Place::new(&format!("branch-planted-{driver}"));
        place.variables = vec![("EGRET_BRANCHES_VOLUME", driver.to_owned())];
        let server = place.start(&["serve"]);
        let url = hostile(&place, "admin");
        let victim = victim(&place);
        let data = data_of(&place, "admin");
        plant(&data, &victim);
        // Each is measured, listed, stopped, started, copied.
        for command in [
            vec!["branch", "list"],
            vec!["branch", "suspend", "admin"],
            vec!["branch", "resume", "admin"],
            vec!["branch", "create", "child", "--from", "branch:admin"],
            vec!["branch", "verify"],
        ] {
            place.json(&command);
        }
        let child = data_of(&place, "child");
        let huge = fs::metadata(child.join("base/huge")).unwrap();
        let taken = std::os::unix::fs::MetadataExt::blocks(&huge) * 512;
        assert!(huge.len() > 1 << 40 && taken < 1 << 20, "{taken} bytes");
        // Without btrfs and reflinks both are the same.
        let status = place.json(&["status"]);
        if status["volume"]["driver"] == "copy" {
            assert!(!child.join("pipe").exists());
        } else {
            assert!(fs::metadata(child.join("pipe")).unwrap().file_type().is_fifo());
        }
        // Links are refused by name where they would be copied, and not followed where they are
        // removed.
        fs::remove_file(data.join("postgresql.auto.conf")).unwrap();
        symlink(victim.join("file"), data.join("postgresql.auto.conf")).unwrap();
        symlink(&victim, data.join("pg_notify/out")).unwrap();
        let refused = place.run(&["branch", "create", "other", "--from", "branch:admin"]);
        let error = text(&refused.stderr);
        assert!(
            !refused.status.success()
                && error.contains("is a link to a place outside the data directory"),
            "{error}"
        );
        place.json(&["branch", "reset", "admin"]);
        assert_eq!(ask(&url, "SELECT 1").unwrap(), "1");
        symlink(&victim, data_of(&place, "admin").join("pg_stat_tmp/out")).unwrap();
        place.json(&["branch", "destroy", "admin", "--children"]);
        eventually_blocking("the files of both branches are deleted", || {
            !data.exists() && !child.exists()
        });
        assert_eq!(fs::read(victim.join("file")).unwrap(), b"precious");
        server.stop(Signal::TERM);
    }
}
