//! Repairs a shard whose log is damaged, at the start, as `egret repair` does: records that are
//! whole are kept, and the shard takes samples. What was there stays beside it.
//!
//! Only damage of records is repaired. A log that is missing, too short, without its end mark or
//! that of another shard may come back: a file system that is not mounted.

use egret_base::Condition;
use egret_base::sync::{lock, write_lock};
use egret_log::{FileLog, KnownLogs};

use super::io_error;
use super::shard::Shard;
use super::upkeep::ShardHandle;
use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::repair;

/// A shard that was repaired at this start.
#[derive(Debug)]
pub(crate) struct RepairedShard {
    pub shard: u16,
    /// Lasts until the next start.
    _condition: Condition,
}

impl EngineInner {
    /// Repairs a shard that could not be opened, and opens it again.
    ///
    /// # Errors
    /// The error that it is given, unless a record is damaged and could be repaired; else the one
    /// of opening it again.
    pub(super) fn open_repaired_shard(
        &self,
        number: usize,
        count: usize,
        error: SeriesError,
    ) -> Result<(Shard<FileLog>, ShardHandle), SeriesError> {
        if !matches!(&error, SeriesError::Log(error) if error.is_damaged_record()) {
            return Err(error);
        }
        self.forget_series(number as u16);
        let name = format!("{number:03}");
        let stamp = self.repair_stamp();
        let finding = match repair::repair(&self.directory, &name, &stamp) {
            Ok(Some(finding)) => finding,
            Ok(None) => return Err(error),
            Err(failure) => {
                tracing::warn!(shard = number, %failure, "cannot repair a damaged shard");
                return Err(error);
            }
        };
        let known_logs = KnownLogs::read(&self.directory, count, false)
            .map_err(io_error("reading", &self.directory))?;
        let opened = self.open_shard(number, count, known_logs.log(number))?;
        let reason = format!(
            "{}: {}; lost: {}; series/{name}.damaged-{stamp} is the shard as it was",
            finding.problem, finding.action, finding.loss
        );
        let condition = Condition::new("series_shard_repaired", format!("shard {number}"));
        condition.fail(reason, "the log of a shard of the series was damaged and was repaired");
        let repaired = RepairedShard { shard: number as u16, _condition: condition };
        lock(&self.repaired_shards).push(repaired);
        Ok(opened)
    }

    /// Takes out the keys that a shard had added before it failed.
    fn forget_series(&self, shard: u16) {
        let mut keys = write_lock(&self.series_keys);
        let mut next_slot = 0;
        while next_slot < keys.capacity() {
            next_slot = keys.remove_from_page(next_slot, |series_ref| series_ref.shard == shard);
        }
    }

    /// The time, as the names of damaged parts have it.
    fn repair_stamp(&self) -> String {
        let now = self.clock.now().to_string();
        let seconds = now.split('.').next().unwrap_or_default();
        seconds.replace(['-', ':'], "").trim_end_matches('Z').to_owned() + "Z"
    }
}

#[cfg(test)]
mod tests;
