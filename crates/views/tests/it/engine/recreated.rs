//! A database that is dropped and made again under the same name: views and tables in it begin with
//! the numbers of those before.

use egret_postgres_test::TestDatabase;

use super::*;

const QUERIES: [(&str, &str); 3] = [
    ("a", "SELECT id, g FROM t WHERE g > 0"),
    ("b", "SELECT g, count(*) AS n FROM t GROUP BY g"),
    ("c", "SELECT max(id) AS m FROM t"),
];

async fn make(rig: &Rig, mode: Mode) {
    rig.execute("CREATE TABLE t (id int PRIMARY KEY, g int)").await;
    for (name, query) in QUERIES {
        let schedule = (mode != Mode::Immediate).then_some(Schedule::Manual);
        let new = NewView { mode, schedule, ..new_view(name, query) };
        rig.create(new).await.unwrap();
    }
}

async fn check(rig: &Rig, round: u32) {
    rig.execute("INSERT INTO t VALUES (1, 1), (2, 2)").await;
    for (name, query) in QUERIES {
        rig.refresh(name).await;
        let differing = format!(
            "SELECT count(*) FROM ((TABLE {name} EXCEPT ALL {query}) UNION ALL ({query} EXCEPT ALL TABLE {name})) AS d"
        );
        assert_eq!(rig.query_number(&differing).await, 0, "round {round}: {name}");
    }
}

async fn make_database_again(rig: Rig, administrator: &Client) -> Rig {
    let (server, name) = (rig.database.server.clone(), rig.database.name.clone());
    let drop_database = format!("DROP DATABASE {name} WITH (FORCE)");
    administrator.batch_execute(&drop_database).await.unwrap();
    let database = TestDatabase::create_in(server, name).await;
    let client = database.connect().await;
    let set = "SET search_path = public; SET client_min_messages = warning";
    client.batch_execute(set).await.unwrap();
    Rig { database, client, views: rig.views }
}

#[tokio::test]
async fn views_of_a_database_that_is_made_again_are_told_of_changes() {
    for (version, mode) in [(18, Mode::Incremental), (18, Mode::Immediate), (15, Mode::Auto)] {
        let administrator = TestDatabase::create(version).await.connect().await;
        let mut rig = Rig::new(version).await;
        for round in 0..3 {
            make(&rig, mode).await;
            check(&rig, round).await;
            rig = make_database_again(rig, &administrator).await;
        }
    }
}
