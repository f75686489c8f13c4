//! Chains: tasks that wait for others, made together or not at all.

use super::*;

impl CrashSimulation {
    /// New tasks of which some wait for earlier ones of the chain, and some for tasks from before.
    pub(super) fn enqueue_chain(&mut self) {
        let count = 2 + self.rng.next_below(4);
        let size = [10, 100, 1_000][self.rng.next_below(3) as usize];
        let labels: Vec<u64> = (self.next_label..).take(count as usize).collect();
        self.next_label += count;
        let mut links: Vec<Vec<u32>> = Vec::new();
        let mut outside = Vec::new();
        for place in 0..count {
            let earlier = (0..place).filter(|_| self.rng.percent(50));
            links.push(earlier.map(|place| place as u32).collect());
            let others =
                (0..self.rng.next_below(2)).filter_map(|_| self.history.some_task(&mut self.rng));
            outside.push(others.collect::<Vec<_>>());
        }
        let contents: Vec<Vec<u8>> =
            labels.iter().map(|label| client_history::content_of(*label, size)).collect();
        let after: Vec<Vec<u8>> =
            outside.iter().map(|ids| ids.iter().flat_map(|id| id.to_bytes()).collect()).collect();
        let tasks: Vec<(u64, Enqueue<'_>)> = labels
            .iter()
            .zip(contents.iter().zip(&after))
            .map(|(label, (content, after))| {
                let task = Enqueue {
                    queue: QUEUE,
                    shard: (label % 4_096) as u16,
                    content,
                    after,
                    ..Enqueue::default()
                };
                (*label, task)
            })
            .collect();
        self.history.submit_chain(&labels, &links, &outside);
        let ears = self.sink.clone();
        self.driven().enqueue_chain(&tasks, &links, ears);
    }

    /// Lets every message arrive: then a task waits only for those that have not ended.
    pub(super) fn settle_chains(&mut self) {
        loop {
            self.driven().housekeep();
            self.turn();
            let driven = self.driven();
            if driven.is_idle() && driven.state().message_count() == 0 {
                break;
            }
        }
        let driven = self.driven.as_ref().expect("it is open between steps");
        self.history.check_settled(driven.state());
    }
}
