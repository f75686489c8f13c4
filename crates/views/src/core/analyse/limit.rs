//! LIMIT and OFFSET.

use pg_query::NodeEnum;
use pg_query::protobuf::{LimitOption, Node as Parsed, SelectStmt, a_const};

use super::select::QueryRows;
use super::select_list::{rank_call, row_number_call};
use super::windows::project_columns;
use super::{Analysis, deduplicate};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Stage, StageContents};

impl Analysis<'_> {
    /// Applies LIMIT and OFFSET to the rows of a query; separately for each value of the last
    /// `given` columns.
    pub(super) fn apply_limit(
        &mut self,
        rows: QueryRows,
        query: &SelectStmt,
        domain_width: usize,
    ) -> Result<QueryRows, Refusal> {
        let count = parse_row_count(query.limit_count.as_deref(), "LIMIT")?;
        let offset = parse_row_count(query.limit_offset.as_deref(), "OFFSET")?.unwrap_or(0);
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
            let constant_column = self.new_column();
            rows.node =
                project_columns(rows.node, vec![(constant_column, Expression::constant("1"))]);
            columns.push(constant_column);
        }
        let top_contents = |last| StageContents::TopK {
            order: rows.order.clone(),
            rows: last,
            columns: deduplicate(&columns),
        };
        let domain_columns = rows.columns.iter().rev().take(domain_width);
        let partition: Vec<ColumnId> = domain_columns.map(|(_, id)| *id).collect();
        // With ties, or for each value, the number of rows has no bound.
        let input = match last.filter(|_| !has_ties && partition.is_empty()) {
            Some(last) => self.add_stage(Stage { input: rows.node, contents: top_contents(last) }),
            None => rows.node,
        };
        let row_number = self.new_column();
        let mut windows = vec![(row_number, row_number_call(&partition, &rows.order))];
        let mut filter = Vec::new();
        if offset > 0 {
            filter.push(Expression::column(row_number).with_test(&format!("> {offset}")));
        }
        if let Some(last) = last {
            let rank = if has_ties { self.new_column() } else { row_number };
            if has_ties {
                windows.push((rank, rank_call(&partition, &rows.order)));
            }
            filter.push(Expression::column(rank).with_test(&format!("<= {last}")));
        }
        let filter = Expression::conjunction(&filter);
        let node = self.add_partition_stage(input, partition, windows, Some(filter));
        Ok(QueryRows { node, ..rows })
    }
}

/// The number in a clause; none if it does not restrict rows.
fn parse_row_count(node: Option<&Parsed>, clause: &str) -> Result<Option<u64>, Refusal> {
    let refuse = |position| {
        let construct = format!("{clause} by an expression");
        Err(Refusal::new(construct, position, "write the number"))
    };
    let Some(inner) = node.and_then(|node| node.node.as_ref()) else {
        return Ok(None);
    };
    match inner {
        NodeEnum::AConst(constant) if constant.isnull => Ok(None),
        NodeEnum::AConst(constant) => match &constant.val {
            Some(a_const::Val::Ival(number)) => match u64::try_from(number.ival) {
                Ok(number) => Ok(Some(number)),
                Err(_) => refuse(constant.location),
            },
            Some(a_const::Val::Fval(number)) => match number.fval.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => refuse(constant.location),
            },
            Some(a_const::Val::Sval(text)) => match text.sval.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => refuse(constant.location),
            },
            // The parser represents the constant 0 without a value.
            _ => Ok(Some(0)),
        },
        NodeEnum::TypeCast(cast) => parse_row_count(cast.arg.as_deref(), clause),
        _ => refuse(-1),
    }
}
