//! `egret queue …` against a real server: queues, tasks, schedules, and commands that work on
//! tasks.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use egret_base::Timestamp;
use egret_base_test::eventually_blocking;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, Server, text};

/// Output of a command that must succeed.
fn said(place: &Place, line: &str) -> String {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let output = place.run(&[&["queue"], arguments.as_slice()].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{line}: {out}{err}");
    out.trim_end().to_owned()
}

/// Error output of a command that must fail with this exit code.
fn refused(place: &Place, line: &str, code: i32) -> String {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let output = place.run(&[&["queue"], arguments.as_slice()].concat());
    assert_eq!(output.status.code(), Some(code), "{line}");
    text(&output.stderr)
}

fn answer(place: &Place, line: &str) -> Value {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    place.json(&[&["queue"], arguments.as_slice()].concat())
}

fn task(place: &Place, id: &str) -> Value {
    answer(place, &format!("get {id}"))
}

/// Looks until a task is in a state.
#[track_caller]
fn until(place: &Place, id: &str, state: &str) {
    eventually_blocking(&format!("task {id} is {state}"), || {
        let task = task(place, id);
        if task["state"] == state { Ok(()) } else { Err(task) }
    });
}

/// Nothing but what people may see has been logged.
fn assert_quiet(place: &Place) {
    let log = place.log();
    let loud = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let loud: Vec<&str> = log.lines().filter(loud).collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

#[test]
fn queues_tasks_and_schedules_are_managed_by_commands() {
    let place = Place::new("queue");
    let server = place.start(&["serve"]);
    queues(&place);
    tasks(&place);
    batches(&place);
    schedules(&place);
    server.stop(Signal::TERM);
    assert_quiet(&place);
}

fn queues(place: &Place) {
    let made = said(place, "create mail --max-attempts 2 --retry-base 20ms --keep-dead 2h");
    assert!(made.contains("queue mail is created"), "{made}");
    assert!(made.contains("exponential from 20ms up to 10min, jitter full"), "{made}");
    assert!(made.contains("2h, the last 1000000"), "{made}");
    let changed = answer(
        place,
        "create mail --retry-jitter none --keep-dead-count 9 --rate 2.5 --timeout 1min",
    );
    let settings = &changed["settings"];
    let retry =
        json!({"backoff": "exponential", "base_ms": 20, "max_ms": 600_000, "jitter": "none"});
    assert_eq!(settings["retry"], retry, "what was not given stays");
    assert_eq!(settings["dead"], json!({"age_ms": 7_200_000, "count": 9}));
    assert_eq!(settings["rate_per_second"], 2.5);
    assert_eq!(settings["timeout_ms"], 60_000);
    assert_eq!(settings["max_attempts"], 2);
    said(place, "create mail --rate 0");
    assert_eq!(said(place, "pause mail"), "queue mail is paused");
    assert_eq!(said(place, "drain mail"), "queue mail is paused, draining");
    let draining = refused(place, "enqueue mail 1", 1);
    assert!(draining.contains("egret queue resume"), "{draining}");
    assert_eq!(said(place, "resume mail"), "queue mail is open");
    let none = refused(place, "show none", 1);
    assert!(none.contains("egret queue create none"), "{none}");
}

fn tasks(place: &Place) {
    let line = "enqueue mail {\"n\":12345678901234567890} --priority 7 --key ada --tag a --tag b --meta by=me \
                --unique-key u --timeout 30s";
    let id = said(place, line);
    assert_eq!(said(place, line), id, "the same key is the same task");
    let shown = said(place, &format!("get {id}"));
    for part in [
        "state         ready",
        "attempts      0 of 2",
        "priority      7",
        "ordering key  ada",
        "tags          a, b",
        "metadata      by=me",
        "payload       {\"n\":12345678901234567890}",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let wrong = refused(place, "enqueue mail hello", 2);
    assert!(wrong.contains("--bytes"), "{wrong}");
    let late = said(place, "enqueue mail hello --bytes --delay 1h --tag late");
    assert_eq!(task(place, &late)["payload_base64"], "aGVsbG8=");
    let listed = answer(place, "tasks mail --limit 1");
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let cursor = listed["next_cursor"].as_str().unwrap();
    let rest = answer(place, &format!("tasks mail --cursor {cursor}"));
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next_cursor"], Value::Null);
    let tagged = said(place, "tasks mail --tag late --state delayed");
    assert!(tagged.contains(&late) && !tagged.contains(&id), "{tagged}");
    ends(place, &id, &late);
}

/// How tasks end, and what can be done about it.
fn ends(place: &Place, id: &str, late: &str) {
    let timed = refused(place, &format!("wait {late} --timeout 10ms"), 1);
    assert!(timed.contains("it is delayed"), "{timed}");
    let cancelled = said(place, &format!("cancel {late}"));
    assert_eq!(cancelled, format!("task {late} is cancelled"));
    let waited = refused(place, &format!("wait {late}"), 1);
    assert!(waited.contains("was cancelled"), "{waited}");
    let both = refused(place, &format!("cancel {late} {id}"), 1);
    assert!(both.contains("not all tasks are cancelled"), "{both}");
    assert_eq!(task(place, id)["state"], "cancelled");
    said(place, &format!("requeue {id}"));

    // Two attempts that fail, and what can be done about the dead.
    let failed = refused(place, "work mail --max-tasks 2 -- false", 1);
    assert!(failed.contains("2 of 2 attempts"), "{failed}");
    let dead = refused(place, &format!("wait {id}"), 1);
    assert!(dead.contains("dead after 2 attempts: exit status: 1"), "{dead}");
    assert!(said(place, "dead list mail").contains(id));
    assert_eq!(said(place, "dead requeue mail"), "1 dead task of mail is put back");
    refused(place, "work mail --max-tasks 2 -- false", 1);
    said(place, &format!("dead requeue mail {id}"));
    refused(place, "work mail --max-tasks 2 -- false", 1);
    assert_eq!(
        said(place, "dead delete mail"),
        "nothing is deleted: --yes would delete 1 dead of mail"
    );
    assert_eq!(said(place, "dead delete mail --yes"), "1 task of mail is deleted");
    let told = answer(place, "purge mail --state cancelled");
    assert_eq!(told["would_delete"], json!({"cancelled": 1}));
    assert_eq!(answer(place, "purge mail --yes"), json!({"deleted": 1}));
    said(place, "enqueue mail null");
    let used = refused(place, "delete mail", 1);
    assert!(used.contains("--force"), "{used}");
    assert_eq!(said(place, "delete mail --force"), "queue mail is deleted");
}

/// A file of more tasks than a request takes: what waits for what is found over requests.
fn batches(place: &Place) {
    said(place, "create bulk");
    let mut lines = String::new();
    for number in 0..1_003 {
        let after = match number {
            1 | 1_002 => ",\"after\":[\"#0\"]",
            1_001 => ",\"after\":[\"#1000\"]",
            _ => "",
        };
        lines += &format!("{{\"payload\":{number}{after}}}\n");
    }
    std::fs::write(place.directory.join("tasks.jsonl"), &lines).unwrap();
    let ids = said(place, "enqueue bulk --batch tasks.jsonl");
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), 1_003);
    assert_eq!(task(place, ids[1_002])["after"], json!([ids[0]]));
    assert_eq!(task(place, ids[1_001])["after"], json!([ids[1_000]]));
    assert_eq!(task(place, ids[1_002])["payload"], 1_002);
    let some = "{\"payload\":1}\n\n{\"priority\":10}\n";
    std::fs::write(place.directory.join("some.jsonl"), some).unwrap();
    let said = refused(place, "enqueue bulk --batch some.jsonl", 1);
    assert!(said.contains("line 3: priority"), "{said}");
    assert!(said.contains("1 of 2 tasks were refused"), "{said}");
    std::fs::write(place.directory.join("none.jsonl"), "{\"payload\":1}\nx").unwrap();
    let said = refused(place, "enqueue bulk --batch none.jsonl", 2);
    assert!(said.contains("line 2"), "{said}");
    assert_eq!(answer(place, "show bulk")["counts"]["waiting"], 3);
    status(place);
}

/// The queue's line in the status of the program.
fn status(place: &Place) {
    let queue = &place.json(&["status"])["queue"];
    assert_eq!(queue["queues"], 1);
    assert_eq!(queue["tasks"]["waiting"], 3);
    assert_eq!(queue["tasks"]["ready"], 1_001);
    assert_eq!(queue["durability"], "fsync");
    assert_eq!(queue["partitions_stopped"], 0);
    let output = place.run(&["status"]);
    let said = text(&output.stdout);
    let line = "1 queues; 1004 tasks pending, 0 leased, 0 dead; oldest ready for ";
    assert!(said.contains(line), "{said}");
}

fn schedules(place: &Place) {
    said(place, "create reports");
    let put = ["queue", "cron", "put", "daily", "reports", "30 8 * * MON"];
    let more = ["{\"kind\":1}", "--time-zone", "Europe/Zurich", "--tag", "t"];
    let made = place.json(&[put.as_slice(), &more].concat());
    assert_eq!(made["next_runs"].as_array().unwrap().len(), 5);
    let task = json!({"payload": {"kind": 1}, "priority": 5, "tags": ["t"], "metadata": {}});
    assert_eq!(made["task"], task);
    assert!(said(place, "cron list").contains("30 8 * * MON"));
    assert_eq!(said(place, "cron pause daily"), "schedule daily is paused");
    assert!(said(place, "cron show daily").contains("next         paused"));
    let resumed = said(place, "cron resume daily");
    assert!(resumed.starts_with("schedule daily runs next at "), "{resumed}");
    assert_eq!(said(place, "cron delete daily"), "schedule daily is deleted");
    let gone = refused(place, "cron show daily", 1);
    assert!(gone.contains("egret queue cron list"), "{gone}");
}

/// Makes the pipe `gate`, from which commands of [`gated`] read.
fn make_gate(place: &Place) {
    let gate = place.directory.join("gate");
    let made = Command::new("mkfifo").arg(gate).status().unwrap();
    assert!(made.success());
}

/// A worker whose command waits until a line is written to the pipe `gate`.
fn gated(place: &Place, options: &[&str]) -> Server {
    let work = ["queue", "work", "w", "--slots", "2", "--worker", "me"];
    let command = "read line < gate; echo \"$EGRET_QUEUE $EGRET_ATTEMPT $line\"";
    let command = ["--", "sh", "-c", command];
    place.spawn(&[&work[..], options, &command].concat())
}

/// Waits until a command of [`gated`] runs and returns the pipe from which it reads its line.
fn running(place: &Place) -> File {
    let gate = place.directory.join("gate");
    OpenOptions::new().write(true).open(gate).unwrap()
}

/// When the lease of a task ends that is leased.
fn lease_end(place: &Place, id: &str) -> Timestamp {
    let task = task(place, id);
    let end = task["lease_until"].as_str();
    end.unwrap_or_else(|| panic!("it is not leased: {task}")).parse().unwrap()
}

#[test]
fn commands_work_on_tasks_and_survive_the_server() {
    let place = Place::new("queue-work");
    make_gate(&place);
    let server = place.start(&["serve"]);
    // Longer than the test, however slow the machine is.
    said(&place, "create w --lease 1h");

    // What is held through a crash of the server is reported to the next.
    let id = said(&place, "enqueue w 1");
    let mut worker = gated(&place, &[]);
    let mut gate = running(&place);
    until(&place, &id, "leased");
    server.kill();
    let server = place.start(&["serve"]);
    writeln!(gate, "one").unwrap();
    drop(gate);
    worker.read_until("completed");
    assert_eq!(said(&place, &format!("wait {id}")), "w 1 one");
    assert_eq!(task(&place, &id)["history"][0]["worker"], "me");

    // Asked to stop, it lets what runs finish.
    let id = said(&place, "enqueue w 2");
    let mut gate = running(&place);
    worker.signal(Signal::TERM);
    writeln!(gate, "two").unwrap();
    drop(gate);
    worker.read_until("completed");
    assert_eq!(worker.interrupt(), Some(0));
    assert_eq!(said(&place, &format!("wait {id}")), "w 1 two");

    // Asked twice, it gives back what runs.
    let id = said(&place, "enqueue w 3");
    let mut worker = gated(&place, &[]);
    let gate = running(&place);
    worker.signal(Signal::TERM);
    worker.signal(Signal::INT);
    worker.read_until("released");
    drop(gate);
    assert_eq!(worker.interrupt(), Some(0));
    // A claim that the worker had begun may have got it for a moment, and gives it back as well.
    eventually_blocking("the task has no attempt", || {
        let task = task(&place, &id);
        if task["attempts"] == 0 { Ok(()) } else { Err(task) }
    });
    said(&place, &format!("cancel {id}"));
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_command_is_killed_when_its_time_is_over() {
    let place = Place::new("queue-kill");
    make_gate(&place);
    let server = place.start(&["serve"]);
    said(&place, "create w --lease 1h --max-attempts 1");

    // By the worker's limit, by the task's, and because the task was cancelled.
    let id = said(&place, "enqueue w 1");
    refused(&place, "work w --once --timeout 50ms -- sleep 1000", 1);
    let error = task(&place, &id)["error"].as_str().unwrap().to_owned();
    assert!(error.contains("it ran for more than 50ms"), "{error}");
    let id = said(&place, "enqueue w 1 --timeout 100ms");
    refused(&place, "work w --once --lease 600ms -- sleep 1000", 1);
    assert_eq!(task(&place, &id)["history"][0]["outcome"], "timed_out");
    // The worker learns of it by its next heartbeat, one in each third of a lease.
    said(&place, "create unwanted --lease 3s");
    let id = said(&place, "enqueue unwanted 1");
    let mut worker = place.spawn(&["queue", "work", "unwanted", "--", "sleep", "1000"]);
    until(&place, &id, "leased");
    said(&place, &format!("cancel {id}"));
    worker.read_until("lease_lost");
    assert_eq!(worker.interrupt(), Some(0));

    // A heartbeat keeps what takes longer than a lease; what is not JSON is a result as well.
    let id = said(&place, "enqueue w 1");
    let mut worker = gated(&place, &["--lease", "5s"]);
    let mut gate = running(&place);
    let first_end = lease_end(&place, &id);
    eventually_blocking("the lease is extended", || {
        let end = lease_end(&place, &id);
        if end < first_end.plus(Duration::from_secs(5)) { Err(end) } else { Ok(()) }
    });
    writeln!(gate, "done").unwrap();
    drop(gate);
    worker.read_until("completed");
    assert_eq!(worker.interrupt(), Some(0));
    assert_eq!(task(&place, &id)["result_base64"], "dyAxIGRvbmUK");
    // A command that is not there fails nothing.
    let id = said(&place, "enqueue w 1");
    let missing = refused(&place, "work w -- no-such-command", 1);
    assert!(missing.contains("cannot run `no-such-command`"), "{missing}");
    assert_eq!(task(&place, &id)["attempts"], 0);

    let mut tail = place.spawn(&["queue", "tail", "w", "--json", "--state", "completed"]);
    // No output says when a tail has begun: tasks are completed until it has seen one.
    let seen = std::thread::spawn(move || {
        let seen = tail.read_until("\n");
        (tail, seen)
    });
    while !seen.is_finished() {
        said(&place, "enqueue w {}");
        said(&place, "work w --until-empty --json -- true");
    }
    let (tail, seen) = seen.join().unwrap();
    let seen: Value = serde_json::from_str(seen.trim()).unwrap();
    assert_eq!(seen["state"], "completed");
    assert_eq!(tail.interrupt(), Some(0));
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
    assert_quiet(&place);
}
