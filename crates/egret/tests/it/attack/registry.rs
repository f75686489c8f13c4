//! A damaged or missing `state.db`: what a start does without it and says of it, and what a repair
//! saves.

use std::os::unix::fs::FileExt;
use std::path::Path;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::storage::ask;
use crate::place::{Place, text};

/// So many that their rows are on many pages.
const TOKENS: usize = 120;

const PAGE_BYTES: u64 = 4_096;

fn place(purpose: &str) -> Place {
    let mut place = Place::new(purpose);
    place.variables = vec![("EGRET_BRANCHES_VOLUME", "copy".to_owned())];
    place
}

/// Stops a server with a branch and tokens; returns the texts of the tokens.
async fn stopped_with_tokens(place: &Place) -> Vec<String> {
    let server = place.start(&["serve"]);
    place.json(&["branch", "create", "pr-42"]);
    let mut tokens = Vec::with_capacity(TOKENS);
    for number in 0..TOKENS {
        let request = json!({
            "name": format!("token-{number}"),
            "scopes": ["status:read"],
            "claims": {"note": ["x".repeat(200)]},
        });
        let (status, made) = ask(place, Method::POST, "/v1/tokens", request).await;
        assert!(status.is_success(), "{made}");
        tokens.push(made["token"].as_str().unwrap().to_owned());
    }
    server.stop(Signal::TERM);
    tokens
}

/// How many of the tokens are accepted.
fn accepted(place: &Place, tokens: &[String]) -> usize {
    let is_accepted =
        |token: &&String| place.get_with_token("/v1/status", token).starts_with("HTTP/1.1 200");
    tokens.iter().filter(is_accepted).count()
}

/// Overwrites a page in the middle of the tokens' table.
fn damage(path: &Path) {
    // What a run left in the write-ahead log is brought into the file first.
    let database = egret_state::Database::open_relaxed(path).unwrap();
    database.checkpoint().unwrap();
    drop(database);
    let mut content = std::fs::read(path).unwrap();
    // A leaf of a table (SQLite's "Database File Format", section 1.6) that holds names of the
    // tokens.
    let pages = content.chunks_mut(PAGE_BYTES as usize).enumerate();
    let mut leaves = pages.filter(|(_, page)| {
        page[0] == 0x0d && page.windows(6).filter(|bytes| bytes == b"token-").count() > 3
    });
    let (number, _) = leaves.nth(1).expect("the table has many leaves");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let offset = number as u64 * PAGE_BYTES;
    file.write_all_at(&[0xa5; PAGE_BYTES as usize], offset).unwrap();
}

fn conditions(place: &Place) -> Vec<Value> {
    let status = place.json(&["status"]);
    let conditions = status["conditions"].as_array().unwrap().clone();
    let is_of_state = |condition: &Value| condition["name"] == "state_lost";
    conditions.into_iter().filter(is_of_state).collect()
}

fn branches(place: &Place) -> Value {
    place.json(&["branch", "list"])["items"][0]["name"].clone()
}

/// Starts what was repaired: most tokens are accepted again, the branch is there, and nothing is
/// said.
fn assert_most_is_saved(place: &Place, tokens: &[String]) {
    let server = place.start(&["serve"]);
    let left = accepted(place, tokens);
    assert!(left > TOKENS / 2 && left < TOKENS, "{left}");
    assert_eq!(branches(place), "pr-42");
    assert_eq!(conditions(place), Vec::<Value>::new());
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_damaged_state_db_is_repaired_with_what_can_be_read() {
    let place = place("state-repair");
    let tokens = stopped_with_tokens(&place).await;
    let path = place.data_dir().join("state.db");
    damage(&path);
    let original = std::fs::read(&path).unwrap();
    let found = place.json(&["repair"]);
    let item = &found["items"][0];
    assert_eq!(item["part"], "state.db", "{found}");
    assert_eq!(item["done"], false);
    assert!(item["action"].as_str().unwrap().contains(" of token"), "{found}");
    assert!(item["loss"].as_str().unwrap().contains("damaged pages of token"), "{found}");
    assert_eq!(std::fs::read(&path).unwrap(), original, "nothing is changed without --yes");
    place.json(&["repair", "state.db", "--yes"]);
    let kept = std::fs::read_dir(place.data_dir()).unwrap().map(|entry| entry.unwrap().path());
    let is_original = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("state.db.damaged-") && std::fs::read(path).unwrap() == original
    };
    assert_eq!(kept.filter(is_original).count(), 1);
    assert_eq!(place.json(&["repair"])["items"], json!([]));
    assert_most_is_saved(&place, &tokens);
}

#[tokio::test]
async fn a_start_without_a_readable_state_db_says_so_until_it_is_repaired() {
    let place = place("state-start");
    let tokens = stopped_with_tokens(&place).await;
    damage(&place.data_dir().join("state.db"));
    // At the start that sets it aside, and at the next one.
    for _ in 0..2 {
        let server = place.start(&["serve"]);
        assert_eq!(accepted(&place, &tokens), 0);
        assert_eq!(branches(&place), "pr-42");
        let readiness = place.get("/readyz");
        assert!(readiness.contains("\"state_lost\""), "{readiness}");
        let found = conditions(&place);
        let reason = found[0]["reason"].as_str().unwrap();
        assert!(reason.contains("set aside as state.db.corrupt-"), "{reason}");
        let shown = text(&place.run(&["status"]).stdout);
        assert!(shown.contains("state_lost"), "{shown}");
        server.stop(Signal::TERM);
    }
    let found = place.json(&["repair", "--yes"]);
    let item = &found["items"][0];
    assert!(item["part"].as_str().unwrap().starts_with("state.db.corrupt-"), "{found}");
    assert!(item["action"].as_str().unwrap().contains("of its tokens back"), "{found}");
    assert_most_is_saved(&place, &tokens);
}

#[tokio::test]
async fn a_missing_state_db_is_said() {
    let place = place("state-missing");
    stopped_with_tokens(&place).await;
    for suffix in ["", "-wal", "-shm"] {
        // The last two are there after a crash only.
        let _ = std::fs::remove_file(place.data_dir().join(format!("state.db{suffix}")));
    }
    let server = place.start(&["serve"]);
    assert_eq!(branches(&place), "pr-42");
    let reason = conditions(&place)[0]["reason"].to_string();
    assert!(reason.contains("is missing, although there was one"), "{reason}");
    server.stop(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_clean_stop_a_copy_of_the_registry_is_whole_without_its_log() {
    let place = place("registry-copied");
    let tokens = stopped_with_tokens(&place).await;
    let state = place.data_dir().join("state.db");
    let log = state.with_file_name("state.db-wal");
    let left = std::fs::metadata(&log).map_or(0, |found| found.len());
    assert_eq!(left, 0, "bytes of the write-ahead log");
    let copy = place.directory.join("copy");
    std::fs::copy(&state, &copy).unwrap();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let removed = std::fs::remove_file(state.with_file_name(name));
        assert!(removed.is_ok() || name != "state.db");
    }
    std::fs::rename(&copy, &state).unwrap();
    let server = place.start(&["serve"]);
    assert_eq!(accepted(&place, &tokens), TOKENS);
    let branches = place.json(&["branch", "list"]);
    assert_eq!(branches["items"][0]["name"], "pr-42", "{branches}");
    server.stop(Signal::TERM);
}

/// Removes what a run may have left beside the file.
fn remove_logs(state: &Path) {
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(state.with_file_name(format!("state.db{suffix}")));
    }
}

/// Starts with what is in the place of `state.db`: nothing of it is taken for Egret's, and that is
/// said.
fn assert_is_set_aside(place: &Place, tokens: &[String]) {
    let server = place.start(&["serve"]);
    assert_eq!(accepted(place, tokens), 0);
    assert_eq!(branches(place), "pr-42");
    let reason = conditions(place)[0]["reason"].to_string();
    assert!(reason.contains("set aside as state.db.corrupt-"), "{reason}");
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_state_db_without_what_it_had_is_set_aside_and_said() {
    let place = place("state-emptied");
    let tokens = stopped_with_tokens(&place).await;
    let state = place.data_dir().join("state.db");
    let original = std::fs::read(&state).unwrap();
    let of_another_program = place.directory.join("other.db");
    drop(egret_state::Database::open(&of_another_program, "other", &[]).unwrap());
    let without_tokens = place.directory.join("without.db");
    std::fs::write(&without_tokens, &original).unwrap();
    let database = egret_state::Database::open_relaxed(&without_tokens).unwrap();
    database.lock().execute_batch("DROP TABLE token").unwrap();
    database.checkpoint().unwrap();
    drop(database);
    for replacement in [
        Vec::new(),
        std::fs::read(&of_another_program).unwrap(),
        std::fs::read(&without_tokens).unwrap(),
    ] {
        remove_logs(&state);
        std::fs::write(&state, &replacement).unwrap();
        let found = place.json(&["repair"]);
        assert!(found.to_string().contains("\"state.db\""), "{found}");
        assert_is_set_aside(&place, &tokens);
    }
    remove_logs(&state);
    std::fs::remove_file(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    assert_is_set_aside(&place, &tokens);
    place.json(&["repair", "--yes"]);
    assert_eq!(place.json(&["repair"])["items"], json!([]));
    let server = place.start(&["serve"]);
    assert_eq!(conditions(&place), Vec::<Value>::new());
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_table_that_is_missing_is_made_anew_by_a_repair() {
    let place = place("state-table");
    let tokens = stopped_with_tokens(&place).await;
    let state = place.data_dir().join("state.db");
    let database = egret_state::Database::open_relaxed(&state).unwrap();
    let dropped = database.lock().execute_batch("DROP TABLE role_password");
    dropped.unwrap();
    database.checkpoint().unwrap();
    drop(database);
    let found = place.json(&["repair", "state.db", "--yes"]);
    assert_eq!(found["items"][0]["loss"], "the content of role_password", "{found}");
    assert_eq!(place.json(&["repair"])["items"], json!([]));
    let server = place.start(&["serve"]);
    assert_eq!(accepted(&place, &tokens), TOKENS);
    assert_eq!(branches(&place), "pr-42");
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_lost_side_table_or_log_costs_no_token() {
    let place = place("state-side");
    let tokens = stopped_with_tokens(&place).await;
    let state = place.data_dir().join("state.db");
    let database = egret_state::Database::open_relaxed(&state).unwrap();
    let drop_both = "DROP TABLE pool; DROP TABLE role_password";
    database.lock().execute_batch(drop_both).unwrap();
    database.checkpoint().unwrap();
    drop(database);
    let incomplete = |place: &Place| {
        let status = place.json(&["status"]);
        let found = status["conditions"].as_array().unwrap();
        let found = found.iter().find(|condition| condition["name"] == "state_incomplete");
        found.map(|condition| condition["reason"].to_string())
    };
    let log = "state.db-wal.corrupt-";
    // The third start finds nothing new, but what the second one has kept.
    for lost in ["pool, role_password", log, log] {
        let server = place.start(&["serve"]);
        assert_eq!(accepted(&place, &tokens), TOKENS);
        assert_eq!(branches(&place), "pr-42");
        let reason = incomplete(&place).expect("it is said");
        assert!(reason.contains(lost), "{reason}");
        server.stop(Signal::TERM);
        if lost != log {
            remove_logs(&state);
            std::fs::create_dir(state.with_file_name("state.db-wal")).unwrap();
        }
    }
    for kept in egret_state::repair::logs_set_aside(&state).unwrap() {
        std::fs::remove_dir(kept).unwrap();
    }
    let server = place.start(&["serve"]);
    assert_eq!(incomplete(&place), None);
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_list_of_parts_that_cannot_be_read_fails_alone() {
    let place = place("state-list");
    let tokens = stopped_with_tokens(&place).await;
    let list = place.data_dir().join("known-parts");
    std::fs::remove_file(&list).unwrap();
    std::fs::create_dir(&list).unwrap();
    let server = place.start_partly(&["serve"]);
    assert_eq!(accepted(&place, &tokens), TOKENS);
    assert_eq!(branches(&place), "pr-42");
    let status = place.json(&["status"]);
    assert_eq!(status["failed"][0]["part"], "known-parts", "{status}");
    server.stop(Signal::TERM);
    let found = place.json(&["repair", "--yes"]);
    assert_eq!(found["items"][0]["part"], "known-parts", "{found}");
    let server = place.start(&["serve"]);
    assert!(list.is_file());
    server.stop(Signal::TERM);
}
