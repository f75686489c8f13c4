//! Looks for documents.

use std::collections::BTreeMap;

use egret_base::settings::Size;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Caller, Documents, Kept, is_seen};
use crate::core::group::Declared;
use crate::core::path::{Path, Segment};
use crate::core::query::{After, Query, Wording};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId, TenantId};
use crate::store::query::{Part, Room, count, page, plan};
use crate::store::read::{self, Stored};
use crate::store::write::Place;

/// What somebody looks for.
#[derive(Clone, Debug, Default)]
pub struct Find {
    /// The identity of the one that is looked for, as JSON: an object that has it where documents do.
    pub identity: Option<String>,
    /// Conditions, as `core::query` reads them.
    pub filters: Vec<String>,
    /// A path, with `-` before it where the largest comes first.
    pub sort: Option<String>,
    /// From the page before.
    pub cursor: Option<String>,
    /// Documents of the page.
    pub limit: Option<u32>,
    /// Whether they are counted.
    pub count: Count,
    /// What of each is wanted.
    pub shape: Shape,
}

/// What of a document is wanted.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// These paths alone; none: all of it.
    pub fields: Vec<Path>,
    /// What these references are to.
    pub embed: Vec<CollectionName>,
}

/// Whether all that are looked for are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// No.
    #[default]
    None,
    /// As the planner thinks, which costs little.
    Planned,
    /// One by one.
    Exact,
}

/// A document that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// As it is stored.
    pub stored: Stored,
    /// What of it is wanted; none: all.
    pub fields: Option<Value>,
    /// What its references are to, by their names: a document, a list where the reference may be to several.
    pub embedded: Map<String, Value>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Documents.
    pub items: Vec<Found>,
    /// Where the next page begins; none: there is none.
    pub next: Option<String>,
    /// How many there are in all, where that was asked for.
    pub count: Option<i64>,
}

/// Documents of a page, where nobody says how many.
pub const PAGE_USUAL: u32 = 100;

/// Bytes that a document takes besides its body, about.
const DOCUMENT_BYTES: u64 = 100;

impl Documents {
    /// Looks for documents of a collection. A page may have fewer than asked for though there are more: then they would take too many bytes.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn find(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        find: &Find,
    ) -> Result<Page, DocumentsError> {
        let kept = self.kept(caller).await?;
        let declared = kept.declared(caller, Action::Read, collection)?;
        if let Some(identity) = &find.identity {
            let tenant = self.tenant(&kept, &caller.tenant).await?;
            return self
                .find_named(caller, (&kept, tenant), &declared, (identity, find))
                .await;
        }
        let definition = declared.collection.definition();
        let wording = Wording {
            filters: &find.filters,
            sort: find.sort.as_deref(),
            cursor: find.cursor.as_deref(),
        };
        let mut query = Query::read(definition, &wording)?;
        query.filters.extend(caller.rights.filters(definition));
        let mut room = self.room(find.limit)?;
        let place = (self.tenant(&kept, &caller.tenant).await?, declared.id);
        let mut items: Vec<Stored> = Vec::new();
        for part in parts(&query) {
            if !room.is_full() {
                let sql = page(&query, place, part, room.asked());
                let values = sql.values();
                let asked = kept
                    .asker
                    .page(&caller.tenant, &sql.text, &values, &mut room);
                let rows = asked.await?;
                items.extend(rows.iter().map(Stored::of));
            }
        }
        let next = match items.last().filter(|_| room.is_full()) {
            Some(last) => {
                Some(After::of(query.order.as_ref(), &last.value()?, last.id.number()).cursor())
            }
            None => None,
        };
        Ok(Page {
            count: counted(&kept, caller, (&query, place), find.count).await?,
            items: self
                .shaped(caller, &kept, &declared, (place.0, items), &find.shape)
                .await?,
            next,
        })
    }

    /// A document, and of it what is wanted.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`], and what the server says.
    pub async fn get_shaped(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        shape: &Shape,
    ) -> Result<Found, DocumentsError> {
        let stored = self.get(caller, (collection, id)).await?;
        let kept = self.kept(caller).await?;
        let declared = kept.declared(caller, Action::Read, collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let of = (tenant, vec![stored]);
        let mut shaped = self.shaped(caller, &kept, &declared, of, shape).await?;
        Ok(shaped.pop().expect("one was given"))
    }

    /// Documents of all collections that refer to one, in the order in which they were made.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`], and what the server says.
    pub async fn referrers(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        (cursor, limit): (Option<&str>, Option<u32>),
    ) -> Result<Referring, DocumentsError> {
        self.get(caller, (collection, id)).await?;
        let kept = self.kept(caller).await?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let mut room = self.room(limit)?;
        let after = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| DocumentsError::QueryInvalid {
                reason: "the cursor is the `next` of the page before, as it was given".to_owned(),
            })?,
            None => i64::MIN,
        };
        let asked = room.asked();
        let rows = kept
            .asker
            .page(
                &caller.tenant,
                &read::referring_sql(),
                &[&tenant.0, &id.number(), &after, &asked],
                &mut room,
            )
            .await?;
        let items: Vec<Stored> = rows.iter().map(Stored::of).collect();
        let last = items.last().filter(|_| room.is_full());
        let next = last.map(|last| last.id.number().to_string());
        let catalogue = kept.keeper.writer.catalogue();
        let named = items.into_iter().filter_map(|stored| {
            let declared = catalogue.by_id(stored.collection)?;
            let name = declared.collection.name();
            let is_seen =
                caller.rights.may(Action::Read, name) && is_seen(caller, &declared, &stored);
            is_seen.then(|| (name.clone(), stored))
        });
        let items: Vec<(CollectionName, Stored)> = named.collect();
        Ok(Referring { items, next })
    }

    /// The room of a page of so many documents.
    pub(super) fn room(&self, asked: Option<u32>) -> Result<Room, DocumentsError> {
        let bytes_max = self.inner.options.config.page_bytes_max;
        Ok(Room::new(self.limit(asked)?, bytes_max))
    }

    pub(super) fn limit(&self, asked: Option<u32>) -> Result<u32, DocumentsError> {
        let page_max = self.inner.options.config.page_max;
        match asked.unwrap_or(PAGE_USUAL.min(page_max)) {
            limit if (1..=page_max).contains(&limit) => Ok(limit),
            _ => Err(DocumentsError::QueryInvalid {
                reason: format!("a page has 1 to {page_max} documents, `documents.page_max`"),
            }),
        }
    }

    /// What of documents is wanted.
    pub(super) async fn shaped(
        &self,
        caller: &Caller,
        kept: &Kept,
        declared: &Declared,
        (tenant, all): (TenantId, Vec<Stored>),
        shape: &Shape,
    ) -> Result<Vec<Found>, DocumentsError> {
        let wanted = Embed {
            references: &shape.embed,
            bytes_max: self.inner.options.config.page_bytes_max,
        };
        let mut embedded = embedded(caller, kept, declared, (tenant, &all), wanted).await?;
        let mut items = Vec::with_capacity(all.len());
        for (place, stored) in all.into_iter().enumerate() {
            let fields = match shape.fields.is_empty() {
                true => None,
                false => Some(selected(&stored.value()?, &shape.fields)),
            };
            items.push(Found {
                stored,
                fields,
                embedded: embedded.remove(&place).unwrap_or_default(),
            });
        }
        Ok(items)
    }
}

/// What is to be embedded.
#[derive(Clone, Copy)]
struct Embed<'a> {
    /// What these references are to.
    references: &'a [CollectionName],
    /// As long as it takes no more than this.
    bytes_max: Size,
}

impl Embed<'_> {
    fn refused(&self) -> DocumentsError {
        DocumentsError::EmbeddedTooLarge {
            bytes_max: self.bytes_max,
        }
    }
}

/// A document that is to be embedded in another one.
struct Embedding {
    /// The place of that.
    place: usize,
    /// By which of its collection's references.
    reference: usize,
    alias: Uuid,
}

/// Who refers to a document.
#[derive(Clone, Debug, Default)]
pub struct Referring {
    /// Documents, each with its collection.
    pub items: Vec<(CollectionName, Stored)>,
    /// Where the next page begins; none: there is none.
    pub next: Option<String>,
}

/// The parts of an order in which the page may have documents.
fn parts(query: &Query) -> Vec<Part> {
    let is_past = query
        .after
        .as_ref()
        .is_some_and(|after| after.value.is_null());
    match query.order {
        None => vec![Part::Valueless],
        Some(_) if is_past => vec![Part::Valueless],
        Some(_) => vec![Part::Valued, Part::Valueless],
    }
}

async fn counted(
    kept: &Kept,
    caller: &Caller,
    (query, place): (&Query, Place),
    how: Count,
) -> Result<Option<i64>, DocumentsError> {
    Ok(match how {
        Count::None => None,
        Count::Exact => {
            let rows = kept.asker.ask(&caller.tenant, &count(query, place)).await?;
            rows.first().map(|row| row.get(0))
        }
        Count::Planned => {
            let rows = kept.asker.ask(&caller.tenant, &plan(query, place)).await?;
            let plan: Option<Value> = rows.first().map(|row| row.get(0));
            plan.and_then(|plan| plan.pointer("/0/Plan/Plan Rows")?.as_i64())
        }
    })
}

/// The parts of a body that these paths lead to.
fn selected(body: &Value, paths: &[Path]) -> Value {
    let mut selected = Value::Object(Map::new());
    for path in paths {
        let Some(found) = path.get(body) else {
            continue;
        };
        let names = path.segments().iter().filter_map(|segment| match segment {
            Segment::Property(name) => Some(name),
            Segment::Each => None,
        });
        let place = names.fold(&mut selected, |place, name| {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place
                .as_object_mut()
                .expect("it is one now")
                .entry(name)
                .or_insert(Value::Null)
        });
        *place = found.clone();
    }
    selected
}

fn check_known(
    collection: &CollectionName,
    known: &[&CollectionName],
    references: &[CollectionName],
) -> Result<(), DocumentsError> {
    let Some(unknown) = references.iter().find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    Err(DocumentsError::QueryInvalid {
        reason: format!("documents of `{collection}` have no reference `{unknown}`, but {known}"),
    })
}

/// What references of documents are to, by the documents' places.
async fn embedded(
    caller: &Caller,
    kept: &Kept,
    declared: &Declared,
    (tenant, all): (TenantId, &[Stored]),
    wanted: Embed<'_>,
) -> Result<BTreeMap<usize, Map<String, Value>>, DocumentsError> {
    let collection = &declared.collection;
    let known: Vec<&CollectionName> = collection.references().map(|(name, ..)| name).collect();
    check_known(collection.name(), &known, wanted.references)?;
    let embeddings = embeddings(declared, &known, all, wanted)?;
    let mut aliases: Vec<Uuid> = embeddings.iter().map(|one| one.alias).collect();
    aliases.sort_unstable();
    aliases.dedup();
    let found = targets(caller, kept, (tenant, aliases), wanted).await?;
    let mut left = wanted.bytes_max.bytes();
    let mut embedded: BTreeMap<usize, Map<String, Value>> = BTreeMap::new();
    for one in embeddings {
        let Some((bytes, value)) = found.get(&one.alias) else {
            continue;
        };
        left = left.checked_sub(*bytes).ok_or_else(|| wanted.refused())?;
        let name = known[one.reference].to_string();
        let of_document = embedded.entry(one.place).or_default();
        match collection.is_plural(one.reference) {
            false => _ = of_document.insert(name, value.clone()),
            true => {
                let list = of_document.entry(name).or_insert(Value::Array(Vec::new()));
                let list = list.as_array_mut().expect("it was made one");
                list.push(value.clone());
            }
        }
    }
    Ok(embedded)
}

/// What is to be embedded in documents, unless that is more than may be, however small each of them is.
fn embeddings(
    declared: &Declared,
    known: &[&CollectionName],
    all: &[Stored],
    wanted: Embed<'_>,
) -> Result<Vec<Embedding>, DocumentsError> {
    let mut embeddings = Vec::new();
    if wanted.references.is_empty() {
        return Ok(embeddings);
    }
    for (place, stored) in all.iter().enumerate() {
        let draft = declared.collection.take(&stored.value()?, usize::MAX)?;
        let targets = draft.references.into_iter();
        let targets = targets.filter(|to| wanted.references.contains(known[to.reference]));
        embeddings.extend(targets.map(|target| Embedding {
            place,
            reference: target.reference,
            alias: target.alias.0,
        }));
        if embeddings.len() as u64 * DOCUMENT_BYTES > wanted.bytes_max.bytes() {
            return Err(wanted.refused());
        }
    }
    Ok(embeddings)
}

/// Documents that are referred to, and how many bytes each takes, by their aliases. What went since that was asked is left out, and what whoever
/// asks may not see.
async fn targets(
    caller: &Caller,
    kept: &Kept,
    (tenant, aliases): (TenantId, Vec<Uuid>),
    wanted: Embed<'_>,
) -> Result<BTreeMap<Uuid, (u64, Value)>, DocumentsError> {
    let mut targets = BTreeMap::new();
    if aliases.is_empty() {
        return Ok(targets);
    }
    let tenants = vec![tenant.0; aliases.len()];
    let count = u32::try_from(aliases.len()).unwrap_or(u32::MAX);
    let mut room = Room::new(count, wanted.bytes_max);
    let rows = kept
        .asker
        .page(
            &caller.tenant,
            &read::by_alias_sql(),
            &[&tenants, &aliases],
            &mut room,
        )
        .await?;
    if room.is_full() {
        return Err(wanted.refused());
    }
    let catalogue = kept.keeper.writer.catalogue();
    let found = read::stored(aliases.len(), &rows).into_iter();
    for (alias, stored) in aliases.into_iter().zip(found) {
        let seen = stored.filter(|stored| {
            let declared = catalogue.by_id(stored.collection);
            declared.is_some_and(|declared| {
                let may = caller.rights.may(Action::Read, declared.collection.name());
                may && is_seen(caller, &declared, stored)
            })
        });
        if let Some(stored) = seen {
            let bytes = stored.body.len() as u64 + DOCUMENT_BYTES;
            targets.insert(alias, (bytes, stored.value()?));
        }
    }
    Ok(targets)
}
