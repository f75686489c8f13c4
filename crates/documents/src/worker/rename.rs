//! What follows when a document gets another identity: all that refer to it name it anew, and where that is part of their own identity they
//! get another one in turn.
//!
//! Nothing else is written meanwhile. References are kept by number, so who refers to whom stays as it is, unless two references share a
//! place in a document and now name something else.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::catalogue::Catalogue;
use super::lookup;
use super::names::Names;
use super::session::Session;
use super::step::content;
use crate::core::collection::{Collection, Draft, Renamed};
use crate::core::decide::{Present, targets};
use crate::core::group::{Asked, Declared, Met};
use crate::core::identity::Identity;
use crate::core::rights::{Action, Rights};
use crate::error::DocumentsError;
use crate::model::{AliasId, ChangeKind, Done, TenantId, Written};
use crate::store::query::Portions;
use crate::store::write::Writes;

/// Documents that refer to one and are read at a time, at most.
const PAGE: u32 = 1_000;

/// Bytes of a document that was made from one that is stored: it may have grown with an identity.
const BYTES_MAX: usize = 1 << 30;

/// A document with another body, and perhaps another identity.
pub struct Moved {
    declared: Arc<Declared>,
    before: Present,
    text: String,
    names: Vec<AliasId>,
    targets: Vec<i64>,
}

impl Moved {
    fn is_renamed(&self) -> bool {
        self.names != self.before.names
    }

    /// Adds what is written for it.
    pub fn write(&self, asked: &Asked, writes: &mut Writes) {
        let (place, before) = ((asked.tenant, self.declared.id), &self.before);
        let number = before.id.number();
        for alias in before
            .names
            .iter()
            .filter(|name| !self.names.contains(name))
        {
            writes.forget(asked.tenant, *alias);
        }
        for alias in self
            .names
            .iter()
            .filter(|name| !before.names.contains(name))
        {
            writes.name(place, *alias, number);
        }
        let history = self.declared.collection.definition().history;
        writes.keep(place, number, history, (asked.author.as_ref(), false));
        let content = content(asked, &self.text, &self.targets);
        writes.change(place, number, &before.targets, content);
        let kind = match self.is_renamed() {
            true => ChangeKind::Identity,
            false => ChangeKind::Update,
        };
        writes.tell(kind, place, before.id, before.version + 1);
    }

    /// It is called so from now on.
    pub fn remember(&self, tenant: TenantId, names: &Names) {
        for alias in &self.before.names {
            names.remove(tenant, *alias);
        }
        for alias in &self.names {
            names.insert(tenant, *alias, self.before.id.number());
        }
    }

    /// What there is to say of it.
    pub fn written(&self) -> Written {
        Written {
            id: self.before.id,
            version: self.before.version + 1,
            done: Done::Changed,
        }
    }
}

/// A document on its way to another body.
struct Moving {
    declared: Arc<Declared>,
    before: Present,
    draft: Draft,
    /// By what those that refer to it name it so far.
    told: Vec<AliasId>,
}

/// What follows when a document becomes what is asked for: itself first.
///
/// # Errors
/// [`DocumentsError`], where that cannot be for one of them, and what the server says.
pub async fn cascade(
    session: &Session,
    catalogue: &Catalogue,
    asked: &Asked,
    met: &Met,
    cascade_max: u32,
) -> Result<Vec<Moved>, DocumentsError> {
    let (Some(draft), Some(present)) = (asked.draft(), &met.present) else {
        return Ok(Vec::new());
    };
    let mut cascade = Cascade {
        session,
        catalogue,
        tenant: asked.tenant,
        rights: &asked.rights,
        cascade_max,
        moving: BTreeMap::new(),
        steps: 0,
    };
    let first = Moving {
        declared: asked.declared.clone(),
        before: present.clone(),
        draft: draft.clone(),
        told: present.names.clone(),
    };
    cascade.moving.insert(present.id.number(), first);
    cascade.spread(present.id.number()).await?;
    cascade.finish(present.id.number()).await
}

struct Cascade<'a> {
    session: &'a Session,
    catalogue: &'a Catalogue,
    tenant: TenantId,
    rights: &'a Rights,
    cascade_max: u32,
    moving: BTreeMap<i64, Moving>,
    steps: u64,
}

impl Cascade<'_> {
    fn too_large(&self) -> DocumentsError {
        DocumentsError::CascadeTooLarge {
            cascade_max: self.cascade_max,
        }
    }

    /// Tells those that refer to renamed documents, until all have been told.
    async fn spread(&mut self, first: i64) -> Result<(), DocumentsError> {
        let mut renamed = VecDeque::from([first]);
        while let Some(number) = renamed.pop_front() {
            self.steps += 1;
            // Identities that are part of each other could go round.
            if self.steps > 4 * u64::from(self.cascade_max) {
                return Err(self.too_large());
            }
            let moving = self.moving.get_mut(&number).expect("it was put there");
            let now = identities(&moving.declared.collection, &moving.draft.body)?;
            let pairs = moving.told.iter().zip(&moving.draft.aliases).zip(now);
            let changed = pairs.filter(|((told, now), _)| told != now);
            let names: Renamed = changed
                .map(|((told, _), identity)| (*told, identity))
                .collect();
            moving.told.clone_from(&moving.draft.aliases);
            if !names.is_empty() {
                renamed.extend(self.tell(number, &names).await?);
            }
        }
        Ok(())
    }

    /// Tells those that refer to a document what it is called now. Returns which of them are called differently themselves by that.
    async fn tell(&mut self, number: i64, names: &Renamed) -> Result<Vec<i64>, DocumentsError> {
        let (mut renamed, mut after) = (Vec::new(), i64::MIN);
        let mut portions = Portions::new(PAGE);
        loop {
            let target = (self.tenant.0, number);
            let referring = self.session.referring(target, after, &mut portions);
            let referring = referring.await?;
            let Some(last) = referring.last() else {
                return Ok(renamed);
            };
            after = last.id.number();
            for stored in referring {
                let number = stored.id.number();
                if !self.moving.contains_key(&number) {
                    let declared = self.catalogue.by_id(stored.collection);
                    let declared = declared.ok_or_else(|| DocumentsError::Damaged {
                        id: stored.id,
                        what: "its collection is not declared".to_owned(),
                    })?;
                    let (before, body) = lookup::present(&declared, stored)?;
                    let draft = drafted(&declared.collection, &body)?;
                    let told = before.names.clone();
                    let moving = Moving {
                        declared,
                        before,
                        draft,
                        told,
                    };
                    self.moving.insert(number, moving);
                    if self.moving.len() > self.cascade_max as usize {
                        return Err(self.too_large());
                    }
                }
                let moving = self.moving.get_mut(&number).expect("it is there now");
                let collection = &moving.declared.collection;
                let Some(body) = collection.renamed(&moving.draft.body, names) else {
                    continue;
                };
                check_rights(self.rights, collection, [&moving.draft.body, &body])?;
                moving.draft = drafted(collection, &body)?;
                if moving.draft.aliases != moving.told {
                    renamed.push(number);
                }
            }
        }
    }

    /// All of them with what they refer to, when every reference and every name has been looked up.
    async fn finish(self, first: i64) -> Result<Vec<Moved>, DocumentsError> {
        let named: HashMap<AliasId, i64> = self
            .moving
            .iter()
            .flat_map(|(number, one)| one.draft.aliases.iter().map(|alias| (*alias, *number)))
            .collect();
        let unnamed: HashMap<AliasId, i64> = self
            .moving
            .iter()
            .flat_map(|(number, one)| one.before.names.iter().map(|alias| (*alias, *number)))
            .collect();
        let there = self.resolve(&named).await?;
        // What is called so now, else what is called so there and goes on to be.
        let resolve = |alias: &AliasId| {
            let stays = || there.get(alias).filter(|_| !unnamed.contains_key(alias));
            named.get(alias).or_else(stays).copied()
        };
        let mut all = Vec::with_capacity(self.moving.len());
        for (number, one) in self.moving {
            for (place, alias) in one.draft.aliases.iter().enumerate() {
                let other = there.get(alias).filter(|_| !unnamed.contains_key(alias));
                if named.get(alias) != Some(&number) || other.is_some_and(|other| *other != number)
                {
                    let family = &one.declared.collection.families()[place];
                    return Err(DocumentsError::IdentityConflict {
                        collection: family.collection.clone(),
                    });
                }
            }
            let references = &one.draft.references;
            let resolved: Vec<Option<i64>> =
                references.iter().map(|one| resolve(&one.alias)).collect();
            let targets = targets(&resolved).map_err(|missing| {
                let told = missing
                    .iter()
                    .map(|place| one.declared.collection.tell(&references[*place]));
                DocumentsError::UnresolvedReference {
                    references: told.collect(),
                }
            })?;
            all.push(Moved {
                declared: one.declared,
                before: one.before,
                text: one.draft.text,
                names: one.draft.aliases,
                targets,
            });
        }
        let first = all
            .iter()
            .position(|moved| moved.before.id.number() == first);
        all.swap(0, first.expect("it is among them"));
        Ok(all)
    }

    /// Who is called so in the database, of all that is named and referred to.
    async fn resolve(
        &self,
        named: &HashMap<AliasId, i64>,
    ) -> Result<HashMap<AliasId, i64>, DocumentsError> {
        let references = self.moving.values().flat_map(|one| &one.draft.references);
        let mut asked: Vec<Uuid> = references.map(|one| one.alias.0).collect();
        asked.extend(named.keys().map(|alias| alias.0));
        asked.sort_unstable();
        asked.dedup();
        let tenants = vec![self.tenant.0; asked.len()];
        let numbers = self.session.resolve((&tenants, &asked)).await?;
        let found = asked.into_iter().zip(numbers);
        Ok(found
            .filter_map(|(alias, number)| Some((AliasId(alias), number?)))
            .collect())
    }
}

/// Refuses to change a document that the caller may not write, as it is or as it would be.
///
/// # Errors
/// [`DocumentsError::AccessDenied`], which names the collection to those who may read it.
fn check_rights(
    rights: &Rights,
    collection: &Collection,
    bodies: [&Value; 2],
) -> Result<(), DocumentsError> {
    let definition = collection.definition();
    let may_write = rights.may(Action::Write, &definition.collection);
    let is_within_claims = bodies
        .iter()
        .all(|body| rights.missing(definition, body).is_none());
    if may_write && is_within_claims {
        return Ok(());
    }
    let documents = if rights.may(Action::Read, &definition.collection) {
        format!("documents of collection `{}`", definition.collection)
    } else {
        "documents".to_owned()
    };
    Err(DocumentsError::AccessDenied {
        what: format!(
            "{documents} that this token may not write refer to this one, and would have to change with its identity: use a token that may write them"
        ),
    })
}

/// What a document is called in each of its collection's families.
fn identities(collection: &Collection, body: &Value) -> Result<Vec<Identity>, DocumentsError> {
    let each = collection
        .families()
        .iter()
        .map(|family| family.identity(body));
    let each: Result<Vec<Identity>, _> = each.collect();
    each.map_err(DocumentsError::violation)
}

fn drafted(collection: &Collection, body: &Value) -> Result<Draft, DocumentsError> {
    collection.take(body, BYTES_MAX)
}
