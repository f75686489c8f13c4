//! Schedules: a task per tick of a cron expression. A schedule lives in the partition of its tasks,
//! so that a tick and its task are one record: it comes exactly once.

mod placement;

use std::collections::BTreeMap;

use crate::core::command::Command;
use crate::core::state::{Schedule, ScheduleKey};
use crate::error::QueueError;
use crate::model::{MissedTickPolicy, TaskId, TaskOptions};
use crate::store::content::{self, Format};
use crate::store::record;
use crate::store::schedule::Description;
use crate::worker::engine_state::run_to_completion;
use crate::worker::new_task::NewTask;
use crate::worker::queues::Queues;
use crate::worker::schedule_runner::{NEVER_MS, tick_after};
use egret_base::CronSchedule;
use egret_base::sync::lock;

/// A schedule to be made.
#[derive(Clone, Debug, Default)]
pub struct NewSchedule<'a> {
    /// Unique in the tenant.
    pub name: &'a str,
    /// Five fields (minute, hour, day of month, month, day of week), or six with seconds first.
    ///
    /// When clocks are changed: an expression whose hours, minutes and seconds are numbers or lists
    /// of numbers (`30 2 * * *`) is meant for a time of day. It ticks once in an hour that comes
    /// twice, the first time; and right after an hour that is left out. Any other (`*/10 * * * *`,
    /// `0 9-17 * * *`) ticks whenever the local time matches: every ten minutes stay every ten
    /// minutes.
    pub cron: &'a str,
    /// Of the IANA database; empty: UTC.
    pub time_zone: &'a str,
    /// The queue of its tasks.
    pub queue: &'a str,
    /// What each task is like.
    pub task: NewTask<'a>,
    /// What happens to missed ticks.
    pub missed: MissedTickPolicy,
    /// Whether the schedule is paused.
    pub paused: bool,
}

/// A schedule as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleView {
    /// Name of the schedule, unique in its tenant.
    pub name: String,
    /// Cron expression or interval of the schedule.
    pub cron: String,
    /// Its time zone; empty: UTC.
    pub time_zone: String,
    /// The queue of its tasks.
    pub queue: String,
    /// What a task carries.
    pub payload: Vec<u8>,
    /// What the payload is.
    pub format: Format,
    /// Priority of its tasks, from 0 to 9.
    pub priority: u8,
    /// Ordering key of its tasks; empty: none.
    pub ordering_key: String,
    /// What a task asks for otherwise than its queue.
    pub options: TaskOptions,
    /// For people to find its tasks by.
    pub tags: Vec<String>,
    /// Metadata of its tasks, as names and values.
    pub metadata: BTreeMap<String, String>,
    /// URL that is called when a task has ended.
    pub callback_url: String,
    /// What happens to missed ticks.
    pub missed: MissedTickPolicy,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// The tick to come, in Unix milliseconds; zero: none comes.
    pub next_ms: u64,
    /// The tick before, in Unix milliseconds; zero: there was none.
    pub last_ms: u64,
    /// Id of that tick's task.
    pub last_task: Option<TaskId>,
    /// Whether that tick waits for room for its task.
    pub waits_for_room: bool,
    /// Whether payload, tags and metadata are left out, which a list does not have of all.
    pub is_brief: bool,
}

impl ScheduleView {
    /// The same without payload, tags and metadata.
    pub fn into_brief(self) -> Self {
        Self {
            payload: Vec::new(),
            tags: Vec::new(),
            metadata: BTreeMap::new(),
            is_brief: true,
            ..self
        }
    }
}

/// Bytes of payloads, tags and metadata that a list of schedules has.
const LIST_BYTES_MAX: usize = 8 << 20;

impl ScheduleView {
    fn content_bytes(&self) -> usize {
        let metadata = self.metadata.iter().map(|(name, value)| name.len() + value.len());
        let tags = self.tags.iter().map(String::len);
        self.payload.len() + tags.sum::<usize>() + metadata.sum::<usize>()
    }

    fn strip_content(&mut self) {
        self.payload = Vec::new();
        self.tags = Vec::new();
        self.metadata = BTreeMap::new();
        self.is_brief = true;
    }

    /// The next ticks, at most `count`, in Unix milliseconds; none while the schedule is paused.
    pub fn upcoming_ticks(&self, count: usize) -> Vec<u64> {
        if self.paused || self.next_ms == 0 {
            return Vec::new();
        }
        // An expression that can no longer be parsed has no ticks.
        let Ok(cron_schedule) = CronSchedule::new(&self.cron, &self.time_zone) else {
            return Vec::new();
        };
        let ticks =
            std::iter::successors(Some(self.next_ms), |tick| cron_schedule.next_after(*tick));
        ticks.take(count).collect()
    }
}

/// What a partition knows of a schedule.
struct KnownSchedule {
    schedule: Schedule,
    queue: String,
    last_task: Option<TaskId>,
    now_ms: u64,
}

fn not_found(name: &str) -> QueueError {
    QueueError::ScheduleNotFound { name: name.to_owned() }
}

/// Refuses fields that the task of a schedule cannot have.
fn check(schedule: &NewSchedule<'_>) -> Result<(), QueueError> {
    crate::worker::name::check_name(schedule.name)?;
    let task = &schedule.task;
    let unsupported = [
        ("run_at_ms", task.run_at_ms > 0),
        ("delay_ms", task.delay_ms > 0),
        ("unique_key", !task.unique_key.is_empty()),
        ("after", !task.after.is_empty()),
    ];
    match unsupported.into_iter().find(|(_, is_set)| *is_set) {
        None => Ok(()),
        Some((what, _)) => Err(QueueError::Invalid {
            what,
            reason: "it cannot be set on the task of a schedule".to_owned(),
        }),
    }
}

impl Queues {
    /// A schedule.
    ///
    /// # Errors
    /// [`QueueError::ScheduleNotFound`].
    pub async fn schedule(&self, tenant: &str, name: &str) -> Result<ScheduleView, QueueError> {
        let partition = self.schedule_location(tenant, name)?.partition;
        let (owner, asked_name) = (tenant.to_owned(), name.to_owned());
        let reply = self.inner.run_in_turn(partition, move |turn| {
            let schedule = turn.state.schedule(&owner, &asked_name)?.clone();
            let queue = turn.state.queue_by_id(schedule.queue);
            let last = schedule.last_task;
            Some(KnownSchedule {
                queue: queue.map_or_else(String::new, |queue| queue.name.to_string()),
                last_task: (last.number > 0).then(|| turn.state.task_id(last)),
                schedule,
                now_ms: turn.now.as_millis_unsigned(),
            })
        });
        let known = reply.await?.ok_or_else(|| not_found(name))?;
        let bytes = self.read_record(partition, known.schedule.record).await?;
        build_view(name, known, &bytes)
    }

    /// Every schedule of a tenant, in order of names; beyond 8 MiB of payloads, tags and metadata
    /// without these.
    ///
    /// # Errors
    /// When a partition is not running: each has some of them.
    pub async fn schedules(&self, tenant: &str) -> Result<Vec<ScheduleView>, QueueError> {
        self.inner.require_all_running()?;
        let names: Vec<Box<str>> = {
            let known = lock(&self.inner.schedules);
            let of_tenant = known.keys().filter(|key| *key.tenant == *tenant);
            of_tenant.map(|key| key.name.clone()).collect()
        };
        let mut views = Vec::with_capacity(names.len());
        let mut bytes = 0;
        for name in names {
            match self.schedule(tenant, &name).await {
                Ok(mut view) => {
                    bytes += view.content_bytes();
                    if bytes > LIST_BYTES_MAX {
                        view.strip_content();
                    }
                    views.push(view);
                }
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
        let definition_guard = self.inner.definition_lock.clone().lock_owned().await;
        let location = self.schedule_location(tenant, name)?;
        let (queues, tenant, name) = (self.clone(), tenant.to_owned(), name.to_owned());
        run_to_completion(async move {
            let _definition_guard = definition_guard;
            // The valid copy goes last, so that no duplicate takes its place.
            for partition in location.duplicates.into_iter().chain([location.partition]) {
                queues.remove_schedule(partition, &tenant, &name).await?;
            }
            lock(&queues.inner.schedules).remove(&ScheduleKey::new(&tenant, &name));
            Ok(())
        })
        .await
    }

    /// Pauses a schedule, or resumes it with the next tick from now. Pausing drops a tick that
    /// waits for room.
    ///
    /// # Errors
    /// [`QueueError::ScheduleNotFound`].
    pub async fn set_schedule_paused(
        &self,
        tenant: &str,
        name: &str,
        paused: bool,
    ) -> Result<ScheduleView, QueueError> {
        let definition_guard = self.inner.definition_lock.clone().lock_owned().await;
        let partition = self.schedule_location(tenant, name)?.partition;
        let known = self.schedule(tenant, name).await?;
        let cron_schedule = CronSchedule::new(&known.cron, &known.time_zone)?;
        let (queues, owner, asked_name) = (self.clone(), tenant.to_owned(), name.to_owned());
        run_to_completion(async move {
            let _definition_guard = definition_guard;
            let reply = queues.inner.run_in_turn(partition, move |turn| {
                let known = turn.state.schedule(&owner, &asked_name);
                if known.is_some_and(|known| !known.paused && !paused) {
                    return Ok(());
                }
                // Ticks up to now were processed earlier in this turn.
                let now_ms = turn.now.as_millis_unsigned();
                turn.run(&Command::PauseSchedule {
                    tenant: &owner,
                    name: &asked_name,
                    paused,
                    next_ms: tick_after(&cron_schedule, now_ms),
                })
            });
            Ok(reply.await??)
        })
        .await?;
        self.schedule(tenant, name).await
    }
}

fn build_view(name: &str, known: KnownSchedule, bytes: &[u8]) -> Result<ScheduleView, QueueError> {
    let Command::PutSchedule(put) = record::decode(bytes)? else {
        return Err(not_found(name));
    };
    let task_content = content::decode(put.task.content)?;
    let description = Description::decode(task_content.private.schedule)?;
    let schedule = known.schedule;
    let waits_for_room = schedule.waits_for_room() && schedule.last_ms <= known.now_ms;
    let next_ms = if waits_for_room {
        let cron_schedule = CronSchedule::new(description.cron, description.time_zone);
        cron_schedule.map_or(NEVER_MS, |rhythm| tick_after(&rhythm, known.now_ms))
    } else {
        schedule.next_ms
    };
    let to_owned_pair = |(name, value): (&&str, &&str)| ((*name).to_owned(), (*value).to_owned());
    Ok(ScheduleView {
        name: name.to_owned(),
        cron: description.cron.to_owned(),
        time_zone: description.time_zone.to_owned(),
        queue: known.queue,
        payload: task_content.payload.to_vec(),
        format: task_content.format,
        priority: schedule.priority,
        ordering_key: task_content.ordering_key.to_owned(),
        options: schedule.options,
        tags: content::tags(&schedule.tags).map(str::to_owned).collect(),
        metadata: task_content.metadata.iter().map(to_owned_pair).collect(),
        callback_url: task_content.private.callback_url.to_owned(),
        missed: description.missed,
        paused: schedule.paused,
        next_ms: match next_ms {
            NEVER_MS => 0,
            next_ms => next_ms,
        },
        last_ms: schedule.last_ms,
        last_task: known.last_task.filter(|_| !waits_for_room),
        waits_for_room,
        is_brief: false,
    })
}
