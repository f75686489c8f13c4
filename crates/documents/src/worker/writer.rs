//! Carries out writes: those that came while the last group was on its way are the next one.
//!
//! As many groups run side by side as there are sessions. Each looks up what is there, decides, and writes what differs by one statement,
//! which is its own transaction. Nobody is told before that has committed, and what a write claims is its own until then.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot, watch};

use super::ids::Ids;
use super::lookup::{Lookup, Met};
use super::names::Names;
use super::session::Session;
use super::step::{Fate, Step, check_removals};
use crate::config::DocumentsConfig;
use crate::core::group::Asked;
use crate::core::schedule::{Claims, Schedule, Taken};
use crate::error::DocumentsError;
use crate::metrics::Metrics;
use crate::model::Written;
use crate::store::write::Writes;

/// A write that waits for its answer.
pub struct Pending {
    /// It.
    pub asked: Asked,
    /// Who waits.
    pub reply: oneshot::Sender<Result<Written, DocumentsError>>,
}

type Group = Vec<Taken<Pending>>;

/// See the module.
pub struct Writer {
    config: DocumentsConfig,
    metrics: Metrics,
    names: Names,
    ids: Ids,
    schedule: Mutex<Schedule<Pending>>,
    /// Something waits, or has ended.
    work: Notify,
    /// The number of the last group.
    groups: AtomicI64,
}

/// What ends the work of a session.
pub enum Ended {
    /// It is of no use any more. Nothing is left of what it did.
    Session(DocumentsError),
    /// The same, and it is not known whether this has been written: by the number of the group.
    Unknown(i64, Vec<Step>),
}

impl Writer {
    /// One in which nothing waits.
    pub fn new(config: DocumentsConfig, metrics: Metrics, ids: Ids) -> Self {
        Self {
            names: Names::new(config.names_max),
            config,
            metrics,
            ids,
            schedule: Mutex::default(),
            work: Notify::new(),
            groups: AtomicI64::new(0),
        }
    }

    /// Has a write done.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn write(&self, asked: Asked) -> Result<Written, DocumentsError> {
        let (reply, answer) = oneshot::channel();
        let claims = asked.claims();
        {
            let mut schedule = self.schedule();
            if schedule.waiting() >= self.config.waiting_max as usize {
                return Err(DocumentsError::Overloaded {
                    waiting_max: self.config.waiting_max,
                });
            }
            schedule.push(claims, Pending { asked, reply });
        }
        self.work.notify_one();
        answer.await.unwrap_or(Err(DocumentsError::Stopping))
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule<Pending>> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes go on from here: in a database that has documents up to this number, and that another Egret may have written to.
    pub fn begin(&self, number: i64) {
        self.ids.begin_after(number);
        self.names.clear();
    }

    /// Answers all that wait that it cannot be done.
    pub fn give_up(&self, error: &DocumentsError) {
        for pending in self.schedule().drain() {
            _ = pending.reply.send(Err(error.clone()));
        }
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
            let group = self.schedule().take(self.config.group_max as usize);
            if group.is_empty() {
                tokio::select! {
                    () = self.work.notified() => {}
                    _ = ending.changed() => {}
                }
                continue;
            }
            self.metrics.group_writes.observe(group.len() as f64);
            // Another session may find more.
            self.work.notify_one();
            self.carry_out(session, epoch, group).await?;
            self.work.notify_one();
        }
        Ok(())
    }

    async fn carry_out(&self, session: &Session, epoch: i64, group: Group) -> Result<(), Ended> {
        let mut lookup = Lookup::default();
        for taken in &group {
            lookup.add(&taken.write.asked, &self.names);
        }
        let asked: Vec<&Asked> = group.iter().map(|taken| &taken.write.asked).collect();
        let met = match lookup.run(session, &asked).await {
            Ok(met) => met,
            Err(error) => {
                self.put_back(group);
                return Err(Ended::Session(error));
            }
        };
        let (group, met) = self.claim(group, met);
        let steps = group.into_iter().zip(met);
        let mut steps: Vec<Step> = steps
            .map(|(taken, met)| Step::decide(taken, met, &self.ids))
            .collect();
        if let Err(error) = check_removals(session, &mut steps).await {
            self.put_back(steps.into_iter().map(|step| step.taken).collect());
            return Err(Ended::Session(error));
        }
        let (told, writes) = steps
            .into_iter()
            .partition(|step| matches!(step.fate, Fate::Told(_)));
        self.finish(told);
        self.write_parts(session, epoch, writes).await
    }

    /// Leaves those out that have to wait after all: they are about documents that others write.
    fn claim(&self, group: Group, met: Vec<Met>) -> (Group, Vec<Met>) {
        let mut schedule = self.schedule();
        let mut left = (Group::new(), Vec::new());
        for (taken, met) in group.into_iter().zip(met) {
            let present = met.present.as_ref();
            let more = present.map(|present| taken.write.asked.claims_of(present));
            let more = more.unwrap_or_default();
            match schedule.claim(taken.ticket, more.clone()) {
                true => {
                    left.0.push(taken);
                    left.1.push(met);
                }
                false => schedule.put_back(taken, more),
            }
        }
        left
    }

    fn put_back(&self, group: Group) {
        let mut schedule = self.schedule();
        for taken in group {
            schedule.put_back(taken, Claims::default());
        }
    }

    /// Writes all, or where the server refuses that, half of them and the other half: in the end only those are not done that it refuses by
    /// themselves.
    async fn write_parts(
        &self,
        session: &Session,
        epoch: i64,
        steps: Vec<Step>,
    ) -> Result<(), Ended> {
        let mut parts = vec![steps];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let mut writes = Writes::default();
            part.iter().for_each(|step| step.write(&mut writes));
            let group = self.groups.fetch_add(1, Ordering::Relaxed) + 1;
            match session.write(&writes, (epoch, group)).await {
                Ok(_) => self.finish(part),
                Err(error) if error.is_of_session() => {
                    let left = parts.into_iter().flatten().map(|step| step.taken);
                    self.put_back(left.collect());
                    return Err(Ended::Unknown(group, part));
                }
                Err(_) if part.len() > 1 => {
                    let other = part.split_off(part.len() / 2);
                    parts.extend([other, part]);
                }
                Err(error) => {
                    part.iter_mut()
                        .for_each(|step| step.fate = Fate::Told(Err(error.clone())));
                    self.finish(part);
                }
            }
        }
        Ok(())
    }

    /// What was not known has been found out: it was written, or it is to be done again.
    pub fn found_out(&self, steps: Vec<Step>, was_written: bool) {
        match was_written {
            true => self.finish(steps),
            false => self.put_back(steps.into_iter().map(|step| step.taken).collect()),
        }
        self.work.notify_one();
    }

    /// Tells those who wait, and gives up what was claimed.
    fn finish(&self, steps: Vec<Step>) {
        let done: Vec<_> = steps
            .into_iter()
            .map(|step| step.committed(&self.names))
            .collect();
        let mut schedule = self.schedule();
        for (taken, told) in done {
            schedule.release(taken.ticket);
            self.metrics.count(&told);
            _ = taken.write.reply.send(told);
        }
    }
}
