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
use crate::worker::engine_state::unbroken;
use crate::worker::enqueues::{Enqueues, encode_task};
use crate::worker::queue_handle::QueueHandle;
use crate::worker::queues::Queues;
use crate::worker::schedule_locations::ScheduleLocation;
use crate::worker::schedule_runner::tick_after;
use crate::worker::submission::{Item, slice};

/// Schedules deleted in one turn.
const DELETED_AT_ONCE: usize = 500;

/// How long a schedule that moves waits until its former copy is deleted, in milliseconds. After a
/// failure in between it ticks from then on.
const MOVE_MS: u64 = 60_000;

/// A schedule that is validated and encoded.
struct EncodedSchedule {
    tenant: String,
    name: String,
    rhythm: CronSchedule,
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
        let rhythm = CronSchedule::of_new(schedule.cron, schedule.time_zone)?;
        let now_ms = self.inner.clock.now().as_millis_unsigned();
        if rhythm.after(now_ms).is_none() {
            return Err(QueueError::Invalid {
                what: "cron",
                reason: format!(
                    "`{}` never runs: none of its months has such a day",
                    schedule.cron
                ),
            });
        }
        let queue = self.queue(tenant, schedule.queue).await?;
        let one_at_a_time = self.inner.making.clone().lock_owned().await;
        let (known, count) = {
            let places = lock(&self.inner.schedules);
            let known = places.get(&ScheduleKey::new(tenant, schedule.name));
            let own = places.keys().filter(|key| *key.tenant == *tenant).count();
            (known.cloned(), (places.len() as u64, own as u64))
        };
        if known.is_none() {
            let config = &self.inner.config;
            let share = TenantShare::new(
                Limit::new("queue.schedules_max", u64::from(config.schedules_max)),
                Limit::new(
                    "queue.tenant_schedules_max",
                    u64::from(config.tenant_schedules_max),
                ),
            );
            share.check(count.0, count.1, 1)?;
        }
        let before: Vec<usize> = known
            .iter()
            .flat_map(|place| [place.at].into_iter().chain(place.also.clone()))
            .collect();
        let prepared = self
            .prepare(tenant, schedule, rhythm, &queue, &before)
            .await?;
        let partition = self.inner.partition_of(prepared.item.shard)?;
        let queues = self.clone();
        unbroken(async move {
            let _one_at_a_time = one_at_a_time;
            let others = before.into_iter().filter(|other| *other != partition);
            queues.place(partition, prepared, others.collect()).await
        })
        .await?;
        self.schedule(tenant, schedule.name).await
    }

    async fn prepare(
        &self,
        tenant: &str,
        schedule: &NewSchedule<'_>,
        rhythm: CronSchedule,
        queue: &QueueHandle,
        before: &[usize],
    ) -> Result<EncodedSchedule, QueueError> {
        let mut put_ms = self.inner.clock.now().as_millis_unsigned();
        for partition in before {
            let known_ms = self.put_ms(*partition, tenant, schedule.name).await;
            put_ms = put_ms.max(known_ms + 1);
        }
        let mut item = Enqueues::new(self)?.check(0, queue, &schedule.task)?;
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
        let item = encode_task(item, &schedule.task, &description.put(), &mut bytes);
        Ok(EncodedSchedule {
            tenant: tenant.to_owned(),
            name: schedule.name.to_owned(),
            rhythm,
            paused: schedule.paused,
            item,
            bytes,
        })
    }

    /// When the schedule of this name was put in a partition; 0 if there is none or its record
    /// cannot be read.
    async fn put_ms(&self, partition: usize, tenant: &str, name: &str) -> u64 {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let asked = self.inner.ask(partition, move |turn| {
            let schedule = turn.state.schedule(&tenant, &name);
            schedule.map(|schedule| schedule.record)
        });
        match asked.await {
            Ok(Some(record)) => match self.read(partition, record).await {
                Ok(bytes) => put_ms(&bytes),
                Err(_) => 0,
            },
            _ => 0,
        }
    }

    pub(crate) async fn read(&self, partition: usize, record: u64) -> Result<Bytes, QueueError> {
        let shared = self.inner.partitions()?[partition].clone();
        let read = tokio::task::spawn_blocking(move || (shared.read)(Seq(record)));
        Ok(read.await.map_err(|_| QueueError::Stopping)??)
    }

    /// Writes a schedule to its partition, then deletes it from the others. A crash in between
    /// leaves two copies, of which the next start deletes the earlier one.
    async fn place(
        &self,
        partition: usize,
        put: EncodedSchedule,
        others: Vec<usize>,
    ) -> Result<(), QueueError> {
        let key = ScheduleKey::new(&put.tenant, &put.name);
        let mut moves = false;
        if let Some(place) = lock(&self.inner.schedules).get_mut(&key) {
            moves = place.at != partition;
            if moves && !place.also.contains(&partition) {
                place.also.push(partition);
            }
        }
        // While another copy still ticks, this one waits.
        let wait_ms = if others.is_empty() { 0 } else { MOVE_MS };
        let (tenant, name) = (put.tenant.clone(), put.name.clone());
        let (rhythm, paused) = (put.rhythm.clone(), put.paused);
        self.write(partition, put, wait_ms).await?;
        let mut gone_ms = 0;
        for other in &others {
            match self.drop_schedule(*other, &tenant, &name).await {
                Ok(dropped_ms) => gone_ms = gone_ms.max(dropped_ms),
                // The former copy stays in force, so the new one is deleted again.
                Err(error) if moves => {
                    if let Err(error) = self.drop_schedule(partition, &tenant, &name).await {
                        let reason = format_args!("{name} of tenant {tenant}: {error}");
                        let message = "cannot remove a duplicate of a schedule; it stays until the schedule is put or deleted";
                        condition::occur("queue_changes_incomplete", "schedules", reason, message);
                    }
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        lock(&self.inner.schedules).insert(key, ScheduleLocation::at(partition));
        if others.is_empty() {
            return Ok(());
        }
        let begun = self.inner.ask(partition, move |turn| {
            turn.run(&Command::PauseSchedule {
                tenant: &tenant,
                name: &name,
                paused,
                next_ms: tick_after(&rhythm, gone_ms),
            })
        });
        Ok(begun.await??)
    }

    async fn write(
        &self,
        partition: usize,
        put: EncodedSchedule,
        wait_ms: u64,
    ) -> Result<(), QueueError> {
        let shares = *self.inner.task_shares(self.inner.partitions()?.len());
        let asked = self.inner.ask(partition, move |turn| {
            debug_assert_eq!(slice(&put.bytes, &put.item.after), b"");
            let former = turn.state.schedule(&put.tenant, &put.name);
            let freed_bytes = former.map_or(0, |former| turn.state.bytes_freed_with(former));
            // The bytes of the replaced record are freed unless tasks share it. A schedule that
            // does not grow is not checked against limits.
            let more = TaskLoad {
                tasks: 0,
                bytes: put.item.record_bytes().saturating_sub(freed_bytes),
            };
            if more.bytes > 0 {
                shares.check(turn.state, put.item.queue, more)?;
            }
            // Ticks up to now were processed earlier in this turn, by the replaced schedule.
            let now_ms = turn.now.as_millis_unsigned();
            let next_ms = match former {
                Some(former) if former.waits_for_room() && !put.paused && wait_ms == 0 => {
                    former.next_ms
                }
                _ => tick_after(&put.rhythm, now_ms + wait_ms),
            };
            turn.run(&Command::PutSchedule(PutSchedule {
                tenant: &put.tenant,
                name: &put.name,
                next_ms,
                paused: put.paused,
                task: put.item.command(&put.bytes),
            }))?;
            Ok::<_, QueueError>(())
        });
        asked.await?
    }

    /// Deletes a schedule from a partition, if it is there. Returns the time up to which it has
    /// ticked there, in Unix milliseconds.
    pub(crate) async fn drop_schedule(
        &self,
        partition: usize,
        tenant: &str,
        name: &str,
    ) -> Result<u64, QueueError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let asked = self.inner.ask(partition, move |turn| {
            let dropped = turn.run(&Command::DeleteSchedule {
                tenant: &tenant,
                name: &name,
            });
            match dropped {
                Ok(()) | Err(Refusal::ScheduleUnknown) => Ok(turn.now.as_millis_unsigned()),
                Err(refusal) => Err(refusal),
            }
        });
        Ok(asked.await??)
    }

    pub(crate) fn place_of_schedule(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<ScheduleLocation, QueueError> {
        self.inner.partitions()?;
        let known = lock(&self.inner.schedules);
        if let Some(found) = known.get(&ScheduleKey::new(tenant, name)) {
            return Ok(found.clone());
        }
        // A failed partition may have it.
        self.inner.require_all()?;
        Err(not_found(name))
    }

    /// How many schedules make tasks for a queue.
    pub(crate) async fn count_schedules_of(&self, queue: u32) -> Result<u64, QueueError> {
        let mut count = 0;
        for partition in 0..self.inner.partitions()?.len() {
            let asked = self.inner.ask(partition, move |turn| {
                let all = turn.state.schedules();
                all.filter(|(_, _, it)| it.queue == queue).count() as u64
            });
            count += asked.await?;
        }
        Ok(count)
    }

    /// Deletes the schedules that make tasks for a queue.
    pub(crate) async fn delete_schedules_of(&self, queue: u32) -> Result<(), QueueError> {
        for partition in 0..self.inner.partitions()?.len() {
            loop {
                let asked = self.inner.ask(partition, move |turn| {
                    let all = turn.state.schedules();
                    let of_queue = all.filter(|(_, _, it)| it.queue == queue);
                    let keys: Vec<ScheduleKey> = of_queue
                        .map(|(tenant, name, _)| ScheduleKey::new(tenant, name))
                        .take(DELETED_AT_ONCE)
                        .collect();
                    for ScheduleKey { tenant, name } in &keys {
                        let deleted = turn.run(&Command::DeleteSchedule { tenant, name });
                        debug_assert!(deleted.is_ok(), "the schedule was just there");
                    }
                    keys
                });
                let keys = asked.await?;
                if keys.is_empty() {
                    break;
                }
                let mut places = lock(&self.inner.schedules);
                for key in keys {
                    if places.get(&key).is_some_and(|place| place.at == partition) {
                        places.remove(&key);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
