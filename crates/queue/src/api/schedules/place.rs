//! Where schedules are: each in the partition of its tasks, to which it moves when that changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use egret_base::{Rhythm, TenantShare, condition};
use egret_log::Seq;

use super::{Description, NewSchedule, ScheduleView, check, not_found};
use crate::api::produce::{Enqueues, lay_out};
use crate::api::submit::{Item, slice};
use crate::api::{QueueHandle, Queues, lock, unbroken};
use crate::core::command::{Command, PutSchedule, Refusal};
use crate::core::state::TaskLoad;
use crate::error::QueueError;
use crate::model::SHARD_BITS;
use crate::store::{content, record};
use crate::worker::ticks::tick_after;

/// Schedules deleted in one turn.
const DELETED_AT_ONCE: usize = 500;

/// How long a schedule that moves waits for the one before to be gone, in milliseconds: after a failure
/// in between it goes on then.
const MOVE_MS: u64 = 60_000;

/// Where a schedule is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The partition of the one that counts.
    pub at: usize,
    /// Partitions that may have another one, of a move that has not come to its end.
    pub also: Vec<usize>,
}

impl Place {
    pub fn at(partition: usize) -> Self {
        Self {
            at: partition,
            also: Vec::new(),
        }
    }
}

/// Partitions of schedules, by tenant and name.
pub(crate) type Places = BTreeMap<(Box<str>, Box<str>), Place>;

/// A schedule that is checked and laid out.
struct Prepared {
    tenant: String,
    name: String,
    rhythm: Rhythm,
    paused: bool,
    item: Item,
    bytes: Vec<u8>,
}

impl Queues {
    /// Makes a schedule, or replaces the one of this name. Ticks that have come before are those of the
    /// one before; what it has not made by then, it does not make any more. Only a tick that waits for room goes on
    /// waiting, and makes a task of the new one, unless that rests or moves to another partition.
    ///
    /// # Errors
    /// [`QueueError::Invalid`], [`QueueError::QueueNotFound`], [`QueueError::Limit`]. When a schedule
    /// moves to another partition, with its ordering key, and that fails half-way, the one before or the
    /// new one is there; to put it again completes it.
    pub async fn put_schedule(
        &self,
        tenant: &str,
        schedule: &NewSchedule<'_>,
    ) -> Result<ScheduleView, QueueError> {
        check(schedule)?;
        let rhythm = Rhythm::of_new(schedule.cron, schedule.time_zone)?;
        let now_ms = self.inner.clock.now().as_millis_unsigned();
        if rhythm.after(now_ms).is_none() {
            return Err(QueueError::Invalid {
                what: "cron",
                reason: format!(
                    "`{}` never comes: no month that it names has such a day",
                    schedule.cron
                ),
            });
        }
        let queue = self.queue(tenant, schedule.queue).await?;
        let one_at_a_time = self.inner.making.clone().lock_owned().await;
        let (known, count) = {
            let places = lock(&self.inner.schedules);
            let known = places.get(&(tenant.into(), schedule.name.into()));
            let own = places
                .keys()
                .filter(|(owner, _)| **owner == *tenant)
                .count();
            (known.cloned(), (places.len() as u64, own as u64))
        };
        if known.is_none() {
            let config = &self.inner.config;
            let share = TenantShare::new(
                ("queue.schedules_max", u64::from(config.schedules_max)),
                (
                    "queue.tenant_schedules_max",
                    u64::from(config.tenant_schedules_max),
                ),
            );
            share.check(count.0, count.1, 1)?;
        }
        let before = known
            .iter()
            .flat_map(|place| [place.at].into_iter().chain(place.also.clone()));
        let before: Vec<usize> = before.collect();
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
        rhythm: Rhythm,
        queue: &QueueHandle,
        before: &[usize],
    ) -> Result<Prepared, QueueError> {
        let mut put_ms = self.inner.clock.now().as_millis_unsigned();
        for partition in before {
            let known_ms = self.put_ms(*partition, tenant, schedule.name).await;
            put_ms = put_ms.max(known_ms + 1);
        }
        let mut item = Enqueues::new(self)?.check(0, queue, &schedule.task)?;
        if item.key == 0 {
            // By its name, so that it is found where it was.
            let hash = crate::api::produce::key_hash(3, 0, &[tenant, schedule.name]);
            item.shard = (hash >> 64) as u16 & ((1 << SHARD_BITS) - 1);
        }
        let description = Description {
            cron: schedule.cron,
            time_zone: schedule.time_zone,
            missed: schedule.missed,
            put_ms,
        };
        let mut bytes = Vec::new();
        let item = lay_out(item, &schedule.task, &description.put(), &mut bytes);
        Ok(Prepared {
            tenant: tenant.to_owned(),
            name: schedule.name.to_owned(),
            rhythm,
            paused: schedule.paused,
            item,
            bytes,
        })
    }

    /// When the schedule of this name was put that a partition has; 0 when it has none or cannot tell.
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

    pub(super) async fn read(&self, partition: usize, record: u64) -> Result<Bytes, QueueError> {
        let shared = self.inner.partitions()?[partition].clone();
        let read = tokio::task::spawn_blocking(move || (shared.read)(Seq(record)));
        Ok(read.await.map_err(|_| QueueError::Stopping)??)
    }

    /// Puts a schedule where it belongs, then takes it from where it was: a crash in between leaves two,
    /// of which the next start drops the earlier.
    async fn place(
        &self,
        partition: usize,
        put: Prepared,
        others: Vec<usize>,
    ) -> Result<(), QueueError> {
        let key = (put.tenant.as_str().into(), put.name.as_str().into());
        let mut moves = false;
        if let Some(place) = lock(&self.inner.schedules).get_mut(&key) {
            moves = place.at != partition;
            if moves && !place.also.contains(&partition) {
                place.also.push(partition);
            }
        }
        // Where another one still ticks, this one waits until that one is gone.
        let wait_ms = if others.is_empty() { 0 } else { MOVE_MS };
        let (tenant, name) = (put.tenant.clone(), put.name.clone());
        let (rhythm, paused) = (put.rhythm.clone(), put.paused);
        self.write(partition, put, wait_ms).await?;
        let mut gone_ms = 0;
        for other in &others {
            match self.drop_schedule(*other, &tenant, &name).await {
                Ok(dropped_ms) => gone_ms = gone_ms.max(dropped_ms),
                // The one before goes on. What is left of this one is known.
                Err(error) if moves => {
                    if let Err(error) = self.drop_schedule(partition, &tenant, &name).await {
                        let reason = format_args!("{name} of tenant {tenant}: {error}");
                        let message = "a schedule is there twice until it is put or deleted";
                        condition::occur("queue_changes_incomplete", "schedules", reason, message);
                    }
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        lock(&self.inner.schedules).insert(key, Place::at(partition));
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

    async fn write(&self, partition: usize, put: Prepared, wait_ms: u64) -> Result<(), QueueError> {
        let shares = *self.inner.task_shares(self.inner.partitions()?.len());
        let asked = self.inner.ask(partition, move |turn| {
            debug_assert_eq!(slice(&put.bytes, &put.item.after), b"");
            let former = turn.state.schedule(&put.tenant, &put.name);
            let freed_bytes = former.map_or(0, |former| turn.state.bytes_freed_with(former));
            // What it replaces goes, unless tasks are made of it: one that does not grow is no matter of any limit.
            let more = TaskLoad {
                tasks: 0,
                bytes: put.item.record_bytes().saturating_sub(freed_bytes),
            };
            if more.bytes > 0 {
                shares.check(turn.state, put.item.queue, more)?;
            }
            // What has come by now has been made before, by the one that is replaced.
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

    /// Takes a schedule from a partition; returns the time up to which it has ticked there, in Unix
    /// milliseconds. One that is not there is gone already.
    pub(super) async fn drop_schedule(
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

    pub(super) fn place_of_schedule(&self, tenant: &str, name: &str) -> Result<Place, QueueError> {
        self.inner.partitions()?;
        let known = lock(&self.inner.schedules);
        if let Some(found) = known.get(&(tenant.into(), name.into())) {
            return Ok(found.clone());
        }
        // One that has failed may have it.
        self.inner.require_all()?;
        Err(not_found(name))
    }

    /// How many schedules make tasks for a queue.
    pub(in crate::api) async fn count_schedules_of(&self, queue: u32) -> Result<u64, QueueError> {
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
    pub(in crate::api) async fn delete_schedules_of(&self, queue: u32) -> Result<(), QueueError> {
        for partition in 0..self.inner.partitions()?.len() {
            loop {
                let asked = self.inner.ask(partition, move |turn| {
                    let all = turn.state.schedules();
                    let of_queue = all.filter(|(_, _, it)| it.queue == queue);
                    let keys = of_queue.map(|(tenant, name, _)| (tenant.into(), name.into()));
                    let keys: Vec<(Box<str>, Box<str>)> = keys.take(DELETED_AT_ONCE).collect();
                    for (tenant, name) in &keys {
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

/// When a schedule was put, by its record.
pub(crate) fn put_ms(record: &[u8]) -> u64 {
    let Ok(Command::PutSchedule(put)) = record::decode(record) else {
        return 0;
    };
    let carried = content::take(put.task.content);
    carried.map_or(0, |carried| {
        let described = Description::take(carried.private.schedule);
        described.map_or(0, |described| described.put_ms)
    })
}

#[cfg(test)]
mod tests;
