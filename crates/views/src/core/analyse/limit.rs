//! LIMIT and OFFSET: the first rows of an order.

use pg_query::NodeEnum;
use pg_query::protobuf::{LimitOption, Node as Parsed, SelectStmt, a_const};

use super::said::{numbered, ranked};
use super::select::Rows;
use super::windows::projected;
use super::{Analysis, distinct};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Keeps, Stage};

impl Analysis<'_> {
    /// Those of the rows of a query that its LIMIT and OFFSET leave; of each of those that have the same in the last columns, so many of them
    /// as are `given`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn limited(
        &mut self,
        rows: Rows,
        query: &SelectStmt,
        given: usize,
    ) -> Result<Rows, Refusal> {
        let count = number(query.limit_count.as_deref(), "LIMIT")?;
        let offset = number(query.limit_offset.as_deref(), "OFFSET")?.unwrap_or(0);
        if count.is_none() && offset == 0 {
            return Ok(rows);
        }
        // Of none there are no ties.
        let has_ties = query.limit_option == LimitOption::WithTies as i32 && count != Some(0);
        let last = count.map(|count| count.saturating_add(offset));
        let mut columns: Vec<ColumnId> = rows.columns.iter().map(|(_, id)| *id).collect();
        columns.extend(rows.order.iter().map(|(id, _)| *id));
        let mut rows = rows;
        if columns.is_empty() {
            let one = self.new_column();
            rows.node = projected(rows.node, vec![(one, Expression::constant("1"))]);
            columns.push(one);
        }
        let keeps = |last| Keeps::Top {
            order: rows.order.clone(),
            rows: last,
            columns: distinct(&columns),
        };
        let given = rows.columns.iter().rev().take(given);
        let partition: Vec<ColumnId> = given.map(|(_, id)| *id).collect();
        // With ties, or of each, it cannot be said how many there are.
        let input = match last.filter(|_| !has_ties && partition.is_empty()) {
            Some(last) => self.stage(Stage {
                input: rows.node,
                keeps: keeps(last),
            }),
            None => rows.node,
        };
        let place = self.new_column();
        let mut windows = vec![(place, numbered(&partition, &rows.order))];
        let mut filter = Vec::new();
        if offset > 0 {
            filter.push(Expression::column(place).tested(&format!("> {offset}")));
        }
        if let Some(last) = last {
            let last_of = match has_ties {
                true => self.new_column(),
                false => place,
            };
            if has_ties {
                windows.push((last_of, ranked(&partition, &rows.order)));
            }
            filter.push(Expression::column(last_of).tested(&format!("<= {last}")));
        }
        let filter = Expression::all(&filter);
        let node = self.partitioned(input, partition, windows, Some(filter));
        Ok(Rows { node, ..rows })
    }
}

/// How many rows a clause says; none where it leaves all.
fn number(node: Option<&Parsed>, clause: &str) -> Result<Option<u64>, Refusal> {
    let refused = |position| {
        let what = format!("{clause} by an expression");
        Err(Refusal::new(what, position, "write the number"))
    };
    let Some(inner) = node.and_then(|node| node.node.as_ref()) else {
        return Ok(None);
    };
    match inner {
        NodeEnum::AConst(constant) if constant.isnull => Ok(None),
        NodeEnum::AConst(constant) => match &constant.val {
            Some(a_const::Val::Ival(number)) => match u64::try_from(number.ival) {
                Ok(number) => Ok(Some(number)),
                Err(_) => refused(constant.location),
            },
            Some(a_const::Val::Fval(number)) => match number.fval.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => refused(constant.location),
            },
            Some(a_const::Val::Sval(text)) => match text.sval.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => refused(constant.location),
            },
            // Zero is written as nothing.
            _ => Ok(Some(0)),
        },
        NodeEnum::TypeCast(cast) => number(cast.arg.as_deref(), clause),
        _ => refused(-1),
    }
}
