//! LIMIT and OFFSET.

use pg_query::NodeEnum;
use pg_query::protobuf::{LimitOption, Node as Parsed, SelectStmt, a_const};

use super::select::QueryRows;
use super::select_list::{numbered, ranked};
use super::windows::projected;
use super::{Analysis, distinct};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Stage, StageContents};

impl Analysis<'_> {
    /// Applies LIMIT and OFFSET to the rows of a query; separately for each value of the last
    /// `given` columns.
    pub(super) fn limited(
        &mut self,
        rows: QueryRows,
        query: &SelectStmt,
        given: usize,
    ) -> Result<QueryRows, Refusal> {
        let count = number(query.limit_count.as_deref(), "LIMIT")?;
        let offset = number(query.limit_offset.as_deref(), "OFFSET")?.unwrap_or(0);
        if count.is_none() && offset == 0 {
            return Ok(rows);
        }
        // LIMIT 0 has no ties.
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
        let keeps = |last| StageContents::Top {
            order: rows.order.clone(),
            rows: last,
            columns: distinct(&columns),
        };
        let given = rows.columns.iter().rev().take(given);
        let partition: Vec<ColumnId> = given.map(|(_, id)| *id).collect();
        // With ties, or for each value, the number of rows has no bound.
        let input = match last.filter(|_| !has_ties && partition.is_empty()) {
            Some(last) => self.stage(Stage {
                input: rows.node,
                contents: keeps(last),
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
            let last_of = if has_ties { self.new_column() } else { place };
            if has_ties {
                windows.push((last_of, ranked(&partition, &rows.order)));
            }
            filter.push(Expression::column(last_of).tested(&format!("<= {last}")));
        }
        let filter = Expression::all(&filter);
        let node = self.partitioned(input, partition, windows, Some(filter));
        Ok(QueryRows { node, ..rows })
    }
}

/// The number in a clause; none if it does not restrict rows.
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
            // The parser represents the constant 0 without a value.
            _ => Ok(Some(0)),
        },
        NodeEnum::TypeCast(cast) => number(cast.arg.as_deref(), clause),
        _ => refused(-1),
    }
}
