//! Writes that came when collections had other definitions.

use std::sync::Arc;

use super::step::{Refusal, claims};
use super::writer::{Group, Writer};
use crate::core::group::Asked;

impl Writer {
    /// What was asked for when collections had other definitions is read anew, and comes again with what it claims now.
    pub(super) fn fit(&self, group: Group) -> Group {
        let catalogue = self.catalogue();
        let is_current = |asked: &Asked| {
            let current = catalogue.by_id(asked.declared.id);
            current.is_none_or(|current| Arc::ptr_eq(&current, &asked.declared))
        };
        let (fitting, stale): (Group, Group) = group
            .into_iter()
            .partition(|taken| taken.write.asked.iter().all(is_current));
        for mut taken in stale {
            let asked = taken.write.asked.iter_mut();
            let read = asked.enumerate().try_for_each(|(place, asked)| {
                let current = catalogue.by_id(asked.declared.id);
                let read = current.map_or(Ok(()), |current| asked.reread(current));
                read.map_err(|error| Refusal { place, error })
            });
            let mut schedule = self.schedule();
            match read {
                Ok(()) => {
                    let claims = claims(&taken.write.asked, taken.write.manner);
                    schedule.put_back(taken, claims);
                }
                Err(refusal) => {
                    schedule.release(taken.ticket);
                    self.metrics.count(Err(&refusal.error));
                    _ = taken.write.reply.send(Err(refusal));
                }
            }
        }
        fitting
    }
}
