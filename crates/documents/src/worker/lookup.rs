//! What has to be looked up for a group of writes, together.

use futures_util::future::try_join3;
use serde_json::Value;
use uuid::Uuid;

use super::names::Names;
use super::session::Session;
use super::step::Pending;
use crate::core::collection::Draft;
use crate::core::decide::Present;
use crate::core::group::{Asked, Declared, Met, What};
use crate::core::identity::is_same;
use crate::error::DocumentsError;
use crate::model::{DocumentId, TenantId};
use crate::store::read::{Answered, Looked, Stored};

/// The question behind a number that is asked for.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Taken(usize),
    Target(usize),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Lookup {
    met: Vec<Met>,
    by_alias: Asking<Uuid, usize>,
    by_number: Asking<i64, usize>,
    collections: Vec<i32>,
    numbers: Asking<Uuid, (usize, Slot)>,
    deleted: Asking<i64, usize>,
    deleted_collections: Vec<i32>,
    requests: Asking<Uuid, usize>,
    pending: usize,
}

/// What has been found.
pub struct Found {
    /// For each write what it is about.
    pub met: Vec<Met>,
    /// For each that waits what it was answered when it came before.
    pub answers: Vec<Option<Answered>>,
}

/// What is asked for, and what for.
#[derive(Debug)]
struct Asking<K, F> {
    tenants: Vec<i32>,
    keys: Vec<K>,
    of: Vec<F>,
}

impl<K, F> Default for Asking<K, F> {
    fn default() -> Self {
        Self {
            tenants: Vec::new(),
            keys: Vec::new(),
            of: Vec::new(),
        }
    }
}

impl<K, F> Asking<K, F> {
    fn push(&mut self, tenant: i32, key: K, of: F) {
        self.tenants.push(tenant);
        self.keys.push(key);
        self.of.push(of);
    }

    fn what(&self) -> (&[i32], &[K]) {
        (&self.tenants, &self.keys)
    }
}

impl Lookup {
    /// Writes that wait for one answer; what is remembered is not asked for.
    pub fn add(&mut self, pending: &Pending, names: &Names) {
        if let (Some(request), Some(first)) = (pending.manner.request, pending.asked.first()) {
            self.requests
                .push(first.tenant.0, request.key, self.pending);
        }
        self.pending += 1;
        pending
            .asked
            .iter()
            .for_each(|asked| self.add_one(asked, names));
    }

    fn add_one(&mut self, asked: &Asked, names: &Names) {
        let at = self.met.len();
        let tenant = asked.tenant;
        let mut met = Met::default();
        match &asked.what {
            What::Remove(id) => self.document(asked, *id, at),
            What::Restore(id, draft, _) => {
                self.document(asked, *id, at);
                self.deleted.push(tenant.0, id.number(), at);
                self.deleted_collections.push(asked.declared.id.0);
                for (place, alias) in draft.aliases.iter().enumerate() {
                    met.taken.push(None);
                    self.numbers
                        .push(tenant.0, alias.0, (at, Slot::Taken(place)));
                }
                self.references(tenant, draft, (at, &mut met), names);
            }
            What::Put(id, draft) => {
                for (place, alias) in draft.aliases.iter().enumerate() {
                    if (place, id) == (0, &None) {
                        met.taken.push(None);
                        self.by_alias.push(tenant.0, alias.0, at);
                        continue;
                    }
                    let known = names.get(tenant, *alias);
                    met.taken.push(known);
                    if known.is_none() {
                        self.numbers
                            .push(tenant.0, alias.0, (at, Slot::Taken(place)));
                    }
                }
                if let Some(id) = id {
                    self.document(asked, *id, at);
                }
                self.references(tenant, draft, (at, &mut met), names);
            }
        }
        self.met.push(met);
    }

    fn references(
        &mut self,
        tenant: TenantId,
        draft: &Draft,
        (at, met): (usize, &mut Met),
        names: &Names,
    ) {
        for (place, target) in draft.references.iter().enumerate() {
            let known = names.get(tenant, target.alias);
            met.targets.push(known);
            if known.is_none() {
                self.numbers
                    .push(tenant.0, target.alias.0, (at, Slot::Target(place)));
            }
        }
    }

    fn document(&mut self, asked: &Asked, id: DocumentId, at: usize) {
        self.by_number.push(asked.tenant.0, id.number(), at);
        self.collections.push(asked.declared.id.0);
    }
}

impl Lookup {
    /// Asks for all of it at once.
    ///
    /// # Errors
    /// What the server says.
    pub async fn run(
        mut self,
        session: &Session,
        group: &[&Asked],
    ) -> Result<Found, DocumentsError> {
        let looked = Looked {
            by_alias: self.by_alias.what(),
            by_number: (
                &self.by_number.tenants,
                &self.collections,
                &self.by_number.keys,
            ),
            numbers: self.numbers.what(),
        };
        let (seen, deleted, requests) = try_join3(
            session.look(looked),
            session.deleted((
                &self.deleted.tenants,
                &self.deleted_collections,
                &self.deleted.keys,
            )),
            session.answers(self.requests.what()),
        )
        .await?;
        let mut answers = vec![None; self.pending];
        for (at, answer) in self.requests.of.iter().zip(requests) {
            answers[*at] = answer;
        }
        for (at, version) in self.deleted.of.iter().zip(deleted) {
            self.met[*at].deleted = version;
        }
        let found = self.by_alias.of.iter().zip(seen.by_alias);
        let found = found.chain(self.by_number.of.iter().zip(seen.by_number));
        for (at, stored) in found {
            let Some(stored) = stored else { continue };
            let met = &mut self.met[*at];
            let asked = group[*at];
            if asked.document().is_none() {
                met.taken[0] = Some(stored.id.number());
            }
            if stored.collection == asked.declared.id
                && asked.document().is_none_or(|id| id == stored.id)
            {
                met.meet(asked, stored);
            }
        }
        for ((at, slot), number) in self.numbers.of.iter().zip(seen.numbers) {
            match slot {
                Slot::Taken(place) => self.met[*at].taken[*place] = number,
                Slot::Target(place) => self.met[*at].targets[*place] = number,
            }
        }
        Ok(Found {
            met: self.met,
            answers,
        })
    }
}

impl Met {
    /// The document that a write is about.
    fn meet(&mut self, asked: &Asked, stored: Stored) {
        let id = stored.id;
        let (present, body) = match present(&asked.declared, stored) {
            Ok(found) => found,
            Err(DocumentsError::Damaged { what, .. }) => {
                self.damaged = Some((id, what));
                return;
            }
            Err(error) => {
                self.damaged = Some((id, error.to_string()));
                return;
            }
        };
        let definition = asked.declared.collection.definition();
        let missing = asked.rights.missing(definition, &body);
        self.missing = missing.map(str::to_owned);
        self.present = Some(present);
        let draft = asked.draft();
        self.is_same = draft.is_some_and(|draft| is_same(&draft.body, &body));
    }
}

/// A document that is stored, and its body.
///
/// # Errors
/// It is no document of the collection.
pub fn present(declared: &Declared, stored: Stored) -> Result<(Present, Value), DocumentsError> {
    let damaged = |what: String| DocumentsError::Damaged {
        id: stored.id,
        what,
    };
    let body = stored.value()?;
    let names = declared.names(&body);
    let names = names.map_err(|violation| damaged(violation.to_string()))?;
    let present = Present {
        collection: stored.collection,
        id: stored.id,
        version: stored.version,
        targets: stored.targets,
        names,
    };
    Ok((present, body))
}
