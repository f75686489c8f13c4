//! Writes of a group on their way: what becomes of them, and what is written for them.

use std::sync::Arc;

use egret_postgres::slots::Slot;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::catalogue::Catalogue;
use super::names::Names;
use super::rename::Moved;
use super::session::Session;
use crate::core::bundle::{self, Fate};
use crate::core::decide::{Present, Verdict};
use crate::core::definition::History;
use crate::core::group::{Asked, Met, Request, What};
use crate::core::rights::Action;
use crate::core::schedule::{Claims, Key, Taken};
use crate::error::DocumentsError;
use crate::model::{ChangeKind, Done, Referrers, TenantId, Written};
use crate::store::read::Answered;
use crate::store::write::{Content, Writes};

/// So many of those who refer to a document are named where it cannot go.
const REFERRERS_NAMED: i64 = 20;

/// So many of them are counted.
const REFERRERS_COUNTED: i64 = 10_000;

/// Writes that wait for their answer: one, or several that are done all or none.
pub struct Pending {
    /// They.
    pub asked: Vec<Asked>,
    /// How.
    pub manner: Manner,
    /// Since when it waits.
    pub since: Instant,
    /// Who waits.
    pub reply: oneshot::Sender<Told>,
    /// Somebody who wants nothing written by anybody, for as long as he keeps what he is given.
    pub alone: Option<oneshot::Sender<Alone>>,
    /// Its place among those that wait, shared by the writes of a request.
    pub place: Option<Arc<Slot<TenantId>>>,
}

/// How writes are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Once, however often this request comes.
    pub request: Option<Request>,
    /// Whether a crash of the server may take them back: they can be repeated.
    pub is_relaxed: bool,
}

/// As long as there is this, nothing is written.
#[derive(Debug)]
pub struct Alone {
    /// The owner's, which gave it: another owner may write nevertheless.
    pub epoch: i64,
    /// It tells by being dropped.
    pub _ends: oneshot::Sender<()>,
}

/// What became of them.
pub type Told = Result<Vec<Written>, Refusal>;

/// Why none of several was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The place of the one that could not be.
    pub place: usize,
    /// Why.
    pub error: DocumentsError,
}

/// See the module.
pub struct Step {
    /// The writes.
    pub taken: Taken<Pending>,
    /// What each has met.
    pub met: Vec<Met>,
    /// What becomes of them.
    pub fate: Fates,
}

/// What becomes of the writes of a step.
pub enum Fates {
    /// That is still to be seen.
    Undecided,
    /// Nothing is written.
    Told(Told),
    /// Each for itself.
    Write(Vec<Fate>),
    /// A document gets another identity, and others another body.
    Move(Vec<Moved>),
}

impl Step {
    /// Writes that have met this. What was asked for by a request that came before has its answer.
    pub fn new(taken: Taken<Pending>, met: Vec<Met>, answered: Option<Answered>) -> Self {
        let print = taken.write.manner.request.map(|request| request.print);
        let fate = match answered {
            None => Fates::Undecided,
            Some(answered) if Some(answered.print) == print => Fates::Told(Ok(answered.written)),
            Some(_) => Fates::Told(Err(Refusal {
                place: 0,
                error: DocumentsError::KeyReused,
            })),
        };
        Self { taken, met, fate }
    }

    /// Whether it is one write by itself.
    fn is_single(&self) -> bool {
        self.taken.write.asked.len() == 1
    }

    /// Whether it is still to be seen what becomes of it.
    pub fn is_undecided(&self) -> bool {
        matches!(self.fate, Fates::Undecided)
    }

    /// Nothing is written, for this reason.
    pub fn refuse(&mut self, place: usize, error: DocumentsError) {
        self.fate = Fates::Told(Err(Refusal { place, error }));
    }

    /// The server does not do it. Where it keeps references by itself, it may say that one would dangle: 23503, and from PostgreSQL 18 on 23001
    /// where a document was to go.
    pub fn refuse_by_server(&mut self, error: &DocumentsError) {
        let asked = &self.taken.write.asked;
        let goes = asked
            .iter()
            .position(|one| matches!(one.what, What::Remove(_)));
        let (place, error) = match (error.is_of_reference(), goes) {
            (false, _) => (0, error.clone()),
            (true, Some(place)) => {
                let referrers = Referrers {
                    count: 1,
                    is_more: false,
                    first: Vec::new(),
                };
                (place, DocumentsError::StillReferenced { referrers })
            }
            (true, None) => {
                let references = asked.iter().flat_map(|one| {
                    let all = one.draft().map_or(&[][..], |draft| &draft.references);
                    all.iter().map(|told| one.declared.collection.tell(told))
                });
                let references = references.collect();
                (0, DocumentsError::UnresolvedReference { references })
            }
        };
        self.refuse(place, error);
    }

    /// Whether nothing is written for it.
    pub fn is_silent(&self) -> bool {
        match &self.fate {
            Fates::Undecided | Fates::Told(_) => true,
            // That it changed nothing is what a request is told when it comes again.
            Fates::Write(_) if self.taken.write.manner.request.is_some() => false,
            Fates::Write(fates) => fates.iter().all(|fate| *fate == Fate::Unchanged),
            Fates::Move(_) => false,
        }
    }

    /// Whether it is done by what others wrote before, and is to outlast a crash of the server: then that has to, too.
    pub fn rests_on_others(&self) -> bool {
        let is_done = match &self.fate {
            Fates::Undecided | Fates::Move(_) => false,
            Fates::Told(told) => told.is_ok(),
            Fates::Write(_) => true,
        };
        is_done && !self.taken.write.manner.is_relaxed
    }

    /// Adds what is written for it.
    pub fn write(&self, writes: &mut Writes) {
        writes.begin();
        let Manner {
            request,
            is_relaxed,
        } = self.taken.write.manner;
        if !is_relaxed {
            writes.must_last();
        }
        if let Some(request) = request {
            let tenant = self.taken.write.asked[0].tenant;
            writes.answer(tenant, request, &self.written());
        }
        match &self.fate {
            Fates::Undecided | Fates::Told(_) => {}
            Fates::Move(all) => {
                let asked = &self.taken.write.asked[0];
                all.iter().for_each(|moved| moved.write(asked, writes));
            }
            Fates::Write(fates) => {
                let each = self.taken.write.asked.iter().zip(&self.met).zip(fates);
                each.for_each(|((asked, met), fate)| write(asked, met, fate, writes));
                if self.is_single() {
                    let tenant = self.taken.write.asked[0].tenant;
                    let gone = going(0, self);
                    gone.iter()
                        .for_each(|(.., number)| writes.check(tenant, *number));
                }
            }
        }
    }

    /// What is written for it, as it is told.
    fn written(&self) -> Vec<Written> {
        match &self.fate {
            Fates::Undecided => Vec::new(),
            Fates::Told(told) => told.clone().unwrap_or_default(),
            Fates::Move(all) => all.first().map(Moved::written).into_iter().collect(),
            Fates::Write(fates) => {
                let each = self.taken.write.asked.iter().zip(&self.met).zip(fates);
                each.map(|((asked, met), fate)| written(asked, met, fate))
                    .collect()
            }
        }
    }

    /// What there is to say once it is committed; remembers what is called how.
    pub fn committed(self, names: &Names) -> (Taken<Pending>, Told) {
        let written = self.written();
        let asked = &self.taken.write.asked;
        let told = match self.fate {
            Fates::Undecided => Ok(written),
            Fates::Told(told) => told,
            Fates::Move(all) => {
                all.iter()
                    .for_each(|moved| moved.remember(asked[0].tenant, names));
                Ok(written)
            }
            Fates::Write(fates) => {
                let each = asked.iter().zip(&self.met).zip(&fates);
                each.for_each(|((asked, met), fate)| remember(asked, met, fate, names));
                Ok(written)
            }
        };
        (self.taken, told)
    }
}

fn write(asked: &Asked, met: &Met, fate: &Fate, writes: &mut Writes) {
    let place = (asked.tenant, asked.declared.id);
    match (fate, &met.present, asked.draft()) {
        (Fate::Create(id, targets), _, Some(draft)) => {
            for alias in &draft.aliases {
                writes.name(place, *alias, id.number());
            }
            let version = first_version(asked);
            if version > 1 {
                writes.back(place, id.number(), history(asked));
            }
            let mut content = content(asked, &draft.text, targets);
            content.creator = met.deleted.as_ref().and_then(|one| one.creator.clone());
            writes.create(place, (*id, version), content);
            writes.tell(ChangeKind::Create, place, *id, version);
        }
        (Fate::Change(targets), Some(present), Some(draft)) => {
            let (number, author) = (present.id.number(), asked.author.as_ref());
            writes.keep(place, number, history(asked), (author, false));
            let content = content(asked, &draft.text, targets);
            writes.change(place, number, &present.targets, content);
            writes.tell(ChangeKind::Update, place, present.id, present.version + 1);
        }
        (Fate::Remove, Some(present), _) => {
            for alias in &present.names {
                writes.forget(asked.tenant, *alias);
            }
            let (number, author) = (present.id.number(), asked.author.as_ref());
            writes.keep(place, number, history(asked), (author, true));
            writes.remove(place, number, &present.targets);
            writes.tell(ChangeKind::Delete, place, present.id, present.version);
        }
        _ => {}
    }
}

fn history(asked: &Asked) -> History {
    asked.declared.collection.definition().history
}

/// The version of a document that is made: one that is there again goes on from where it was.
fn first_version(asked: &Asked) -> i32 {
    match asked.what {
        What::Restore(_, _, version) => version + 1,
        _ => 1,
    }
}

/// Remembers what is called how.
fn remember(asked: &Asked, met: &Met, fate: &Fate, names: &Names) {
    match (fate, &met.present) {
        (Fate::Create(id, _), _) => {
            for alias in asked.draft().iter().flat_map(|draft| &draft.aliases) {
                names.insert(asked.tenant, *alias, id.number());
            }
        }
        (Fate::Remove, Some(present)) => {
            for alias in &present.names {
                names.remove(asked.tenant, *alias);
            }
        }
        _ => {}
    }
}

fn written(asked: &Asked, met: &Met, fate: &Fate) -> Written {
    if let Fate::Create(id, _) = fate {
        return Written {
            id: *id,
            version: first_version(asked),
            done: Done::Created,
        };
    }
    let present = met.present.as_ref().expect("what is not made is there");
    let (version, done) = match fate {
        Fate::Change(_) => (present.version + 1, Done::Changed),
        Fate::Remove => (present.version, Done::Removed),
        _ => (present.version, Done::Unchanged),
    };
    Written {
        id: present.id,
        version,
        done,
    }
}

/// What a document is to have in it.
pub fn content(asked: &Asked, body: &str, targets: &[i64]) -> Content {
    Content {
        body: body.to_owned(),
        creator: None,
        author: asked.author.clone(),
        trace: asked.trace.clone(),
        targets: targets.to_vec(),
    }
}

/// What is said of a write that is not done.
pub fn refusal(asked: &Asked, verdict: Verdict) -> DocumentsError {
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
        Verdict::Damaged { id, what } => DocumentsError::Damaged { id, what },
        Verdict::Denied { claim } => DocumentsError::AccessDenied {
            what: format!("the token lacks the claim `{claim}` for this document"),
        },
        Verdict::Taken { name } => DocumentsError::IdentityConflict {
            collection: collection.families()[name].collection.clone(),
        },
        Verdict::Twice { before } => DocumentsError::Twice { before },
        _ => DocumentsError::NotFound {
            collection: collection.name().clone(),
            id: asked.document(),
        },
    }
}

/// A document that is to go: of which step, which of its writes.
type Going = (usize, usize, i64);

/// Keeps documents to which others refer from going, where that is done together with other writes. It is asked only now: whoever wants to refer to
/// one waits since it is claimed. Of one that goes by itself the statement that writes says so.
///
/// # Errors
/// What the server says.
pub async fn check_removals(
    session: &Session,
    catalogue: &Catalogue,
    steps: &mut [Step],
) -> Result<(), DocumentsError> {
    for at in 0..steps.len() {
        let going = going(at, &steps[at]);
        if !steps[at].is_single() && !going.is_empty() {
            // What these let go does not count for them alone.
            let let_go = let_go(&steps[at]);
            check((session, catalogue), steps, &going, &let_go).await?;
        }
    }
    Ok(())
}

/// The same of documents that were about to go by themselves, and to which others referred.
///
/// # Errors
/// What the server says.
pub async fn check_held(
    session: &Session,
    catalogue: &Catalogue,
    (steps, held): (&mut [Step], &[i64]),
) -> Result<(), DocumentsError> {
    let single = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.is_single());
    let going = single.flat_map(|(at, step)| going(at, step));
    let going: Vec<Going> = going.filter(|(.., number)| held.contains(number)).collect();
    check((session, catalogue), steps, &going, &[]).await
}

fn going(at: usize, step: &Step) -> Vec<Going> {
    let Fates::Write(fates) = &step.fate else {
        return Vec::new();
    };
    let each = fates.iter().zip(&step.met).enumerate();
    let gone = each.filter(|(_, (fate, _))| **fate == Fate::Remove);
    gone.filter_map(|(place, (_, met))| Some((at, place, met.present.as_ref()?.id.number())))
        .collect()
}

/// The documents that a step writes anew or removes: what they refer to afterwards is there.
fn let_go(step: &Step) -> Vec<i64> {
    let Fates::Write(fates) = &step.fate else {
        return Vec::new();
    };
    let each = fates.iter().zip(&step.met);
    let written = each.filter(|(fate, _)| matches!(fate, Fate::Remove | Fate::Change(_)));
    let number = |present: &Present| present.id.number();
    written
        .filter_map(|(_, met)| met.present.as_ref().map(number))
        .collect()
}

async fn check(
    (session, catalogue): (&Session, &Catalogue),
    steps: &mut [Step],
    going: &[Going],
    let_go: &[i64],
) -> Result<(), DocumentsError> {
    let tenants: Vec<i32> = going
        .iter()
        .map(|(at, place, _)| steps[*at].taken.write.asked[*place].tenant.0)
        .collect();
    let numbers: Vec<i64> = going.iter().map(|(.., number)| *number).collect();
    let bounds = (REFERRERS_NAMED, REFERRERS_COUNTED);
    let referrers = session
        .referrers((&tenants, &numbers), let_go, bounds)
        .await?;
    for ((at, place, _), referrers) in going.iter().zip(referrers) {
        let is_refused = matches!(steps[*at].fate, Fates::Told(_));
        if referrers.count > 0 && !is_refused {
            let named = referrers.first.into_iter().filter_map(|(collection, id)| {
                let declared = catalogue.by_id(collection)?;
                let definition = declared.collection.definition();
                let rights = &steps[*at].taken.write.asked[*place].rights;
                // Who may not see a document is not told which it is.
                let is_seen =
                    rights.may(Action::Read, &definition.collection) && rights.is_whole(definition);
                is_seen.then(|| (definition.collection.clone(), id))
            });
            let referrers = Referrers {
                count: referrers.count,
                is_more: referrers.is_more,
                first: named.collect(),
            };
            steps[*at].refuse(*place, DocumentsError::StillReferenced { referrers });
        }
    }
    Ok(())
}

/// What writes claim together, and the request by which they came.
pub(super) fn claims(asked: &[Asked], manner: Manner) -> Claims {
    let mut claims = bundle::claims(asked);
    if let (Some(request), Some(first)) = (manner.request, asked.first()) {
        claims.alone.push(Key::Name(first.tenant, request.key));
    }
    claims
}
