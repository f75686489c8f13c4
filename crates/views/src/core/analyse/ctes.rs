//! The queries of WITH, and which of them a query sees.

use std::collections::BTreeMap;
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::SelectStmt;

use super::from::strings;
use super::recursion::refuse_clauses;
use super::scope::Scope;
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// The queries of WITH that are visible.
#[derive(Clone, Default)]
pub struct Ctes {
    by_name: BTreeMap<String, Rc<Cte>>,
    /// The domains of dependent queries, by their names.
    pub(super) given: BTreeMap<String, (Node, Scope)>,
}

/// A query of WITH.
pub struct Cte {
    pub(super) query: SelectStmt,
    pub(super) columns: Vec<String>,
    pub(super) before: Ctes,
    /// Its name, if it may be recursive.
    pub(super) itself: Option<String>,
    pub(super) location: i32,
}

impl Ctes {
    pub(super) fn get(&self, name: &str) -> Option<Rc<Cte>> {
        self.by_name.get(name).cloned()
    }

    pub(super) fn and(&self, name: &str, cte: Rc<Cte>) -> Self {
        let mut all = self.clone();
        all.by_name.insert(name.to_owned(), cte);
        all
    }
}

/// The queries of WITH that `query` sees: its own, and those around it.
pub(super) fn with(query: &SelectStmt, ctes: &Ctes) -> Result<Ctes, Refusal> {
    let mut all = ctes.clone();
    let Some(with) = &query.with_clause else {
        return Ok(all);
    };
    for cte in &with.ctes {
        let Some(NodeEnum::CommonTableExpr(cte)) = &cte.node else {
            continue;
        };
        let query = cte.ctequery.as_ref().and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            return Err(Refusal::new(
                "WITH that changes data",
                cte.location,
                "a view only reads",
            ));
        };
        refuse_clauses(cte)?;
        let named = Cte {
            query: (**query).clone(),
            columns: strings(&cte.aliascolnames),
            before: all.clone(),
            itself: with.recursive.then(|| cte.ctename.clone()),
            location: cte.location,
        };
        // The server prints a query of WITH before those that refer to it.
        all = all.and(&cte.ctename, Rc::new(named));
    }
    Ok(all)
}
