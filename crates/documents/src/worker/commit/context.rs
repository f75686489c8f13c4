//! Looks up the state that the writes of a group are decided against, by one statement.
//!
//! If the server rejects the look-up, it is repeated with each half of the group, so that in the
//! end only those writes are rejected whose look-up fails by itself.

use futures_util::future::try_join3;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::alias_cache::AliasCache;
use super::batch::SessionEnd;
use super::in_flight::InFlightWrite;
use super::queued::QueuedWrite;
use super::writer::Writer;
use crate::core::collection::{DeclaredCollection, Draft};
use crate::core::decision::CurrentDocument;
use crate::core::identity::is_equivalent;
use crate::core::write::{WriteContext, WriteOp, WriteRequest};
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentId, DocumentNumber, TenantId};
use crate::store::read::{AliasKeys, LookupQuery, NumberKeys, StoredDocument, StoredReply};
use crate::worker::session::WriterSession;

impl Writer {
    /// Looks up the contexts of a group's writes. Returns the writes in their order, without those
    /// that were rejected.
    pub(super) async fn look_up(
        &self,
        session: &WriterSession,
        group: Vec<InFlightWrite>,
    ) -> Result<Vec<InFlightWrite>, SessionEnd> {
        let mut parts = vec![group];
        let mut found: Vec<InFlightWrite> = Vec::new();
        let mut failed: Vec<(InFlightWrite, DocumentsError)> = Vec::new();
        while let Some(mut part) = parts.pop() {
            match self.look_up_part(session, &mut part).await {
                // The usual case: the whole group at once.
                Ok(()) if found.is_empty() => found = part,
                Ok(()) => found.extend(part),
                Err(error) if error.is_session_lost() || error.is_removed() => {
                    parts.push(found);
                    self.admission.put_back(parts.into_iter().flatten().collect());
                    self.admission.put_back(failed.into_iter().map(|(write, _)| write).collect());
                    return Err(self.end_session(part, error));
                }
                Err(_) if part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Err(error) => failed.extend(part.into_iter().map(|write| (write, error.clone()))),
            }
        }
        // If every look-up failed and the session is not usable, the session is at fault, not the
        // writes: they are put back.
        if found.is_empty()
            && let Some((_, error)) = failed.first()
            && !session.is_usable_after(error).await
        {
            let error = error.clone();
            self.admission.put_back(failed.into_iter().map(|(write, _)| write).collect());
            return Err(SessionEnd::Lost(error));
        }
        let rejected = failed.into_iter().map(|(mut write, error)| {
            write.reject(0, error);
            write
        });
        self.finish(rejected.collect());
        Ok(found)
    }

    async fn look_up_part(
        &self,
        session: &WriterSession,
        part: &mut [InFlightWrite],
    ) -> Result<(), DocumentsError> {
        let mut lookup = Lookup::default();
        for write in &*part {
            lookup.add(&write.queued, &self.aliases);
        }
        let requests: Vec<&WriteRequest> =
            part.iter().flat_map(|write| &write.queued.requests).collect();
        let started = Instant::now();
        let found = lookup.run(session, &requests).await;
        self.metrics.lookup.observe(started.elapsed().as_secs_f64());
        let LookupResult { contexts, replies } = found?;
        let mut contexts = contexts.into_iter();
        for (write, reply) in part.iter_mut().zip(replies) {
            let count = write.queued.requests.len();
            write.contexts = contexts.by_ref().take(count).collect();
            if let Some(reply) = reply {
                write.plan_stored_reply(reply);
            }
        }
        Ok(())
    }
}

/// How the document number that an alias resolves to is used: as the current owner of one of the
/// write's own aliases, or as the target of a reference; each with its index.
#[derive(Clone, Copy, Debug)]
enum AliasUse {
    Owner(usize),
    Target(usize),
}

/// Everything to look up for a group of writes.
#[derive(Debug, Default)]
struct Lookup {
    contexts: Vec<WriteContext>,
    by_alias: KeyColumns<Uuid, usize>,
    by_number: KeyColumns<DocumentNumber, usize>,
    number_collections: Vec<CollectionId>,
    alias_uses: KeyColumns<Uuid, (usize, AliasUse)>,
    deleted: KeyColumns<DocumentNumber, usize>,
    deleted_collections: Vec<CollectionId>,
    idempotency_keys: KeyColumns<Uuid, usize>,
    write_count: usize,
}

/// Result of a look-up.
struct LookupResult {
    /// For each request, the state that it is decided against.
    contexts: Vec<WriteContext>,
    /// For each queued write, the stored reply to an earlier one with the same idempotency key.
    replies: Vec<Option<StoredReply>>,
}

/// Look-up keys in columns, each with the destination of its result.
#[derive(Debug)]
struct KeyColumns<Key, Destination> {
    tenants: Vec<TenantId>,
    keys: Vec<Key>,
    destinations: Vec<Destination>,
}

impl<Key, Destination> Default for KeyColumns<Key, Destination> {
    fn default() -> Self {
        Self { tenants: Vec::new(), keys: Vec::new(), destinations: Vec::new() }
    }
}

impl<Key, Destination> KeyColumns<Key, Destination> {
    fn push(&mut self, tenant: TenantId, key: Key, destination: Destination) {
        self.tenants.push(tenant);
        self.keys.push(key);
        self.destinations.push(destination);
    }
}

impl<Destination> KeyColumns<Uuid, Destination> {
    fn alias_keys(&self) -> AliasKeys<'_> {
        AliasKeys { tenants: &self.tenants, aliases: &self.keys }
    }
}

impl Lookup {
    /// Adds the requests of a write, except for aliases that are cached.
    fn add(&mut self, write: &QueuedWrite, aliases: &AliasCache) {
        if let (Some(idempotency), Some(first)) =
            (write.options.idempotency, write.requests.first())
        {
            self.idempotency_keys.push(first.tenant, idempotency.key, self.write_count);
        }
        self.write_count += 1;
        write.requests.iter().for_each(|request| self.add_request(request, aliases));
    }

    fn add_request(&mut self, request: &WriteRequest, aliases: &AliasCache) {
        let request_index = self.contexts.len();
        let tenant = request.tenant;
        let mut context = WriteContext::default();
        match &request.op {
            WriteOp::Delete(id) => self.add_document(request, *id, request_index),
            WriteOp::Restore { id, body, .. } => {
                self.add_document(request, *id, request_index);
                self.deleted.push(tenant, id.number(), request_index);
                self.deleted_collections.push(request.declared.id);
                for (index, alias) in body.aliases.iter().enumerate() {
                    context.alias_owners.push(None);
                    let owner = (request_index, AliasUse::Owner(index));
                    self.alias_uses.push(tenant, alias.0, owner);
                }
                context.targets = self.add_targets(tenant, body, request_index, aliases);
            }
            WriteOp::Put(id, body) => {
                for (index, alias) in body.aliases.iter().enumerate() {
                    if (index, id) == (0, &None) {
                        context.alias_owners.push(None);
                        self.by_alias.push(tenant, alias.0, request_index);
                        continue;
                    }
                    let cached = aliases.get(tenant, *alias);
                    context.alias_owners.push(cached);
                    if cached.is_none() {
                        let owner = (request_index, AliasUse::Owner(index));
                        self.alias_uses.push(tenant, alias.0, owner);
                    }
                }
                if let Some(id) = id {
                    self.add_document(request, *id, request_index);
                }
                context.targets = self.add_targets(tenant, body, request_index, aliases);
            }
        }
        self.contexts.push(context);
    }

    /// Adds the targets of a body's references. Returns those that are cached.
    fn add_targets(
        &mut self,
        tenant: TenantId,
        body: &Draft,
        request_index: usize,
        aliases: &AliasCache,
    ) -> Vec<Option<DocumentNumber>> {
        let targets = body.references.iter().enumerate().map(|(index, target)| {
            let cached = aliases.get(tenant, target.alias);
            if cached.is_none() {
                let destination = (request_index, AliasUse::Target(index));
                self.alias_uses.push(tenant, target.alias.0, destination);
            }
            cached
        });
        targets.collect()
    }

    fn add_document(&mut self, request: &WriteRequest, id: DocumentId, request_index: usize) {
        self.by_number.push(request.tenant, id.number(), request_index);
        self.number_collections.push(request.declared.id);
    }

    /// Runs all look-ups concurrently.
    async fn run(
        mut self,
        session: &WriterSession,
        requests: &[&WriteRequest],
    ) -> Result<LookupResult, DocumentsError> {
        let query = LookupQuery {
            by_alias: self.by_alias.alias_keys(),
            by_number: NumberKeys {
                tenants: &self.by_number.tenants,
                collections: &self.number_collections,
                numbers: &self.by_number.keys,
            },
            alias_numbers: self.alias_uses.alias_keys(),
        };
        let (rows, deleted, stored_replies) = try_join3(
            session.look_up(query),
            session.deleted(NumberKeys {
                tenants: &self.deleted.tenants,
                collections: &self.deleted_collections,
                numbers: &self.deleted.keys,
            }),
            session.stored_replies(&self.idempotency_keys.tenants, &self.idempotency_keys.keys),
        )
        .await?;
        let mut replies = vec![None; self.write_count];
        for (write_index, reply) in self.idempotency_keys.destinations.iter().zip(stored_replies) {
            replies[*write_index] = reply;
        }
        for (request_index, document) in self.deleted.destinations.iter().zip(deleted) {
            self.contexts[*request_index].deleted = document;
        }
        let documents = self
            .by_alias
            .destinations
            .iter()
            .zip(rows.by_alias)
            .chain(self.by_number.destinations.iter().zip(rows.by_number));
        for (place, stored) in documents {
            let Some(stored) = stored else { continue };
            let context = &mut self.contexts[*place];
            let request = requests[*place];
            let named_id = request.op.document_id();
            if named_id.is_none() {
                context.alias_owners[0] = Some(stored.id.number());
            }
            // The number is only half of the id: the rest must match too.
            if stored.collection == request.declared.id && named_id.is_none_or(|id| id == stored.id)
            {
                set_current(context, request, stored);
            }
        }
        for ((place, alias_use), number) in
            self.alias_uses.destinations.iter().zip(rows.alias_numbers)
        {
            let context = &mut self.contexts[*place];
            match alias_use {
                AliasUse::Owner(index) => context.alias_owners[*index] = number,
                AliasUse::Target(index) => context.targets[*index] = number,
            }
        }
        Ok(LookupResult { contexts: self.contexts, replies })
    }
}

/// Records the document that a write concerns.
fn set_current(context: &mut WriteContext, request: &WriteRequest, stored: StoredDocument) {
    let id = stored.id;
    let (current, body) = match current_document(&request.declared, stored) {
        Ok(document) => document,
        Err(DocumentsError::Damaged { what, .. }) => {
            context.damaged = Some((id, what));
            return;
        }
        Err(error) => {
            context.damaged = Some((id, error.to_string()));
            return;
        }
    };
    let definition = request.declared.collection.definition();
    let missing = request.rights.missing_claim(definition, &body);
    context.missing_claim = missing.map(str::to_owned);
    context.current = Some(current);
    let draft = request.draft();
    context.has_same_body = draft.is_some_and(|draft| is_equivalent(&draft.body, &body));
}

/// Parses a stored document. Returns its state and its body.
///
/// # Errors
/// [`DocumentsError::Damaged`]: it is not valid under its collection's identity.
pub(super) fn current_document(
    declared: &DeclaredCollection,
    stored: StoredDocument,
) -> Result<(CurrentDocument, Value), DocumentsError> {
    let body = stored.parse_body()?;
    let aliases = declared.aliases(&body).map_err(|violation| DocumentsError::Damaged {
        id: stored.id,
        what: violation.to_string(),
    })?;
    let current = CurrentDocument {
        collection: stored.collection,
        id: stored.id,
        version: stored.version,
        targets: stored.targets,
        aliases,
    };
    Ok((current, body))
}
