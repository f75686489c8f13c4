//! A server of the user's own that freezes: requests that wait for it are answered, and it is
//! served again.

use egret_base_test::eventually_blocking;
use rustix::process::Signal;

use crate::place::Place;
use crate::serve::await_readyz;
use crate::server::PostgresServer;

/// What is asked of the server, one of each engine at least.
const ROUTES: [&str; 5] =
    ["/v1/views", "/v1/views/daily", "/v1/collections", "/v1/outboxes", "/v1/installations"];

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_a_server_that_freezes_are_answered_and_its_lock_is_taken_again() {
    let postgres = PostgresServer::start();
    let mut place = Place::new("frozen");
    place.variables.push(("EGRET_POSTGRES_URL", postgres.url()));
    let server = place.start(&["serve"]);
    let token = place.admin_token();
    let is_unavailable = |answer: &str| answer.starts_with("HTTP/1.1 503");
    // Its reader has a session, and a lock.
    place.json(&["queue", "outbox", "install"]);
    await_readyz(&place, "200");
    let frozen = postgres.freeze();
    std::thread::scope(|scope| {
        for route in ROUTES {
            let (place, token) = (&place, &token);
            scope.spawn(move || {
                let answer = place.get_with_token(route, token);
                assert!(is_unavailable(&answer), "{route}: {answer}");
            });
        }
    });
    await_readyz(&place, "503");
    drop(frozen);
    eventually_blocking("the lock is taken again", || {
        let answer = place.get("/readyz");
        assert!(!answer.contains("another Egret"), "{answer}");
        if is_unavailable(&answer) { Err(answer) } else { Ok(()) }
    });
    for route in ROUTES {
        eventually_blocking(route, || {
            let answer = place.get_with_token(route, &token);
            if is_unavailable(&answer) { Err(answer) } else { Ok(()) }
        });
    }
    let log = place.log();
    assert!(!log.contains("postgres_taken_over"), "{log}");
    assert!(!log.contains("another egret reads"), "{log}");
    server.stop(Signal::TERM);
}
