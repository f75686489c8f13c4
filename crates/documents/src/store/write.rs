//! What a group of writes comes to, as one statement.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use egret_postgres::tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use egret_postgres::tokio_postgres::{Client, Error as PgError, Statement};
use uuid::Uuid;

use super::edges::EdgeRows;
use crate::core::definition::History;
use crate::core::edges::{WIDTH, arranged, changed, let_go};
use crate::core::group::Request;
use crate::model::{AliasId, ChangeKind, CollectionId, DocumentId, TenantId, Written};

/// Where documents are: whose, and in which collection.
pub type Place = (TenantId, CollectionId);

/// What is changed by a group, column by column, as `egret.document_write` takes it.
#[derive(Debug, Default)]
pub struct Writes {
    number_max: i64,
    must_last: bool,
    new: Rows,
    new_ids: Vec<Uuid>,
    new_versions: Vec<i32>,
    changed: Rows,
    gone: Places,
    checked: Checked,
    kept: Kept,
    back: Places,
    back_kept: Vec<bool>,
    aliases: Aliases,
    gone_aliases: GoneAliases,
    edges: EdgeRows,
    gone_rows: Edges,
    gone_edges: Edges,
    /// By which of the writes each goes.
    gone_edge_places: Vec<i32>,
    /// Which of the writes it is.
    place: i32,
    told: Told,
    requests: Requests,
}

/// Documents with what is in them.
#[derive(Debug, Default)]
struct Rows {
    tenants: Vec<i32>,
    collections: Vec<i32>,
    numbers: Vec<i64>,
    bodies: Vec<JsonText>,
    creators: Vec<Option<String>>,
    authors: Vec<Option<String>>,
    traces: Vec<Option<String>>,
    /// Where the targets of each end.
    ends: Vec<i32>,
    targets: Vec<i64>,
}

#[derive(Debug, Default)]
struct Places {
    tenants: Vec<i32>,
    collections: Vec<i32>,
    numbers: Vec<i64>,
}

impl Places {
    fn push(&mut self, (tenant, collection): Place, number: i64) {
        self.tenants.push(tenant.0);
        self.collections.push(collection.0);
        self.numbers.push(number);
    }
}

/// Documents that may only go if nobody refers to them.
#[derive(Debug, Default)]
struct Checked {
    tenants: Vec<i32>,
    numbers: Vec<i64>,
    /// Which of the writes each is.
    places: Vec<i32>,
}

/// What became of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is written: the place in the feed of its last change.
    Written(i64),
    /// Nothing is: others refer to these documents, which were to go.
    Held(Vec<i64>),
}

/// Documents of which it is kept what they were.
#[derive(Debug, Default)]
struct Kept {
    places: Places,
    versions: Vec<i32>,
    authors: Vec<Option<String>>,
    deleted: Vec<bool>,
}

/// Requests with their answers.
#[derive(Debug, Default)]
struct Requests {
    tenants: Vec<i32>,
    keys: Vec<Uuid>,
    prints: Vec<Uuid>,
    /// Where the answers of each end.
    ends: Vec<i32>,
    kinds: Vec<i8>,
    ids: Vec<Uuid>,
    versions: Vec<i32>,
}

#[derive(Debug, Default)]
struct Aliases {
    tenants: Vec<i32>,
    collections: Vec<i32>,
    aliases: Vec<Uuid>,
    numbers: Vec<i64>,
}

#[derive(Debug, Default)]
struct GoneAliases {
    tenants: Vec<i32>,
    aliases: Vec<Uuid>,
}

#[derive(Debug, Default)]
struct Edges {
    tenants: Vec<i32>,
    targets: Vec<i64>,
    sources: Vec<i64>,
}

#[derive(Debug, Default)]
struct Told {
    kinds: Vec<i8>,
    tenants: Vec<i32>,
    collections: Vec<i32>,
    ids: Vec<Uuid>,
    versions: Vec<i32>,
}

/// What a document is to have in it.
#[derive(Clone, Debug)]
pub struct Content {
    /// JSON.
    pub body: String,
    /// Who made it, where that is somebody else than who writes it.
    pub creator: Option<String>,
    /// Who writes it.
    pub author: Option<String>,
    /// The request that did, as its trace calls it.
    pub trace: Option<String>,
    /// The numbers of the documents that it refers to, each once.
    pub targets: Vec<i64>,
}

impl Rows {
    fn push(&mut self, (tenant, collection): Place, number: i64, content: Content) {
        self.tenants.push(tenant.0);
        self.collections.push(collection.0);
        self.numbers.push(number);
        self.bodies.push(JsonText(content.body));
        let creator = content.creator.or_else(|| content.author.clone());
        self.creators.push(creator);
        self.authors.push(content.author);
        self.traces.push(content.trace);
        self.targets.extend(content.targets);
        let end =
            i32::try_from(self.targets.len()).expect("a group has a limited number of documents");
        self.ends.push(end);
    }
}

impl Edges {
    fn push(&mut self, tenant: TenantId, target: i64, source: i64) {
        self.tenants.push(tenant.0);
        self.targets.push(target);
        self.sources.push(source);
    }
}

impl Writes {
    /// It is to outlast a crash of the server.
    pub fn must_last(&mut self) {
        self.must_last = true;
    }

    /// Whether it is.
    pub fn is_to_last(&self) -> bool {
        self.must_last
    }

    /// A new document, or one that was gone, from this version on.
    pub fn create(
        &mut self,
        (tenant, collection): Place,
        (id, version): (DocumentId, i32),
        content: Content,
    ) {
        let number = id.number();
        self.number_max = self.number_max.max(number);
        for row in content.targets.chunks(WIDTH) {
            self.edges.push((tenant, collection), row, number);
        }
        self.new.push((tenant, collection), number, content);
        self.new_ids.push(id.uuid());
        self.new_versions.push(version);
    }

    /// Another body of a document, which refers to others than those `before`.
    pub fn change(
        &mut self,
        (tenant, collection): Place,
        number: i64,
        before: &[i64],
        mut content: Content,
    ) {
        for target in let_go(before, &content.targets) {
            self.let_go(tenant, target, number);
        }
        content.targets = arranged(before, &content.targets);
        let (gone, new) = changed(before, &content.targets);
        for row in gone {
            self.gone_rows.push(tenant, row[0], number);
        }
        for row in new {
            self.edges.push((tenant, collection), row, number);
        }
        self.changed.push((tenant, collection), number, content);
    }

    /// A document that is there no more, and what it referred to.
    pub fn remove(&mut self, (tenant, collection): Place, number: i64, targets: &[i64]) {
        self.gone.push((tenant, collection), number);
        for row in targets.chunks(WIDTH) {
            self.gone_rows.push(tenant, row[0], number);
        }
        for target in targets {
            self.let_go(tenant, *target, number);
        }
    }

    fn let_go(&mut self, tenant: TenantId, target: i64, source: i64) {
        self.gone_edges.push(tenant, target, source);
        self.gone_edge_places.push(self.place);
    }

    /// Another write begins: what goes by those before it holds up nothing.
    pub fn begin(&mut self) {
        self.place += 1;
    }

    /// A document that is to go does so only if nobody refers to it but itself.
    pub fn check(&mut self, tenant: TenantId, number: i64) {
        self.checked.tenants.push(tenant.0);
        self.checked.numbers.push(number);
        self.checked.places.push(self.place);
    }

    /// What a document has been until now is kept, as its collection says: it changes, or is deleted. Of one that is deleted for good nothing is.
    pub fn keep(
        &mut self,
        place: Place,
        number: i64,
        history: History,
        (author, is_deleted): (Option<&String>, bool),
    ) {
        let versions = match is_deleted && !history.deleted {
            true => 0,
            false => history.versions,
        };
        if history.versions > 0 || (is_deleted && history.deleted) {
            let versions = i32::try_from(versions).expect("they are few");
            self.kept.places.push(place, number);
            self.kept.versions.push(versions);
            self.kept.authors.push(author.cloned());
            self.kept.deleted.push(is_deleted && history.deleted);
        }
    }

    /// A document that was gone is there again; what it was is kept, if its collection keeps that.
    pub fn back(&mut self, place: Place, number: i64, history: History) {
        self.back.push(place, number);
        self.back_kept.push(history.versions > 0);
    }

    /// A request is answered so from now on.
    pub fn answer(&mut self, tenant: TenantId, request: Request, written: &[Written]) {
        let requests = &mut self.requests;
        requests.tenants.push(tenant.0);
        requests.keys.push(request.key);
        requests.prints.push(request.print);
        for one in written {
            requests.kinds.push(one.done.letter());
            requests.ids.push(one.id.uuid());
            requests.versions.push(one.version);
        }
        let end = i32::try_from(requests.ids.len()).expect("a group is limited");
        requests.ends.push(end);
    }

    /// A document is found by an identity, in its collection or in an abstract one.
    pub fn name(&mut self, (tenant, collection): Place, alias: AliasId, number: i64) {
        self.aliases.tenants.push(tenant.0);
        self.aliases.collections.push(collection.0);
        self.aliases.aliases.push(alias.0);
        self.aliases.numbers.push(number);
    }

    /// Nothing is found by an identity any more.
    pub fn forget(&mut self, tenant: TenantId, alias: AliasId) {
        self.gone_aliases.tenants.push(tenant.0);
        self.gone_aliases.aliases.push(alias.0);
    }

    /// What became of a document, for those who follow.
    pub fn tell(
        &mut self,
        kind: ChangeKind,
        (tenant, collection): Place,
        id: DocumentId,
        version: i32,
    ) {
        self.told.kinds.push(kind.letter());
        self.told.tenants.push(tenant.0);
        self.told.collections.push(collection.0);
        self.told.ids.push(id.uuid());
        self.told.versions.push(version);
    }

    /// Writes all of it in one transaction.
    ///
    /// # Errors
    /// What the server says; nothing is written then, unless the connection went away.
    pub async fn run(
        &self,
        client: &Client,
        statement: &Statement,
        (epoch, group): (i64, i64),
    ) -> Result<Outcome, PgError> {
        let is_relaxed = !self.must_last;
        let mut values: Vec<&(dyn ToSql + Sync)> =
            vec![&epoch, &group, &self.number_max, &is_relaxed];
        values.extend(self.of_documents());
        values.extend(self.of_the_past());
        values.extend(self.of_names_and_edges());
        values.extend(self.told_and_answered());
        let row = client.query_one(statement, &values).await?;
        Ok(match row.get(1) {
            Some(held) => Outcome::Held(held),
            None => Outcome::Written(row.get(0)),
        })
    }

    fn of_documents(&self) -> [&(dyn ToSql + Sync); 25] {
        let (new, changed, gone) = (&self.new, &self.changed, &self.gone);
        [
            &new.tenants,
            &new.collections,
            &self.new_ids,
            &new.numbers,
            &self.new_versions,
            &new.bodies,
            &new.creators,
            &new.authors,
            &new.traces,
            &new.ends,
            &new.targets,
            &changed.tenants,
            &changed.collections,
            &changed.numbers,
            &changed.bodies,
            &changed.authors,
            &changed.traces,
            &changed.ends,
            &changed.targets,
            &gone.tenants,
            &gone.collections,
            &gone.numbers,
            &self.checked.tenants,
            &self.checked.numbers,
            &self.checked.places,
        ]
    }

    fn of_the_past(&self) -> [&(dyn ToSql + Sync); 10] {
        let (kept, back) = (&self.kept, &self.back);
        [
            &kept.places.tenants,
            &kept.places.collections,
            &kept.places.numbers,
            &kept.versions,
            &kept.authors,
            &kept.deleted,
            &back.tenants,
            &back.collections,
            &back.numbers,
            &self.back_kept,
        ]
    }

    fn of_names_and_edges(&self) -> Vec<&(dyn ToSql + Sync)> {
        let (named, gone_names) = (&self.aliases, &self.gone_aliases);
        let (gone_rows, gone_edges) = (&self.gone_rows, &self.gone_edges);
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![
            &named.tenants,
            &named.collections,
            &named.aliases,
            &named.numbers,
            &gone_names.tenants,
            &gone_names.aliases,
        ];
        all.extend(self.edges.columns());
        let gone: [&(dyn ToSql + Sync); 7] = [
            &gone_rows.tenants,
            &gone_rows.targets,
            &gone_rows.sources,
            &gone_edges.tenants,
            &gone_edges.targets,
            &gone_edges.sources,
            &self.gone_edge_places,
        ];
        all.extend(gone);
        all
    }

    fn told_and_answered(&self) -> [&(dyn ToSql + Sync); 12] {
        let (told, requests) = (&self.told, &self.requests);
        [
            &told.kinds,
            &told.tenants,
            &told.collections,
            &told.ids,
            &told.versions,
            &requests.tenants,
            &requests.keys,
            &requests.prints,
            &requests.ends,
            &requests.kinds,
            &requests.ids,
            &requests.versions,
        ]
    }
}

/// Parameters of `egret.document_write`.
const PARAMETERS: usize = 71;

/// The statement of [`Writes::run`].
pub fn write_sql() -> String {
    let places: Vec<String> = (1..=PARAMETERS).map(|place| format!("${place}")).collect();
    format!(
        "SELECT reached, held FROM egret.document_write({})",
        places.join(", ")
    )
}

/// JSON that is sent as it is.
#[derive(Debug)]
pub struct JsonText(pub String);

impl ToSql for JsonText {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // The version of the format.
        out.put_u8(1);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }

    to_sql_checked!();
}
