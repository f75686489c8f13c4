//! Lines of `/proc/net/tcp`, of ours and of others.

use super::*;

const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

fn check(owner: u32, url: &str, lines: &[&str]) -> String {
    let guard = ListenerGuard::new(&url.parse().unwrap(), owner);
    let table = format!("{HEAD}{}", lines.join("\n"));
    match guard.check_tables(&[table]) {
        Ok(()) => "ours".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn sockets_of_another_user_are_told_from_ours() {
    let line = |address: &str, state: &str, owner: u32| {
        format!(
            "   0: {address}:1B9E 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {owner}        0 1 1 0"
        )
    };
    let url = "http://127.0.0.1:7070";
    let listening = line("0100007F", "0A", 1000);
    assert_eq!(check(1000, url, &[&listening]), "ours");
    assert_eq!(
        check(0, url, &[&listening]),
        "user id 1000 listens on port 7070, but 0 owns the data directory"
    );
    assert_eq!(check(0, url, &[&line("00000000", "0A", 0)]), "ours");
    let wildcard = line(&"0".repeat(32), "0A", 7);
    assert!(check(0, url, &[&wildcard]).contains("user id 7"));
    let mapped = line("0000000000000000FFFF00000100007F", "0A", 7);
    assert!(check(0, url, &[&mapped]).contains("user id 7"));
    // It listened, took the connection and has stopped listening.
    let taken = line("0100007F", "01", 7);
    let ours = line("0100007F", "0A", 0);
    assert!(check(0, url, &[&taken, &ours]).contains("user id 7"));
    // Another address of this machine is another server.
    let elsewhere = line("0200007F", "0A", 7);
    assert_eq!(check(0, url, &[&elsewhere, &ours]), "ours");
    assert!(check(0, url, &[&elsewhere]).contains("cannot find out"));
    assert!(check(0, "http://localhost:7070", &[&listening]).contains("user id 1000"));
}
