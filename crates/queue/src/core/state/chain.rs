//! Tasks that wait for others, wherever those are.
//!
//! A task may wait for one of another partition, so partitions send each other messages: *await*
//! asks for the end of a task, *ended* answers. A message is part of the sender's state from the
//! record that caused it to the one that says it was delivered; the driver of the partitions
//! carries it over, and again after a crash. Receiving one twice changes nothing, as long as those
//! of one partition to another come in the order in which they were sent: a task that is gone is
//! said not to have completed, and a task that has learned of a completion before does not wait for
//! it any longer.
//!
//! Where logs are not synced before they are acknowledged, a loss of power may leave a partition
//! that knows of a delivery and one that does not. So every epoch sends all awaits again.

use std::collections::BTreeSet;

use super::machine::State;
use super::message::{Message, MessageKind, tenant_mark};
use super::ready_position::ReadyPosition;
use crate::core::command::Command;
use crate::core::entry::{TaskState, flag};
use crate::core::slab::SlotIndex;
use crate::model::TaskId;

/// Maximum number of tasks that wait for one: all of them get a message in the one step in which it
/// ends. A further one is told that the task will not complete.
pub const DEPENDENTS_MAX: usize = 100_000;

impl State {
    fn tenant_mark_of(&self, slot: SlotIndex) -> u64 {
        let queue = self.queues.get(self.entries.get(slot).queue);
        queue.map_or(0, |queue| tenant_mark(&queue.tenant))
    }

    /// Applies the commands that partitions send each other.
    pub(super) fn apply_chain(&mut self, seq: u64, command: &Command<'_>) {
        match command {
            Command::Await { task, waiting, tenant } => self.await_task(*task, *waiting, *tenant),
            Command::Resolve { waiting, task, completed } => {
                self.resolve(seq, *waiting, *task, *completed)
            }
            Command::Delivered { message } => self.remove_message(*message),
            others => unreachable!("{others:?} is not of a chain"),
        }
    }

    /// Messages that have not arrived, by number.
    pub fn messages(&self) -> impl Iterator<Item = (u64, &Message)> {
        self.messages.iter()
    }

    /// Messages sent after the one with this number.
    pub(crate) fn messages_after(&self, number: u64) -> impl Iterator<Item = (u64, &Message)> {
        self.messages.range_from(number + 1)
    }

    /// How many messages have not arrived.
    pub fn message_count(&self) -> u64 {
        self.messages.len() as u64
    }

    fn send_message(&mut self, message: Message) {
        self.messages.insert(self.next_message, message);
        self.next_message += 1;
    }

    /// Removes a delivered message.
    pub(crate) fn remove_message(&mut self, message: u64) {
        self.messages.remove(message);
    }

    /// A new task waits for others: 16 bytes each.
    pub(super) fn add_dependencies(&mut self, slot: SlotIndex, after: &[u8]) {
        let (chunks, _) = after.as_chunks::<16>();
        let mut tasks: Vec<TaskId> = chunks.iter().copied().map(TaskId::from_bytes).collect();
        tasks.sort_unstable();
        tasks.dedup();
        let from = self.id_at(slot);
        let tenant = self.tenant_mark_of(slot);
        for to in &tasks {
            let kind = MessageKind::Await { tenant };
            self.send_message(Message { to: *to, from, kind });
        }
        self.dependencies.insert(from.number(), tasks);
    }

    pub(super) fn remove_dependencies(&mut self, slot: SlotIndex) {
        let number = self.entries.get(slot).number;
        self.dependencies.remove(number);
    }

    /// Sends the awaits of all waiting tasks again, except those that are still queued.
    pub(super) fn resend_awaits(&mut self) {
        let queued_awaits: BTreeSet<(TaskId, TaskId)> = self
            .messages
            .iter()
            .map(|(_, message)| message)
            .filter(|message| matches!(message.kind, MessageKind::Await { .. }))
            .map(|one| (one.from, one.to))
            .collect();
        let awaits = self.dependencies.iter().flat_map(|(number, tasks)| {
            let slot = self.slot_of(number).expect("a task that waits is here");
            let (from, tenant) = (self.id_at(slot), self.tenant_mark_of(slot));
            let kind = MessageKind::Await { tenant };
            let tasks = tasks.iter().filter(|to| !queued_awaits.contains(&(from, **to)));
            tasks.map(|to| Message { to: *to, from, kind }).collect::<Vec<_>>()
        });
        for message in awaits.collect::<Vec<_>>() {
            self.send_message(message);
        }
    }

    /// The tasks that the one with this number still waits for.
    pub fn dependencies_of(&self, number: u64) -> &[TaskId] {
        self.dependencies.get(number).map_or(&[], Vec::as_slice)
    }

    /// Registers a task, perhaps of another partition, that waits for one here.
    pub fn await_task(&mut self, task: TaskId, waiting: TaskId, tenant: u64) {
        let slot = self.find_task(task);
        // A task of another tenant counts as unknown.
        let found = slot.filter(|place| self.tenant_mark_of(*place) == tenant);
        let state = found.map(|place| self.entries.get(place).state);
        match (found, state) {
            (Some(place), Some(state))
                if !state.has_ended() && self.can_add_dependent(task, waiting) =>
            {
                self.entries.get_mut(place).set_flag(flag::AWAITED);
                let waiters = self.dependents.get_or_default(task.number());
                waiters.insert(waiting);
            }
            _ => {
                let completed = state == Some(TaskState::Completed);
                self.send_message(Message {
                    to: waiting,
                    from: task,
                    kind: MessageKind::Ended { completed },
                });
            }
        }
    }

    fn can_add_dependent(&self, task: TaskId, waiting: TaskId) -> bool {
        let waiters = self.dependents.get(task.number());
        waiters.is_none_or(|known| known.len() < DEPENDENTS_MAX || known.contains(&waiting))
    }

    /// Sends a message to all tasks that wait for one that has ended.
    pub(super) fn notify_dependents(&mut self, slot: SlotIndex, completed: bool) {
        self.entries.get_mut(slot).clear_flag(flag::AWAITED);
        let from = self.id_at(slot);
        for to in self.dependents.remove(from.number()).unwrap_or_default() {
            let kind = MessageKind::Ended { completed };
            self.send_message(Message { to, from, kind });
        }
    }

    /// A task that one here waits for has ended. The last completion makes the waiting task ready;
    /// a failure cancels it, with record `seq` as the reason.
    pub fn resolve(&mut self, seq: u64, waiting: TaskId, task: TaskId, completed: bool) {
        let Some(slot) = self.find_task(waiting) else {
            return;
        };
        let number = waiting.number();
        let Some(tasks) = self.dependencies.get_mut(number) else {
            return;
        };
        let Some(position) = tasks.iter().position(|other| *other == task) else {
            return;
        };
        if !completed {
            self.cancel_task(slot, seq);
            return;
        }
        tasks.remove(position);
        if !tasks.is_empty() {
            return;
        }
        self.dependencies.remove(number);
        self.exit_state(slot);
        match self.entries.get(slot).at_ms {
            at_ms if at_ms > self.now_ms => self.delay_task(slot, at_ms),
            _ => self.make_ready(slot, ReadyPosition::Last),
        }
    }
}
