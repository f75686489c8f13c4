//! The server's answers as text.

use expect_test::{Expect, expect};

use super::*;

/// As the server answers `GET /v1/branches/{name}`.
fn answer() -> Json {
    json!({
        "id": "0197a3c2-7a53-7c11-9d2e-3f1c5a7b9d10", "name": "pr-42", "tenant": "default",
        "state": "running",
        "parent": {"template": "0197a3c2-0000-7c11-9d2e-3f1c5a7b9d10", "branch": null},
        "preset": "small", "durable": false, "protected": true,
        "labels": {"ticket": "42"}, "settings": {"work_mem": "64MB"},
        "created_at": "2027-01-15T08:00:00.000000Z", "expires_at": "2027-01-15T10:00:00.000000Z",
        "age_ms": 900_000, "ttl_ms": 7_200_000, "sessions": 2, "diverged_bytes": 1_572_864,
        "failure": null,
        "receipt": {
            "kind": "cold", "template": "0197a3c2-0000-7c11-9d2e-3f1c5a7b9d10",
            "template_lsn": "0/1A2B3C4D", "template_taken_at": "2027-01-15T07:59:00.000000Z",
            "total_ms": 51.25,
            "phases": [{"name": "clone", "ms": 9.8}, {"name": "start", "ms": 41.4}],
            "source": {"name": "main", "system_identifier": "7500000000000000000"},
            "losses": [
                {"kind": "unlogged_relations", "total": 3, "names": ["app.public.cache", "app.public.\u{1b}[2J"]},
                {"kind": "statistics", "total": null, "names": []},
            ],
        },
    })
}

fn check(text: &str, expected: Expect) {
    let plain = anstream::adapter::strip_str(text).to_string();
    let trimmed: Vec<&str> = plain.lines().map(str::trim_end).collect();
    expected.assert_eq(&(trimmed.join("\n") + "\n"));
}

#[test]
fn a_branch_with_its_receipt() {
    let branch: Branch = decode(&answer()).unwrap();
    check(
        &describe(branch),
        expect![[r#"
        name        pr-42
        state       running
        template    0197a3c2-0000-7c11-9d2e-3f1c5a7b9d10
        preset      small
        settings    work_mem=64MB
        labels      ticket=42
        durable     no
        protected   yes
        created     2027-01-15T08:00:00.000000Z, 15min ago
        expires     2027-01-15T10:00:00.000000Z, in 1h 45min
        sessions    2
        diverged    1.5 MB
        data of     2027-01-15T07:59:00.000000Z, LSN 0/1A2B3C4D of main (7500000000000000000)
        made in     51.2 ms
        not copied  content of 3 unlogged relations (app.public.cache, app.public.�[2J, …); cumulative statistics

        PHASE  MS
        clone  9.8
        start  41.4
    "#]],
    );
}

#[test]
fn a_list_of_branches() {
    let (first, mut second) = (answer(), answer());
    second["name"] = json!("pr-42-b");
    second["state"] = json!("failed");
    second["parent"]["branch"] = json!("pr-42");
    second["expires_at"] = Json::Null;
    second["receipt"] = Json::Null;
    second["failure"] = json!("its server did not start");
    let branches = decode(&json!({"items": [first, second]})).unwrap();
    check(
        &table(branches, &[]),
        expect![[r#"
        NAME     STATE    PARENT                                AGE    EXPIRES IN  DIVERGED  SESSIONS  NOTES
        pr-42    running  0197a3c2-0000-7c11-9d2e-3f1c5a7b9d10  15min  1h 45min    1.5 MB    2         protected, ticket=42
        pr-42-b  failed   branch pr-42                          15min  never       1.5 MB    2         protected, ticket=42, its server did not start
    "#]],
    );
}

#[test]
fn a_proof_that_could_not_compare() {
    let proof = decode(&json!({
        "branch": "pr-42", "marker": "egret_marker_1", "marker_in_branch": true,
        "marker_in_source": false, "source_quiet": false, "tables_checked": 5,
        "checksums_equal": null, "catalogue_equal": null, "source_unchanged": true,
        "elapsed_ms": 312.5,
    }));
    check(
        &describe_proof(proof.unwrap()),
        expect![[r#"
        branch                  pr-42
        marker in branch        yes
        marker in source        no
        source quiet meanwhile  no
        tables checked          5
        checksums equal         not compared
        catalogue equal         not compared
        source unchanged        yes
        took                    312 ms
    "#]],
    );
}

#[test]
fn a_refusal_names_the_option_that_helps() {
    let hint = |code| add_option_hint(Failure::failed(code, "refused")).hint;
    let children = hint("branch_has_children");
    assert_eq!(children.as_deref(), Some("--children destroys them with it"));
    assert!(hint("branch_protected").is_some_and(|hint| hint.contains("--off")));
    assert!(hint("branch_cycle").is_some_and(|hint| hint.contains("--from template:ID")));
    assert_eq!(hint("branch_not_found"), None);
}
