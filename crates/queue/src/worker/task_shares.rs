//! Limits on the tasks of a partition, in total and by tenant.

use std::path::Path;

use egret_base::{Limit, LimitExceeded, TenantShare};

use crate::config::QueueConfig;
use crate::core::state::{State, TaskLoad};

/// Limits on the tasks of a partition and on their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskShares {
    pub tasks: TenantShare,
    pub bytes: TenantShare,
}

impl TaskShares {
    /// Checks whether the tenant of a queue may have an additional load.
    ///
    /// # Errors
    /// The limit in its way.
    pub(crate) fn check(
        &self,
        state: &State,
        queue: u32,
        added_load: TaskLoad,
    ) -> Result<(), LimitExceeded> {
        let (all, own) = (state.total_load(), state.queue_tenant_load(queue));
        self.tasks.check(all.tasks, own.tasks, added_load.tasks)?;
        self.bytes.check(all.bytes, own.bytes, added_load.bytes)
    }
}

/// Maximum number of tasks of a partition: the rows of its tables have 32-bit numbers.
const TASKS_MAX: u64 = 1 << 31;

/// Limits for each of `partitions`, in total and for one tenant.
pub(crate) fn task_shares(
    config: &QueueConfig,
    partitions: usize,
    volume_bytes: u64,
) -> TaskShares {
    let partitions = partitions as u64;
    let part = |tasks: u64| (tasks / partitions).clamp(1, TASKS_MAX);
    let tenant_tasks_max = match config.tenant_tasks_max {
        0 => 0,
        max => part(max),
    };
    let bytes = match config.tasks_bytes_max.bytes() {
        0 => volume_bytes,
        max => max,
    };
    let part_bytes = |bytes: u64| (bytes / partitions).max(1);
    let tenant_bytes_max = match config.tenant_tasks_bytes_max.bytes() {
        0 => 0,
        max => part_bytes(max),
    };
    TaskShares {
        tasks: TenantShare::new(
            Limit::new("queue.tasks_max", part(config.tasks_max)),
            Limit::new("queue.tenant_tasks_max", tenant_tasks_max),
        ),
        bytes: TenantShare::new(
            Limit::new("queue.tasks_bytes_max", part_bytes(bytes)),
            Limit::new("queue.tenant_tasks_bytes_max", tenant_bytes_max),
        ),
    }
}

/// Size of the file system that contains a directory; the largest number if it is unknown.
pub(crate) fn volume_bytes(directory: &Path) -> u64 {
    let volume = rustix::fs::statvfs(directory);
    volume.map_or(u64::MAX, |volume| volume.f_blocks.saturating_mul(volume.f_frsize))
}
