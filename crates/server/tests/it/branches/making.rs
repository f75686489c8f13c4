//! Making, looking at and listing branches; templates and the volume.

use reqwest::Method;
use serde_json::json;

use super::rig::{expect_status, shared};

const BRANCHES: &str = "/v1/branches";

#[tokio::test]
async fn a_branch_is_made_once_and_shown_whole() {
    let rig = shared();
    let wish = json!({
        "name": "made-1", "ttl_ms": 3_600_000, "preset": "medium",
        "settings": {"work_mem": "24MB"}, "labels": {"ticket": "42"},
    });
    let made = expect_status(rig.send(Method::POST, BRANCHES, wish.clone()).await, 201).await;
    assert_eq!(made["name"], "made-1");
    assert_eq!(made["tenant"], "default");
    assert_eq!(made["state"], "running");
    assert_eq!(made["preset"], "medium");
    assert_eq!(made["settings"], json!({"work_mem": "24MB"}));
    assert_eq!(made["labels"], json!({"ticket": "42"}));
    assert_eq!(made["durable"], false);
    assert_eq!(made["ttl_ms"], 3_600_000);
    assert!(made["expires_at"].is_string());
    assert_eq!(made["sessions"], 0);
    assert_eq!(made["failure"], json!(null));
    assert_eq!(made["parent"]["branch"], json!(null));
    let receipt = &made["receipt"];
    assert_eq!(receipt["kind"], "cold");
    assert_eq!(receipt["template"], made["parent"]["template"]);
    assert_eq!(receipt["source"]["name"], "main");
    let phases: Vec<&str> = receipt["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    assert!(phases.contains(&"clone") && phases.contains(&"start"), "{phases:?}");
    let answer = rig.query("made-1", "show work_mem").await;
    assert_eq!(answer["rows"], json!([["24MB"]]));

    let again = expect_status(rig.send(Method::POST, BRANCHES, wish).await, 200).await;
    assert_eq!(again["id"], made["id"]);
    let other = json!({"name": "made-1", "preset": "large"});
    let refusal = rig.expect_problem(Method::POST, BRANCHES, other, 409, "branch_name_taken");
    let detail = refusal.await["detail"].to_string();
    assert!(detail.contains("another preset"), "{detail}");

    let shown = rig.get("/v1/branches/made-1").await;
    assert_eq!(shown["id"], made["id"]);
    for name in shown.as_object().unwrap().keys() {
        assert!(made.get(name).is_some(), "{name} is shown at times only");
    }
    rig.destroy("made-1").await;
    rig.expect_problem(Method::GET, "/v1/branches/made-1", json!({}), 404, "branch_not_found")
        .await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn what_cannot_be_made_says_why() {
    let rig = shared();
    let no_template = "template:00000000-0000-7000-8000-000000000000";
    let many: serde_json::Map<_, _> = (0..33).map(|n| (format!("l{n}"), json!("x"))).collect();
    let table = [
        (json!({}), 400, "json_invalid", "missing field `name`"),
        (json!({"name": "../x"}), 400, "json_invalid", "`../x` is not a branch name"),
        (json!({"name": "Upper"}), 400, "json_invalid", "lower-case letters"),
        (json!({"name": ""}), 400, "json_invalid", "1 to 63"),
        (json!({"name": "-x"}), 400, "json_invalid", "starting with a letter or digit"),
        (json!({"name": "a.b"}), 400, "json_invalid", "is not a branch name"),
        (json!({"name": "x".repeat(64)}), 400, "json_invalid", "1 to 63"),
        (
            json!({"name": "bad", "tll_ms": 1}),
            400,
            "json_invalid",
            "unknown field `tll_ms`, expected one of",
        ),
        (
            json!({"name": "bad", "from": "tail"}),
            400,
            "json_invalid",
            "use template, head, template:ID or branch:NAME",
        ),
        (json!({"name": "bad", "preset": "huge"}), 400, "json_invalid", "unknown variant `huge`"),
        (json!({"name": "bad", "ttl_ms": -1}), 400, "json_invalid", "ttl_ms"),
        (json!({"name": "bad", "ttl_ms": 0}), 400, "invalid_request", "longer than zero"),
        (
            json!({"name": "bad", "settings": {"work_men": "1MB"}}),
            400,
            "invalid_request",
            "did you mean work_mem?",
        ),
        (
            json!({"name": "bad", "settings": {"work_mem": "1MB'; drop"}}),
            400,
            "invalid_request",
            "plain number",
        ),
        (
            json!({"name": "bad", "settings": {"archive_command": "id"}}),
            400,
            "invalid_request",
            "cannot be set",
        ),
        (json!({"name": "bad", "from": no_template}), 404, "template_not_found", "does not exist"),
        (
            json!({"name": "bad", "from": "branch:nobody"}),
            404,
            "branch_not_found",
            "`nobody` does not exist",
        ),
        (
            json!({"name": "bad", "labels": many}),
            400,
            "invalid_request",
            "branches.labels_max is 32",
        ),
    ];
    for (wish, status, code, says) in table {
        let response = rig.send(Method::POST, BRANCHES, wish.clone()).await;
        assert!(!response.headers().contains_key("retry-after"), "{wish}");
        let problem = crate::test_server::problem(response, status, code).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{wish}: {detail}");
    }
    rig.expect_problem(Method::GET, "/v1/branches/bad", json!({}), 404, "branch_not_found").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn names_in_paths_are_validated_too() {
    let rig = shared();
    for name in ["Upper", "..%2Fx", "a%20b", &"x".repeat(64), "%C3%BC"] {
        for (method, more) in [
            (Method::GET, ""),
            (Method::DELETE, ""),
            (Method::PATCH, ""),
            (Method::POST, "/suspend"),
            (Method::GET, "/connection"),
        ] {
            let path = format!("/v1/branches/{name}{more}");
            let problem = rig.expect_problem(method, &path, json!({}), 400, "parameter_invalid");
            let detail = problem.await["detail"].to_string();
            assert!(detail.contains("is not a branch name"), "{detail}");
        }
    }
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_list_is_filtered_by_label_and_state() {
    let rig = shared();
    for (name, labels) in
        [("list-1", json!({"list": "yes", "n": "1"})), ("list-2", json!({"list": "yes", "n": "2"}))]
    {
        let wish = json!({"name": name, "labels": labels});
        expect_status(rig.send(Method::POST, BRANCHES, wish).await, 201).await;
    }
    rig.post("/v1/branches/list-2/suspend", json!({})).await;
    for (filter, expected) in [
        ("label=list=yes", vec!["list-1", "list-2"]),
        ("label=list=yes&label=n=2", vec!["list-2"]),
        ("label=list%3Dyes&state=running", vec!["list-1"]),
        ("label=list=yes&state=suspended", vec!["list-2"]),
        ("label=list=yes&state=failed", vec![]),
        ("label=list=", vec![]),
    ] {
        let answer = rig.get(&format!("{BRANCHES}?{filter}")).await;
        let items = answer["items"].as_array().unwrap();
        let names: Vec<&str> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{filter}");
    }
    for (filter, says) in [
        ("label=list", "`list` is not of the form key=value"),
        ("state=asleep", "`asleep` is not one of creating, running"),
        ("sate=running", "unknown field `sate`, expected `label` or `state`"),
    ] {
        let path = format!("{BRANCHES}?{filter}");
        let problem = rig.expect_problem(Method::GET, &path, json!({}), 400, "parameter_invalid");
        let detail = problem.await["detail"].to_string();
        assert!(detail.contains(says), "{detail}");
    }
    rig.destroy("list-1").await;
    rig.destroy("list-2").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn templates_are_taken_listed_and_used() {
    let rig = shared();
    let taken = rig.request(Method::POST, "/v1/templates").send().await.unwrap();
    let taken = expect_status(taken, 201).await;
    let id = taken["id"].as_str().unwrap();
    assert_eq!(taken["state"], "ready");
    assert_eq!(taken["origin"], json!({"source": "main", "branch": null}));
    assert!(!taken["phases"].as_array().unwrap().is_empty());
    let wish = json!({"name": "of-template", "from": format!("template:{id}")});
    let made = expect_status(rig.send(Method::POST, BRANCHES, wish).await, 201).await;
    assert_eq!(made["parent"]["template"], id);
    let list = rig.get("/v1/templates").await;
    let items = list["items"].as_array().unwrap();
    let found = items.iter().find(|item| item["id"] == id).unwrap();
    assert_eq!(found["branches"], 1);
    rig.expect_problem(Method::POST, "/v1/templates", json!({"of": "x"}), 400, "json_invalid")
        .await;
    rig.destroy("of-template").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn the_volume_is_shown_and_not_made_twice() {
    let rig = shared();
    let volume = rig.get("/v1/volume").await;
    let driver = volume["driver"].as_str().unwrap();
    assert!(["btrfs", "reflink"].contains(&driver), "{volume}");
    assert!(volume["free_bytes"].as_u64().unwrap() <= volume["size_bytes"].as_u64().unwrap());
    assert_eq!(volume["free_bytes_min"], 64 << 20);
    assert!(volume["isolation"].as_str().unwrap().contains("seccomp"));
    assert!(volume["limits"].as_str().is_some(), "{volume}");
    let wish = json!({"size_bytes": 1_u64 << 30});
    let problem = rig.expect_problem(Method::POST, "/v1/volume", wish, 409, "volume_unusable");
    let detail = problem.await["detail"].to_string();
    assert!(detail.contains("copies on write already"), "{detail}");
    rig.assert_no_warnings();
}
