//! Callbacks that wait for a slot, in a lane for each tenant and receiver.

use std::collections::{BTreeMap, VecDeque};

/// Callbacks that one lane holds; more are returned to the queue.
const LANE_CALLBACKS_MAX: usize = 64;

/// Callbacks that all lanes hold together.
const WAITING_MAX: usize = 1_024;

/// A tenant and a receiver.
pub(super) type LaneKey = (String, String);

struct CallbackLane<C> {
    waiting: VecDeque<C>,
    /// Callbacks that were returned to the queue since the lane was empty.
    returned: usize,
}

/// Waiting callbacks, lane by lane in turn.
pub(super) struct CallbackLanes<C> {
    lanes: BTreeMap<LaneKey, CallbackLane<C>>,
    waiting: usize,
    /// The lane that was served last.
    last_served: Option<LaneKey>,
}

impl<C> CallbackLanes<C> {
    pub(crate) fn new() -> Self {
        Self { lanes: BTreeMap::new(), waiting: 0, last_served: None }
    }

    /// Whether callbacks wait in a lane: a new one must not overtake them.
    pub(crate) fn has_waiting(&self, key: &LaneKey) -> bool {
        self.lanes.contains_key(key)
    }

    /// Puts a callback at the end of its lane.
    ///
    /// # Errors
    /// The callback where there is no room, with the number of those that were returned before it.
    pub(crate) fn push(&mut self, key: &LaneKey, callback: C) -> Result<(), (C, usize)> {
        let is_full = self.waiting >= WAITING_MAX;
        let Some(lane) = self.lanes.get_mut(key) else {
            if is_full {
                return Err((callback, 0));
            }
            let lane = CallbackLane { waiting: VecDeque::from([callback]), returned: 0 };
            self.lanes.insert(key.clone(), lane);
            self.waiting += 1;
            return Ok(());
        };
        if is_full || lane.waiting.len() >= LANE_CALLBACKS_MAX {
            lane.returned += 1;
            return Err((callback, lane.returned - 1));
        }
        lane.waiting.push_back(callback);
        self.waiting += 1;
        Ok(())
    }

    /// Takes the next callback of the first lane, after the one that was served last, for which
    /// `take_slot` finds a slot.
    pub(crate) fn pop(
        &mut self,
        mut take_slot: impl FnMut(&LaneKey) -> bool,
    ) -> Option<(LaneKey, C)> {
        let is_later = |key: &LaneKey| self.last_served.as_ref().is_none_or(|last| key > last);
        let (later, earlier): (Vec<_>, Vec<_>) = self.lanes.keys().partition(|key| is_later(key));
        let mut keys = later.into_iter().chain(earlier);
        let key = keys.find(|key| take_slot(key))?.clone();
        let lane = self.lanes.get_mut(&key)?;
        let callback = lane.waiting.pop_front()?;
        if lane.waiting.is_empty() {
            self.lanes.remove(&key);
        }
        self.waiting -= 1;
        self.last_served = Some(key.clone());
        Some((key, callback))
    }

    /// Takes all callbacks of a lane.
    pub(crate) fn drain(&mut self, key: &LaneKey) -> VecDeque<C> {
        let lane = self.lanes.remove(key);
        let drained = lane.map(|lane| lane.waiting).unwrap_or_default();
        self.waiting -= drained.len();
        drained
    }

    /// All callbacks that wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        self.lanes.values().flat_map(|lane| &lane.waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str, receiver: &str) -> LaneKey {
        (tenant.to_owned(), receiver.to_owned())
    }

    #[test]
    fn lanes_take_turns() {
        let mut lanes = CallbackLanes::new();
        for (tenant, number) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5)] {
            lanes.push(&key(tenant, "x"), number).unwrap();
        }
        let order: Vec<i32> =
            std::iter::from_fn(|| lanes.pop(|_| true)).map(|(_, number)| number).collect();
        assert_eq!(order, [1, 4, 2, 5, 3]);
        assert_eq!(lanes.len(), 0);
        assert!(!lanes.has_waiting(&key("a", "x")));
    }

    #[test]
    fn a_full_lane_leaves_room_to_others() {
        let mut lanes = CallbackLanes::new();
        let refused = (0..100).filter(|at| lanes.push(&key("a", "dead"), *at).is_err());
        assert_eq!(refused.count(), 100 - LANE_CALLBACKS_MAX);
        assert_eq!(lanes.push(&key("a", "dead"), 100), Err((100, 36)));
        lanes.push(&key("a", "alive"), 101).unwrap();
        let next = lanes.pop(|(_, receiver)| receiver == "alive");
        assert_eq!(next, Some((key("a", "alive"), 101)));
        assert_eq!(lanes.drain(&key("a", "dead")).len(), LANE_CALLBACKS_MAX);
        assert_eq!(lanes.len(), 0);
    }
}
