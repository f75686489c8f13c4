//! What is told of a view that is looked at.

use egret_views::model::{Durations, Quantiles};

use super::*;

#[tokio::test]
async fn refreshes_are_told_phase_by_phase() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(TABLES).await;
        rig.create(new_view("kept", "SELECT id, v FROM t")).await.unwrap();
        let shown = async || rig.views.show(&view_ref("kept")).await.unwrap().durations;
        assert!(shown().await.is_some());
        rig.execute("DELETE FROM egret.view_refresh").await;
        assert_eq!(shown().await, None);
        // One that failed says nothing of the others.
        rig.execute(
            "INSERT INTO egret.view_refresh (view, at, outcome, why, snapshot, changes, added, changed, removed, took_ms, waited_ms, applied_ms, error)
             SELECT id, now(), 'incremental', '', '', 0, 0, 0, 0, i * 10, i, i * 5, NULL FROM egret.view, generate_series(1, 21) AS i
             UNION ALL SELECT id, now(), 'failed', '', '', 0, 0, 0, 0, 1e6, 1e6, 0, 'so it is' FROM egret.view",
        )
        .await;
        let quantiles = |p50_ms, p95_ms| Quantiles { p50_ms, p95_ms };
        let expected = Durations {
            waiting: quantiles(11.0, 20.0),
            applying: quantiles(55.0, 100.0),
            other: quantiles(44.0, 80.0),
            total: quantiles(110.0, 200.0),
        };
        assert_eq!(shown().await, Some(expected));
    }
}

#[tokio::test]
async fn what_a_view_reads_has_the_name_that_it_has_itself() {
    let rig = Rig::new(18).await;
    rig.execute("CREATE TABLE \"a.b\" (id int PRIMARY KEY); CREATE TABLE \"say \"\"hi\"\"\" (id int PRIMARY KEY)")
        .await;
    let both = "SELECT a.id FROM \"a.b\" AS a JOIN \"say \"\"hi\"\"\" AS b ON b.id = a.id";
    rig.create(new_view("\"x.y\"", both)).await.unwrap();
    rig.create(new_view("reader", "SELECT id FROM \"x.y\"")).await.unwrap();
    let listed = rig.views.list(None).await.unwrap();
    let [reader, read] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(read.reads, ["public.\"a.b\"", "public.\"say \"\"hi\"\"\""]);
    assert_eq!(reader.reads, [read.name.to_string()]);
    assert_eq!(read.read_by, ["public.reader"]);
}
