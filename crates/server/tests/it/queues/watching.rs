//! Server-sent events of tasks' changes.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::rig::Rig;

/// Events as they come.
struct Events {
    response: Response,
    text: String,
}

impl Events {
    async fn open(rig: &Rig, query: &str) -> Self {
        let response = rig.test_server.get(&format!("/v1/tasks/events{query}")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut events = Self { response, text: String::new() };
        assert_eq!(events.next().await.unwrap(), ": egret");
        events
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = event.to_owned();
                self.text = rest.to_owned();
                return Some(event);
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn change(&mut self) -> Value {
        let event = self.next().await.expect("there is another change");
        let data = event.strip_prefix("event: change\ndata: ").unwrap();
        serde_json::from_str(data).unwrap()
    }
}

#[tokio::test]
async fn changes_are_told_until_the_server_stops() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    rig.create_queue("other").await;
    let mut all = Events::open(&rig, "").await;
    let mut ends = Events::open(&rig, "?queue=q&state=completed&state=dead").await;
    let id = rig.enqueue("q", json!({})).await;
    let task = rig.claim("q").await;
    rig.report(&task, "complete", json!({}), 204).await;
    rig.enqueue("other", json!({})).await;
    for (queue, state, attempt) in
        [("q", "ready", 0), ("q", "leased", 1), ("q", "completed", 1), ("other", "ready", 0)]
    {
        let change = all.change().await;
        assert_eq!(change["state"], state, "{change}");
        assert_eq!((&change["queue"], &change["attempt"]), (&json!(queue), &json!(attempt)));
        assert_eq!(change["id"] == id.as_str(), queue == "q");
        assert!(change["at"].is_string());
    }
    assert_eq!(ends.change().await["state"], "completed");
    rig.close().await;
    assert_eq!(all.next().await, None);
    assert_eq!(ends.next().await, None);
}

#[tokio::test]
async fn a_slow_reader_is_told_what_it_missed() {
    let rig = Rig::with(|config| config.watch_changes_max = 10).await;
    rig.create_queue("q").await;
    let mut events = Events::open(&rig, "").await;
    let tasks: Vec<Value> = (0..100).map(|_| json!({})).collect();
    rig.post("/v1/queues/q/tasks", json!(tasks), 200).await;
    assert_eq!(events.next().await.unwrap(), "event: missed\ndata: 90");
    for _ in 0..10 {
        events.change().await;
    }
    rig.close().await;
}

#[tokio::test]
async fn invalid_watches_are_refused() {
    let rig = Rig::with(|config| config.watchers_max = 1).await;
    for (query, status, code, about) in [
        ("?queue=none", 404, "queue_not_found", "none"),
        ("?state=odd", 400, "parameter_invalid", "state: `odd`"),
        ("?color=red", 400, "parameter_invalid", "color"),
    ] {
        let path = format!("/v1/tasks/events{query}");
        let said = rig.expect_problem(Method::GET, &path, Value::Null, status, code).await;
        assert!(said.contains(about), "{said}");
    }
    let _first = Events::open(&rig, "").await;
    let said = rig
        .expect_problem(Method::GET, "/v1/tasks/events", Value::Null, 429, "limit_exceeded")
        .await;
    assert!(said.contains("queue.watchers_max"), "{said}");
    rig.close().await;
}
