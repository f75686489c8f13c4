//! The status as text, of a server that is still starting as well.

use serde_json::json;

use super::*;

#[test]
fn parts_that_are_not_ready_say_why() {
    let answer = json!({
        "version": "0.1.0", "uptime_ms": 1_500,
        "services": [{"name": "queue", "ready": true}, {"name": "branches", "ready": false, "reason": "starting"}],
        "branches": {"error": "not started yet"},
        "queue": {
            "queues": 2, "tasks": {"ready": 3, "delayed": 1, "leased": 4, "dead": 5, "completed": 6},
            "oldest_ready_ms": 61_000, "partitions": 2, "partitions_stopped": 1, "durability": "fsync",
        },
        "series": {"series": 7, "shards": 2, "shards_failed": 1, "durability": "fsync"},
        "views": {"total": 3, "by_state": {"active": 2, "failing": 1, "new": 0, "suspended": 0}},
    });
    let said = text(crate::output::decode(&answer).unwrap());
    let said = anstream::adapter::strip_str(&said).to_string();
    assert!(said.contains("branches  not started yet"), "{said}");
    let queue = "2 queues; 4 tasks pending, 4 leased, 5 dead; oldest ready for 1min 1s; 2 partitions, \
                 durability fsync; 1 HAVE STOPPED";
    assert!(said.contains(queue), "{said}");
    let series = "7 series; 2 shards, durability fsync; 1 HAVE STOPPED";
    assert!(said.contains(series), "{said}");
    assert!(said.contains("views     3 (2 active, 1 failing)"), "{said}");
}
