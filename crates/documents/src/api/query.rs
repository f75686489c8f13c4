//! Queries on the documents of a collection.

use std::collections::BTreeMap;

use egret_base::settings::ByteSize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::caller::{Caller, is_visible};
use super::database::DatabaseHandle;
use super::engine::Documents;
use crate::core::collection::DeclaredCollection;
use crate::core::path::{Path, Segment};
use crate::core::query::{PageCursor, Query, QueryText};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionKey, CollectionName, DocumentId, DocumentNumber, TenantId};
use crate::store::query::{
    CANDIDATES_MAX, OrderPart, PageBudget, candidate_count_sql, count_sql, estimate_sql, page_sql,
};
use crate::store::read::{self, StoredDocument};

/// Parameters of a query on a collection.
#[derive(Clone, Debug, Default)]
pub struct FindQuery {
    /// Identity of the one document to return, as a JSON object with the values at the identity's
    /// paths.
    pub identity: Option<String>,
    /// Filters in the syntax of `core::query`; all must hold.
    pub filters: Vec<String>,
    /// Path of the sort key, with a `-` in front for descending order.
    pub sort: Option<String>,
    /// Cursor returned with the previous page.
    pub cursor: Option<String>,
    /// Documents of the page, at most.
    pub limit: Option<u32>,
    /// Whether and how matching documents are counted.
    pub count: CountMode,
    /// Parts of each document to return.
    pub projection: DocumentProjection,
}

/// The parts of a document that are returned.
#[derive(Clone, Debug, Default)]
pub struct DocumentProjection {
    /// Paths to return; empty: the whole body.
    pub fields: Vec<Path>,
    /// References whose targets are embedded.
    pub embed: Vec<CollectionName>,
}

/// Whether the documents that match a query are counted, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountMode {
    /// Matching documents are not counted.
    #[default]
    None,
    /// Estimate of PostgreSQL's planner, which is cheap.
    Planned,
    /// Exact count, at the cost of a scan of all matches.
    Exact,
}

/// One document of a result page.
#[derive(Clone, Debug)]
pub struct FindPageItem {
    /// The document as it is stored.
    pub stored: StoredDocument,
    /// The requested paths of the body; none: the whole body was requested.
    pub fields: Option<Value>,
    /// Targets of the requested references, by reference name: a document, or a list for references
    /// with several targets.
    pub embedded: Map<String, Value>,
}

/// One page of a query's result.
#[derive(Clone, Debug, Default)]
pub struct FindPage {
    /// Documents of the page, in the requested order.
    pub items: Vec<FindPageItem>,
    /// Cursor of the next page; none: this is the last one.
    pub next: Option<String>,
    /// Number of all matching documents, if requested.
    pub count: Option<i64>,
}

/// Documents of a page if the request sets no limit.
pub(crate) const PAGE_DOCUMENTS_DEFAULT: u32 = 100;

/// Approximate size of a document without its body, in bytes.
const DOCUMENT_BYTES: u64 = 100;

impl Documents {
    /// Returns a page of the documents of a collection that match a query. The page may have fewer
    /// documents than its limit although more match: its size in bytes is limited too.
    pub async fn find(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        find: &FindQuery,
    ) -> Result<FindPage, DocumentsError> {
        let handle = self.handle(caller).await?;
        let declared = handle.authorized_collection(caller, Action::Read, collection)?;
        if let Some(identity) = &find.identity {
            let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
            return self.find_by_identity(caller, &handle, tenant, &declared, identity, find).await;
        }
        let definition = declared.collection.definition();
        let text = QueryText {
            filters: &find.filters,
            sort: find.sort.as_deref(),
            cursor: find.cursor.as_deref(),
        };
        let mut query = Query::parse(definition, &text)?;
        query.filters.extend(caller.rights.claim_filters(definition));
        let mut budget = self.page_budget(find.limit)?;
        let key =
            CollectionKey::new(self.resolve_tenant(&handle, &caller.tenant).await?, declared.id);
        let mut items: Vec<StoredDocument> = Vec::new();
        for part in order_parts(&query) {
            if !budget.is_full() {
                let sql = page_sql(&query, key, part, budget.rows_to_request());
                let values = sql.values();
                let asked =
                    handle.queries.query_page(&caller.tenant, &sql.text, &values, &mut budget);
                let rows = asked.await?;
                items.extend(rows.iter().map(StoredDocument::from_row));
            }
        }
        let next = match items.last().filter(|_| budget.is_full()) {
            Some(last) => Some(
                PageCursor::after_document(
                    query.order.as_ref(),
                    &last.parse_body()?,
                    last.id.number(),
                )
                .encode(),
            ),
            None => None,
        };
        Ok(FindPage {
            count: count_matches(&handle, caller, &query, key, find.count).await?,
            items: self
                .project_documents(caller, &handle, &declared, key.tenant, items, &find.projection)
                .await?,
            next,
        })
    }

    /// Returns the requested parts of one document.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`]: there is no such document, or the caller may not see it.
    pub async fn get_projected(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
        projection: &DocumentProjection,
    ) -> Result<FindPageItem, DocumentsError> {
        let stored = self.get(caller, collection, id).await?;
        let handle = self.handle(caller).await?;
        let declared = handle.authorized_collection(caller, Action::Read, collection)?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let mut items = self
            .project_documents(caller, &handle, &declared, tenant, vec![stored], projection)
            .await?;
        Ok(items.pop().expect("one document was given"))
    }

    /// Returns the documents of all collections that refer to one, in order of creation.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`]: there is no such document, or the caller may not see it.
    pub async fn referrers(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<ReferringDocuments, DocumentsError> {
        self.get(caller, collection, id).await?;
        let handle = self.handle(caller).await?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let mut budget = self.page_budget(limit)?;
        let after = match cursor {
            Some(cursor) => {
                let number = cursor.parse().map_err(|_| DocumentsError::QueryInvalid {
                    reason:
                        "the cursor is not valid: send the `next` of the previous page unchanged"
                            .to_owned(),
                })?;
                DocumentNumber(number)
            }
            None => DocumentNumber::MIN,
        };
        let rows_max = budget.rows_to_request();
        let rows = handle
            .queries
            .query_page(
                &caller.tenant,
                &read::referrers_sql(),
                &[&tenant, &id.number(), &after, &rows_max],
                &mut budget,
            )
            .await?;
        let items: Vec<StoredDocument> = rows.iter().map(StoredDocument::from_row).collect();
        let last = items.last().filter(|_| budget.is_full());
        let next = last.map(|last| last.id.number().to_string());
        let catalogue = handle.ownership.writer.catalogue();
        let visible = items.into_iter().filter_map(|stored| {
            let declared = catalogue.by_id(stored.collection)?;
            let name = declared.collection.name();
            let is_readable =
                caller.rights.allows(Action::Read, name) && is_visible(caller, &declared, &stored);
            is_readable.then(|| (name.clone(), stored))
        });
        let items: Vec<(CollectionName, StoredDocument)> = visible.collect();
        Ok(ReferringDocuments { items, next })
    }

    /// Budget of a page with the requested number of documents.
    pub(super) fn page_budget(&self, requested: Option<u32>) -> Result<PageBudget, DocumentsError> {
        let bytes_max = self.inner.options.config.page_bytes_max;
        Ok(PageBudget::new(self.page_limit(requested)?, bytes_max))
    }

    pub(super) fn page_limit(&self, requested: Option<u32>) -> Result<u32, DocumentsError> {
        let page_max = self.inner.options.config.page_max;
        match requested.unwrap_or(PAGE_DOCUMENTS_DEFAULT.min(page_max)) {
            limit if (1..=page_max).contains(&limit) => Ok(limit),
            _ => Err(DocumentsError::QueryInvalid {
                reason: format!("a page has from 1 to {page_max} documents (`documents.page_max`)"),
            }),
        }
    }

    /// Reduces documents to their requested parts, and embeds the targets of requested references.
    pub(super) async fn project_documents(
        &self,
        caller: &Caller,
        handle: &DatabaseHandle,
        declared: &DeclaredCollection,
        tenant: TenantId,
        documents: Vec<StoredDocument>,
        projection: &DocumentProjection,
    ) -> Result<Vec<FindPageItem>, DocumentsError> {
        let options = EmbedOptions {
            references: &projection.embed,
            bytes_max: self.inner.options.config.page_bytes_max,
        };
        let mut embedded =
            embed_targets(caller, handle, declared, tenant, &documents, options).await?;
        let mut items = Vec::with_capacity(documents.len());
        for (index, stored) in documents.into_iter().enumerate() {
            let fields = if projection.fields.is_empty() {
                None
            } else {
                Some(select_paths(&stored.parse_body()?, &projection.fields))
            };
            items.push(FindPageItem {
                stored,
                fields,
                embedded: embedded.remove(&index).unwrap_or_default(),
            });
        }
        Ok(items)
    }
}

/// Which references to embed, within which size.
#[derive(Clone, Copy)]
struct EmbedOptions<'a> {
    /// Names of the references whose targets are embedded.
    references: &'a [CollectionName],
    /// Size of all embedded documents, at most.
    bytes_max: ByteSize,
}

impl EmbedOptions<'_> {
    fn too_large(&self) -> DocumentsError {
        DocumentsError::EmbeddedTooLarge { bytes_max: self.bytes_max }
    }
}

/// A target to embed in a document of the page.
struct EmbedTarget {
    /// Index in the page of the document that refers to it.
    index: usize,
    /// Index of the reference in its collection.
    reference: usize,
    alias: Uuid,
}

/// One page of the documents that refer to a document.
#[derive(Clone, Debug, Default)]
pub struct ReferringDocuments {
    /// Referring documents, each with its collection.
    pub items: Vec<(CollectionName, StoredDocument)>,
    /// Cursor of the next page; none: this is the last one.
    pub next: Option<String>,
}

/// The parts of the order that can still have documents after the cursor.
fn order_parts(query: &Query) -> Vec<OrderPart> {
    let is_after_values = query.after.as_ref().is_some_and(|after| after.value.is_null());
    match query.order {
        None => vec![OrderPart::Valueless],
        Some(_) if is_after_values => vec![OrderPart::Valueless],
        Some(_) => vec![OrderPart::Valued, OrderPart::Valueless],
    }
}

async fn count_matches(
    handle: &DatabaseHandle,
    caller: &Caller,
    query: &Query,
    key: CollectionKey,
    mode: CountMode,
) -> Result<Option<i64>, DocumentsError> {
    Ok(match mode {
        CountMode::None => None,
        CountMode::Exact => {
            let rows = handle.queries.query_sql(&caller.tenant, &count_sql(query, key)).await?;
            rows.first().map(|row| row.get(0))
        }
        CountMode::Planned => {
            // Few candidates are counted.
            let mut floor = 0;
            if let Some(sql) = candidate_count_sql(query, key) {
                let rows = handle.queries.query_sql(&caller.tenant, &sql).await?;
                let counts: Option<(Option<i64>, i64)> =
                    rows.first().map(|row| (row.get(0), row.get(1)));
                match counts {
                    Some((Some(candidates), matches)) if candidates <= CANDIDATES_MAX => {
                        return Ok(Some(matches));
                    }
                    Some((_, matches)) => floor = matches,
                    None => {}
                }
            }
            let rows = handle.queries.query_sql(&caller.tenant, &estimate_sql(query, key)).await?;
            let plan: Option<Value> = rows.first().map(|row| row.get(0));
            let estimate = plan.and_then(|plan| plan.pointer("/0/Plan/Plan Rows")?.as_i64());
            estimate.map(|estimate| estimate.max(floor))
        }
    })
}

/// Copies the parts of a body at these paths into a new body.
fn select_paths(body: &Value, paths: &[Path]) -> Value {
    let mut selection = Value::Object(Map::new());
    for path in paths {
        let Some(found) = path.get(body) else {
            continue;
        };
        let names = path.segments().iter().filter_map(|segment| match segment {
            Segment::Property(name) => Some(name),
            Segment::Each => None,
        });
        let slot = names.fold(&mut selection, |place, name| {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place
                .as_object_mut()
                .expect("it has just become an object")
                .entry(name)
                .or_insert(Value::Null)
        });
        *slot = found.clone();
    }
    selection
}

fn check_references(
    collection: &CollectionName,
    declared: &[&CollectionName],
    references: &[CollectionName],
) -> Result<(), DocumentsError> {
    let Some(unknown) = references.iter().find(|name| !declared.contains(name)) else {
        return Ok(());
    };
    let names = declared.iter().map(|name| format!("`{name}`")).collect::<Vec<String>>().join(", ");
    Err(DocumentsError::QueryInvalid {
        reason: format!(
            "documents of `{collection}` have no reference `{unknown}`; their references are: {names}"
        ),
    })
}

/// Targets to embed, by the index of the document in the page and the name of the reference.
async fn embed_targets(
    caller: &Caller,
    handle: &DatabaseHandle,
    declared: &DeclaredCollection,
    tenant: TenantId,
    documents: &[StoredDocument],
    options: EmbedOptions<'_>,
) -> Result<BTreeMap<usize, Map<String, Value>>, DocumentsError> {
    let collection = &declared.collection;
    let declared_references: Vec<&CollectionName> =
        collection.references().map(|(name, ..)| name).collect();
    check_references(collection.name(), &declared_references, options.references)?;
    let embeddings = list_embed_targets(declared, &declared_references, documents, options)?;
    let mut aliases: Vec<Uuid> = embeddings.iter().map(|target| target.alias).collect();
    aliases.sort_unstable();
    aliases.dedup();
    let documents_by_alias = read_targets(caller, handle, tenant, aliases, options).await?;
    let mut bytes_left = options.bytes_max.bytes();
    let mut embedded: BTreeMap<usize, Map<String, Value>> = BTreeMap::new();
    for one in embeddings {
        let Some((bytes, value)) = documents_by_alias.get(&one.alias) else {
            continue;
        };
        bytes_left = bytes_left.checked_sub(*bytes).ok_or_else(|| options.too_large())?;
        let name = declared_references[one.reference].to_string();
        let document_targets = embedded.entry(one.index).or_default();
        if collection.is_plural(one.reference) {
            let list = document_targets.entry(name).or_insert(Value::Array(Vec::new()));
            let list = list.as_array_mut().expect("it was inserted as an array");
            list.push(value.clone());
        } else {
            document_targets.insert(name, value.clone());
        }
    }
    Ok(embedded)
}

/// Lists the targets to embed. Fails early if they exceed the limit by their fixed size alone.
fn list_embed_targets(
    declared: &DeclaredCollection,
    declared_references: &[&CollectionName],
    documents: &[StoredDocument],
    options: EmbedOptions<'_>,
) -> Result<Vec<EmbedTarget>, DocumentsError> {
    let mut embeddings = Vec::new();
    if options.references.is_empty() {
        return Ok(embeddings);
    }
    for (index, stored) in documents.iter().enumerate() {
        let draft = declared.collection.parse_value(&stored.parse_body()?, usize::MAX)?;
        let targets = draft
            .references
            .into_iter()
            .filter(|to| options.references.contains(declared_references[to.reference]));
        embeddings.extend(targets.map(|target| EmbedTarget {
            index,
            reference: target.reference,
            alias: target.alias.0,
        }));
        if embeddings.len() as u64 * DOCUMENT_BYTES > options.bytes_max.bytes() {
            return Err(options.too_large());
        }
    }
    Ok(embeddings)
}

/// Reads the referenced documents, with their approximate sizes, by alias. Documents deleted since
/// the page was read and those that the caller may not see are missing.
async fn read_targets(
    caller: &Caller,
    handle: &DatabaseHandle,
    tenant: TenantId,
    aliases: Vec<Uuid>,
    options: EmbedOptions<'_>,
) -> Result<BTreeMap<Uuid, (u64, Value)>, DocumentsError> {
    let mut targets = BTreeMap::new();
    if aliases.is_empty() {
        return Ok(targets);
    }
    let tenants = vec![tenant; aliases.len()];
    let count = u32::try_from(aliases.len()).unwrap_or(u32::MAX);
    let mut budget = PageBudget::new(count, options.bytes_max);
    let rows = handle
        .queries
        .query_page(&caller.tenant, &read::by_alias_sql(), &[&tenants, &aliases], &mut budget)
        .await?;
    if budget.is_full() {
        return Err(options.too_large());
    }
    let catalogue = handle.ownership.writer.catalogue();
    let documents = read::parse_documents(aliases.len(), &rows).into_iter();
    for (alias, stored) in aliases.into_iter().zip(documents) {
        let visible = stored.filter(|stored| {
            let declared = catalogue.by_id(stored.collection);
            declared.is_some_and(|declared| {
                let may = caller.rights.allows(Action::Read, declared.collection.name());
                may && is_visible(caller, &declared, stored)
            })
        });
        if let Some(stored) = visible {
            let bytes = stored.body.len() as u64 + DOCUMENT_BYTES;
            targets.insert(alias, (bytes, stored.parse_body()?));
        }
    }
    Ok(targets)
}
