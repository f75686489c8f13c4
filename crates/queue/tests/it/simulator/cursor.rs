//! A reader of a list, page by page, while tasks come and go.

use std::collections::BTreeSet;

use egret_log::simulated::SplitMix64;
use egret_queue::core::state::State;
use egret_queue::model::TaskState;

use crate::model::Model;

pub struct Cursor {
    queue: u32,
    state: TaskState,
    next: u64,
    /// Tasks that were there at the beginning, each with its moves so far.
    first: Vec<(u64, u64)>,
    seen: BTreeSet<(u64, u64)>,
}

impl Cursor {
    pub fn start(model: &Model, queue: u32, chance: &mut SplitMix64) -> Self {
        let state = TaskState::ALL[chance.next_below(7) as usize];
        let first =
            model.list(queue, state).iter().map(|number| (*number, model.tasks[number].moves));
        Self { queue, state, next: 0, first: first.collect(), seen: BTreeSet::new() }
    }

    /// Reads a page; `true` at the end.
    pub fn next_page(&mut self, state: &State, model: &Model, limit: usize) -> bool {
        if model.queue(self.queue).is_err() {
            return true;
        }
        let page = state.list_page(self.queue, self.state, self.next, limit, |_| true);
        assert!(page.slots.len() <= limit);
        for place in page.slots {
            let number = state.entry(place).number;
            let moves = model.tasks[&number].moves;
            assert!(self.seen.insert((number, moves)), "{number} is listed twice");
        }
        if let Some(next) = page.next {
            self.next = next;
            return false;
        }
        for (number, moves) in &self.first {
            let stays = model.tasks.get(number).is_some_and(|task| task.moves == *moves);
            assert!(!stays || self.seen.contains(&(*number, *moves)), "{number} is not listed");
        }
        true
    }
}
