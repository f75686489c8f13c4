//! What a branch's user has that its peers elsewhere have: superuser on request, and the roles of
//! the application.

use egret_base::CodedError;
use egret_branches::model::{BranchSource, DEFAULT_TENANT, NewBranch};
use egret_postgres::wire::{Session, Startup};

use crate::home::{Egret, Home, name};

const IS_SUPERUSER: &str = "SELECT rolsuper::text FROM pg_roles WHERE rolname = 'egret_branch'";

async fn is_superuser(egret: &Egret, branch: &str) -> bool {
    egret.ask(branch, IS_SUPERUSER).await.unwrap().as_deref() == Some("true")
}

fn superuser(branch: &str) -> NewBranch {
    NewBranch { superuser: true, ..NewBranch::named(name(branch)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_on_request_installs_any_extension_and_reaches_nothing_outside() {
    let home = Home::new("superuser");
    let egret = home.start().await;
    egret.make_app().await;
    let branches = &egret.branches;
    branches.create(superuser("one")).await.unwrap();
    for sql in [
        "CREATE EXTENSION pageinspect",
        "CREATE EXTENSION dblink",
        "ALTER EXTENSION dblink UPDATE",
        "CREATE ROLE admin SUPERUSER",
        "SELECT lo_create(1)",
    ] {
        egret.ask("one", sql).await.unwrap();
    }
    for (sql, words) in [
        ("COPY item TO PROGRAM 'cat'", "could not execute command"),
        ("COPY item FROM '/etc/hostname'", "could not open file"),
        ("SELECT pg_read_file('/etc/hostname')", "could not open file"),
        ("COPY item TO '/tmp/egret-superuser-was-here'", "could not open file"),
        ("SELECT dblink_connect('host=127.0.0.1')", "could not establish connection"),
    ] {
        let error = egret.ask("one", sql).await.unwrap_err().to_string();
        assert!(error.contains(words), "{sql}: {error}");
    }
    // Neighbours do not have it. A child does, and says so: role `admin` is there as well.
    egret.branch("plain").await;
    assert!(!is_superuser(&egret, "plain").await);
    let child =
        NewBranch { from: BranchSource::Branch(name("one")), ..NewBranch::named(name("child")) };
    for _ in 0..2 {
        let made = branches.create(child.clone()).await.unwrap().into_branch();
        assert!(made.superuser);
    }
    assert!(is_superuser(&egret, "child").await);
    let child = branches.show(DEFAULT_TENANT, &name("child")).await.unwrap();
    branches
        .reset(DEFAULT_TENANT, &name("plain"), Some(child.branch.parent.template.parse().unwrap()))
        .await
        .unwrap();
    let plain = branches.show(DEFAULT_TENANT, &name("plain")).await.unwrap();
    assert!(plain.branch.superuser);
    let other = branches.create(NewBranch::named(name("one"))).await;
    assert_eq!(other.unwrap_err().code(), "branch_name_taken");
    // A reset gives new files, and the right again.
    branches.reset(DEFAULT_TENANT, &name("one"), None).await.unwrap();
    assert!(is_superuser(&egret, "one").await);
    egret.ask("one", "CREATE EXTENSION dblink").await.unwrap();
    egret.assert_consistent().await;
    egret.stop().await;
}

/// What a query answers in a session of this role.
async fn ask_as(egret: &Egret, role: &str, sql: &str) -> Result<Option<String>, String> {
    let name = name("one");
    let attached = egret.branches.attach(DEFAULT_TENANT, &name).await.unwrap();
    let startup =
        Startup { user: role.to_owned(), database: "app".to_owned(), parameters: Vec::new() };
    let mut session = Session::connect(&attached.socket_dir, attached.port, &startup)
        .await
        .map_err(|error| error.to_string())?;
    let answer = session.query(sql, &[], 10, 1 << 20).await;
    let rows = answer.map_err(|error| error.to_string())?.rows;
    Ok(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_an_application_role_has_its_settings_grants_and_policies() {
    let home = Home::new("application-roles");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    source
        .batch_execute(
            "CREATE ROLE app_rw LOGIN PASSWORD 'secret';
             CREATE ROLE app_group;
             CREATE SCHEMA shop AUTHORIZATION app_rw;
             ALTER ROLE app_rw SET search_path = shop, public;
             ALTER ROLE app_rw IN DATABASE app SET statement_timeout = '7s';
             CREATE TABLE hidden (id int);
             GRANT SELECT ON item TO app_rw;
             ALTER TABLE item ENABLE ROW LEVEL SECURITY;
             CREATE POLICY few ON item TO app_rw USING (id <= 3)",
        )
        .await
        .unwrap();
    egret.branch("one").await;
    for (sql, expected) in [
        ("SHOW search_path", "shop, public"),
        ("SHOW statement_timeout", "7s"),
        ("SELECT count(*) FROM item", "3"),
        ("SELECT session_user", "app_rw"),
    ] {
        let answer = ask_as(&egret, "app_rw", sql).await.unwrap();
        assert_eq!(answer.as_deref(), Some(expected), "{sql}");
    }
    for (role, sql, expected) in [
        ("app_rw", "SELECT 1 FROM hidden", "permission denied"),
        ("app_rw", "SET ROLE egret_branch", "permission denied"),
        ("app_group", "SELECT 1", "not permitted to log in"),
        ("nobody", "SELECT 1", "does not exist"),
    ] {
        let refusal = ask_as(&egret, role, sql).await.unwrap_err();
        assert!(refusal.contains(expected), "{role}: {refusal}");
    }
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_keep_their_passwords_on_request_and_the_branch_holds_none() {
    let home = Home::new("role-passwords");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    source
        .batch_execute(
            "CREATE ROLE app_rw LOGIN PASSWORD 'secret';
             CREATE ROLE ended LOGIN PASSWORD 'secret' VALID UNTIL '2001-01-01';
             CREATE ROLE without LOGIN;
             CREATE ROLE egret_branch LOGIN PASSWORD 'secret'",
        )
        .await
        .unwrap();
    let stored = "SELECT rolpassword FROM pg_authid WHERE rolname = 'app_rw'";
    let stored: String = source.query_one(stored, &[]).await.unwrap().get(0);
    let request = NewBranch { role_passwords: true, ..superuser("one") };
    egret.branches.create(request).await.unwrap();
    egret.branch("plain").await;

    let verifier = async |branch: &str, role: &str| {
        let (branches, branch) = (&egret.branches, name(branch));
        let found = branches.verifier_of_role(DEFAULT_TENANT, &branch, role);
        found.await.map(|(_, verifier)| verifier.to_string())
    };
    assert_eq!(verifier("one", "app_rw").await.unwrap(), stored);
    let ended = verifier("one", "ended").await.unwrap_err();
    assert_eq!(ended.code(), "branch_not_found");
    let own = verifier("one", "egret_branch").await.unwrap();
    for role in ["without", "made_later"] {
        assert_eq!(verifier("one", role).await.unwrap(), own, "{role}");
    }
    let plain = verifier("plain", "egret_branch").await.unwrap();
    assert_eq!(verifier("plain", "app_rw").await.unwrap(), plain);
    let other = egret.branches.create(NewBranch::named(name("one"))).await;
    assert_eq!(other.unwrap_err().code(), "branch_name_taken");

    let kept = "SELECT count(*) FROM pg_authid WHERE rolpassword IS NOT NULL";
    assert_eq!(egret.ask("one", kept).await.unwrap().as_deref(), Some("0"));
    // A change in the branch or the source, a reset and a start of Egret change nothing.
    let change = "ALTER ROLE app_rw PASSWORD 'changed'";
    egret.ask("one", change).await.unwrap();
    source.batch_execute(change).await.unwrap();
    let one = name("one");
    egret.branches.reset(DEFAULT_TENANT, &one, None).await.unwrap();
    drop(source);
    egret.stop().await;
    let egret = home.start().await;
    let found = egret.branches.verifier_of_role(DEFAULT_TENANT, &one, "app_rw");
    assert_eq!(found.await.unwrap().1.to_string(), stored);
    egret.assert_consistent().await;
    egret.stop().await;
}
