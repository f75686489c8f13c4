//! What a log must hold, kept beside it by the simplest means.

use egret_log::{FileLog, Log, LogError, LogReader, Seq, simulated::SimulatedDisk};

/// What is known about a log's records.
#[derive(Debug, Default)]
pub struct Model {
    /// The body of record 1, 2, …; those that are committed.
    bodies: Vec<Vec<u8>>,
    /// Which of them a compaction may have dropped.
    droppable: Vec<bool>,
    /// A batch whose append failed in a way that leaves open whether it is in the log.
    pub uncertain: Vec<Vec<u8>>,
    /// Every record below is promised to survive a loss of power.
    pub durable_below: u64,
    /// Records below may have been truncated.
    pub truncated_below: u64,
    /// Numbers with which a batch began, and the end: a crash ends the log at one of them.
    boundaries: Vec<u64>,
}

impl Model {
    pub fn next(&self) -> u64 {
        self.bodies.len() as u64 + 1
    }

    /// A batch was acknowledged.
    pub fn commit(&mut self, batch: Vec<Vec<u8>>) {
        self.boundaries.push(self.next());
        self.droppable.extend(batch.iter().map(|_| false));
        self.bodies.extend(batch);
    }

    /// A compaction that keeps what `keep` says was put in place.
    pub fn remove_compacted(&mut self, first: u64, last: u64, keep: impl Fn(u64) -> bool) {
        for seq in (first..=last).filter(|seq| !keep(*seq)) {
            self.droppable[seq as usize - 1] = true;
        }
    }

    /// After a restart: the log must end where something ended, not before `least`, and what it
    /// holds now is what it has.
    pub fn check_reopened(&mut self, log: &FileLog<SimulatedDisk>, least: u64) {
        let next = log.next_seq().0;
        assert!(next >= least, "ends before {next}, but {least} was promised");
        if next > self.next() {
            let uncertain = std::mem::take(&mut self.uncertain);
            assert_eq!(next, self.next() + uncertain.len() as u64, "half a batch");
            self.commit(uncertain);
        }
        let whole = next == self.next() || self.boundaries.contains(&next);
        assert!(whole, "half a batch before {next}");
        self.uncertain.clear();
        self.bodies.truncate(next as usize - 1);
        self.droppable.truncate(next as usize - 1);
        self.boundaries.retain(|boundary| *boundary < next);
        // Opening makes everything durable.
        self.durable_below = next;
        self.check_all(log);
    }

    /// One record, by number.
    pub fn check_read(&self, log: &FileLog<SimulatedDisk>, seq: u64) {
        match log.reader().read(Seq(seq)) {
            Ok(body) => assert_eq!(&*body, &*self.bodies[seq as usize - 1], "record {seq}"),
            Err(LogError::Compacted { .. }) => assert!(self.droppable[seq as usize - 1]),
            Err(LogError::Truncated { first, .. }) => {
                assert!(seq < first.0 && first.0 <= self.truncated_below.max(1));
            }
            Err(LogError::Ahead { .. }) => assert!(seq >= self.next()),
            Err(other) => panic!("record {seq}: {other}"),
        }
    }

    /// Everything from `from` on, in order.
    pub fn check_tail(&self, log: &FileLog<SimulatedDisk>, from: u64) {
        let from = from.max(log.first_seq().0);
        let mut expected = from;
        for item in log.read_from(Seq(from)) {
            let (seq, body) = item.unwrap_or_else(|error| panic!("tail from {from}: {error}"));
            let skipped = expected..seq.0;
            assert!(seq.0 >= expected);
            assert!(skipped.into_iter().all(|seq| self.droppable[seq as usize - 1]));
            assert_eq!(&*body, &*self.bodies[seq.0 as usize - 1], "record {seq}");
            expected = seq.0 + 1;
        }
        let rest = expected..self.next();
        assert!(rest.into_iter().all(|seq| self.droppable[seq as usize - 1]));
    }

    pub fn check_all(&self, log: &FileLog<SimulatedDisk>) {
        assert_eq!(log.next_seq().0, self.next());
        assert!(log.first_seq().0 <= self.truncated_below.max(1));
        self.check_tail(log, 1);
        let segments = log.segments();
        let mut next = log.first_seq();
        for segment in &segments {
            assert_eq!(segment.first, next, "{segments:?}");
            next = segment.last.next();
        }
        assert_eq!(next, log.next_seq());
    }
}
