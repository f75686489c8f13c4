//! A partition as it was at one moment, to be written down while it goes on.

use super::*;

/// Everything that decides on what a partition does, without the maps that find it. Taking one costs a
/// small allocation or a reference count a page, and a copy of what there is little of.
#[derive(Clone, Debug)]
pub struct Image {
    /// See [`State`].
    pub now_ms: u64,
    /// See [`State`].
    pub epoch: u32,
    /// See [`State`].
    pub instance: u16,
    /// See [`State`].
    pub grace_until_ms: u64,
    /// See [`State`].
    pub next_number: u64,
    /// See [`State`].
    pub leases: u64,
    /// See [`State`].
    pub next_message: u64,
    /// See [`State`].
    pub entries: Slab<Entry>,
    /// See [`State`].
    pub timers: Wheel,
    /// See [`State`].
    pub queues: Queues,
    /// See [`State`].
    pub flows: Slab<Flow>,
    /// See [`State`].
    pub lanes: Slab<Lane>,
    /// See [`State`].
    pub uniques: Slab<Unique>,
    /// See [`State`].
    pub unique_timers: Wheel,
    /// See [`State`].
    pub pasts: Slab<Past>,
    /// See [`State`].
    pub options: Values<TaskOptions>,
    /// See [`State`].
    pub tags: Values<Box<[u8]>>,
    /// See [`State`].
    pub workers: Values<Box<str>>,
    /// See [`State`].
    pub next_queue: u32,
    /// See [`State`].
    pub retentions: BTreeSet<(u64, u32, TaskState)>,
    /// See [`State`].
    pub awaited: Numbered<BTreeSet<TaskId>>,
    /// See [`State`].
    pub waits: Numbered<Vec<TaskId>>,
    /// See [`State`].
    pub messages: Numbered<Message>,
    /// See [`State`].
    pub schedules: BTreeMap<(Box<str>, Box<str>), Schedule>,
    /// See [`State`].
    pub callbacks: Numbered<About>,
    /// See [`State`].
    pub shared: Numbered<SharedRecord>,
    /// See [`State`].
    pub tenants: Tenants,
}

impl State {
    /// What there is now.
    pub fn image(&mut self) -> Image {
        Image {
            now_ms: self.now_ms,
            epoch: self.epoch,
            instance: self.instance,
            grace_until_ms: self.grace_until_ms,
            next_number: self.next_number,
            leases: self.leases,
            next_message: self.next_message,
            entries: self.entries.share(),
            timers: self.timers.clone(),
            queues: self.queues.clone(),
            flows: self.flows.share(),
            lanes: self.lanes.share(),
            uniques: self.uniques.share(),
            unique_timers: self.unique_timers.clone(),
            pasts: self.pasts.share(),
            options: self.options.values().clone(),
            tags: self.tags.values().clone(),
            workers: self.workers.values().clone(),
            next_queue: self.next_queue,
            retentions: self.retentions.clone(),
            awaited: self.awaited.clone(),
            waits: self.waits.clone(),
            messages: self.messages.clone(),
            schedules: self.schedules.clone(),
            callbacks: self.callbacks.clone(),
            shared: self.shared.clone(),
            tenants: self.tenants.share(),
        }
    }

    /// The partition of an image: goes on exactly as the one it was taken of.
    pub fn restore(image: Image) -> Self {
        let mut state = Self {
            now_ms: image.now_ms,
            epoch: image.epoch,
            instance: image.instance,
            grace_until_ms: image.grace_until_ms,
            next_number: image.next_number,
            leases: image.leases,
            next_message: image.next_message,
            entries: image.entries,
            timers: image.timers,
            queues: image.queues,
            flows: image.flows,
            lanes: image.lanes,
            uniques: image.uniques,
            unique_timers: image.unique_timers,
            pasts: image.pasts,
            options: Interner::new(image.options),
            tags: Interner::new(image.tags),
            workers: Interner::new(image.workers),
            next_queue: image.next_queue,
            retentions: image.retentions,
            awaited: image.awaited,
            waits: image.waits,
            messages: image.messages,
            schedules: image.schedules,
            callbacks: image.callbacks,
            shared: image.shared,
            tenants: image.tenants,
            ..Self::default()
        };
        state.index_all();
        state.index_ticks();
        state.count_load();
        state
    }

    /// Makes what finds rows.
    fn index_all(&mut self) {
        for (_, queue, state) in self.retentions.clone() {
            self.note_watched(queue, state, true);
        }
        let ids: Vec<u32> = self.queues.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.note_crowded(id));
        let leaving = self.queues.iter().filter(|(_, queue)| queue.deleted);
        self.leaving = leaving.map(|(id, _)| id).collect();
        let entries = (0..self.entries.extent()).zip(self.entries.places());
        self.numbers =
            Places::of(entries.filter_map(|(place, entry)| Some((entry?.number, place))));
        for place in 0..self.flows.extent() {
            if !self.flows.get(place).is_free() {
                self.note_flow(place);
            }
        }
        for place in 0..self.uniques.extent() {
            if !self.uniques.get(place).is_free() {
                self.note_unique(place);
            }
        }
    }
}
