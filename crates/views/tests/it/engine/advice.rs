//! Indexes that views lack.

use super::*;

/// The statements that are advised for a view.
async fn missing_index_statements(rig: &Rig, name: &str) -> Vec<String> {
    let shown = rig.views.show(&view_ref(name)).await.unwrap();
    let advice = shown.advice.expect("it can be said what it lacks");
    advice.into_iter().map(|one| one.statement).collect()
}

const ORDERS: &str = "CREATE TABLE customers (id int PRIMARY KEY, name text);
     INSERT INTO customers SELECT i, 'c' || i FROM generate_series(1, 2000) AS i;
     CREATE TABLE orders (id int PRIMARY KEY, \"Customer\" int NOT NULL, amount int);
     INSERT INTO orders SELECT i, i % 2000 + 1, i FROM generate_series(1, 4000) AS i;
     CREATE TABLE regions (id int, name text);
     INSERT INTO regions SELECT i, 'r' || i FROM generate_series(1, 999) AS i;
     ANALYZE";

#[tokio::test]
async fn an_index_is_advised_until_it_is_there() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(ORDERS).await;
        let joined =
            "SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON c.id = o.\"Customer\"";
        rig.create(new_view("joined", joined)).await.unwrap();
        let shown = rig.views.show(&view_ref("joined")).await.unwrap();
        let advice = shown.advice.unwrap();
        let wanted = "CREATE INDEX ON public.orders (\"Customer\")";
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert_eq!(advice[0].table, "public.orders");
        assert_eq!(advice[0].columns, ["Customer"]);
        assert_eq!(advice[0].statement, wanted);
        let reason =
            "rows of public.orders are looked up by Customer when public.customers changes";
        assert_eq!(advice[0].reason, reason);
        assert_eq!(advice[0].rows, Some(4000));
        let validated = rig.views.validate(None, joined, &ReadableViews::All).await.unwrap();
        assert_eq!(validated.advice, advice);
        let explained = rig.views.explain(&view_ref("joined")).await.unwrap();
        assert_eq!(explained.advice, advice);
        let listed = rig.views.list(None).await.unwrap();
        assert_eq!(listed[0].advice, None);
        // None of these finds all rows of a customer.
        rig.execute(
            "CREATE INDEX ON orders (\"Customer\") WHERE amount > 5;
             CREATE INDEX ON orders (amount, \"Customer\");
             CREATE INDEX ON orders ((\"Customer\" + 1));
             CREATE INDEX ON orders USING brin (\"Customer\")",
        )
        .await;
        assert_eq!(missing_index_statements(&rig, "joined").await, [wanted]);
        rig.execute(wanted).await;
        assert!(missing_index_statements(&rig, "joined").await.is_empty());
        let full = Alteration { mode: Some(Mode::Full), ..Alteration::default() };
        rig.execute("DROP INDEX \"orders_Customer_idx2\"").await;
        rig.views.alter(&view_ref("joined"), full, ReadableViews::All).await.unwrap();
        assert!(missing_index_statements(&rig, "joined").await.is_empty());
    }
}

#[tokio::test]
async fn nothing_is_advised_for_small_tables_and_views() {
    let rig = Rig::new(18).await;
    rig.execute(ORDERS).await;
    let small = "SELECT o.id, r.name FROM orders AS o JOIN regions AS r ON r.id = o.id";
    rig.create(new_view("small", small)).await.unwrap();
    assert!(missing_index_statements(&rig, "small").await.is_empty());
    rig.execute("INSERT INTO regions VALUES (1000, 'r1000'); ANALYZE regions").await;
    let wanted = ["CREATE INDEX ON public.regions (id)"];
    assert_eq!(missing_index_statements(&rig, "small").await, wanted);
    // Of nothing that was ever written, as far as the server knows, the size is not known.
    rig.execute("CREATE TABLE empty (id int)").await;
    let unknown = "SELECT o.id FROM orders AS o JOIN empty AS e ON e.id = o.id";
    rig.create(new_view("unknown", unknown)).await.unwrap();
    let wanted = ["CREATE INDEX ON public.empty (id)"];
    assert_eq!(missing_index_statements(&rig, "unknown").await, wanted);
    // What Egret keeps has the indexes that it was made with.
    let counts = "SELECT \"Customer\" AS customer, count(*) AS orders FROM orders GROUP BY 1";
    rig.create(new_view("counts", counts)).await.unwrap();
    let over = "SELECT c.name, s.orders FROM counts AS s JOIN customers AS c ON c.id = s.customer";
    rig.create(new_view("over", over)).await.unwrap();
    assert!(missing_index_statements(&rig, "over").await.is_empty());
}

#[tokio::test]
async fn groups_that_are_computed_again_are_looked_up_by_a_key_without_nulls() {
    let rig = Rig::new(18).await;
    rig.execute(ORDERS).await;
    let highest = "SELECT \"Customer\" AS customer, max(amount) AS highest FROM orders GROUP BY 1";
    rig.create(new_view("highest", highest)).await.unwrap();
    let shown = rig.views.show(&view_ref("highest")).await.unwrap();
    let advice = shown.advice.unwrap();
    let reason =
        "rows of public.orders are looked up by Customer when one of their groups is recomputed";
    assert_eq!(advice[0].reason, reason);
    rig.execute(&advice[0].statement).await;
    assert!(missing_index_statements(&rig, "highest").await.is_empty());
    // A sum is carried on, and no index finds null.
    let sums = "SELECT \"Customer\" AS customer, sum(amount) AS amount FROM orders GROUP BY 1";
    rig.create(new_view("sums", sums)).await.unwrap();
    assert!(missing_index_statements(&rig, "sums").await.is_empty());
    let nulls = "SELECT amount, max(id) AS last FROM orders GROUP BY 1";
    rig.create(new_view("nulls", nulls)).await.unwrap();
    assert!(missing_index_statements(&rig, "nulls").await.is_empty());
}

#[tokio::test]
async fn every_partition_has_to_have_the_index() {
    let rig = Rig::new(18).await;
    rig.execute(ORDERS).await;
    rig.execute(
        "CREATE TABLE lines (order_id int, code varchar(20)) PARTITION BY HASH (order_id);
         CREATE TABLE lines_0 PARTITION OF lines FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE lines_1 PARTITION OF lines FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         CREATE TABLE codes (code varchar(20) PRIMARY KEY, name text);
         INSERT INTO codes SELECT i, 'n' || i FROM generate_series(1, 3000) AS i;
         INSERT INTO lines SELECT i, i FROM generate_series(1, 3000) AS i;
         ANALYZE lines, codes",
    )
    .await;
    let joined = "SELECT l.order_id, c.name FROM lines AS l JOIN codes AS c ON c.code = l.code";
    rig.create(new_view("joined", joined)).await.unwrap();
    let wanted = ["CREATE INDEX ON public.lines (code)"];
    assert_eq!(missing_index_statements(&rig, "joined").await, wanted);
    rig.execute("CREATE INDEX ON lines_0 USING hash (code)").await;
    assert_eq!(missing_index_statements(&rig, "joined").await, wanted);
    rig.execute("CREATE INDEX ON lines_1 (code)").await;
    assert!(missing_index_statements(&rig, "joined").await.is_empty());
}

#[tokio::test]
async fn a_view_is_shown_where_nothing_can_be_advised() {
    let rig = Rig::new(18).await;
    rig.execute(ORDERS).await;
    let joined = "SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON c.id = o.amount";
    rig.create(new_view("joined", joined)).await.unwrap();
    // Another Egret does not know it yet, and cannot.
    rig.execute("DROP TABLE customers").await;
    let later = new_engine(&rig.database, ViewsConfig::default());
    let shown = later.show(&view_ref("joined")).await.unwrap();
    assert_eq!(shown.advice, None);
    assert_eq!(shown.query, joined);
}
