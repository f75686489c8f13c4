//! Carries out writes: those that came while the last group was on its way are the next one.
//!
//! As many groups run side by side as there are sessions. Each looks up what is there, decides, and writes what differs by one statement,
//! which is its own transaction. Nobody is told before that has committed, and what a write claims is its own until then.

mod each;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egret_postgres::slots::TenantSlots;
use tokio::sync::{Mutex as Turns, MutexGuard as Turn, Notify, oneshot, watch};
use tokio::time::Instant;

use super::catalogue::Catalogue;
use super::ids::Ids;
use super::lasting::Lasting;
use super::lookup::{Found, Lookup};
use super::names::Names;
use super::reader::WAITING_MAX;
use super::rename;
use super::session::Session;
use super::step::{
    Alone, Fates, Manner, Pending, Refusal, Step, Told, check_removals, claims, refusal,
};
use crate::config::DocumentsConfig;
use crate::core::bundle::{self, Fate};
use crate::core::group::{Asked, Met};
use crate::core::schedule::{Claims, Schedule, Taken, Ticket};
use crate::error::DocumentsError;
use crate::metrics::Metrics;
use crate::model::{TenantId, Written};
use crate::store::read::Answered;

pub(super) type Group = Vec<Taken<Pending>>;

/// See the module.
pub struct Writer {
    config: DocumentsConfig,
    pub(super) metrics: Metrics,
    pub(super) names: Names,
    ids: Ids,
    catalogue: Mutex<Arc<Catalogue>>,
    schedule: Mutex<Schedule<Pending>>,
    /// Places of those that wait.
    places: TenantSlots<TenantId>,
    /// Something waits, or has ended.
    pub(super) work: Notify,
    /// Whose turn it is to look up: one group at a time, so that all that comes meanwhile is the next one.
    looking: Turns<()>,
    /// Whose turn it is to write a small group. Who has looked one up waits for it before another one may look up.
    writing: Turns<()>,
    /// The number of the last group.
    pub(super) groups: AtomicI64,
    /// The position of the last change.
    pub(super) reached: watch::Sender<i64>,
    /// Whether what is known of the database may be wrong.
    is_distrusted: AtomicBool,
    pub(super) lasting: Lasting,
    epoch: AtomicI64,
    is_closed: AtomicBool,
}

/// What ends the work of a session.
pub enum Ended {
    /// It is of no use any more. Nothing is left of what it did.
    Session(DocumentsError),
    /// The same, and it is not known whether this has been written.
    Unknown(Unknown),
}

/// What has been found out of writes of which that was not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundOut {
    /// They have been written.
    Written,
    /// They have not, and nobody else has written since: they are done again.
    Lost,
    /// They have not, or nobody can tell, and others may have written since.
    TooLate,
}

/// Writes of which it is not known whether they have been written.
pub struct Unknown {
    /// As which owner.
    pub epoch: i64,
    /// The number of their group.
    pub group: i64,
    /// They have a place in the feed after this one, or none.
    pub after: i64,
    /// They.
    pub steps: Vec<Step>,
}

impl Writer {
    /// One in which nothing waits.
    pub fn new(
        config: DocumentsConfig,
        metrics: Metrics,
        ids: Ids,
        catalogue: Arc<Catalogue>,
    ) -> Self {
        Self {
            names: Names::new(config.names_max),
            places: TenantSlots::new(WAITING_MAX, config.waiting_max),
            config,
            metrics,
            ids,
            catalogue: Mutex::new(catalogue),
            schedule: Mutex::default(),
            work: Notify::new(),
            looking: Turns::default(),
            writing: Turns::default(),
            groups: AtomicI64::new(0),
            reached: watch::Sender::new(0),
            is_distrusted: AtomicBool::new(false),
            lasting: Lasting::default(),
            epoch: AtomicI64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The position of the last change that was written here.
    pub fn reached(&self) -> watch::Receiver<i64> {
        self.reached.subscribe()
    }

    /// The collections.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        lock(&self.catalogue).clone()
    }

    /// The collections are these now.
    pub fn set_catalogue(&self, catalogue: Arc<Catalogue>) {
        *lock(&self.catalogue) = catalogue;
    }

    /// Has a write done.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn write(&self, asked: Asked, manner: Manner) -> Result<Written, DocumentsError> {
        let told = self.write_all(vec![asked], manner).await;
        let mut written = told.map_err(|refusal| refusal.error)?;
        Ok(written.pop().expect("a write has an answer"))
    }

    /// Has several writes done, all or none.
    ///
    /// # Errors
    /// [`Refusal`]: nothing has changed then.
    pub async fn write_all(&self, asked: Vec<Asked>, manner: Manner) -> Told {
        let answer = self.push(vec![(asked, manner)]);
        let answer = answer.map_err(|error| Refusal { place: 0, error })?;
        let answer = answer.into_iter().next().expect("one was pushed");
        answered(answer).await
    }

    /// Waits until nothing is being written. Nothing is until what this gives is dropped.
    ///
    /// # Errors
    /// [`DocumentsError`]: this Egret does not write here.
    pub async fn alone(&self) -> Result<Alone, DocumentsError> {
        let (reply, refused) = oneshot::channel();
        let (alone, given) = oneshot::channel();
        let pending = Pending {
            asked: Vec::new(),
            manner: Manner::default(),
            since: Instant::now(),
            reply,
            alone: Some(alone),
            place: None,
        };
        {
            let mut schedule = self.schedule();
            if self.is_closed.load(Ordering::Acquire) {
                return Err(DocumentsError::Unreachable);
            }
            schedule.push(Claims::everything(), 1, pending);
        }
        self.work.notify_one();
        match given.await {
            Ok(alone) => Ok(alone),
            Err(_) => Err(match answered(refused).await {
                Err(refusal) => refusal.error,
                Ok(_) => DocumentsError::Stopping,
            }),
        }
    }

    fn push(
        &self,
        all: Vec<(Vec<Asked>, Manner)>,
    ) -> Result<Vec<oneshot::Receiver<Told>>, DocumentsError> {
        let count: usize = all.iter().map(|(asked, _)| asked.len()).sum();
        let claims = all.iter().map(|(asked, manner)| claims(asked, *manner));
        let claims: Vec<Claims> = claims.collect();
        let mut answers = Vec::with_capacity(all.len());
        {
            let mut schedule = self.schedule();
            if self.is_closed.load(Ordering::Acquire) {
                return Err(DocumentsError::Unreachable);
            }
            // All of a request are of one tenant.
            let tenant = all.iter().find_map(|(asked, _)| asked.first());
            let place = tenant.map(|asked| self.places.try_take_many(asked.tenant, count as u64));
            let place = place.transpose()?.map(Arc::new);
            for ((asked, manner), claims) in all.into_iter().zip(claims) {
                let (reply, answer) = oneshot::channel();
                let weight = asked.len();
                let alone = None;
                schedule.push(
                    claims,
                    weight,
                    Pending {
                        asked,
                        manner,
                        since: Instant::now(),
                        reply,
                        alone,
                        place: place.clone(),
                    },
                );
                answers.push(answer);
            }
        }
        self.work.notify_one();
        Ok(answers)
    }

    pub(super) fn schedule(&self) -> MutexGuard<'_, Schedule<Pending>> {
        lock(&self.schedule)
    }

    /// Writes go on from here: in a database that has documents up to this number and changes up to this position, and that another Egret may have
    /// written to.
    pub fn begin(&self, epoch: i64, number: i64, position: i64) {
        self.epoch.store(epoch, Ordering::Release);
        self.ids.begin_after(number);
        self.names.clear();
        self.reached.send_replace(position);
        self.lasting.begin();
        self.is_distrusted.store(false, Ordering::Release);
    }

    /// As which owner it writes, or has written last.
    pub fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Nothing more is written before the database has been looked at anew.
    pub fn distrust(&self) {
        self.is_distrusted.store(true, Ordering::Release);
    }

    /// Nothing is remembered of what documents are called.
    pub fn forget_names(&self) {
        self.names.clear();
    }

    /// Answers all that wait that it cannot be done.
    pub fn give_up(&self, error: &DocumentsError) {
        for pending in self.schedule().drain() {
            let error = error.clone();
            _ = pending.reply.send(Err(Refusal { place: 0, error }));
        }
    }

    /// The same for good: nobody works here any more.
    pub fn close(&self, error: &DocumentsError) {
        {
            let _schedule = self.schedule();
            self.is_closed.store(true, Ordering::Release);
        }
        self.give_up(error);
    }

    /// Carries out group after group, as the owner with this epoch, until it is `ending`.
    ///
    /// # Errors
    /// [`Ended`]; what waits waits on.
    pub async fn work(
        &self,
        session: &Session,
        epoch: i64,
        mut ending: watch::Receiver<bool>,
    ) -> Result<(), Ended> {
        while !*ending.borrow() {
            let turn = match self.config.group_max {
                // Writes that are not done together do not wait for each other either.
                0 | 1 => None,
                _ => Some(self.looking.lock().await),
            };
            if self.is_distrusted.load(Ordering::Acquire) {
                return Err(Ended::Session(DocumentsError::Unreachable));
            }
            let mut group = self.schedule().take(self.config.group_max as usize);
            if group.is_empty() {
                drop(turn);
                tokio::select! {
                    () = self.work.notified() => {}
                    _ = ending.changed() => {}
                }
                continue;
            }
            // What is begun waits no longer.
            group.iter_mut().for_each(|taken| taken.write.place = None);
            let weight: usize = group.iter().map(|taken| taken.weight).sum();
            self.metrics.group_writes.observe(weight as f64);
            for taken in &group {
                let waited = taken.write.since.elapsed();
                self.metrics.wait.observe(waited.as_secs_f64());
            }
            self.carry_out((session, epoch), group, turn).await?;
            self.work.notify_one();
        }
        Ok(())
    }

    async fn carry_out(
        &self,
        (session, epoch): (&Session, i64),
        mut group: Group,
        turn: Option<Turn<'_, ()>>,
    ) -> Result<(), Ended> {
        if let Some(alone) = group.first_mut().and_then(|taken| taken.write.alone.take()) {
            let (ends, ended) = oneshot::channel();
            if alone.send(Alone { epoch, _ends: ends }).is_ok() {
                // It is dropped: nothing is sent.
                let _ = ended.await;
            }
            group
                .into_iter()
                .for_each(|taken| self.schedule().release(taken.ticket));
            return Ok(());
        }
        let group = self.fit(group);
        let mut lookup = Lookup::default();
        let asked: Vec<&Asked> = group.iter().flat_map(|taken| &taken.write.asked).collect();
        group
            .iter()
            .for_each(|taken| lookup.add(&taken.write, &self.names));
        let begun = Instant::now();
        let found = lookup.run(session, &asked).await;
        self.metrics.lookup.observe(begun.elapsed().as_secs_f64());
        let Found { met, answers } = match found {
            Ok(found) => found,
            Err(error) => {
                self.put_back(group);
                return Err(Ended::Session(error));
            }
        };
        let mut met = met.into_iter();
        let met_each = group
            .iter()
            .map(|taken| met.by_ref().take(taken.write.asked.len()).collect());
        let met_each: Vec<Vec<Met>> = met_each.collect();
        let met_each = met_each.into_iter().zip(answers).collect();
        let mut steps = self.claim(group, met_each);
        let undecided = steps.iter_mut().filter(|step| step.is_undecided());
        undecided.for_each(|step| self.decide(step));
        if let Err(error) = self.finish_deciding(session, &mut steps).await {
            self.put_back(steps.into_iter().map(|step| step.taken).collect());
            return Err(Ended::Session(error));
        }
        let (silent, writes): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| {
            step.is_silent() && !(self.lasting.is_behind() && step.rests_on_others())
        });
        self.finish(silent);
        if writes.is_empty() {
            return Ok(());
        }
        // Two large groups keep two sessions of the server busy; small ones had better become one.
        let weight: usize = writes.iter().map(|step| step.taken.weight).sum();
        let is_large = weight * 2 >= self.config.group_max as usize;
        let writing = match turn {
            Some(_) if !is_large => Some(self.writing.lock().await),
            _ => None,
        };
        drop(turn);
        self.work.notify_one();
        let written = self.write_parts(session, epoch, writes).await;
        drop(writing);
        written
    }

    /// Leaves those out that have to wait after all: they are about documents that others write.
    fn claim(&self, group: Group, met: Vec<(Vec<Met>, Option<Answered>)>) -> Vec<Step> {
        let mut schedule = self.schedule();
        let mut left = Vec::new();
        let found_out = group.iter().zip(&met).map(|(taken, (met, _))| {
            let mut more = Claims::default();
            for (asked, met) in taken.write.asked.iter().zip(met) {
                if let Some(present) = &met.present {
                    more.extend(asked.claims_of(present));
                }
            }
            (taken.ticket, more)
        });
        let found_out: Vec<(Ticket, Claims)> = found_out.collect();
        let had = schedule.claim(found_out.clone());
        let each = group.into_iter().zip(met).zip(found_out).zip(had);
        for (((taken, (met, answered)), (_, more)), is_had) in each {
            match is_had {
                true => left.push(Step::new(taken, met, answered)),
                false => {
                    self.metrics.deferred.inc();
                    schedule.put_back(taken, more);
                }
            }
        }
        left
    }

    fn decide(&self, step: &mut Step) {
        let asked = &step.taken.write.asked;
        match bundle::decide(asked, &step.met, || self.ids.next()) {
            Ok(fates) => step.fate = Fates::Write(fates),
            Err((place, verdict)) => {
                let error = refusal(&asked[place], verdict);
                step.refuse(place, error);
            }
        }
    }

    /// What takes more questions: whether what is to go may, and what follows from another identity. That runs alone: whoever has not yet what
    /// it takes waits once more.
    async fn finish_deciding(
        &self,
        session: &Session,
        steps: &mut Vec<Step>,
    ) -> Result<(), DocumentsError> {
        check_removals(session, &self.catalogue(), steps).await?;
        let is_rename = |step: &Step| matches!(&step.fate, Fates::Write(fates) if fates.contains(&Fate::Rename));
        let renames: Vec<Step> = steps.extract_if(.., |step| is_rename(step)).collect();
        for mut step in renames {
            if !self.schedule().has_everything(step.taken.ticket) {
                self.schedule().put_back(step.taken, Claims::everything());
                continue;
            }
            let asked = &step.taken.write.asked[0];
            match rename::cascade(
                session,
                &self.catalogue(),
                asked,
                &step.met[0],
                self.config.cascade_max,
            )
            .await
            {
                Ok(all) => step.fate = Fates::Move(all),
                Err(error) if error.is_of_session() => {
                    self.put_back(vec![step.taken]);
                    return Err(error);
                }
                Err(error) => step.refuse(0, error),
            }
            steps.push(step);
        }
        Ok(())
    }

    pub(super) fn put_back(&self, group: Group) {
        let mut schedule = self.schedule();
        for taken in group {
            schedule.put_back(taken, Claims::default());
        }
    }
}

async fn answered(answer: oneshot::Receiver<Told>) -> Told {
    let stopping = Refusal {
        place: 0,
        error: DocumentsError::Stopping,
    };
    answer.await.unwrap_or(Err(stopping))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
