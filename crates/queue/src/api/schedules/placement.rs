//! Placement of schedules: each lives in the partition of its tasks, and moves when that changes.

use bytes::Bytes;
use egret_base::sync::lock;
use egret_base::{CronSchedule, Limit, TenantShare, condition};
use egret_log::Seq;

use super::{NewSchedule, ScheduleView, check, not_found};
use crate::core::command::{Command, PutSchedule, Refusal};
use crate::core::state::{ScheduleKey, TaskLoad};
use crate::error::QueueError;
use crate::model::SHARD_BITS;
use crate::store::schedule::{Description, put_ms};
use crate::worker::engine_state::run_to_completion;
use crate::worker::enqueues::{Enqueues, encode_task};
use crate::worker::queue_handle::QueueHandle;
use crate::worker::queues::Queues;
use crate::worker::schedule_locations::ScheduleLocation;
use crate::worker::schedule_runner::tick_after;
use crate::worker::submission::{Item, slice};

/// Schedules deleted in one turn.
const DELETES_PER_TURN: usize = 500;

/// How long a schedule that moves waits until its former copy is deleted, in milliseconds. After a
/// failure in between it ticks from then on.
const MOVE_WAIT_MS: u64 = 60_000;

/// A schedule that is validated and encoded.
struct EncodedSchedule {
    tenant: String,
    name: String,
    cron_schedule: CronSchedule,
    paused: bool,
    item: Item,
    bytes: Vec<u8>,
}

impl Queues {
    /// Creates a schedule, or replaces the one of this name. Ticks that have come before belong to
    /// the replaced schedule; those that it has not turned into tasks are dropped. Only a tick that
    /// waits for room keeps waiting and makes a task of the new schedule, unless that is paused or
    /// moves to another partition.
    ///
    /// # Errors
    /// [`QueueError::Invalid`], [`QueueError::QueueNotFound`], [`QueueError::Limit`]. When a
    /// schedule moves to another partition, with its ordering key, and the move fails half-way,
    /// either the former or the new one remains; to put it again completes the move.
    pub async fn put_schedule(
        &self,
        tenant: &str,
        schedule: &NewSchedule<'_>,
    ) -> Result<ScheduleView, QueueError> {
        check(schedule)?;
        let cron_schedule = CronSchedule::parse_strict(schedule.cron, schedule.time_zone)?;
        let now_ms = self.inner.clock.now().as_millis_unsigned();
        if cron_schedule.next_after(now_ms).is_none() {
            return Err(QueueError::Invalid {
                what: "cron",
                reason: format!(
                    "`{}` never runs: none of its months has such a day",
                    schedule.cron
                ),
            });
        }
        let queue = self.get_or_create_queue(tenant, schedule.queue).await?;
        let definition_guard = self.inner.definition_lock.clone().lock_owned().await;
        let (known_location, counts) = {
            let locations = lock(&self.inner.schedules);
            let location = locations.get(&ScheduleKey::new(tenant, schedule.name));
            let tenant_count = locations.keys().filter(|key| *key.tenant == *tenant).count();
            (location.cloned(), (locations.len() as u64, tenant_count as u64))
        };
        if known_location.is_none() {
            let config = &self.inner.config;
            let share = TenantShare::new(
                Limit::new("queue.schedules_max", u64::from(config.schedules_max)),
                Limit::new("queue.tenant_schedules_max", u64::from(config.tenant_schedules_max)),
            );
            share.check(counts.0, counts.1, 1)?;
        }
        let previous_partitions: Vec<usize> = known_location
            .iter()
            .flat_map(|place| [place.partition].into_iter().chain(place.duplicates.clone()))
            .collect();
        let encoded = self
            .encode_schedule(tenant, schedule, cron_schedule, &queue, &previous_partitions)
            .await?;
        let partition = self.inner.partition_of(encoded.item.shard)?;
        let queues = self.clone();
        run_to_completion(async move {
            let _definition_guard = definition_guard;
            let others = previous_partitions.into_iter().filter(|other| *other != partition);
            queues.place_schedule(partition, encoded, others.collect()).await
        })
        .await?;
        self.schedule(tenant, schedule.name).await
    }

    async fn encode_schedule(
        &self,
        tenant: &str,
        schedule: &NewSchedule<'_>,
        cron_schedule: CronSchedule,
        queue: &QueueHandle,
        previous_partitions: &[usize],
    ) -> Result<EncodedSchedule, QueueError> {
        let mut put_ms = self.inner.clock.now().as_millis_unsigned();
        for partition in previous_partitions {
            let previous_put_ms = self.query_put_ms(*partition, tenant, schedule.name).await;
            put_ms = put_ms.max(previous_put_ms + 1);
        }
        let mut item = Enqueues::new(self)?.check_task(0, queue, &schedule.task)?;
        if item.key == 0 {
            // Sharded by name, so that a replaced schedule stays in its partition.
            let hash = crate::worker::enqueues::key_hash(3, 0, &[tenant, schedule.name]);
            item.shard = (hash >> 64) as u16 & ((1 << SHARD_BITS) - 1);
        }
        let description = Description {
            cron: schedule.cron,
            time_zone: schedule.time_zone,
            missed: schedule.missed,
            put_ms,
        };
        let mut bytes = Vec::new();
        let item = encode_task(item, &schedule.task, &description.encode(), &mut bytes);
        Ok(EncodedSchedule {
            tenant: tenant.to_owned(),
            name: schedule.name.to_owned(),
            cron_schedule,
            paused: schedule.paused,
            item,
            bytes,
        })
    }

    /// When the schedule of this name was put in a partition; 0 if there is none or its record
    /// cannot be read.
    async fn query_put_ms(&self, partition: usize, tenant: &str, name: &str) -> u64 {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let reply = self.inner.run_in_turn(partition, move |turn| {
            let schedule = turn.state.schedule(&tenant, &name);
            schedule.map(|schedule| schedule.record)
        });
        match reply.await {
            Ok(Some(record)) => match self.read_record(partition, record).await {
                Ok(bytes) => put_ms(&bytes),
                Err(_) => 0,
            },
            _ => 0,
        }
    }

    pub(crate) async fn read_record(
        &self,
        partition: usize,
        record: u64,
    ) -> Result<Bytes, QueueError> {
        let shared = self.inner.partitions()?[partition].clone();
        let read = tokio::task::spawn_blocking(move || (shared.read_record)(Seq(record)));
        Ok(read.await.map_err(|_| QueueError::Stopping)??)
    }

    /// Writes a schedule to its partition, then deletes it from the others. A crash in between
    /// leaves two copies, of which the next start deletes the earlier one.
    async fn place_schedule(
        &self,
        partition: usize,
        put: EncodedSchedule,
        other_partitions: Vec<usize>,
    ) -> Result<(), QueueError> {
        let key = ScheduleKey::new(&put.tenant, &put.name);
        let mut is_move = false;
        if let Some(location) = lock(&self.inner.schedules).get_mut(&key) {
            is_move = location.partition != partition;
            if is_move && !location.duplicates.contains(&partition) {
                location.duplicates.push(partition);
            }
        }
        // While another copy still ticks, this one waits.
        let wait_ms = if other_partitions.is_empty() { 0 } else { MOVE_WAIT_MS };
        let (tenant, name) = (put.tenant.clone(), put.name.clone());
        let (cron_schedule, paused) = (put.cron_schedule.clone(), put.paused);
        self.write_schedule(partition, put, wait_ms).await?;
        let mut ticked_until_ms = 0;
        for other in &other_partitions {
            match self.remove_schedule(*other, &tenant, &name).await {
                Ok(dropped_ms) => ticked_until_ms = ticked_until_ms.max(dropped_ms),
                // The former copy stays in force, so the new one is deleted again.
                Err(error) if is_move => {
                    if let Err(error) = self.remove_schedule(partition, &tenant, &name).await {
                        let reason = format_args!("{name} of tenant {tenant}: {error}");
                        let message = "cannot remove a duplicate of a schedule; it stays until the schedule is put or deleted";
                        condition::occur("queue_changes_incomplete", "schedules", reason, message);
                    }
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        lock(&self.inner.schedules).insert(key, ScheduleLocation::new(partition));
        if other_partitions.is_empty() {
            return Ok(());
        }
        let reply = self.inner.run_in_turn(partition, move |turn| {
            turn.run(&Command::PauseSchedule {
                tenant: &tenant,
                name: &name,
                paused,
                next_ms: tick_after(&cron_schedule, ticked_until_ms),
            })
        });
        Ok(reply.await??)
    }

    async fn write_schedule(
        &self,
        partition: usize,
        put: EncodedSchedule,
        wait_ms: u64,
    ) -> Result<(), QueueError> {
        let shares = *self.inner.task_shares(self.inner.partitions()?.len());
        let reply = self.inner.run_in_turn(partition, move |turn| {
            debug_assert_eq!(slice(&put.bytes, &put.item.after), b"");
            let former = turn.state.schedule(&put.tenant, &put.name);
            let freed_bytes = former.map_or(0, |former| turn.state.freeable_schedule_bytes(former));
            // The bytes of the replaced record are freed unless tasks share it. A schedule that
            // does not grow is not checked against limits.
            let added_load =
                TaskLoad { tasks: 0, bytes: put.item.record_bytes().saturating_sub(freed_bytes) };
            if added_load.bytes > 0 {
                shares.check(turn.state, put.item.queue, added_load)?;
            }
            // Ticks up to now were processed earlier in this turn, by the replaced schedule.
            let now_ms = turn.now.as_millis_unsigned();
            let next_ms = match former {
                Some(former) if former.waits_for_room() && !put.paused && wait_ms == 0 => {
                    former.next_ms
                }
                _ => tick_after(&put.cron_schedule, now_ms + wait_ms),
            };
            turn.run(&Command::PutSchedule(PutSchedule {
                tenant: &put.tenant,
                name: &put.name,
                next_ms,
                paused: put.paused,
                task: put.item.as_command(&put.bytes),
            }))?;
            Ok::<_, QueueError>(())
        });
        reply.await?
    }

    /// Deletes a schedule from a partition, if it is there. Returns the time up to which it has
    /// ticked there, in Unix milliseconds.
    pub(crate) async fn remove_schedule(
        &self,
        partition: usize,
        tenant: &str,
        name: &str,
    ) -> Result<u64, QueueError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let reply = self.inner.run_in_turn(partition, move |turn| {
            let dropped = turn.run(&Command::DeleteSchedule { tenant: &tenant, name: &name });
            match dropped {
                Ok(()) | Err(Refusal::ScheduleUnknown) => Ok(turn.now.as_millis_unsigned()),
                Err(refusal) => Err(refusal),
            }
        });
        Ok(reply.await??)
    }

    pub(crate) fn schedule_location(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<ScheduleLocation, QueueError> {
        self.inner.partitions()?;
        let locations = lock(&self.inner.schedules);
        if let Some(location) = locations.get(&ScheduleKey::new(tenant, name)) {
            return Ok(location.clone());
        }
        // A failed partition may have it.
        self.inner.require_all_running()?;
        Err(not_found(name))
    }

    /// How many schedules make tasks for a queue.
    pub(crate) async fn count_schedules_of_queue(&self, queue: u32) -> Result<u64, QueueError> {
        let mut count = 0;
        for partition in 0..self.inner.partitions()?.len() {
            let reply = self.inner.run_in_turn(partition, move |turn| {
                let schedules = turn.state.schedules();
                schedules.filter(|(_, _, schedule)| schedule.queue == queue).count() as u64
            });
            count += reply.await?;
        }
        Ok(count)
    }

    /// Deletes the schedules that make tasks for a queue.
    pub(crate) async fn delete_schedules_of_queue(&self, queue: u32) -> Result<(), QueueError> {
        for partition in 0..self.inner.partitions()?.len() {
            loop {
                let reply = self.inner.run_in_turn(partition, move |turn| {
                    let schedules = turn.state.schedules();
                    let of_queue = schedules.filter(|(_, _, it)| it.queue == queue);
                    let keys: Vec<ScheduleKey> = of_queue
                        .map(|(tenant, name, _)| ScheduleKey::new(tenant, name))
                        .take(DELETES_PER_TURN)
                        .collect();
                    for ScheduleKey { tenant, name } in &keys {
                        let deleted = turn.run(&Command::DeleteSchedule { tenant, name });
                        debug_assert!(deleted.is_ok(), "the schedule was just there");
                    }
                    keys
                });
                let keys = reply.await?;
                if keys.is_empty() {
                    break;
                }
                let mut locations = lock(&self.inner.schedules);
                for key in keys {
                    if locations.get(&key).is_some_and(|location| location.partition == partition) {
                        locations.remove(&key);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
