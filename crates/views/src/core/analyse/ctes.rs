//! The queries of WITH, and which of them a query sees.

use std::collections::BTreeMap;
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::SelectStmt;

use super::from::string_values;
use super::recursion::refuse_clauses;
use super::scope::Scope;
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// The queries of WITH that are visible.
#[derive(Clone, Default)]
pub(crate) struct Ctes {
    by_name: BTreeMap<String, Rc<Cte>>,
    /// The domains of dependent queries, by their names.
    pub(super) domains: BTreeMap<String, (Node, Scope)>,
}

/// A query of WITH.
pub struct Cte {
    pub(super) query: SelectStmt,
    pub(super) columns: Vec<String>,
    pub(super) visible_ctes: Ctes,
    /// Its name, if it may be recursive.
    pub(super) recursive_name: Option<String>,
    pub(super) location: i32,
}

impl Ctes {
    pub(super) fn get(&self, name: &str) -> Option<Rc<Cte>> {
        self.by_name.get(name).cloned()
    }

    pub(super) fn with_cte(&self, name: &str, cte: Rc<Cte>) -> Self {
        let mut extended = self.clone();
        extended.by_name.insert(name.to_owned(), cte);
        extended
    }
}

/// The queries of WITH that `query` sees: its own, and those around it.
pub(super) fn collect_ctes(query: &SelectStmt, ctes: &Ctes) -> Result<Ctes, Refusal> {
    let mut visible_ctes = ctes.clone();
    let Some(with) = &query.with_clause else {
        return Ok(visible_ctes);
    };
    for cte in &with.ctes {
        let Some(NodeEnum::CommonTableExpr(cte)) = &cte.node else {
            continue;
        };
        let query = cte.ctequery.as_ref().and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            return Err(Refusal::new("WITH that changes data", cte.location, "a view only reads"));
        };
        refuse_clauses(cte)?;
        let definition = Cte {
            query: (**query).clone(),
            columns: string_values(&cte.aliascolnames),
            visible_ctes: visible_ctes.clone(),
            recursive_name: with.recursive.then(|| cte.ctename.clone()),
            location: cte.location,
        };
        // The server prints a query of WITH before those that refer to it.
        visible_ctes = visible_ctes.with_cte(&cte.ctename, Rc::new(definition));
    }
    Ok(visible_ctes)
}
