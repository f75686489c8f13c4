//! A seeded simulator of partitions: random commands of every kind, each checked against the model,
//! written down, read back and replayed. `EGRET_QUEUE_SEEDS` sets how many seeds are run,
//! `EGRET_QUEUE_SEED` runs just one.

mod check;
mod commands;
mod cursor;
mod side;

use egret_base_test::run_over_seeds;
use egret_log::simulated::SplitMix64;
use egret_queue::core::command::Command;
use egret_queue::core::state::{CALLBACK_QUEUE, Message, MessageKind};
use egret_queue::model::{QueueSettings, SHARD_BITS, TaskId};

use side::Side;

const SEEDS: u64 = 1_000;
const TURNS: u64 = 100;

/// Partitions with what goes between them.
pub struct World {
    rng: SplitMix64,
    sides: Vec<Side>,
    wall_ms: u64,
    next_queue: u32,
    /// Messages that have been seen, delivered or not: any of them may come again.
    messages: Vec<Message>,
    /// Ids of tasks of every partition.
    ids: Vec<TaskId>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = SplitMix64::new(seed);
        let count = 1 + chance.next_below(3);
        let wall_ms = 1_790_000_000_000 + chance.next_below(1 << 30);
        let sides = (0..count).map(|_| Side::new()).collect();
        let mut world = Self {
            rng: chance,
            sides,
            wall_ms,
            next_queue: 1,
            messages: Vec::new(),
            ids: Vec::new(),
        };
        for side in 0..count as usize {
            world.begin_epoch(side);
        }
        if world.rng.percent(70) {
            world.put_queue_everywhere(CALLBACK_QUEUE, "", "callbacks");
        }
        for _ in 0..1 + world.rng.next_below(3) {
            world.make_queue();
        }
        world
    }

    fn run(&mut self) {
        for turn in 0..TURNS {
            self.pass_time();
            let at = self.pick_side();
            let (wall_ms, seed) = (self.wall_ms, self.rng.next_below(u64::MAX));
            self.sides[at].set_clock(wall_ms, seed);
            for _ in 0..1 + self.rng.next_below(4) {
                self.random_command(at);
            }
            if turn % 24 == 0 {
                self.sides[at].check_all();
            }
            if turn % 60 == 40 {
                self.sides[at].check_snapshot();
            }
        }
        self.deliver_all();
    }

    /// Mostly a little; sometimes a lot, and sometimes the clock goes back.
    fn pass_time(&mut self) {
        let passed_ms = match self.rng.next_below(100) {
            0..40 => 0,
            40..80 => self.rng.next_below(20),
            80..94 => self.rng.next_below(1_000),
            94..98 => self.rng.next_below(100_000),
            98 => self.rng.next_below(1 << 32),
            _ => {
                self.wall_ms -= self.rng.next_below(1 << 20);
                0
            }
        };
        self.wall_ms += passed_ms;
    }

    fn pick_side(&mut self) -> usize {
        self.rng.next_below(self.sides.len() as u64) as usize
    }

    fn side_of(&self, shard: u16) -> usize {
        (usize::from(shard) * self.sides.len()) >> SHARD_BITS
    }

    fn begin_epoch(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let behind = self.rng.percent(10) && side.state.epoch() > 0;
        let ahead = self.rng.next_below(3) as u32;
        let epoch = if behind {
            side.state.epoch() - self.rng.next_below(2) as u32
        } else {
            side.state.epoch() + 1 + ahead
        };
        let instance = self.rng.next_below(1 << 14) as u16;
        let grace_ms = [0, 100, 10_000][self.rng.next_below(3) as usize];
        let command = Command::Epoch { epoch, instance, grace_ms };
        side.set_clock(self.wall_ms, 1);
        side.run(&command).expect("epochs are not refused");
    }

    fn put_queue_everywhere(&mut self, id: u32, tenant: &str, name: &str) {
        let settings = self.random_settings();
        for side in &mut self.sides {
            let command =
                Command::PutQueue { queue: id, tenant, name, settings: Box::new(settings.clone()) };
            side.run(&command).expect("a queue can be put");
        }
    }

    fn make_queue(&mut self) {
        let id = self.next_queue;
        self.next_queue += 1 + self.rng.next_below(2) as u32;
        let tenant = ["acme", "zeta"][self.rng.next_below(2) as usize];
        self.put_queue_everywhere(id, tenant, &format!("queue-{id}"));
    }

    /// Carries a message over, as one that a partition still has; or one that was carried over
    /// before.
    fn deliver(&mut self, at: usize) {
        if self.rng.percent(25) && !self.messages.is_empty() {
            let again = self.rng.next_below(self.messages.len() as u64) as usize;
            return self.deliver_message(self.messages[again]);
        }
        let count = self.sides[at].state.messages().count() as u64;
        if count == 0 {
            return;
        }
        let chosen = self.rng.next_below(count) as usize;
        let message = self.sides[at].state.messages().nth(chosen);
        let (number, message) = message.map(|(number, it)| (number, *it)).expect("counted");
        self.messages.push(message);
        self.deliver_message(message);
        if self.rng.percent(70) {
            let command = Command::Delivered { message: number };
            self.sides[at].run(&command).expect("nothing to refuse");
        }
    }

    fn deliver_message(&mut self, message: Message) {
        let to = self.side_of(message.to.shard());
        let command = match message.kind {
            MessageKind::Await { tenant } => {
                Command::Await { tenant, task: message.to, waiting: message.from }
            }
            MessageKind::Ended { completed } => {
                Command::Resolve { waiting: message.to, task: message.from, completed }
            }
        };
        self.sides[to].run(&command).expect("nothing to refuse");
    }

    /// In the end every message arrives, and nothing is left waiting for a task that has ended.
    fn deliver_all(&mut self) {
        while let Some(at) =
            (0..self.sides.len()).find(|at| self.sides[*at].state.messages().next().is_some())
        {
            let first = self.sides[at].state.messages().next();
            let (number, message) = first.map(|(number, it)| (number, *it)).expect("just seen");
            self.deliver_message(message);
            let command = Command::Delivered { message: number };
            self.sides[at].run(&command).expect("nothing to refuse");
        }
        for side in &self.sides {
            for task in side.model.tasks.values() {
                for other in &task.dependencies {
                    let there = &self.sides[self.side_of(other.shard())].model;
                    let number = there.find(*other).expect("one that is gone is not waited for");
                    assert!(!there.tasks[&number].state.has_ended());
                }
            }
        }
        for side in &mut self.sides {
            side.set_clock(self.wall_ms + (1 << 33), 3);
            while side.advance(7) {}
            side.check_all();
        }
    }

    fn random_settings(&mut self) -> QueueSettings {
        commands::settings(&mut self.rng)
    }
}

#[test]
fn partitions_do_what_the_model_does() {
    run_over_seeds("QUEUE", SEEDS, |seed| World::new(seed).run());
}
