//! The program as a user runs it: started, looked at, killed, started again, stopped.

use egret_base_test::eventually_blocking;
use egret_postgres::pidfile::PidFile;
use egret_postgres::supervise::CRASH_LOOP_EXITS_MIN;
use egret_postgres_test::owner;
use rustix::process::{Pid, Signal};

use crate::place::{Place, run_as, text};

#[test]
fn ten_branches_survive_kill_9_and_sessions_reconnect() {
    let place = Place::new("kill");
    let server = place.start(&["serve"]);
    let names: Vec<String> = (0..10).map(|number| format!("b{number}")).collect();
    for name in &names {
        let made = place.json(&["branch", "create", name]);
        assert_eq!(made["state"], "running");
    }
    let urls: Vec<String> =
        names.iter().map(|name| place.connection_string(name, "postgres")).collect();
    for (number, url) in urls.iter().enumerate() {
        place.psql(url, &format!("CREATE TABLE mine AS SELECT {number} AS number")).unwrap();
    }
    server.kill();
    let refused = place.psql(&urls[0], "SELECT 1").unwrap_err();
    assert!(refused.contains("Connection refused"), "{refused}");
    let unreachable = place.run(&["branch", "list"]);
    assert_eq!(unreachable.status.code(), Some(3));
    assert!(
        text(&unreachable.stderr).contains("start it with `egret serve`"),
        "{}",
        text(&unreachable.stderr)
    );

    let server = place.start(&["serve"]);
    for (number, url) in urls.iter().enumerate() {
        assert_eq!(place.psql(url, "SELECT number FROM mine").unwrap(), number.to_string());
    }
    assert_eq!(place.json(&["branch", "verify"])["consistent"], true);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_second_egret_and_taken_ports_are_refused_by_name() {
    let place = Place::new("second");
    let server = place.start(&["serve"]);
    let second = place.run(&["serve"]);
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    assert!(said.contains(&format!("another egret (pid {})", server.pid())), "{said}");

    for (position, setting) in ["server.port", "proxy.port", "postgres.port"].iter().enumerate() {
        let mut other = Place::new("taken");
        other.ports[position] = place.ports[position];
        let refused = other.run(&["serve"]);
        assert_eq!(refused.status.code(), Some(1), "{setting}");
        let said = text(&refused.stderr);
        assert!(said.contains(setting) && said.contains("in use"), "{setting}: {said}");
        assert_eq!(other.left_behind(), Vec::<String>::new());
        // It was found before anything was made.
        assert!(!other.data_dir().join("volume").exists(), "{setting}");
    }
    server.stop(Signal::INT);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn an_ordinary_user_gets_branches_by_copying() {
    let mut place = Place::new("user");
    if !rustix::process::geteuid().is_root() {
        egret_base_test::not_checked("to be another user takes root");
        return;
    }
    let nobody = owner();
    run_as(&mut place, nobody.uid, nobody.gid);
    let server = place.start(&["serve"]);
    let volume = place.json(&["branch", "volume", "show"]);
    assert_eq!(volume["driver"], "copy");
    assert!(place.log().contains("branches are created by copying every byte"), "{}", place.log());
    place.json(&["branch", "create", "one"]);
    let url = place.connection_string("one", "postgres");
    assert_eq!(place.psql(&url, "SELECT 6 * 7").unwrap(), "42");
    let wrong = url
        .replacen(":egret_branch:", ":egret_branch:x", 1)
        .replace("egret_branch:", "egret_branch:x");
    let refused = place.psql(&wrong, "SELECT 1").unwrap_err();
    assert!(refused.contains("password authentication failed"), "{refused}");
    server.stop(Signal::INT);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

/// What Docker and Podman leave to root in a container, without an option.
const CAPABILITIES_OF_CONTAINERS: &str = "-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,\
    +setpcap,+net_bind_service,+sys_chroot,+kill,+audit_write";

#[test]
fn the_capabilities_that_containers_have_by_default_suffice() {
    let mut place = Place::new("container");
    place.runner =
        vec!["setpriv", "--inh-caps", "-all", "--bounding-set", CAPABILITIES_OF_CONTAINERS];
    let server = place.start(&["serve"]);
    place.json(&["branch", "create", "kept"]);
    let url = place.connection_string("kept", "postgres");
    place.psql(&url, "CREATE TABLE mine AS SELECT 1 AS one").unwrap();
    let source = postmaster(&place);
    server.kill();
    // The servers of before are found again, the source's too.
    let server = place.start(&["serve"]);
    assert_eq!(postmaster(&place), source);
    assert_eq!(place.psql(&url, "SELECT one FROM mine").unwrap(), "1");
    place.json(&["branch", "destroy", "kept"]);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn the_demo_tells_its_story_twice() {
    let place = Place::new("demo");
    let mut told = String::new();
    for _ in 0..2 {
        let mut server = place.start(&["demo"]);
        told.push_str(&server.read_until("Ctrl-C stops everything"));
        let count = place.json(&["branch", "query", "demo", "select count(*) from flights"]);
        assert_eq!(count["rows"][0][0], 336_776 - 58_665);
        let outboxes = place.json(&["queue", "outbox", "status"]);
        assert_eq!(outboxes["items"][0]["database"], "flights");
        // The commands that it prints work.
        let curl = told.lines().rfind(|line| line.contains("curl -s")).unwrap();
        let output = std::process::Command::new("sh").args(["-c", curl]).output();
        let task: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        assert_eq!(task["state"], "completed", "{task}");
        assert!(task["result"]["minutes_late"].as_i64().unwrap() >= 120, "{task}");
        let verified = place.json(&["view", "verify", "worst"]);
        assert_eq!(verified["equal"], true, "{verified}");
        let views = place.json(&["view", "list"]);
        let names = views["items"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|view| view["name"].as_str().unwrap()).collect();
        let all = [
            "public.late_by_carrier",
            "public.routes",
            "public.weather_delays",
            "public.worst",
            "public.worst_routes",
        ];
        assert_eq!(names, all);
        server.stop(Signal::INT);
    }
    for line in [
        "loaded 367687 rows (336776 flights",
        "the flights are already loaded",
        "tasks completed through the HTTP API      211 (",
        "the tasks of queue `delays` exist already",
        "weather and departures of 2013 as series: ",
        "weather and departures of 2013 are already stored as series",
        "% of departures delayed",
        "created views: `late_by_carrier` in ",
        "the views exist already",
        "`late_by_carrier` is refreshed: incremental, 2 changes read, 1 row changed (",
        "references to airlines, planes and airports: 277977 accepted in ",
        "7602 lines: unresolved_reference, destination in airports: 4 of them do not exist",
        "52606 lines: unresolved_reference, plane in planes: 722 of them do not exist",
        "726 missing documents are created from that report, and the other 58799 flights are accepted",
        "the flights are already stored as documents",
    ] {
        assert!(told.contains(line), "{told}");
    }
    let proofs = told.matches("source unchanged, by checksums of 5 tables: yes");
    assert_eq!(proofs.count(), 2, "{told}");
    let shown =
        told.matches("worst month of Alaska Airlines Inc.: 18.0 min before, 44.8 min after");
    assert_eq!(shown.count(), 2, "{told}");
    for line in [
        "is refused: `airports` has no document with /faa \"XXX\"",
        "documents refer to it",
        "\"kind\":\"update\"",
    ] {
        assert_eq!(told.matches(line).count(), 2, "{line}: {told}");
    }
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

/// The embedded server's process now, which may have ended.
fn postmaster(place: &Place) -> Option<Pid> {
    let file = PidFile::read(&place.data_dir().join("volume/source"))?;
    Pid::from_raw(file.pid)
}

/// Waits until `/readyz` answers with a status, and returns the answer.
#[track_caller]
pub fn await_readyz(place: &Place, status: &str) -> String {
    eventually_blocking(&format!("/readyz answers {status}"), || {
        let answer = place.get("/readyz");
        if answer.starts_with(&format!("HTTP/1.1 {status}")) { Ok(answer) } else { Err(answer) }
    })
}

#[test]
fn a_crash_loop_is_told_by_status_and_readyz_and_egret_stops_all_the_same() {
    let place = Place::new("loop");
    let server = place.start(&["serve"]);
    let mut last = None;
    for _ in 0..CRASH_LOOP_EXITS_MIN {
        await_readyz(&place, "200");
        let pid = postmaster(&place).expect("it is ready");
        assert_ne!(Some(pid), last);
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        await_readyz(&place, "503");
        last = Some(pid);
    }
    // The next attempt is 1.6 s away.
    let answer = place.get("/readyz");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("crash loop: 5 exits within five minutes"), "{answer}");
    let status = place.json(&["status"]);
    let reason = status["postgres"]["state"].as_str().unwrap();
    assert!(reason.contains("crash loop"), "{reason}");
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_postgres_that_accepts_no_sessions_is_told_by_readyz_status_and_metrics() {
    let place = Place::new("unready");
    let server = place.start(&["serve"]);
    await_readyz(&place, "200");
    let postmaster = postmaster(&place).expect("it is ready");
    rustix::process::kill_process(postmaster, Signal::STOP).unwrap();
    let answer = await_readyz(&place, "503");
    assert!(answer.contains("does not accept sessions"), "{answer}");
    assert!(answer.contains("\"conditions\":[\"postgres_not_accepting\"]"), "{answer}");
    let status = place.json(&["status"]);
    let state = status["postgres"]["state"].as_str().unwrap();
    assert!(state.contains("SIGCONT"), "{state}");
    let metrics = place.get_with_token("/metrics", &place.admin_token());
    let sample = "egret_condition_active{condition=\"postgres_not_accepting\"} 1";
    assert!(metrics.contains(sample), "{metrics}");
    rustix::process::kill_process(postmaster, Signal::CONT).unwrap();
    await_readyz(&place, "200");
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn an_external_server_is_shown_without_its_password_and_has_no_branches() {
    let postgres = crate::server::PostgresServer::start();
    let mut place = Place::new("external");
    place.variables.push(("EGRET_POSTGRES_URL", postgres.url()));
    let server = place.start(&["serve"]);
    let status = place.json(&["status"]);
    let shown = &status["postgres"];
    assert_eq!(shown["kind"], "external");
    assert_eq!(shown["state"], "connected");
    assert_eq!(shown["database"], "postgres");
    assert!(!status.to_string().contains(crate::server::PASSWORD));
    let said = text(&place.run(&["status"]).stdout);
    assert!(said.contains("connected, external, /"), "{said}");
    assert!(said.contains("no database has collections"), "{said}");
    let refused = place.run(&["branch", "list"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("they need the embedded PostgreSQL"), "{said}");
    server.stop(Signal::INT);
}

#[test]
fn with_tls_the_local_commands_know_the_server_by_its_certificate() {
    let mut place = Place::new("tls");
    let write_certificate = || {
        let made = rcgen::generate_simple_self_signed(["egret.example.net".to_owned()]).unwrap();
        std::fs::write(place.directory.join("cert.pem"), made.cert.pem()).unwrap();
        let key = made.signing_key.serialize_pem();
        std::fs::write(place.directory.join("key.pem"), key).unwrap();
    };
    write_certificate();
    let path = |name: &str| place.directory.join(name).display().to_string();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    place.variables.push(("EGRET_SERVER_TLS_CERTIFICATE", certificate));
    place.variables.push(("EGRET_SERVER_TLS_KEY", key));
    let server = place.start(&["serve"]);
    let status = place.json(&["status"]);
    assert_eq!(status["postgres"]["state"], "running");
    // Another server at that address, with another certificate, does not get the token.
    let write_certificate = || {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(place.directory.join("cert.pem"), made.cert.pem()).unwrap();
    };
    write_certificate();
    let refused = place.run(&["status"]);
    assert_eq!(refused.status.code(), Some(3));
    let said = text(&refused.stderr);
    assert!(said.contains("shows another certificate"), "{said}");
    server.stop(Signal::INT);
}

#[test]
fn an_interrupt_that_is_ignored_at_the_start_stays_ignored() {
    let mut place = Place::new("ignored");
    // As a shell without job control starts what is in its background.
    place.runner = vec!["sh", "-c", "trap '' INT; exec \"$0\" \"$@\""];
    let server = place.start(&["serve"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    assert_ne!(mask & (1 << 1), 0, "SIGINT, signal 2, is ignored: {mask:x}");
    server.stop(Signal::TERM);
}
