//! Code and settings of a source or a branch: none of it runs with Egret's rights, and none keeps
//! Egret from its work.

use egret_base::CodedError;
use egret_branches::Children;
use egret_branches::model::{Branch, BranchSource, DEFAULT_TENANT, NewBranch};
use egret_linux::directory::Directory;
use egret_postgres_test::client_programs;

use crate::home::{Egret, Home, name};

const IS_SUPERUSER: &str =
    "SELECT rolsuper::text FROM pg_catalog.pg_roles WHERE rolname = 'egret_branch'";

async fn branch_of(egret: &Egret, parent: &str, child: &str) {
    let mut request = NewBranch::named(name(child));
    request.from = BranchSource::Branch(name(parent));
    egret.branches.create(request).await.unwrap();
}

async fn assert_ordinary(egret: &Egret, branch: &str) {
    let answer = egret.ask(branch, IS_SUPERUSER).await.unwrap();
    assert_eq!(answer.as_deref(), Some("false"), "{branch}");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_triggers_and_settings_of_a_source_do_not_keep_it_from_being_branched() {
    let home = Home::new("guarded");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    for sql in [
        "CREATE FUNCTION deny() RETURNS event_trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no % here', tg_tag; END $$",
        "CREATE ROLE other",
        "CREATE DATABASE impatient",
        "ALTER DATABASE impatient SET role = other",
        "ALTER DATABASE impatient SET transaction_timeout = '1ms'",
        "ALTER DATABASE impatient SET statement_timeout = '1ms'",
        "ALTER DATABASE impatient SET idle_in_transaction_session_timeout = '1ms'",
        "ALTER DATABASE impatient SET idle_session_timeout = '1ms'",
        "ALTER DATABASE impatient SET standard_conforming_strings = off",
        "ALTER DATABASE impatient SET default_transaction_read_only = on",
        "ALTER DATABASE impatient SET session_replication_role = replica",
        "ALTER DATABASE impatient SET session_preload_libraries = 'not_there'",
        "ALTER ROLE egret SET event_triggers = on",
        "CREATE EVENT TRIGGER on_login ON login EXECUTE FUNCTION deny()",
        "ALTER EVENT TRIGGER on_login ENABLE ALWAYS",
        "CREATE EVENT TRIGGER on_ddl ON ddl_command_start EXECUTE FUNCTION deny()",
    ] {
        source.batch_execute(sql).await.unwrap();
    }
    egret.branches.refresh_template().await.unwrap();
    egret.stop().await;
}

/// Before PostgreSQL 17 they are off while a branch is prepared, and put back one by one: the
/// version that is installed on this machine may be such a one.
#[tokio::test(flavor = "multi_thread")]
async fn event_triggers_of_a_branch_are_on_and_off_as_in_the_source() {
    let (_, installed) = client_programs();
    for (purpose, programs) in [("triggers", None), ("ev-installed", Some(installed))] {
        let mut home = Home::new(purpose);
        home.postgres.bin = programs;
        let egret = home.start().await;
        egret.make_app().await;
        let source = egret.source("app").await;
        let sql = "CREATE FUNCTION nothing() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'";
        source.batch_execute(sql).await.unwrap();
        for (name, state) in
            [("a", "ENABLE ALWAYS"), ("d", "DISABLE"), ("o", "ENABLE"), ("r", "ENABLE REPLICA")]
        {
            let sql = format!(
                "CREATE EVENT TRIGGER {name} ON ddl_command_start EXECUTE FUNCTION nothing();
                 ALTER EVENT TRIGGER {name} {state}"
            );
            source.batch_execute(&sql).await.unwrap();
        }
        egret.branch("one").await;
        branch_of(&egret, "one", "two").await;
        let states = "SELECT string_agg(evtname || evtenabled::text, ' ' ORDER BY evtname)
             FROM pg_event_trigger WHERE evtfoid = 'public.nothing'::regproc";
        for branch in ["one", "two"] {
            let found = egret.ask(branch, states).await.unwrap();
            assert_eq!(found.as_deref(), Some("aA dD oO rR"), "{purpose} {branch}");
        }
        drop(source);
        egret.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_do_not_keep_a_source_from_being_branched() {
    let home = Home::new("published");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    // As an Egret without identities of tables made the first, and a row filter over the second
    // that its key has no part in.
    for sql in [
        "CREATE SCHEMA IF NOT EXISTS egret",
        "CREATE TABLE egret.view_refresh (view bigint, error text)",
        "INSERT INTO egret.view_refresh VALUES (1, 'secret')",
        "CREATE TABLE egret.view_request (id bigint PRIMARY KEY, query text)",
        "INSERT INTO egret.view_request VALUES (1, 'secret')",
        // It is emptied by a deletion, as one that another table refers to.
        "CREATE TABLE egret.view_reference (request bigint REFERENCES egret.view_request)",
        "CREATE PUBLICATION all_tables FOR ALL TABLES",
        "CREATE PUBLICATION some_rows FOR TABLE egret.view_request WHERE (query <> '')",
        "CREATE FUNCTION deny() RETURNS event_trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no % here', tg_tag; END $$",
        "CREATE EVENT TRIGGER on_ddl ON ddl_command_start EXECUTE FUNCTION deny()",
        "ALTER EVENT TRIGGER on_ddl ENABLE ALWAYS",
    ] {
        source.batch_execute(sql).await.unwrap();
    }
    egret.branch("one").await;
    let kept = "SELECT ((SELECT count(*) FROM egret.view_refresh) + (SELECT count(*) FROM egret.view_request))::text";
    let asked = egret.ask("one", kept).await.unwrap();
    assert_eq!(asked.as_deref(), Some("0"));
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_trigger_does_not_run_with_egrets_rights_in_a_branch() {
    let home = Home::new("login");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    for sql in [
        "CREATE TABLE login_audit (who text)",
        "CREATE FUNCTION on_login() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS
            $$ BEGIN INSERT INTO public.login_audit VALUES (session_user); END $$",
        "CREATE EVENT TRIGGER audit ON login EXECUTE FUNCTION on_login()",
    ] {
        source.batch_execute(sql).await.unwrap();
    }
    egret.branch("one").await;
    let trap = "CREATE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                ALTER ROLE egret_branch SUPERUSER;
            END IF; RETURN NEW; END $$;
        CREATE TRIGGER t BEFORE INSERT ON login_audit FOR EACH ROW EXECUTE FUNCTION spring()";
    egret.ask("one", trap).await.unwrap();
    // Both the trigger's own session and those of Egret come by the trap.
    assert_ordinary(&egret, "one").await;
    branch_of(&egret, "one", "two").await;
    assert_ordinary(&egret, "two").await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_function_of_the_superuser_keeps_its_rights_in_a_branch() {
    let home = Home::new("definer");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    // As an engine of Egret's records what changes in a table.
    for sql in [
        "CREATE SCHEMA IF NOT EXISTS egret",
        "CREATE TABLE egret.change (name text)",
        "CREATE FUNCTION norm(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN lower($1); END $$",
        "CREATE FUNCTION egret.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
            $$ BEGIN INSERT INTO egret.change VALUES (public.norm(NEW.name)); RETURN NEW; END $$",
        "CREATE TRIGGER recorded BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION egret.record()",
        "CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS
            $$ BEGIN PERFORM public.norm(tg_tag); END $$",
        "CREATE EVENT TRIGGER audit ON ddl_command_end EXECUTE FUNCTION on_ddl()",
    ] {
        source.batch_execute(sql).await.unwrap();
    }
    egret.branch("one").await;
    let trap = "CREATE OR REPLACE FUNCTION norm(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                ALTER ROLE egret_branch SUPERUSER;
            END IF; RETURN $1; END $$";
    egret.ask("one", trap).await.unwrap();
    for sql in
        ["INSERT INTO item VALUES (1000000, 'A')", "CREATE TABLE fires_the_event_trigger (id int)"]
    {
        egret.ask("one", sql).await.unwrap();
    }
    assert_ordinary(&egret, "one").await;
    let rows = egret.ask("one", "SELECT count(*)::text FROM egret.change").await;
    assert_eq!(rows.unwrap().as_deref(), Some("0"), "nothing is recorded in a branch");
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_without_database_postgres_can_be_branched() {
    let home = Home::new("dropped");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    egret.ask("one", "DROP DATABASE postgres").await.unwrap();
    branch_of(&egret, "one", "two").await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reset_makes_a_branch_its_own_descendant() {
    let home = Home::new("cycle");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("first").await;
    branch_of(&egret, "first", "second").await;
    branch_of(&egret, "second", "third").await;
    let show = async |branch: &str| {
        let shown = egret.branches.show(DEFAULT_TENANT, &name(branch)).await;
        shown.unwrap().branch.parent.template.parse().unwrap()
    };
    let (first, third) = (name("first"), name("third"));
    for template in [show("second").await, show("third").await] {
        let reset = egret.branches.reset(DEFAULT_TENANT, &first, Some(template));
        assert_eq!(reset.await.unwrap_err().code(), "branch_cycle");
    }
    // The way up stays open.
    let above = show("second").await;
    let up = egret.branches.reset(DEFAULT_TENANT, &third, Some(above));
    up.await.unwrap();
    egret
        .branches
        .destroy(DEFAULT_TENANT, &name("first"), Children::Destroy, |_| true)
        .await
        .unwrap();
    egret.assert_consistent().await;
    egret.stop().await;
}

/// A role without rights that owns a table whose casts and indexes call a function of its own.
const OWNER_OF_TRAPS: &str = "CREATE ROLE mallory;
    CREATE SCHEMA mallory AUTHORIZATION mallory;
    SET ROLE mallory;
    CREATE FUNCTION mallory.rise() RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN 'x'; END $$;
    CREATE FUNCTION mallory.trap() RETURNS text LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN RETURN mallory.rise(); EXCEPTION WHEN OTHERS THEN RETURN 'y'; END $$;
    CREATE TABLE mallory.t (id int, g text GENERATED ALWAYS AS (mallory.trap()) STORED);
    INSERT INTO mallory.t VALUES (1);
    CREATE FUNCTION mallory.spelled(mallory.t) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT mallory.trap()';
    CREATE CAST (mallory.t AS text) WITH FUNCTION mallory.spelled(mallory.t);
    CREATE INDEX ON mallory.t ((mallory.trap()));
    CREATE INDEX ON mallory.t (id) WHERE mallory.trap() = 'x';
    ALTER TABLE mallory.t ENABLE ROW LEVEL SECURITY;
    CREATE POLICY p ON mallory.t USING (mallory.trap() = 'x');
    RESET ROLE";

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_runs_no_code_of_those_who_own_tables_of_the_source() {
    let home = Home::new("proof");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    source.batch_execute(OWNER_OF_TRAPS).await.unwrap();
    egret.branch("one").await;
    let proof = egret.branches.verify(DEFAULT_TENANT, &name("one"), "app").await.unwrap();
    assert!(proof.tables_checked >= 2, "{proof:?}");
    let sql = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = 'mallory'";
    let row = source.query_one(sql, &[]).await.unwrap();
    assert!(!row.get::<_, bool>(0));
    // What the owner has laid works where a superuser walks into it.
    source.query("SELECT t::text FROM mallory.t AS t", &[]).await.unwrap();
    let row = source.query_one(sql, &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    egret.stop().await;
}

/// Makes directories one inside the other in the data directory of a branch, as code of its
/// superuser can.
fn nest_directories(home: &Home, branch: &Branch, depth: usize) {
    let data = home.directory.join("volume/branches").join(branch.id.hex());
    let mut deepest = Directory::open(&data).unwrap();
    let owner = deepest.rights().unwrap();
    for _ in 0..depth {
        deepest = deepest.create("d".as_ref()).unwrap();
        deepest.set_rights(owner).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_any_depth_in_a_branch_end_neither_egret_nor_its_work() {
    // Where files are deleted one by one, a disk that discards blocks takes its time for each.
    for (volume, depth) in [("auto", 5_000), ("copy", 1_000)] {
        let mut home = Home::new(&format!("deep-{volume}"));
        home.config.volume = volume.to_owned();
        let egret = home.start().await;
        egret.make_app().await;
        let one = egret.branch("one").await;
        nest_directories(&home, &one, depth);
        let mut request = NewBranch::named(name("two"));
        request.from = BranchSource::Branch(name("one"));
        let error = egret.branches.create(request).await.unwrap_err();
        assert_eq!(error.code(), "source_unusable", "{error}");
        assert!(error.to_string().contains("nest deeper than 16"), "{error}");
        let listed = egret.branches.list(DEFAULT_TENANT, |_| true).await.unwrap();
        assert_eq!(listed.len(), 1);
        egret.destroy("one").await;
        egret.assert_consistent().await;
        assert!(!home.directory.join("volume/branches").join(one.id.hex()).exists());
        egret.stop().await;
    }
}

/// Puts a link to another branch's socket in the place of a branch's own, as code of its superuser
/// can. Returns where that is, which the user of the branch owns.
fn redirect(named: &std::path::Path, other: &std::path::Path) -> std::path::PathBuf {
    let own = std::fs::read_link(named).unwrap_or(named.to_owned());
    std::fs::rename(&own, own.with_file_name("aside")).unwrap();
    std::os::unix::fs::symlink(other, &own).unwrap();
    let directory = std::fs::metadata(own.parent().unwrap()).unwrap();
    let (uid, gid) = {
        use std::os::unix::fs::MetadataExt;
        (directory.uid(), directory.gid())
    };
    std::os::unix::fs::lchown(&own, Some(uid), Some(gid)).unwrap();
    own
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_replaces_its_socket_leads_egret_to_no_other_branch() {
    let home = Home::new("redirect");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    egret.branch("two").await;
    egret.ask("two", "CREATE TABLE secret AS SELECT 'theirs' AS t").await.unwrap();
    let socket = async |branch: &str| {
        let attached = egret.branches.attach(DEFAULT_TENANT, &name(branch)).await;
        attached.unwrap().socket_dir.join(".s.PGSQL.5432")
    };
    let link = redirect(&socket("one").await, &socket("two").await);
    // No session of Egret's own, which may be open already, is in this database.
    let one = name("one");
    let ask = egret.branches.query(DEFAULT_TENANT, &one, "template1", "SELECT 1", &[], None);
    let error = ask.await.unwrap_err();
    assert!(error.to_string().contains("cannot connect to postgresql"), "{error}");
    let attached = egret.branches.attach(DEFAULT_TENANT, &name("one")).await.unwrap();
    let startup = egret_postgres::wire::Startup {
        user: egret_branches::ROLE.to_owned(),
        database: "app".to_owned(),
        parameters: Vec::new(),
    };
    let session =
        egret_postgres::wire::Session::connect(&attached.socket_dir, attached.port, &startup);
    let error = session.await.err().expect("the link is not followed");
    assert_eq!(error.code(), "postgres_unreachable", "{error}");
    drop(attached);
    // Its own socket is the way in again.
    std::fs::rename(link.with_file_name("aside"), &link).unwrap();
    assert_eq!(egret.ask("one", "SELECT 'mine'").await.unwrap().as_deref(), Some("mine"));
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_at_the_same_time_take_no_more_from_the_pool_than_there_may_be() {
    let mut home = Home::new("lease-count");
    home.config.tenant_branches_max = 1;
    (home.config.pool_min, home.config.pool_max) = (3, 3);
    let egret = home.start().await;
    egret.make_app().await;
    egret.branches.refresh_template().await.unwrap();
    egret.filled().await;
    let requests = (0..3).map(|number| {
        let request = NewBranch::named(name(&format!("b{number}")));
        let branches = egret.branches.clone();
        tokio::spawn(async move { branches.create(request).await })
    });
    let made = futures_util::future::join_all(requests).await;
    let refused = made.into_iter().filter_map(|made| made.unwrap().err());
    let codes: Vec<&str> = refused.map(|error| error.code()).collect();
    assert_eq!(codes, ["limit_exceeded"; 2]);
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_the_same_time_make_no_more_branches_than_there_may_be() {
    let mut home = Home::new("count");
    home.config.tenant_branches_max = 2;
    let egret = home.start().await;
    egret.make_app().await;
    let requests = (0..6).map(|number| {
        let request = NewBranch::named(name(&format!("b{number}")));
        egret.branches.create(request)
    });
    let made = futures_util::future::join_all(requests).await;
    let refused = made.into_iter().filter_map(Result::err);
    let codes: Vec<&str> = refused.map(|error| error.code()).collect();
    assert_eq!(codes, ["limit_exceeded"; 4]);
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}
