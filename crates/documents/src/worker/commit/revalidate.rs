//! Writes that were validated under a definition that has changed since.

use std::sync::Arc;

use super::in_flight::InFlightWrite;
use super::writer::Writer;
use crate::core::write::WriteRequest;

impl Writer {
    /// Filters out writes that were validated under an outdated definition: they are validated
    /// under the current one and put back with their new lock set.
    pub(super) fn revalidate(&self, group: Vec<InFlightWrite>) -> Vec<InFlightWrite> {
        let catalogue = self.catalogue();
        let is_current = |request: &WriteRequest| {
            let current = catalogue.by_id(request.declared.id);
            current.is_none_or(|current| Arc::ptr_eq(&current, &request.declared))
        };
        let (valid, outdated): (Vec<InFlightWrite>, Vec<InFlightWrite>) =
            group.into_iter().partition(|write| write.queued.requests.iter().all(is_current));
        for mut write in outdated {
            let mut requests = write.queued.requests.iter_mut().enumerate();
            let failed = requests.find_map(|(index, request)| {
                let current = catalogue.by_id(request.declared.id)?;
                let error = request.revalidate(current).err()?;
                Some((index, error))
            });
            match failed {
                None => {
                    let locks = write.queued.lock_set();
                    self.admission.put_back_with_locks(write, locks);
                }
                Some((index, error)) => {
                    write.reject(index, error);
                    self.reply(vec![write]);
                }
            }
        }
        valid
    }
}
