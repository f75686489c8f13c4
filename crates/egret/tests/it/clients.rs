//! The connection string as the program prints it, given to drivers as it stands.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::place::{Place, text};

/// A program that `tests/clients/prepare` has installed.
pub fn installed(variable: &str, fallback: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-clients");
    std::env::var_os(variable).map_or_else(|| beside.join(fallback), PathBuf::from)
}

/// What a driver's program prints when it finds the string in `URL` and nothing else to go by.
fn printed(command: &mut Command, url: &str) -> String {
    for name in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"] {
        command.env_remove(name);
    }
    let output = command.env("URL", url).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    text(&output.stdout).trim().to_owned()
}

const PYTHON: &str = "
import os, psycopg
with psycopg.connect(os.environ['URL']) as session:
    print(session.execute('select current_database() || %s', ('!',)).fetchone()[0])
";

const NODE: &str = "
const { Client } = require('pg')
const main = async () => {
  const client = new Client(process.env.URL)
  await client.connect()
  const { rows } = await client.query('select current_database() || $1 as said', ['!'])
  console.log(rows[0].said)
  await client.end()
}
main().catch(error => { console.error(error); process.exit(1) })
";

#[test]
fn the_printed_string_works_in_drivers_as_it_stands() {
    let place = Place::new("clients");
    let server = place.start(&["serve"]);
    let source = place.source("postgres");
    // No slash: node-postgres leaves reserved characters of a name encoded.
    let odd = "odd name@x %41";
    place.psql(&source, &format!("CREATE DATABASE \"{odd}\"")).unwrap();
    place.json(&["branch", "create", "pr-42"]);
    for database in ["postgres", odd] {
        let arguments = ["branch", "connect", "pr-42", "--print", "--database", database];
        let url = text(&place.run(&arguments).stdout);
        let url = url.trim();
        assert_eq!(url, place.connection_string("pr-42", database));
        let mut python = Command::new(installed("EGRET_TEST_PYTHON", "python/bin/python"));
        let said = printed(python.args(["-c", PYTHON]), url);
        assert_eq!(said, format!("{database}!"), "psycopg");
        let mut node = Command::new("node");
        node.args(["--eval", NODE])
            .env("NODE_PATH", installed("EGRET_TEST_NODE_MODULES", "node/node_modules"));
        assert_eq!(printed(&mut node, url), format!("{database}!"), "node-postgres");
        assert_eq!(
            place.psql(url, "select current_database() || '!'").unwrap(),
            format!("{database}!")
        );
    }
    server.stop(Signal::INT);
}
