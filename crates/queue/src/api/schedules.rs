//! Schedules: a task per tick of a cron expression. A schedule lives in the partition of its tasks, so
//! that a tick and its task are one record: it comes exactly once.

use std::collections::BTreeMap;

use egret_log::Seq;

use super::produce::{Enqueues, NewTask, lay_out};
use super::submit::slice;
use super::{Queues, lock, unbroken};
use crate::core::command::{Command, PutSchedule};
use crate::core::state::Schedule;
use crate::error::QueueError;
use crate::model::{SHARD_BITS, TaskId, TaskOptions};
use crate::store::codec::{Malformed, Reader, put_bytes};
use crate::store::content::{self, Format};
use crate::store::record;
use crate::worker::ticks::{NEVER_MS, Rhythm};

/// Schedules of all tenants together.
const SCHEDULES_MAX: u64 = 10_000;

/// What becomes of ticks that were missed: Egret was down, stood still, could not read the schedule, or
/// had no room for more tasks (`queue.tasks_max`, or a full disk), and more than ten seconds have passed
/// since. A tick that is less late makes its task, and so does one for which Egret was only too busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// They are left out.
    #[default]
    Skip,
    /// One task stands for all of them: that of a tick that has just come, or one of its own.
    One,
    /// A task for each; of more than 1,000, which come at once, for the first 1,000.
    All,
}

/// A schedule to be made.
#[derive(Clone, Debug, Default)]
pub struct NewSchedule<'a> {
    /// Unique in the tenant.
    pub name: &'a str,
    /// Five fields (minute, hour, day of month, month, day of week), or six with seconds first.
    ///
    /// When clocks are changed: an expression whose hours, minutes and seconds are numbers or lists of
    /// numbers (`30 2 * * *`) is meant for a time of day. It ticks once in an hour that comes twice, the
    /// first time; and right after an hour that is left out. Any other (`*/10 * * * *`, `0 9-17 * * *`)
    /// ticks whenever the local time matches: every ten minutes stay every ten minutes.
    pub cron: &'a str,
    /// Of the IANA database; empty: UTC.
    pub time_zone: &'a str,
    /// The queue of its tasks.
    pub queue: &'a str,
    /// What each task is like.
    pub task: NewTask<'a>,
    /// See [`Missed`].
    pub missed: Missed,
    /// Whether it rests.
    pub paused: bool,
}

/// A schedule as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// Its expression.
    pub cron: String,
    /// Its time zone; empty: UTC.
    pub time_zone: String,
    /// The queue of its tasks.
    pub queue: String,
    /// What a task carries.
    pub payload: Vec<u8>,
    /// What the payload is.
    pub format: Format,
    /// 0 to 9.
    pub priority: u8,
    /// Empty: none.
    pub ordering_key: String,
    /// What a task asks for otherwise than its queue.
    pub options: TaskOptions,
    /// For people to find its tasks by.
    pub tags: Vec<String>,
    /// Names and values.
    pub metadata: BTreeMap<String, String>,
    /// Who is told of a task's end.
    pub callback_url: String,
    /// See [`Missed`].
    pub missed: Missed,
    /// Whether it rests.
    pub paused: bool,
    /// The tick to come, in Unix milliseconds; zero: none comes.
    pub next_ms: u64,
    /// The tick before, in Unix milliseconds; zero: there was none.
    pub last_ms: u64,
    /// Its task.
    pub last_task: Option<TaskId>,
}

impl ScheduleView {
    /// The next ticks, at most `count`, in Unix milliseconds; none while it rests.
    pub fn upcoming(&self, count: usize) -> Vec<u64> {
        if self.paused || self.next_ms == 0 {
            return Vec::new();
        }
        // What cannot be read any longer rests as well.
        let Ok(rhythm) = Rhythm::new(&self.cron, &self.time_zone) else {
            return Vec::new();
        };
        let ticks = std::iter::successors(Some(self.next_ms), |tick| Some(rhythm.after(*tick)));
        ticks
            .take_while(|tick| *tick != NEVER_MS)
            .take(count)
            .collect()
    }
}

/// What a record keeps of a schedule beside its task.
pub(crate) struct Description<'a> {
    pub cron: &'a str,
    pub time_zone: &'a str,
    pub missed: Missed,
}

impl<'a> Description<'a> {
    pub fn put(&self) -> Vec<u8> {
        let mut out = vec![self.missed as u8];
        put_bytes(&mut out, self.cron.as_bytes());
        put_bytes(&mut out, self.time_zone.as_bytes());
        out
    }

    pub fn take(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes, "a schedule");
        let missed = match from.u8()? {
            0 => Missed::Skip,
            1 => Missed::One,
            2 => Missed::All,
            _ => return Err(from.malformed()),
        };
        Ok(Self {
            missed,
            cron: from.text()?,
            time_zone: from.text()?,
        })
    }
}

fn not_found(name: &str) -> QueueError {
    QueueError::ScheduleNotFound {
        name: name.to_owned(),
    }
}

/// Refuses what a task of a schedule cannot have.
fn check(schedule: &NewSchedule<'_>) -> Result<(), QueueError> {
    super::queues::check_name(schedule.name)?;
    let task = &schedule.task;
    let wrong = [
        ("run_at_ms", task.run_at_ms > 0),
        ("delay_ms", task.delay_ms > 0),
        ("unique_key", !task.unique_key.is_empty()),
        ("after", !task.after.is_empty()),
    ];
    match wrong.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((what, _)) => Err(QueueError::Invalid {
            what,
            reason: "a task of a schedule has none".to_owned(),
        }),
    }
}

impl Queues {
    /// Makes a schedule, or replaces the one of this name.
    ///
    /// # Errors
    /// [`QueueError::Invalid`], [`QueueError::QueueNotFound`], [`QueueError::Limit`].
    pub async fn put_schedule(
        &self,
        tenant: &str,
        schedule: &NewSchedule<'_>,
    ) -> Result<ScheduleView, QueueError> {
        check(schedule)?;
        let rhythm = Rhythm::new(schedule.cron, schedule.time_zone)?;
        let queue = self.queue(tenant, schedule.queue).await?;
        let one_at_a_time = self.inner.making.clone().lock_owned().await;
        let key = (tenant.into(), schedule.name.into());
        let (known, count) = {
            let known = lock(&self.inner.schedules);
            (known.get(&key).copied(), known.len() as u64)
        };
        egret_base::Limit::new("queue.schedules_max", SCHEDULES_MAX)
            .check(count + u64::from(known.is_none()))?;
        let mut bytes = Vec::new();
        let mut item = Enqueues::new(self)?.check(0, &queue, &schedule.task)?;
        if item.key == 0 {
            // By its name, so that it is found where it was.
            let hash = super::produce::key_hash(3, 0, &[tenant, schedule.name]);
            item.shard = (hash >> 64) as u16 & ((1 << SHARD_BITS) - 1);
        }
        let description = Description {
            cron: schedule.cron,
            time_zone: schedule.time_zone,
            missed: schedule.missed,
        };
        let item = lay_out(item, &schedule.task, &description.put(), &mut bytes);
        let next_ms = rhythm.after(self.inner.clock.now().as_millis_unsigned());
        let partition = self.inner.partition_of(item.shard)?;
        let queues = self.clone();
        let (owner, name, paused) = (tenant.to_owned(), schedule.name.to_owned(), schedule.paused);
        let put = unbroken(async move {
            let _one_at_a_time = one_at_a_time;
            if let Some(before) = known.filter(|before| *before != partition) {
                queues.drop_schedule(before, &owner, &name).await?;
            }
            let asked = queues.inner.ask(partition, move |turn| {
                debug_assert_eq!(slice(&bytes, &item.after), b"");
                turn.run(&Command::PutSchedule(PutSchedule {
                    tenant: &owner,
                    name: &name,
                    next_ms,
                    paused,
                    task: item.command(&bytes),
                }))
            });
            asked.await??;
            lock(&queues.inner.schedules).insert(key, partition);
            Ok(())
        });
        put.await?;
        self.schedule(tenant, schedule.name).await
    }

    async fn drop_schedule(
        &self,
        partition: usize,
        tenant: &str,
        name: &str,
    ) -> Result<(), QueueError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let asked = self.inner.ask(partition, move |turn| {
            turn.run(&Command::DeleteSchedule {
                tenant: &tenant,
                name: &name,
            })
        });
        Ok(asked.await??)
    }

    fn partition_of_schedule(&self, tenant: &str, name: &str) -> Result<usize, QueueError> {
        self.inner.partitions()?;
        let known = lock(&self.inner.schedules);
        let found = known.get(&(tenant.into(), name.into()));
        found.copied().ok_or_else(|| not_found(name))
    }

    /// A schedule.
    ///
    /// # Errors
    /// [`QueueError::ScheduleNotFound`].
    pub async fn schedule(&self, tenant: &str, name: &str) -> Result<ScheduleView, QueueError> {
        let partition = self.partition_of_schedule(tenant, name)?;
        let (owner, asked_name) = (tenant.to_owned(), name.to_owned());
        let asked = self.inner.ask(partition, move |turn| {
            let schedule = turn.state.schedule(&owner, &asked_name)?.clone();
            let queue = turn.state.queue_with(schedule.queue);
            let queue = queue.map_or_else(String::new, |queue| queue.name.to_string());
            let last = (schedule.last.number > 0).then(|| turn.state.id(schedule.last));
            Some((schedule, queue, last))
        });
        let (schedule, queue, last) = asked.await?.ok_or_else(|| not_found(name))?;
        let shared = self.inner.partitions()?[partition].clone();
        let seq = Seq(schedule.record);
        let read = tokio::task::spawn_blocking(move || (shared.read)(seq));
        let bytes = read.await.map_err(|_| QueueError::Stopping)??;
        view(name, queue, &schedule, last, &bytes)
    }

    /// Every schedule of a tenant, in order of names.
    ///
    /// # Errors
    /// When the engine is not running.
    pub async fn schedules(&self, tenant: &str) -> Result<Vec<ScheduleView>, QueueError> {
        let names: Vec<Box<str>> = {
            let known = lock(&self.inner.schedules);
            let of_tenant = known.keys().filter(|(owner, _)| **owner == *tenant);
            of_tenant.map(|(_, name)| name.clone()).collect()
        };
        let mut views = Vec::with_capacity(names.len());
        for name in names {
            match self.schedule(tenant, &name).await {
                Ok(view) => views.push(view),
                // It was deleted meanwhile.
                Err(QueueError::ScheduleNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(views)
    }

    /// Deletes a schedule; the tasks it has made stay.
    ///
    /// # Errors
    /// [`QueueError::ScheduleNotFound`].
    pub async fn delete_schedule(&self, tenant: &str, name: &str) -> Result<(), QueueError> {
        let one_at_a_time = self.inner.making.clone().lock_owned().await;
        let partition = self.partition_of_schedule(tenant, name)?;
        let (queues, tenant, name) = (self.clone(), tenant.to_owned(), name.to_owned());
        unbroken(async move {
            let _one_at_a_time = one_at_a_time;
            queues.drop_schedule(partition, &tenant, &name).await?;
            lock(&queues.inner.schedules).remove(&(tenant.into(), name.into()));
            Ok(())
        })
        .await
    }

    /// Lets a schedule rest, or go on with the next tick from now.
    ///
    /// # Errors
    /// [`QueueError::ScheduleNotFound`].
    pub async fn pause_schedule(
        &self,
        tenant: &str,
        name: &str,
        paused: bool,
    ) -> Result<ScheduleView, QueueError> {
        let partition = self.partition_of_schedule(tenant, name)?;
        let known = self.schedule(tenant, name).await?;
        let rhythm = Rhythm::new(&known.cron, &known.time_zone)?;
        let next_ms = rhythm.after(self.inner.clock.now().as_millis_unsigned());
        let (owner, asked_name) = (tenant.to_owned(), name.to_owned());
        let asked = self.inner.ask(partition, move |turn| {
            turn.run(&Command::PauseSchedule {
                tenant: &owner,
                name: &asked_name,
                paused,
                next_ms,
            })
        });
        asked.await??;
        self.schedule(tenant, name).await
    }
}

fn view(
    name: &str,
    queue: String,
    schedule: &Schedule,
    last_task: Option<TaskId>,
    bytes: &[u8],
) -> Result<ScheduleView, QueueError> {
    let Command::PutSchedule(put) = record::decode(bytes)? else {
        return Err(not_found(name));
    };
    let carried = content::take(put.task.content)?;
    let description = Description::take(carried.private.schedule)?;
    let owned = |(name, value): (&&str, &&str)| ((*name).to_owned(), (*value).to_owned());
    Ok(ScheduleView {
        name: name.to_owned(),
        cron: description.cron.to_owned(),
        time_zone: description.time_zone.to_owned(),
        queue,
        payload: carried.payload.to_vec(),
        format: carried.format,
        priority: schedule.priority,
        ordering_key: carried.ordering_key.to_owned(),
        options: schedule.options,
        tags: content::tags(&schedule.tags).map(str::to_owned).collect(),
        metadata: carried.metadata.iter().map(owned).collect(),
        callback_url: carried.private.callback_url.to_owned(),
        missed: description.missed,
        paused: schedule.paused,
        next_ms: match schedule.next_ms {
            NEVER_MS => 0,
            next_ms => next_ms,
        },
        last_ms: schedule.last_ms,
        last_task,
    })
}
