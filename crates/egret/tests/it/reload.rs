//! SIGHUP: what changed is read again, what is broken is left as it was, and nothing stops.

use std::fs;
use std::path::Path;
use std::process::Output;

use egret_base_test::eventually_blocking;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::process::Signal;

use crate::place::{Place, Server, text};

/// A certificate and its key, as files.
fn write_certificate(directory: &Path) -> String {
    let made = generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    let CertifiedKey { cert, signing_key } = made.unwrap();
    fs::write(directory.join("cert.pem"), cert.pem()).unwrap();
    fs::write(directory.join("key.pem"), signing_key.serialize_pem()).unwrap();
    cert.pem()
}

/// Waits until the log contains `what` as often as `times`.
#[track_caller]
fn await_log(place: &Place, what: &str, times: usize) {
    eventually_blocking(&format!("the log contains {what:?}"), || {
        place.log().matches(what).count() >= times
    });
}

/// Enqueues a task whose callback goes to this machine.
fn enqueue_with_callback(place: &Place) -> Output {
    let callback = ["--callback-url", "http://127.0.0.1:9/"];
    place.run(&[&["queue", "enqueue", "q", "1"], &callback[..]].concat())
}

fn limits_and_destinations_are_read_again(place: &Place, server: &Server, toml: &Path) {
    assert!(place.run(&["queue", "create", "q"]).status.success());
    let refused = text(&enqueue_with_callback(place).stderr);
    assert!(refused.contains("outgoing.allow"), "{refused}");
    let settings = "[egret]\nlog_level = \"debug\"\n[queue]\npartitions = 3\n\
        [server]\nconcurrency_per_token_max = 11\nbody_memory_max = \"400MB\"\n\
        [outgoing]\nallow = \"127.0.0.0/8\"\n";
    fs::write(toml, settings).unwrap();
    server.signal(Signal::HUP);
    await_log(place, "the list of allowed destinations has changed", 1);
    let allowed = enqueue_with_callback(place);
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    let log = place.log();
    for setting in ["concurrency_per_token_max", "body_memory_max", "outgoing.allow"] {
        let needs_restart = |line: &str| line.contains(setting) && line.contains("needs a restart");
        assert!(!log.lines().any(needs_restart), "{log}");
    }
}

#[test]
fn a_hangup_reloads_and_does_not_stop() {
    let mut place = Place::new("reload");
    let certificate = place.directory.join("cert.pem");
    let key = place.directory.join("key.pem");
    write_certificate(&place.directory);
    place.variables = vec![
        ("EGRET_SERVER_TLS_CERTIFICATE", certificate.display().to_string()),
        ("EGRET_SERVER_TLS_KEY", key.display().to_string()),
    ];
    let toml = place.directory.join("egret.toml");
    fs::write(&toml, "[egret]\nlog_level = \"info\"\n").unwrap();
    let mut server = place.start(&["serve"]);
    // The configured certificate alone is trusted: the answer shows which one the server has.
    assert!(place.run(&["token", "list"]).status.success());

    write_certificate(&place.directory);
    let refused = place.run(&["token", "list"]);
    assert!(text(&refused.stderr).contains("another certificate"));
    fs::write(&toml, "[egret]\nlog_level = \"debug\"\n[queue]\npartitions = 3\n").unwrap();
    server.signal(Signal::HUP);
    await_log(&place, "the certificate was replaced", 1);
    assert!(place.run(&["token", "list"]).status.success());
    let log = place.log();
    assert!(log.contains("needs a restart") && log.contains("queue.partitions"), "{log}");

    limits_and_destinations_are_read_again(&place, &server, &toml);

    let shown = fs::read(&certificate).unwrap();
    fs::write(&certificate, "no certificate").unwrap();
    fs::write(&toml, "[egret]\nlog_lvel = \"debug\"\n").unwrap();
    server.signal(Signal::HUP);
    await_log(&place, "cannot reload the certificate; keeping the previous one", 1);
    await_log(&place, "reloaded rules and scrape jobs", 3);
    assert!(place.log().contains("cannot reload the settings; keeping the previous ones"));
    // Files that cannot be used take nothing back. The command line reads them too, and gets some
    // that it can use.
    fs::write(&certificate, shown).unwrap();
    fs::write(&toml, "").unwrap();
    let allowed = enqueue_with_callback(&place);
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    assert!(server.is_running());
    server.stop(Signal::TERM);
}
