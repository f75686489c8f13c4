//! `egret branch …`: make, look at, change and destroy branches.

use std::collections::BTreeMap;

use egret_base::settings::ConfigDuration;
use serde_json::{Value as Json, json};

use crate::api::Api;
use crate::cli;
use crate::commands::{connect, pool, query, volume};
use crate::failure::Failure;
use crate::output::{Output, decode, format_bytes, format_duration, format_fields, listing};
use crate::responses::{Branch, Check, Items, Loss, Phase, Proof};

pub(crate) async fn run(
    command: cli::BranchCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    dispatch(command, api, output).await.map_err(add_option_hint)
}

/// A refusal of the server, with the option that helps.
fn add_option_hint(failure: Failure) -> Failure {
    let hint = match failure.code.as_str() {
        "branch_has_children" => "--children destroys them with it",
        "branch_protected" => "`egret branch protect NAME --off` removes the protection",
        "branch_cycle" => "`egret branch create NAME --from template:ID` creates a new branch",
        _ => return failure,
    };
    failure.with_hint(hint)
}

async fn dispatch(command: cli::BranchCommand, api: &Api, output: Output) -> Result<(), Failure> {
    match command {
        cli::BranchCommand::Volume(command) => volume::run_volume(command, api, output).await,
        cli::BranchCommand::Pool(command) => pool::run(command, api, output).await,
        cli::BranchCommand::Template(command) => volume::run_template(command, api, output).await,
        cli::BranchCommand::Create(branch) => create(branch, api, output).await,
        cli::BranchCommand::List { labels, state } => list(labels, state, api, output).await,
        cli::BranchCommand::Show { name } => {
            let answer = api.get(&["branches", &name], &[]).await?;
            output.print_answer(&answer, describe)
        }
        cli::BranchCommand::Connect(arguments) => connect::run(arguments, api, output).await,
        cli::BranchCommand::Query(arguments) => query::run(arguments, api, output).await,
        cli::BranchCommand::Reset { name, to } => {
            let body =
                to.map_or_else(|| json!({}), |template| json!({"to": qualify_template(template)}));
            post_action(api, output, &name, "reset", body).await
        }
        cli::BranchCommand::Suspend { name } => {
            post_action(api, output, &name, "suspend", json!({})).await
        }
        cli::BranchCommand::Resume { name } => {
            post_action(api, output, &name, "resume", json!({})).await
        }
        cli::BranchCommand::Protect { name, off } => {
            let answer = api.patch(&["branches", &name], json!({"protected": !off})).await?;
            output.print_answer(&answer, |branch: Branch| {
                let protection = if branch.protected { "protected" } else { "no longer protected" };
                format!("branch {} is {protection}", branch.name)
            })
        }
        cli::BranchCommand::Expire(arguments) => {
            let ttl_ms = arguments.ttl.map(|ConfigDuration(ms)| ms);
            let answer =
                api.patch(&["branches", &arguments.name], json!({"ttl_ms": ttl_ms})).await?;
            output.print_answer(&answer, describe_expiry)
        }
        cli::BranchCommand::Destroy { name, children } => {
            let query: &[(&str, &str)] = if children { &[("children", "true")] } else { &[] };
            let answer = api.delete(&["branches", &name], query).await?;
            output
                .print_answer(&answer, |branch: Branch| format!("branch {} destroyed", branch.name))
        }
        cli::BranchCommand::Verify { name: Some(name), database } => {
            verify(&name, database, api, output).await
        }
        cli::BranchCommand::Verify { name: None, .. } => check_registry(api, output).await,
    }
}

fn describe_expiry(branch: Branch) -> String {
    let name = branch.name;
    match branch.expires_at {
        Some(moment) if branch.protected => format!(
            "branch {name} expires at {moment}, but it is protected and is kept until `egret branch protect {name} --off`"
        ),
        Some(moment) => format!("branch {name} expires at {moment}"),
        None => format!("branch {name} does not expire"),
    }
}

/// Pairs by their keys; one that is given twice is a slip that would lose a value.
fn into_unique_map(
    option: &str,
    pairs: Vec<(String, String)>,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut by_key = BTreeMap::new();
    for (key, value) in pairs {
        if let Some(earlier) = by_key.insert(key.clone(), value.clone()) {
            return Err(Failure::usage(format!(
                "--{option} gives {key} twice, as `{earlier}` and as `{value}`"
            )));
        }
    }
    Ok(by_key)
}

async fn create(branch: cli::CreateBranch, api: &Api, output: Output) -> Result<(), Failure> {
    let mut body = json!({"name": branch.name, "from": branch.from});
    if let Some(ConfigDuration(ttl_ms)) = branch.ttl {
        body["ttl_ms"] = ttl_ms.into();
    }
    if branch.durable {
        body["durable"] = true.into();
    }
    if branch.superuser {
        body["superuser"] = true.into();
    }
    if branch.role_passwords {
        body["role_passwords"] = true.into();
    }
    if branch.protected {
        body["protected"] = true.into();
    }
    if let Some(preset) = branch.preset {
        body["preset"] = preset.into();
    }
    let settings = into_unique_map("setting", branch.settings)?;
    let labels = into_unique_map("label", branch.labels)?;
    for (name, pairs) in [("settings", settings), ("labels", labels)] {
        if !pairs.is_empty() {
            body[name] = json!(pairs);
        }
    }
    let work = api.post(&["branches"], body);
    let answer = output.wait_with_spinner("creating the branch", work).await?;
    output.print_answer(&answer, |branch: Branch| {
        let creation = branch.receipt.map_or_else(String::new, |receipt| {
            let lost = describe_losses(receipt.losses.as_deref());
            let lost = if lost.is_empty() { lost } else { format!("\nnot copied: {lost}") };
            let parts: Vec<String> = receipt
                .phases
                .iter()
                .map(|phase| format!("{} {}", phase.name, milliseconds(phase.ms)))
                .collect();
            format!(
                ", created in {} ms ({}){lost}",
                milliseconds(receipt.total_ms),
                parts.join(", ")
            )
        });
        format!(
            "branch {name} is {state}{creation}\nnext: egret branch connect {name}",
            name = branch.name,
            state = branch.state
        )
    })
}

async fn list(
    labels: Vec<(String, String)>,
    state: Option<String>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let labels: Vec<String> = into_unique_map("label", labels)?
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let query: Vec<(&str, &str)> = labels
        .iter()
        .map(|label| ("label", label.as_str()))
        .chain(state.iter().map(|state| ("state", state.as_str())))
        .collect();
    let answer = api.get(&["branches"], &query).await?;
    let conditions: Vec<String> = labels
        .iter()
        .map(|label| format!("with label {label}"))
        .chain(state.iter().map(|state| format!("in state {state}")))
        .collect();
    output.print_answer(&answer, |branches| table(branches, &conditions))
}

/// `conditions` says which branches were asked for, when not all.
fn table(branches: Items<Branch>, conditions: &[String]) -> String {
    if branches.items.is_empty() && !conditions.is_empty() {
        return format!("no branches {}", conditions.join(" and "));
    }
    if branches.items.is_empty() {
        return "no branches: create one with `egret branch create NAME`".to_owned();
    }
    let head = ["name", "state", "parent", "age", "expires in", "diverged", "sessions", "notes"];
    listing(&head, branches.items.into_iter().map(row))
}

fn row(branch: Branch) -> Vec<String> {
    let expires_in = expires_in(&branch);
    let mut notes = Vec::new();
    if branch.protected {
        notes.push("protected".to_owned());
    }
    if branch.durable {
        notes.push("durable".to_owned());
    }
    if branch.superuser {
        notes.push("superuser".to_owned());
    }
    if branch.role_passwords {
        notes.push("role passwords".to_owned());
    }
    notes.extend(branch.labels.iter().map(|(key, value)| format!("{key}={value}")));
    notes.extend(branch.failure);
    notes.extend(branch.notice);
    vec![
        branch.name,
        branch.state,
        branch.parent.branch.map_or(branch.parent.template, |name| format!("branch {name}")),
        format_duration(branch.age_ms),
        expires_in,
        branch.diverged_bytes.map_or_else(String::new, format_bytes),
        branch.sessions.to_string(),
        notes.join(", "),
    ]
}

/// The time that is left, by the server's clock: this machine's may be wrong.
fn expires_in(branch: &Branch) -> String {
    let Some(end) = branch.expires_at else {
        return "never".to_owned();
    };
    let lifetime = u64::try_from(end.since(branch.created_at).as_millis()).unwrap_or(u64::MAX);
    format_duration(lifetime.saturating_sub(branch.age_ms))
}

fn describe(branch: Branch) -> String {
    let pairs = |pairs: &BTreeMap<String, String>| {
        let pairs: Vec<String> =
            pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(", ")
    };
    let expires = branch
        .expires_at
        .map_or_else(|| "never".to_owned(), |end| format!("{end}, in {}", expires_in(&branch)));
    let mut lines = vec![
        ("name", branch.name),
        ("state", branch.state),
        ("failure", branch.failure.unwrap_or_default()),
        ("notice", branch.notice.unwrap_or_default()),
        ("template", branch.parent.template),
        ("parent", branch.parent.branch.unwrap_or_default()),
        ("preset", branch.preset),
        ("settings", pairs(&branch.settings)),
        ("labels", pairs(&branch.labels)),
        ("durable", yes_or_no(branch.durable)),
        ("superuser", if branch.superuser { "yes" } else { "" }.to_owned()),
        ("role passwords", if branch.role_passwords { "yes" } else { "" }.to_owned()),
        ("protected", yes_or_no(branch.protected)),
        ("created", format!("{}, {} ago", branch.created_at, format_duration(branch.age_ms))),
        ("expires", expires),
        ("sessions", branch.sessions.to_string()),
        ("diverged", branch.diverged_bytes.map_or_else(String::new, format_bytes)),
    ];
    let Some(receipt) = branch.receipt else {
        return format_fields(&lines);
    };
    lines.push((
        "data of",
        format!(
            "{}, LSN {} of {} ({})",
            receipt.template_taken_at,
            receipt.template_lsn,
            receipt.source.name,
            receipt.source.system_identifier
        ),
    ));
    let total = format!("{} ms", milliseconds(receipt.total_ms));
    lines.push(("made in", total));
    lines.push(("not copied", describe_losses(receipt.losses.as_deref())));
    format!("{}\n{}", format_fields(&lines), phase_table(&receipt.phases))
}

/// What a branch does not have of its origin, in one line; empty when nothing is missing or known
/// to be.
fn describe_losses(losses: Option<&[Loss]>) -> String {
    let part = |loss: &Loss| match (loss.kind.as_str(), loss.total) {
        ("unlogged_relations", Some(total)) => {
            let mut names = loss.names.join(", ");
            if total > loss.names.len() as u64 {
                names.push_str(", …");
            }
            format!("content of {total} unlogged relations ({names})")
        }
        ("statistics", _) => "cumulative statistics".to_owned(),
        (other, _) => other.to_owned(),
    };
    let parts: Vec<String> = losses.unwrap_or_default().iter().map(part).collect();
    // Users name relations: a control character of theirs moves no terminal's cursor.
    let replace_control = |character: char| {
        if character.is_control() { char::REPLACEMENT_CHARACTER } else { character }
    };
    parts.join("; ").chars().map(replace_control).collect()
}

/// A time with as many digits as say something.
fn milliseconds(ms: f64) -> String {
    match ms {
        ..1.0 => format!("{ms:.2}"),
        ..100.0 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}

/// The parts of a time, one a line.
pub(crate) fn phase_table(phases: &[Phase]) -> String {
    let rows = phases.iter().map(|phase| vec![phase.name.clone(), milliseconds(phase.ms)]);
    listing(&["phase", "ms"], rows)
}

fn yes_or_no(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

/// A template's id as the API takes it.
fn qualify_template(template: String) -> String {
    if template.starts_with("template:") { template } else { format!("template:{template}") }
}

async fn post_action(
    api: &Api,
    output: Output,
    name: &str,
    action: &str,
    body: Json,
) -> Result<(), Failure> {
    let path = ["branches", name, action];
    let answer = output.wait_with_spinner(action, api.post(&path, body)).await?;
    output.print_answer(&answer, |branch: Branch| {
        format!("branch {} is {}", branch.name, branch.state)
    })
}

async fn verify(
    name: &str,
    database: Option<String>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let path = ["branches", name, "verify"];
    let body = database.map_or_else(|| json!({}), |database| json!({"database": database}));
    let work = api.post(&path, body);
    let answer = output.wait_with_spinner("comparing branch and source", work).await?;
    let proof: Proof = decode(&answer)?;
    let is_isolated = proof.source_unchanged && proof.marker_in_branch && !proof.marker_in_source;
    output.print_answer(&answer, describe_proof)?;
    if is_isolated {
        return Ok(());
    }
    Err(Failure::failed("not_isolated", format!("branch {name}: verification failed")))
}

fn describe_proof(proof: Proof) -> String {
    let compared = |equal: Option<bool>| equal.map_or_else(|| "not compared".to_owned(), yes_or_no);
    format_fields(&[
        ("branch", proof.branch),
        ("marker in branch", yes_or_no(proof.marker_in_branch)),
        ("marker in source", yes_or_no(proof.marker_in_source)),
        ("source quiet meanwhile", yes_or_no(proof.source_quiet)),
        ("tables checked", proof.tables_checked.to_string()),
        ("checksums equal", compared(proof.checksums_equal)),
        ("catalogue equal", compared(proof.catalogue_equal)),
        ("source unchanged", yes_or_no(proof.source_unchanged)),
        ("took", format!("{:.0} ms", proof.elapsed_ms)),
    ])
}

async fn check_registry(api: &Api, output: Output) -> Result<(), Failure> {
    let answer =
        output.wait_with_spinner("checking the registry", api.post(&["verify"], json!({}))).await?;
    let check: Check = decode(&answer)?;
    let (consistent, count) = (check.consistent, check.findings.len());
    output.print_answer(&answer, |check: Check| {
        let summary = format_fields(&[
            ("branches", check.branches.to_string()),
            ("templates", check.templates.to_string()),
            ("tombstones", check.tombstones.to_string()),
            ("consistent", yes_or_no(check.consistent)),
        ]);
        if check.findings.is_empty() {
            return summary;
        }
        let rows = check
            .findings
            .into_iter()
            .map(|finding| vec![finding.what, finding.place, finding.detail]);
        format!("{summary}\n{}", listing(&["what", "where", "detail"], rows))
    })?;
    if consistent {
        return Ok(());
    }
    Err(Failure::failed(
        "registry_inconsistent",
        format!("the registry and the volume differ in {count} places"),
    ))
}

#[cfg(test)]
mod tests;
