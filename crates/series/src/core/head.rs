//! The samples of a shard that are not in a block yet.
//!
//! One thread changes a head: it does what the log says, in the log's order, so that a replay comes to the same.
//! Any number read: they take the chunks of a series, each of which can be read while it grows, and hold nothing
//! while they do.

use std::sync::{Arc, Mutex, MutexGuard};

use super::chunk::{Appender, Chunk};
use super::record::SampleBatch;
use crate::model::TimeMs;

/// Samples out of order that a series gathers before it makes a chunk of them.
const LATE_MAX: usize = 256;

/// The samples of one series, for readers.
#[derive(Debug, Default)]
pub struct Samples {
    parts: Mutex<Parts>,
}

/// What a series has: chunks in the order of time, and apart from them what came late.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Full chunks, then the open one.
    pub chunks: Vec<Chunk>,
    /// Chunks of samples that came late, each ascending in itself, in the order of their making.
    pub late_chunks: Vec<Chunk>,
    /// The others that came late, ascending.
    pub late: Vec<(TimeMs, f64)>,
}

impl Samples {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().expect("no holder of this lock can panic")
    }

    /// What there is now.
    pub fn now(&self) -> Parts {
        self.parts().clone()
    }
}

impl Parts {
    /// Adds all samples from `start` to `end`, both included, ascending. Of several at one time the one that came
    /// last counts.
    pub fn read(&self, start: TimeMs, end: TimeMs, into: &mut Vec<(TimeMs, f64)>) {
        let from = into.len();
        let within = |time_ms: TimeMs| (start..=end).contains(&time_ms);
        for (at, chunk) in self.chunks.iter().enumerate() {
            let next = self.chunks.get(at + 1);
            if chunk.first_ms() > end || next.is_some_and(|next| next.first_ms() <= start) {
                continue;
            }
            into.extend(chunk.samples().filter(|(time_ms, _)| within(*time_ms)));
        }
        let in_order = into.len();
        let chunks = self.late_chunks.iter().flat_map(Chunk::samples);
        let late = chunks.chain(self.late.iter().copied());
        into.extend(late.filter(|(time_ms, _)| within(*time_ms)));
        if into.len() == in_order {
            return;
        }
        // Stable: those that came later stay behind, and are kept.
        into[from..].sort_by_key(|(time_ms, _)| *time_ms);
        let mut kept = from;
        for at in from..into.len() {
            if kept > from && into[kept - 1].0 == into[at].0 {
                kept -= 1;
            }
            into[kept] = into[at];
            kept += 1;
        }
        into.truncate(kept);
    }
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is the latest of its series.
    InOrder,
    /// It came late.
    Late,
    /// It was there.
    Same,
    /// Its series has another value at that time, which stays.
    Conflict,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Head {
    series: Vec<Option<Slot>>,
}

#[derive(Debug)]
struct Slot {
    samples: Arc<Samples>,
    appender: Option<Appender>,
}

impl Head {
    /// Makes room for a series, which has no samples yet.
    pub fn add(&mut self, number: u32) -> Arc<Samples> {
        let place = number as usize;
        if self.series.len() <= place {
            self.series.resize_with(place + 1, || None);
        }
        let samples = Arc::new(Samples::default());
        self.series[place] = Some(Slot {
            samples: samples.clone(),
            appender: None,
        });
        samples
    }

    /// Takes samples in, and tells what became of those that were not [`Taken::InOrder`], by their place in the
    /// columns. Samples of series that are not there are passed over: they were deleted.
    pub fn take(&mut self, samples: &SampleBatch, mut tell: impl FnMut(usize, Taken)) {
        for (at, (series, time_ms, value)) in samples.iter().enumerate() {
            let Some(Some(slot)) = self.series.get_mut(series as usize) else {
                continue;
            };
            let taken = slot.take(time_ms, value);
            if taken != Taken::InOrder {
                tell(at, taken);
            }
        }
    }
}

impl Slot {
    #[inline]
    fn take(&mut self, time_ms: TimeMs, value: f64) -> Taken {
        let Some(appender) = &mut self.appender else {
            let appender = Appender::new(time_ms, value);
            self.samples.parts().chunks.push(appender.chunk().clone());
            self.appender = Some(appender);
            return Taken::InOrder;
        };
        if time_ms > appender.last_ms() {
            if appender.push(time_ms, value).is_err() {
                appender.begin_next(time_ms, value);
                self.samples.parts().chunks.push(appender.chunk().clone());
            }
            return Taken::InOrder;
        }
        if time_ms == appender.last_ms() {
            return match value.to_bits() == appender.last().to_bits() {
                true => Taken::Same,
                false => Taken::Conflict,
            };
        }
        self.take_late(time_ms, value)
    }

    #[cold]
    fn take_late(&mut self, time_ms: TimeMs, value: f64) -> Taken {
        let mut parts = self.samples.parts();
        match parts
            .late
            .binary_search_by_key(&time_ms, |(other, _)| *other)
        {
            Ok(at) if parts.late[at].1.to_bits() == value.to_bits() => return Taken::Same,
            Ok(_) => return Taken::Conflict,
            Err(at) => parts.late.insert(at, (time_ms, value)),
        }
        if parts.late.len() >= LATE_MAX {
            let late = std::mem::take(&mut parts.late);
            pack(&late, &mut parts.late_chunks);
        }
        Taken::Late
    }
}

/// Makes chunks of ascending samples.
fn pack(samples: &[(TimeMs, f64)], chunks: &mut Vec<Chunk>) {
    let Some(((time_ms, value), rest)) = samples.split_first() else {
        return;
    };
    let mut appender = Appender::new(*time_ms, *value);
    for (time_ms, value) in rest {
        if appender.push(*time_ms, *value).is_err() {
            chunks.push(appender.begin_next(*time_ms, *value));
        }
    }
    chunks.push(appender.chunk().clone());
}

#[cfg(test)]
mod tests;
