//! Writes what has been decided: all of a group by one statement, or, where the server refuses that, part by part.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::session::Session;
use super::step::{Step, check_held};
use super::writer::{Ended, FoundOut, Unknown, Writer};
use crate::error::DocumentsError;
use crate::store::write::{Outcome, Writes};

/// How often a group is written again that the server gave up for the sake of another transaction.
const REPEATED_MAX: u32 = 5;

/// A group on its way to the database, part by part.
struct Parts {
    left: Vec<Vec<Step>>,
    /// How often the server has given one up.
    repeated: u32,
}

impl Writer {
    /// Writes all, or where the server refuses that, half of them and the other half: in the end only those are not done that it refuses by
    /// themselves.
    pub(super) async fn write_parts(
        &self,
        session: &Session,
        epoch: i64,
        steps: Vec<Step>,
    ) -> Result<(), Ended> {
        let mut parts = Parts {
            left: vec![steps],
            repeated: 0,
        };
        while let Some(part) = parts.left.pop() {
            if part.is_empty() {
                continue;
            }
            let mut writes = Writes::default();
            part.iter().for_each(|step| step.write(&mut writes));
            let group = self.groups.fetch_add(1, Ordering::Relaxed) + 1;
            let after = *self.reached.borrow();
            let begun = Instant::now();
            let written = session.write(&writes, (epoch, group)).await;
            self.metrics.write.observe(begun.elapsed().as_secs_f64());
            match written {
                Ok(Outcome::Written(position)) => {
                    self.lasting.note(position, writes.is_to_last());
                    self.finish(part);
                    self.reached.send_if_modified(|reached| {
                        let is_further = position > *reached;
                        *reached = position.max(*reached);
                        is_further
                    });
                }
                Ok(Outcome::Held(held)) => {
                    let held = self.hold(session, part, &held).await;
                    let (left, checked) = held;
                    parts.left.push(left);
                    if let Err(error) = checked {
                        return Err(self.end(parts, error));
                    }
                }
                Err(error) if error.is_of_another_owner() => {
                    parts.left.push(part);
                    return Err(self.end(parts, error));
                }
                Err(error) if error.is_of_session() => {
                    self.end(parts, error);
                    let steps = part;
                    return Err(Ended::Unknown(Unknown {
                        epoch,
                        group,
                        after,
                        steps,
                    }));
                }
                Err(error) => self.refused(&mut parts, part, &error),
            }
        }
        Ok(())
    }

    /// Others refer to documents that were to go. Gives what is still to be written.
    async fn hold(
        &self,
        session: &Session,
        mut part: Vec<Step>,
        held: &[i64],
    ) -> (Vec<Step>, Result<(), DocumentsError>) {
        let catalogue = self.catalogue();
        let checked = check_held(session, &catalogue, (&mut part, held)).await;
        let (silent, left) = part.into_iter().partition(Step::is_silent);
        self.finish(silent);
        (left, checked)
    }

    /// The server does not write a part: it is written again, or in two halves, or not at all.
    fn refused(&self, parts: &mut Parts, mut part: Vec<Step>, error: &DocumentsError) {
        if error.is_to_repeat() && parts.repeated < REPEATED_MAX {
            parts.repeated += 1;
            parts.left.push(part);
        } else if part.len() > 1 {
            self.metrics.halved.inc();
            let other = part.split_off(part.len() / 2);
            parts.left.extend([other, part]);
        } else {
            part.iter_mut()
                .for_each(|step| step.refuse_by_server(error));
            self.finish(part);
        }
    }

    /// The session is of no use any more: what has not been written waits again.
    fn end(&self, parts: Parts, error: DocumentsError) -> Ended {
        let left = parts.left.into_iter().flatten().map(|step| step.taken);
        self.put_back(left.collect());
        Ended::Session(error)
    }

    /// What was not known has been found out.
    pub fn found_out(&self, mut steps: Vec<Step>, outcome: FoundOut) {
        match outcome {
            FoundOut::Written => self.finish(steps),
            FoundOut::Lost => self.put_back(steps.into_iter().map(|step| step.taken).collect()),
            FoundOut::TooLate => {
                // Others have written meanwhile, and whoever asked may not want it any more.
                steps
                    .iter_mut()
                    .for_each(|step| step.refuse(0, DocumentsError::Unreachable));
                self.finish(steps);
            }
        }
        self.work.notify_one();
    }

    /// Tells those who wait, and gives up what was claimed.
    pub(super) fn finish(&self, steps: Vec<Step>) {
        let done: Vec<_> = steps
            .into_iter()
            .map(|step| step.committed(&self.names))
            .collect();
        let mut schedule = self.schedule();
        for (taken, told) in done {
            schedule.release(taken.ticket);
            match &told {
                Ok(written) => written.iter().for_each(|one| self.metrics.count(Ok(one))),
                Err(refusal) => self.metrics.count(Err(&refusal.error)),
            }
            _ = taken.write.reply.send(told);
        }
    }
}
