//! A write of a group on its way: what becomes of it, and what is written for it.

use super::ids::Ids;
use super::lookup::Met;
use super::names::Names;
use super::session::Session;
use super::writer::Pending;
use crate::core::decide::{Present, Verdict};
use crate::core::group::Asked;
use crate::core::schedule::Taken;
use crate::error::DocumentsError;
use crate::model::{ChangeKind, DocumentId, Done, Written};
use crate::store::write::{Content, Writes};

/// So many of those who refer to a document are named where it cannot go.
const REFERRERS_NAMED: i64 = 20;

/// So many of them are counted.
const REFERRERS_COUNTED: i64 = 10_000;

/// See the module.
pub struct Step {
    /// The write.
    pub taken: Taken<Pending>,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a write.
pub enum Fate {
    /// Nothing is written.
    Told(Result<Written, DocumentsError>),
    /// A new document.
    Create(DocumentId, Vec<i64>),
    /// Another body.
    Change(Present, Vec<i64>),
    /// A document goes.
    Remove(Present),
}

impl Step {
    /// Decides on a write.
    pub fn decide(taken: Taken<Pending>, met: Met, ids: &Ids) -> Self {
        let asked = &taken.write.asked;
        let verdict = asked.decide(
            met.present.as_ref(),
            (&met.taken, &met.targets),
            met.is_same,
        );
        let there = met.present;
        let fate = match (verdict, there) {
            (Verdict::Create(targets), _) => Fate::Create(ids.next(), targets),
            (Verdict::Change(targets), Some(present)) => Fate::Change(present, targets),
            (Verdict::Remove, Some(present)) => Fate::Remove(present),
            (Verdict::Unchanged, Some(present)) => Fate::Told(Ok(Written {
                id: present.id,
                version: present.version,
                done: Done::Unchanged,
            })),
            (verdict, _) => Fate::Told(Err(refusal(asked, verdict))),
        };
        Self { taken, fate }
    }

    fn asked(&self) -> &Asked {
        &self.taken.write.asked
    }

    /// Adds what is written for it.
    pub fn write(&self, writes: &mut Writes) {
        let asked = self.asked();
        let declared = &asked.declared;
        let place = (asked.tenant, declared.id);
        match (&self.fate, asked.draft()) {
            (Fate::Create(id, targets), Some(draft)) => {
                let number = id.number();
                for alias in &draft.aliases {
                    writes.name(place, *alias, number);
                }
                writes.create(place, *id, content(asked, &draft.text, targets));
                writes.tell(ChangeKind::Create, place, *id, 1);
            }
            (Fate::Change(present, targets), Some(draft)) => {
                let number = present.id.number();
                let content = content(asked, &draft.text, targets);
                writes.change(place, number, &present.targets, content);
                writes.tell(ChangeKind::Update, place, present.id, present.version + 1);
            }
            (Fate::Remove(present), _) => {
                for alias in &present.names {
                    writes.forget(asked.tenant, *alias);
                }
                writes.remove(place, present.id.number(), &present.targets);
                writes.tell(ChangeKind::Delete, place, present.id, present.version);
            }
            _ => {}
        }
    }

    /// What there is to say once it is committed; remembers what is called how.
    pub fn committed(self, names: &Names) -> (Taken<Pending>, Result<Written, DocumentsError>) {
        let asked = &self.taken.write.asked;
        let written = |id, version, done| Ok(Written { id, version, done });
        let told = match self.fate {
            Fate::Create(id, _) => {
                for alias in asked.draft().iter().flat_map(|draft| &draft.aliases) {
                    names.insert(asked.tenant, *alias, id.number());
                }
                written(id, 1, Done::Created)
            }
            Fate::Change(present, _) => written(present.id, present.version + 1, Done::Changed),
            Fate::Remove(present) => {
                for alias in &present.names {
                    names.remove(asked.tenant, *alias);
                }
                written(present.id, present.version, Done::Removed)
            }
            Fate::Told(told) => told,
        };
        (self.taken, told)
    }
}

fn content(asked: &Asked, body: &str, targets: &[i64]) -> Content {
    Content {
        body: body.to_owned(),
        author: asked.author.clone(),
        trace: asked.trace.clone(),
        targets: targets.to_vec(),
    }
}

/// What is said of a write that is not done.
fn refusal(asked: &Asked, verdict: Verdict) -> DocumentsError {
    let collection = &asked.declared.collection;
    match verdict {
        Verdict::Unresolved(places) => {
            let references = asked.draft().map(|draft| &draft.references);
            let told =
                references.map(|all| places.iter().map(|place| collection.tell(&all[*place])));
            DocumentsError::UnresolvedReference {
                references: told.into_iter().flatten().collect(),
            }
        }
        Verdict::Mismatch { at } => DocumentsError::VersionMismatch { at },
        Verdict::Immutable => DocumentsError::IdentityImmutable {
            collection: collection.name().clone(),
        },
        Verdict::Taken { name } => DocumentsError::IdentityConflict {
            collection: collection.families()[name].collection.clone(),
        },
        _ => DocumentsError::NotFound {
            collection: collection.name().clone(),
            id: asked.document(),
        },
    }
}

/// Keeps documents to which others refer from going. It is asked only now: whoever wants to refer to one waits since it is claimed.
///
/// # Errors
/// What the server says.
pub async fn check_removals(session: &Session, steps: &mut [Step]) -> Result<(), DocumentsError> {
    let (mut tenants, mut numbers, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (place, step) in steps.iter().enumerate() {
        if let Fate::Remove(present) = &step.fate {
            tenants.push(step.asked().tenant.0);
            numbers.push(present.id.number());
            places.push(place);
        }
    }
    let bounds = (REFERRERS_NAMED, REFERRERS_COUNTED);
    let referrers = session.referrers((&tenants, &numbers), bounds).await?;
    for (place, referrers) in places.into_iter().zip(referrers) {
        if referrers.count > 0 {
            steps[place].fate = Fate::Told(Err(DocumentsError::StillReferenced { referrers }));
        }
    }
    Ok(())
}
