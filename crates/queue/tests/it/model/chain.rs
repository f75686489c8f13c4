//! Tasks that wait for others.

use egret_queue::core::state::{Message, MessageKind, TaskRef, tenant_mark};
use egret_queue::model::{TaskId, TaskState};

use super::Model;

impl Model {
    fn send(&mut self, to: TaskId, from: TaskId, kind: MessageKind) {
        self.messages.insert(self.next_message, Message { to, from, kind });
        self.next_message += 1;
    }

    pub(super) fn send_awaits(&mut self, waiting: TaskRef, tasks: &[TaskId]) {
        let from = self.id(waiting);
        let tenant = self.tenant_mark_of(waiting.number);
        for task in tasks {
            self.send(*task, from, MessageKind::Await { tenant });
        }
    }

    pub(super) fn resend_awaits(&mut self) {
        let waiting: Vec<_> = self
            .tasks
            .values()
            .filter(|task| task.state == TaskState::Waiting)
            .map(|task| (task.this, task.dependencies.clone()))
            .collect();
        for (this, tasks) in waiting {
            let (from, tenant) = (self.id(this), self.tenant_mark_of(this.number));
            for to in tasks {
                let kind = MessageKind::Await { tenant };
                let is_sent = |sent: &Message| (sent.to, sent.from, sent.kind) == (to, from, kind);
                if !self.messages.values().any(is_sent) {
                    self.send(to, from, kind);
                }
            }
        }
    }

    pub(super) fn notify_dependents(&mut self, number: u64, completed: bool) {
        let task = self.tasks.get_mut(&number).expect("a task that ends");
        let waiters = std::mem::take(&mut task.dependents);
        let from = self.id(self.tasks[&number].this);
        for to in waiters {
            self.send(to, from, MessageKind::Ended { completed });
        }
    }

    fn tenant_mark_of(&self, number: u64) -> u64 {
        tenant_mark(&self.queues[&self.tasks[&number].queue].tenant)
    }

    pub(super) fn await_task(&mut self, task: TaskId, waiting: TaskId, tenant: u64) {
        let number = self.find(task);
        let number = number.filter(|number| self.tenant_mark_of(*number) == tenant);
        let found = number.and_then(|number| self.tasks.get_mut(&number));
        let completed = match found {
            Some(found) if !found.state.has_ended() => {
                found.dependents.insert(waiting);
                return;
            }
            Some(found) => found.state == TaskState::Completed,
            None => false,
        };
        self.send(waiting, task, MessageKind::Ended { completed });
    }

    pub(super) fn resolve(&mut self, seq: u64, waiting: TaskId, task: TaskId, completed: bool) {
        let Some(number) = self.find(waiting) else {
            return;
        };
        let found = self.tasks.get_mut(&number).expect("just found");
        let before = found.dependencies.len();
        found.dependencies.retain(|other| *other != task);
        if found.dependencies.len() == before {
            return;
        }
        if !completed {
            self.cancel_task(number, seq);
            return;
        }
        if !found.dependencies.is_empty() {
            return;
        }
        let at_ms = found.at_ms;
        self.exit_state(number);
        if at_ms > self.now_ms {
            self.delay_task(number, at_ms);
        } else {
            self.make_ready(number, false);
        }
    }
}
