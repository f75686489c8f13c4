//! Random commands.

use egret_log::simulated::SplitMix64;
use egret_queue::core::command::{Command, Defer, Enqueue, PutSchedule, TaskReport};
use egret_queue::model::{
    Backoff, Jitter, QueueSettings, Retention, RetryPolicy, SHARD_BITS, TaskOptions,
};

use super::World;
use super::cursor::Cursor;
use crate::model::Answer;

const WORKERS: [&str; 4] = ["", "ann", "bob", "cat"];
const SCHEDULES: [(&str, &str); 3] = [("acme", "hourly"), ("acme", "daily"), ("zeta", "hourly")];

fn one_of<T: Copy>(chance: &mut SplitMix64, all: &[T]) -> T {
    all[chance.next_below(all.len() as u64) as usize]
}

fn retry(chance: &mut SplitMix64) -> RetryPolicy {
    RetryPolicy {
        backoff: one_of(chance, &[Backoff::Fixed, Backoff::Linear, Backoff::Exponential]),
        base_ms: one_of(chance, &[0, 1, 50, 1_000]),
        max_ms: one_of(chance, &[1, 120, 60_000]),
        jitter: one_of(chance, &[Jitter::None, Jitter::Full, Jitter::Equal]),
    }
}

fn retention(chance: &mut SplitMix64) -> Retention {
    Retention {
        age_ms: one_of(chance, &[0, 300, 20_000, 1 << 30]),
        count: one_of(chance, &[0, 0, 1, 3, 10]),
    }
}

pub fn settings(chance: &mut SplitMix64) -> QueueSettings {
    QueueSettings {
        max_attempts: 1 + chance.next_below(4) as u16,
        retry: retry(chance),
        lease_ms: 30_000,
        timeout_ms: one_of(chance, &[0, 0, 40, 5_000]),
        key_concurrency: one_of(chance, &[0, 1, 1, 1, 1, 2, 3]),
        completed: retention(chance),
        dead: retention(chance),
        cancelled: retention(chance),
        aging_ms: one_of(chance, &[0, 5, 500, 60_000]),
        ..QueueSettings::default()
    }
}

fn options(chance: &mut SplitMix64) -> TaskOptions {
    if chance.percent(70) {
        return TaskOptions::default();
    }
    TaskOptions {
        max_attempts: chance.percent(50).then(|| 1 + chance.next_below(3) as u16),
        retry: chance.percent(50).then(|| retry(chance)),
        timeout_ms: chance.percent(50).then(|| one_of(chance, &[0, 30, 4_000])),
    }
}

impl World {
    pub(super) fn random_command(&mut self, at: usize) {
        match self.rng.next_below(1_000) {
            0..300 => self.enqueue(at),
            300..480 => self.claim(at),
            480..690 => self.report(at),
            690..790 => {
                let budget = one_of(&mut self.rng, &[0, 1, 2, 3, 10, 1_000]);
                self.sides[at].advance(budget);
            }
            790..830 => self.deliver(at),
            830..930 => self.change_tasks(at),
            930..970 => self.schedule(at),
            970..990 => self.query_tasks(at),
            990..993 => self.begin_epoch(at),
            993..996 => self.step_clock(at),
            _ => self.change_queues(at),
        }
    }

    /// The clock of a partition is another one, by milliseconds or by weeks.
    fn step_clock(&mut self, at: usize) {
        let bits = self.rng.next_below(31);
        let by_ms = 1 + self.rng.next_below(1 << bits).cast_signed();
        let by_ms = if self.rng.percent(50) { by_ms } else { -by_ms };
        let stepped = self.sides[at].run(&Command::Step { by_ms });
        stepped.expect("a step is not refused");
    }

    fn some_queue(&mut self) -> u32 {
        self.rng.next_below(u64::from(self.next_queue) + 1) as u32
    }

    /// Mostly one that is there; of two keys of a queue most are the same.
    fn task<'a>(&mut self, at: usize, after: &'a mut Vec<u8>, content: &'a [u8]) -> Enqueue<'a> {
        let chance = &mut self.rng;
        let count = self.sides.len() as u64;
        let width = (1u64 << SHARD_BITS) / count;
        let now_ms = self.sides[at].model.now_ms;
        let queue = 1 + chance.next_below(u64::from(self.next_queue)) as u32;
        if chance.percent(12) {
            for _ in 0..1 + chance.next_below(3) {
                let known = self.ids.len().saturating_sub(30);
                let Some(id) = self.ids.get(known + chance.next_below(30) as usize) else {
                    continue;
                };
                after.extend_from_slice(&id.to_bytes());
            }
        }
        let run_at_ms = match chance.next_below(10) {
            0..6 => 0,
            6 => now_ms - chance.next_below(100),
            7..9 => now_ms + one_of(chance, &[1, 7, 7, 7, 200]),
            _ => now_ms + chance.next_below(1 << 20),
        };
        let delay_ms = if run_at_ms == 0 && chance.percent(40) {
            one_of(chance, &[1, 7, 200, 1 << 20])
        } else {
            0
        };
        let hash = u128::from(queue) << 64;
        Enqueue {
            queue,
            // Of this partition, rounded up and down as its number says.
            shard: (((at as u64) << SHARD_BITS).div_ceil(count) + chance.next_below(width)) as u16,
            priority: one_of(chance, &[0, 3, 5, 5, 5, 9]),
            run_at_ms,
            delay_ms,
            key: match chance.next_below(3) {
                0 => 0,
                _ => hash | u128::from(1 + chance.next_below(3)),
            },
            unique: chance.percent(25).then(|| {
                let key = hash | u128::from(chance.next_below(4));
                (key, one_of(chance, &[0, 10, 1_000, 1 << 31]))
            }),
            origin: chance.percent(10).then(|| {
                let key = hash | u128::from(1_000 + chance.next_below(4));
                (key, one_of(chance, &[0, 10, 1_000, 1 << 31]))
            }),
            options: options(chance),
            tags: one_of(chance, &[b"", b"", b"red", b"blue"]),
            callback: chance.percent(20),
            after,
            content,
        }
    }

    fn enqueue(&mut self, at: usize) {
        let (mut after, content) = (Vec::new(), b"payload");
        let task = self.task(at, &mut after, content);
        let command = Command::Enqueue(task.clone());
        let times = one_of(&mut self.rng, &[1, 1, 1, 2, 5]);
        for _ in 0..times {
            if let Ok(Answer::Made(made)) = self.sides[at].run(&command) {
                let id = self.sides[at].state.task_id(made);
                assert_eq!(self.side_of(id.shard()), at);
                self.ids.push(id);
            }
        }
    }

    fn claim(&mut self, at: usize) {
        let queue = self.some_queue();
        // A paused queue is not asked: the partition's driver checks first.
        let command = Command::Claim {
            queue,
            worker: one_of(&mut self.rng, &WORKERS),
            count: one_of(&mut self.rng, &[1, 1, 2, 5, 100]),
            lease_ms: one_of(&mut self.rng, &[0, 10, 100, 30_000]),
        };
        self.sides[at].run(&command).expect("claims are not refused");
    }

    fn report(&mut self, at: usize) {
        let (number, token) = self.sides[at].some_lease(&mut self.rng);
        let content = one_of::<&[u8]>(&mut self.rng, &[b"", b"words"]);
        let held = TaskReport { number, token, content };
        let command = match self.rng.next_below(10) {
            0..3 => Command::Complete(held),
            3 => Command::CompleteAttached(held),
            4..6 => Command::Fail { report: held, permanent: self.rng.percent(20) },
            6 | 7 => Command::Defer {
                report: held,
                delay_ms: one_of(&mut self.rng, &[0, 0, 7, 500]),
                mode: one_of(&mut self.rng, &[Defer::Nack, Defer::Snooze, Defer::Release]),
            },
            _ => Command::Heartbeat {
                report: held,
                lease_ms: one_of(&mut self.rng, &[0, 50, 30_000]),
            },
        };
        // The same report may come more than once.
        for _ in 0..one_of(&mut self.rng, &[1, 1, 1, 2]) {
            let _ = self.sides[at].run(&command);
        }
    }

    /// What people do to tasks.
    fn change_tasks(&mut self, at: usize) {
        let count = self.sides[at].model.tasks.len() as u64;
        let number = if self.rng.percent(80) && count > 0 {
            let chosen = self.rng.next_below(count) as usize;
            let all = &self.sides[at].model.tasks;
            *all.keys().nth(chosen).expect("counted")
        } else {
            1 + self.rng.next_below(100)
        };
        let command = match self.rng.next_below(10) {
            0..3 => Command::Cancel { number },
            3..6 => {
                let known = self.sides[at].model.tasks.get(&number);
                let key = known.map_or(0, |task| task.key);
                Command::Requeue { number, key }
            }
            6..9 => Command::Delete { number },
            _ => Command::Purge {
                queue: self.some_queue(),
                states: self.rng.next_below(128) as u8,
                count: one_of(&mut self.rng, &[0, 1, 3, 100]),
            },
        };
        let _ = self.sides[at].run(&command);
    }

    fn schedule(&mut self, at: usize) {
        let (tenant, name) = one_of(&mut self.rng, &SCHEDULES);
        let known = self.sides[at].model.schedules.get(&(tenant.into(), name.into()));
        let due_ms = known.map_or(7, |schedule| schedule.next_ms);
        let now_ms = self.sides[at].model.now_ms;
        let next_ms = now_ms + self.rng.next_below(1_000);
        let command = match self.rng.next_below(10) {
            0..3 => {
                let mut after = Vec::new();
                let task = self.task(at, &mut after, b"described");
                let task = Enqueue {
                    after: &[],
                    unique: None,
                    origin: None,
                    run_at_ms: 0,
                    delay_ms: 0,
                    ..task
                };
                let put = PutSchedule { tenant, name, next_ms, paused: self.rng.percent(20), task };
                let _ = self.sides[at].run(&Command::PutSchedule(put));
                return;
            }
            3 => Command::DeleteSchedule { tenant, name },
            4 => Command::PauseSchedule { tenant, name, paused: self.rng.percent(40), next_ms },
            // There is no room for its task.
            5 => Command::Tick { tenant, name, tick_ms: due_ms, next_ms: due_ms, tasks: 0 },
            _ => Command::Tick {
                tenant,
                name,
                // One that was dealt with before may come again.
                tick_ms: due_ms - self.rng.next_below(2),
                next_ms,
                tasks: one_of(&mut self.rng, &[0, 1, 1, 3]),
            },
        };
        let _ = self.sides[at].run(&command);
    }

    /// Goes on with a list, or begins one.
    fn query_tasks(&mut self, at: usize) {
        let side = &mut self.sides[at];
        if side.cursors.len() < 4 {
            let queues: Vec<u32> = side.model.queues.keys().copied().collect();
            if queues.is_empty() {
                return;
            }
            let queue = one_of(&mut self.rng, &queues);
            let cursor = Cursor::start(&side.model, queue, &mut self.rng);
            side.cursors.push(cursor);
        }
        let chosen = self.rng.next_below(side.cursors.len() as u64) as usize;
        let mut cursor = side.cursors.swap_remove(chosen);
        let limit = one_of(&mut self.rng, &[1, 2, 5]);
        if !cursor.next_page(&side.state, &side.model, limit) {
            side.cursors.push(cursor);
        }
    }

    fn change_queues(&mut self, at: usize) {
        let queue = self.some_queue();
        match self.rng.next_below(10) {
            0 => self.make_queue(),
            // The queue of callbacks stays.
            1 if queue > 0 => drop(self.sides[at].run(&Command::DeleteQueue { queue })),
            2..6 => {
                let (paused, draining) = (self.rng.percent(40), self.rng.percent(40));
                let _ = self.sides[at].run(&Command::SetFlow { queue, paused, draining });
            }
            _ => {
                let known = self.sides[at].model.queues.get(&queue);
                let Some(known) = known.filter(|queue| !queue.deleted).cloned() else {
                    return;
                };
                let settings = self.random_settings();
                let put = Command::PutQueue {
                    queue,
                    tenant: &known.tenant,
                    name: &known.name,
                    settings: Box::new(settings),
                };
                self.sides[at].run(&put).expect("settings can be changed");
            }
        }
    }
}
