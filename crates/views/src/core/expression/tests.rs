//! Text with columns, taken apart and put together.

use super::*;

#[test]
fn columns_are_found_and_named() {
    let expression = Expression::from_internal_text("\"egret$1\" + f(\"egret$20\", 'egret$3')");
    assert_eq!(expression.columns(), BTreeSet::from([ColumnId(1), ColumnId(20)]));
    let names =
        Names::from([(ColumnId(1), "t.a".to_owned()), (ColumnId(20), "(t.b * 2)".to_owned())]);
    assert_eq!(expression.to_sql(&names), "t.a + f((t.b * 2), 'egret$3')");
    assert_eq!(expression.to_operand(&names), "(t.a + f((t.b * 2), 'egret$3'))");
    assert_eq!(expression.as_column(), None);
}

#[test]
fn a_column_alone_is_one() {
    let expression =
        Expression::from_internal_text(&format!("\"{}\"", Expression::internal_name(ColumnId(7))));
    assert_eq!(expression, Expression::column(ColumnId(7)));
    assert_eq!(expression.as_column(), Some(ColumnId(7)));
    let names = Names::from([(ColumnId(7), "x.y".to_owned())]);
    assert_eq!(expression.to_operand(&names), "x.y");
}

#[test]
fn names_are_quoted() {
    assert_eq!(quote_identifier("a\"b"), "\"a\"\"b\"");
    assert_eq!(Expression::constant("1").columns(), BTreeSet::new());
}
