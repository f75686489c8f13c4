//! Which indexes queries lack.

use expect_test::{Expect, expect};

use super::*;
use crate::core::analyse::analyse;
use crate::core::analyse::facts::{Facts, Relation, RelationKind};
use crate::core::prune::prune;
use crate::core::tree::StageContents;

/// Tables with their columns.
const TABLES: [(&str, &[&str]); 4] = [
    ("orders", &["id", "customer", "day"]),
    ("customers", &["id", "region", "name"]),
    ("lines", &["order_id", "part", "amount"]),
    ("regions", &["id", "name"]),
];

fn facts() -> Facts {
    let relations = TABLES.iter().enumerate().map(|(place, (name, columns))| {
        let relation = Relation {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            virtual_columns: BTreeMap::new(),
            not_null: BTreeSet::new(),
            exact: BTreeSet::new(),
            kind: RelationKind::Table(place),
            has_bare_equality: false,
        };
        (("public".to_owned(), (*name).to_owned()), relation)
    });
    Facts {
        relations: relations.collect(),
        aggregates: ["count", "max"].map(|name| (None, name.to_owned())).into(),
        ..Facts::default()
    }
}

/// Tables that are large but for `regions`, each with indexes on columns of these.
fn tables(indexed: &[(&str, &str)]) -> BTreeMap<usize, TableFacts> {
    let facts = TABLES.iter().enumerate().map(|(place, (name, _))| {
        let indexes = indexed.iter().filter(|(table, _)| table == name);
        let facts = TableFacts {
            is_small: *name == "regions",
            indexed_columns: indexes.map(|(_, column)| (*column).to_owned()).collect(),
            text_indexed_columns: BTreeSet::from(["name".to_owned()]),
        };
        (place, facts)
    });
    facts.collect()
}

fn check(sql: &str, indexed: &[(&str, &str)], expected: Expect) {
    let mut plan = analyse(sql, &facts()).unwrap();
    prune(&mut plan, &[]);
    let stages: Vec<StageInput<'_>> = plan
        .stages
        .iter()
        .map(|stage| {
            let mut asked = Vec::new();
            if let StageContents::Groups { keys, aggregates } = &stage.contents {
                let mut functions = aggregates.iter().map(|one| one.function.as_deref());
                if functions.any(|function| function == Some("max")) {
                    asked.extend(keys.iter().map(|(_, key)| key));
                }
            }
            StageInput { input: &stage.input, recomputed_keys: asked }
        })
        .collect();
    let name = |table: &usize| TABLES[*table].0;
    let found = find_missing_indexes(&stages, &tables(indexed)).into_iter().map(|one| {
        let changed: Vec<&str> = one.changed_tables.iter().map(name).collect();
        let asked = if one.is_for_recomputation { " groups" } else { "" };
        let clock = if one.is_for_clock { " the clock" } else { "" };
        format!(
            "{} ({}): {}{asked}{clock}\n",
            name(&one.table),
            one.columns.join(", "),
            changed.join(" ")
        )
    });
    expected.assert_eq(&found.collect::<String>());
}

const JOINED: &str = "SELECT o.day, c.name FROM public.orders AS o, public.customers AS c WHERE (o.customer = c.id) AND (o.day > 5)";

#[test]
fn each_side_of_a_join_is_looked_up_when_the_other_changes() {
    check(
        JOINED,
        &[],
        expect![[r#"
        customers (id): orders
        orders (customer): customers
    "#]],
    );
    check(
        JOINED,
        &[("customers", "id")],
        expect![[r#"
        orders (customer): customers
    "#]],
    );
    let both = [("customers", "id"), ("orders", "customer")];
    check(JOINED, &both, expect![[""]]);
}

#[test]
fn a_table_is_looked_up_from_what_was_reached_before() {
    let chain = "SELECT l.amount, r.name FROM ((public.lines AS l JOIN public.orders AS o ON (l.order_id = o.id)) \
                 JOIN public.customers AS c ON (o.customer = c.id)) JOIN public.regions AS r ON (c.region = r.id)";
    let keys = [("orders", "id"), ("customers", "id"), ("regions", "id")];
    // What is small is read as a whole, and leads to the others.
    check(
        chain,
        &keys,
        expect![[r#"
        lines (order_id): orders customers regions
        orders (customer): customers regions
        customers (region): regions
    "#]],
    );
}

#[test]
fn one_index_that_begins_with_a_column_is_enough() {
    let two = "SELECT l.amount FROM public.lines AS l JOIN public.orders AS o ON ((l.order_id = o.id) AND (l.part = o.day))";
    check(
        two,
        &[],
        expect![[r#"
        orders (id, day): lines
        lines (order_id, part): orders
    "#]],
    );
    check(two, &[("orders", "day"), ("lines", "part")], expect![[""]]);
    // In a ring of joins a table is reached from either side.
    let ring = "SELECT l.amount FROM public.lines AS l, public.orders AS o, public.customers AS c \
                WHERE (l.order_id = o.id) AND (o.customer = c.id) AND (l.part = c.id)";
    let indexed =
        [("lines", "order_id"), ("orders", "id"), ("orders", "customer"), ("customers", "id")];
    check(ring, &indexed, expect![[""]]);
}

#[test]
fn what_a_row_matches_is_counted_when_that_side_changes() {
    let outer = "SELECT o.day, c.name FROM public.orders AS o LEFT JOIN public.customers AS c ON (o.customer = c.id)";
    check(
        outer,
        &[],
        expect![[r#"
        customers (id): orders customers
        orders (customer): customers
    "#]],
    );
    check(
        outer,
        &[("orders", "customer")],
        expect![[r#"
        customers (id): orders customers
    "#]],
    );
    let anti = "SELECT o.day FROM public.orders AS o WHERE NOT (EXISTS (SELECT 1 FROM public.lines AS l WHERE (l.order_id = o.id)))";
    check(
        anti,
        &[],
        expect![[r#"
        lines (order_id): orders lines
        orders (id): lines
    "#]],
    );
    let within = "SELECT o.day FROM public.orders AS o WHERE (o.id IN (SELECT l.order_id FROM public.lines AS l WHERE (l.amount > 1)))";
    check(
        within,
        &[],
        expect![[r#"
        lines (order_id): orders lines
        orders (id): lines
    "#]],
    );
    let not_within = "SELECT o.day FROM public.orders AS o WHERE (NOT (o.id IN (SELECT l.order_id FROM public.lines AS l)))";
    check(
        not_within,
        &[("orders", "id")],
        expect![[r#"
        lines (order_id): orders lines
    "#]],
    );
}

#[test]
fn recomputed_groups_are_looked_up_by_their_keys() {
    let worst = "SELECT o.customer, max(o.day) AS day FROM public.orders AS o GROUP BY o.customer";
    check(
        worst,
        &[],
        expect![[r#"
        orders (customer):  groups
    "#]],
    );
    check(worst, &[("orders", "customer")], expect![[""]]);
    let counted =
        "SELECT o.customer, count(*) AS orders FROM public.orders AS o GROUP BY o.customer";
    check(counted, &[], expect![[""]]);
    let all = "SELECT max(o.day) AS day FROM public.orders AS o";
    check(all, &[], expect![[""]]);
    let computed =
        "SELECT (o.day % 7) AS day, max(o.id) AS last FROM public.orders AS o GROUP BY (o.day % 7)";
    check(computed, &[], expect![[""]]);
    // From the group to the table that has its key, and from there on.
    let joined = "SELECT c.region, max(o.day) AS day FROM public.orders AS o JOIN public.customers AS c ON (o.customer = c.id) GROUP BY c.region";
    check(
        joined,
        &[("customers", "id")],
        expect![[r#"
        orders (customer): customers groups
        customers (region):  groups
    "#]],
    );
}

#[test]
fn a_stage_changes_when_its_tables_do() {
    let stages = "SELECT c.name, s.orders FROM (SELECT o.customer, count(*) AS orders FROM public.orders AS o GROUP BY o.customer) AS s \
                  JOIN public.customers AS c ON (c.id = s.customer)";
    check(
        stages,
        &[],
        expect![[r#"
        customers (id): orders
    "#]],
    );
}

#[test]
fn inputs_of_a_union_are_not_joined_with_each_other() {
    let union = "SELECT u.id, c.name FROM (SELECT o.customer AS id FROM public.orders AS o UNION ALL SELECT l.part FROM public.lines AS l) AS u \
                 JOIN public.customers AS c ON (u.id = c.id)";
    check(
        union,
        &[("customers", "id")],
        expect![[r#"
        orders (customer): customers
        lines (part): customers
    "#]],
    );
    check(union, &[("customers", "id"), ("orders", "customer"), ("lines", "part")], expect![[""]]);
}

#[test]
fn only_plain_columns_are_looked_up() {
    let check_condition = |condition: &str, expected| {
        let sql = format!(
            "SELECT o.day, c.name FROM public.orders AS o JOIN public.customers AS c ON ({condition})"
        );
        check(&sql, &[], expected);
    };
    check_condition(
        "(o.customer + 1) = c.id",
        expect![[r#"
        customers (id): orders
    "#]],
    );
    check_condition(
        "(o.customer)::numeric = c.id",
        expect![[r#"
        customers (id): orders
    "#]],
    );
    // The server casts `varchar` so, whose index it still takes.
    check_condition(
        "(o.day)::text = (c.name)::text",
        expect![[r#"
        customers (name): orders
    "#]],
    );
    check_condition("(o.customer = c.id) OR (o.day = 1)", expect![[""]]);
    check_condition("o.customer < c.id", expect![[""]]);
    check_condition("o.customer = 5", expect![[""]]);
    check_condition("o.customer = ANY (ARRAY[c.id])", expect![[""]]);
    check_condition("NOT (o.customer = c.id)", expect![[""]]);
    let itself =
        "SELECT a.day FROM public.orders AS a JOIN public.orders AS b ON (a.id = b.customer)";
    check(
        itself,
        &[("orders", "id")],
        expect![[r#"
        orders (customer): orders
    "#]],
    );
}

#[test]
fn what_is_compared_with_the_clock_is_looked_up_as_time_passes() {
    let recent = "SELECT o.id, c.name FROM public.orders AS o, public.customers AS c WHERE o.customer = c.id AND o.day > CURRENT_DATE - 7";
    check(
        recent,
        &[],
        expect![[r#"
        customers (id): orders the clock
        orders (customer): customers
        orders (day):  the clock
    "#]],
    );
    check(
        recent,
        &[("orders", "day"), ("orders", "customer")],
        expect![[r#"
            customers (id): orders the clock
        "#]],
    );
    // Nothing but a column has an index here.
    check("SELECT id FROM public.orders WHERE day + 1 > CURRENT_DATE", &[], expect![[""]]);
}

#[test]
fn rows_of_a_recursion_look_up_the_tables_of_its_step() {
    let sql = "WITH RECURSIVE r(id) AS (SELECT o.id FROM public.orders AS o UNION \
               SELECT l.part FROM r, public.lines AS l WHERE (l.order_id = r.id)) SELECT r.id FROM r";
    check(
        sql,
        &[],
        expect![[r#"
        lines (order_id): orders lines
    "#]],
    );
    check(sql, &[("lines", "order_id")], expect![""]);
}
