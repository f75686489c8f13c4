//! Egret and PostgreSQL are killed while views are kept fresh beside writers: nothing is lost, and
//! nothing counted twice. `EGRET_CRASHES` sets how often.

use std::sync::atomic::{AtomicBool, Ordering};

use egret_base_test::eventually_blocking;
use rustix::process::Signal;

use crate::place::{Place, crashes};

const TABLES: &str = "CREATE TABLE orders (id int PRIMARY KEY, shop int, amount int);
    INSERT INTO orders SELECT i, i % 50, i % 97 FROM generate_series(1, 2000) AS i;
    CREATE TABLE shops (shop int PRIMARY KEY, name text);
    INSERT INTO shops SELECT i, 'shop ' || i FROM generate_series(0, 60) AS i";

const VIEWS: [(&str, &str); 3] = [
    (
        "by_shop",
        "select shop, count(*) as n, sum(amount) as total, max(amount) as most from orders group by shop",
    ),
    ("named", "select o.id, s.name, o.amount from orders o left join shops s using (shop)"),
    ("best", "select s.name, b.total from by_shop b join shops s using (shop) where b.total > 100"),
];

/// Rows come, go and change, and so do the shops that they belong to.
fn write(place: &Place, url: &str, round: usize) -> Result<(), String> {
    let from = 10_000 + round * 7;
    let sql = format!(
        "BEGIN; INSERT INTO orders SELECT i, i % 61, i % 13 FROM generate_series({from}, {from} + 9) AS i ON CONFLICT DO NOTHING;
         UPDATE orders SET shop = (shop + 1) % 61, amount = amount + 1 WHERE id % 101 = {round} % 101;
         DELETE FROM orders WHERE id = {round} * 3; COMMIT;
         UPDATE shops SET name = name || '.' WHERE shop = {round} % 61;"
    );
    place.psql(url, &sql).map(|_| ())
}

fn make(place: &Place, url: &str) {
    place.psql(url, TABLES).unwrap();
    for (name, query) in VIEWS {
        place.json(&["view", "create", name, "--sql", query, "--lag", "20ms"]);
    }
}

/// Every view is what its query says.
fn check(place: &Place) {
    for (name, _) in VIEWS {
        let found = place.json(&["view", "verify", name]);
        assert_eq!(
            (found["missing"].as_i64(), found["extra"].as_i64()),
            (Some(0), Some(0)),
            "{name}: {found}"
        );
    }
}

#[test]
fn views_are_right_after_egret_was_killed_while_it_refreshed_them() {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new("views-kill");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let url = external.url();
    let mut server = Some(place.start(&["serve"]));
    make(&place, &url);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0;
            while !is_over.load(Ordering::SeqCst) {
                write(&place, &url, round).unwrap();
                round += 1;
            }
        });
        for _ in 0..crashes(5) {
            // Some refreshes have been done, and one may be under way.
            let refreshes = "SELECT count(*) FROM egret.view_refresh";
            let before = place.psql(&url, refreshes).unwrap();
            eventually_blocking("a view is refreshed", || {
                place.psql(&url, refreshes).unwrap() != before
            });
            server.take().unwrap().kill();
            server = Some(place.start(&["serve"]));
            check(&place);
        }
        is_over.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
    check(&place);
    server.unwrap().stop(Signal::TERM);
}

#[test]
fn views_are_right_after_postgresql_was_killed_while_they_were_refreshed() {
    let place = Place::new("views-kill-server");
    let server = place.start(&["serve"]);
    let url = place.source("postgres");
    make(&place, &url);
    let mut round = 0;
    for _ in 0..crashes(3) {
        for _ in 0..20 {
            write(&place, &url, round).unwrap();
            round += 1;
        }
        place.kill_source();
        eventually_blocking("PostgreSQL answers", || place.psql(&url, "SELECT 1"));
    }
    let is_active = "SELECT count(*) FROM egret.view WHERE state = 'active'";
    eventually_blocking("all views are active", || {
        let active = place.psql(&url, is_active).unwrap();
        if active == "3" { Ok(()) } else { Err(active) }
    });
    check(&place);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}
