//! What has to be looked up for a group of writes, together.

use futures_util::future::try_join3;
use serde_json::Value;
use uuid::Uuid;

use super::names::Names;
use super::session::Session;
use crate::core::decide::Present;
use crate::core::group::{Asked, Declared, Met, What};
use crate::core::identity::is_same;
use crate::error::DocumentsError;
use crate::model::DocumentId;
use crate::store::read::Stored;

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
    /// A write of the group; what is remembered is not asked for.
    pub fn add(&mut self, asked: &Asked, names: &Names) {
        let at = self.met.len();
        let tenant = asked.tenant;
        let mut met = Met::default();
        match &asked.what {
            What::Remove(id) => self.document(asked, *id, at),
            What::Put(id, draft) => {
                for (place, alias) in draft.aliases.iter().enumerate() {
                    met.taken.push(None);
                    match (place, id) {
                        (0, None) => self.by_alias.push(tenant.0, alias.0, at),
                        _ => self
                            .numbers
                            .push(tenant.0, alias.0, (at, Slot::Taken(place))),
                    }
                }
                if let Some(id) = id {
                    self.document(asked, *id, at);
                }
                for (place, target) in draft.references.iter().enumerate() {
                    let known = names.get(tenant, target.alias);
                    met.targets.push(known);
                    if known.is_none() {
                        self.numbers
                            .push(tenant.0, target.alias.0, (at, Slot::Target(place)));
                    }
                }
            }
        }
        self.met.push(met);
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
    /// What the server says, and that what it has is no document of the collection.
    pub async fn run(
        mut self,
        session: &Session,
        group: &[&Asked],
    ) -> Result<Vec<Met>, DocumentsError> {
        let (by_alias, by_number, numbers) = try_join3(
            session.by_alias(self.by_alias.what()),
            session.by_number((
                &self.by_number.tenants,
                &self.collections,
                &self.by_number.keys,
            )),
            session.resolve(self.numbers.what()),
        )
        .await?;
        let found = self.by_alias.of.iter().zip(by_alias);
        let found = found.chain(self.by_number.of.iter().zip(by_number));
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
                let (present, body) = present(&asked.declared, stored)?;
                met.present = Some(present);
                met.is_same = asked
                    .draft()
                    .is_some_and(|draft| is_same(&draft.body, &body));
            }
        }
        for ((at, slot), number) in self.numbers.of.iter().zip(numbers) {
            match slot {
                Slot::Taken(place) => self.met[*at].taken[*place] = number,
                Slot::Target(place) => self.met[*at].targets[*place] = number,
            }
        }
        Ok(self.met)
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
