//! What rows are like.

use std::collections::BTreeSet;

use super::*;

fn columns(row: &str) -> Vec<&str> {
    row.trim_end_matches('\n').split('\t').collect()
}

#[test]
fn an_order_is_the_same_each_time_and_agrees_with_its_lines() {
    let rows = Rows::new(0.01, 7);
    for n in 0..500 {
        let [mut order, mut lines, mut again] = [const { String::new() }; 3];
        rows.write_order(initial_key(n), &mut order, &mut lines);
        rows.write_order(initial_key(n), &mut again, &mut String::new());
        assert_eq!(order, again);
        let order = columns(&order);
        assert_eq!(order.len(), 9);
        assert!(!order[1].parse::<u32>().unwrap().is_multiple_of(3));
        let lines: Vec<Vec<&str>> = lines.lines().map(columns).collect();
        assert!((1..=7).contains(&lines.len()));
        let is = |status| lines.iter().all(|line| line[9] == status);
        let expected = match (is("F"), is("O")) {
            (true, _) => "F",
            (_, true) => "O",
            _ => "P",
        };
        assert_eq!(order[2], expected);
        let mut total = 0.0;
        for line in &lines {
            assert_eq!((line.len(), line[0]), (16, order[0]));
            let [price, discount, tax] =
                [5, 6, 7].map(|at: usize| line[at].parse::<f64>().unwrap());
            total += price * (1.0 - discount) * (1.0 + tax);
            // Shipped after the order and received after that, as texts of dates are ordered as
            // dates are.
            assert!(order[4] < line[10] && line[10] < line[12]);
            let expected = if line[12] <= "1995-06-17" { "RA" } else { "N" };
            assert!(expected.contains(line[8]), "{line:?}");
        }
        let stated: f64 = order[3].parse().unwrap();
        assert!((stated - total).abs() < 0.05, "{stated} {total}");
    }
}

#[test]
fn no_key_is_taken_twice() {
    let first: BTreeSet<u64> = (0..1_000).map(initial_key).collect();
    let later: BTreeSet<u64> = (0..1_000).map(inserted_key).collect();
    assert_eq!((first.len(), later.len()), (1_000, 1_000));
    assert!(first.is_disjoint(&later));
}

#[test]
fn a_part_has_four_suppliers_at_any_scale() {
    for scale in [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0] {
        let rows = Rows::new(scale, 1);
        for part in (1..=rows.sizes.parts).step_by(7) {
            let suppliers: BTreeSet<u32> = (0..4).map(|n| rows.supplier_of(part, n)).collect();
            assert_eq!(suppliers.len(), 4, "part {part} at scale {scale}");
            assert!(suppliers.iter().all(|key| (1..=rows.sizes.suppliers).contains(key)));
        }
    }
}

#[test]
fn sizes_are_those_of_the_specification() {
    let Sizes { suppliers, parts, customers, orders, .. } = Sizes::from_scale(1.0);
    assert_eq!((suppliers, parts, customers, orders), (10_000, 200_000, 150_000, 1_500_000));
    let rows = Rows::new(0.001, 1);
    assert_eq!(rows.days[0], "1992-01-01");
    assert_eq!(rows.days[CURRENT_DAY], "1995-06-17");
    assert_eq!(rows.days[ORDER_DAY_COUNT - 1], "1998-08-02");
    assert_eq!(rows.days.last().unwrap(), "1998-12-31");
}
