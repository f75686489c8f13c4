//! What a copy loses is said, and nothing else is said to be lost.

use egret_branches::model::{
    BranchSource, DEFAULT_TENANT, LOSS_NAMES_MAX, Loss, LossKind, NewBranch,
};

use crate::home::{Egret, Home, name};

const STATISTICS: Loss = Loss { kind: LossKind::Statistics, total: None, names: Vec::new() };

fn unlogged(total: u64, names: &[&str]) -> Loss {
    Loss {
        kind: LossKind::UnloggedRelations,
        total: Some(total),
        names: names.iter().map(ToString::to_string).collect(),
    }
}

/// Makes a branch and returns what it says that it lost.
async fn losses_of(egret: &Egret, branch: &str, from: BranchSource) -> Vec<Loss> {
    let request = NewBranch { from, ..NewBranch::named(name(branch)) };
    let created = egret.branches.create(request).await.unwrap();
    let view = egret.branches.view(created.into_branch());
    view.losses.expect("its template was built now")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_names_the_unlogged_relations_and_statistics_that_it_lost() {
    let home = Home::new("losses");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    source
        .batch_execute(
            "CREATE UNLOGGED TABLE cache (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
             INSERT INTO cache (v) SELECT repeat('x', 10000) FROM generate_series(1, 10);
             CREATE UNLOGGED TABLE \"Empty one\" (id int);
             CREATE UNLOGGED SEQUENCE \"Counter\";
             CREATE SCHEMA IF NOT EXISTS egret;
             CREATE UNLOGGED TABLE egret.view_statement AS SELECT 1 AS view",
        )
        .await
        .unwrap();
    let lost = unlogged(2, &["app.public.\"Counter\"", "app.public.cache"]);
    let losses = losses_of(&egret, "one", BranchSource::Head).await;
    assert_eq!(losses, [lost, STATISTICS]);
    let rows = "SELECT count(*) FROM cache";
    assert_eq!(egret.ask("one", rows).await.unwrap().as_deref(), Some("0"));

    // The parent is shut down cleanly: its copy recovers nothing.
    let fill = "INSERT INTO cache (v) VALUES ('kept')";
    egret.ask("one", fill).await.unwrap();
    let counted = "SELECT n_tup_ins > 0 FROM pg_stat_user_tables WHERE relname = 'cache'";
    let branches = &egret.branches;
    branches.suspend(DEFAULT_TENANT, &name("one")).await.unwrap();
    let losses = losses_of(&egret, "cold", BranchSource::Branch(name("one"))).await;
    assert_eq!(losses, []);
    assert_eq!(egret.ask("cold", rows).await.unwrap().as_deref(), Some("1"));
    assert_eq!(egret.ask("cold", counted).await.unwrap().as_deref(), Some("t"));

    // A running one is frozen for its copy, which recovers.
    branches.resume(DEFAULT_TENANT, &name("one")).await.unwrap();
    let losses = losses_of(&egret, "warm", BranchSource::Branch(name("one"))).await;
    assert_eq!(losses.len(), 2, "{losses:?}");
    assert_eq!(egret.ask("warm", rows).await.unwrap().as_deref(), Some("0"));
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_lost_relations_some_are_named_and_all_are_counted() {
    let home = Home::new("many-losses");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    let make = "DO $$ BEGIN FOR number IN 1..30 LOOP
        EXECUTE format('CREATE UNLOGGED TABLE cache_%s AS SELECT 1', number); END LOOP; END $$";
    source.batch_execute(make).await.unwrap();
    let losses = losses_of(&egret, "one", BranchSource::NewestTemplate).await;
    assert_eq!(losses[0].total, Some(30));
    assert_eq!(losses[0].names.len(), LOSS_NAMES_MAX);
    // A start of Egret reads them again.
    egret.stop().await;
    let egret = home.start().await;
    let again = losses_of(&egret, "two", BranchSource::NewestTemplate).await;
    assert_eq!(again, losses);
    egret.stop().await;
}
