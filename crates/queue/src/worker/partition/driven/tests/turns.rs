//! How much of other tenants is committed between two turns of a tenant.

use super::*;

/// Tenants that flood a partition, and one of which one task always waits.
const FLOODING: [u32; 2] = [7, 8];
const WAITING: u32 = 9;

/// Bytes that one submission may have: what [`crate::Enqueues`] hands to a partition at once.
const SUBMISSION_BYTES_MAX: u64 = 512 << 10;

/// Counts tasks that are answered and bytes of their contents, which are their numbers.
#[derive(Default)]
struct CommitCounter {
    tasks: AtomicUsize,
    bytes: AtomicUsize,
}

impl CommitCounter {
    fn get(&self) -> (usize, usize) {
        let get = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (get(&self.tasks), get(&self.bytes))
    }
}

impl ProduceSink for CommitCounter {
    fn deliver_receipts(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]) {
        for (bytes, outcome) in outcomes {
            assert!(outcome.is_ok(), "{outcome:?}");
            self.tasks.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(*bytes as usize, Ordering::Relaxed);
        }
    }
}

fn enqueue_as(
    driven: &mut DrivenPartition,
    tenant: u32,
    tasks: u64,
    bytes: u64,
    committed: &Arc<CommitCounter>,
) {
    let content = vec![0; bytes as usize];
    let task = Enqueue { queue: 1, content: &content, ..Enqueue::default() };
    let tasks: Vec<_> = (0..tasks).map(|_| (bytes, task.clone())).collect();
    driven.enqueue_as(tenant, &tasks, Grouping::Separate, committed.clone());
}

fn driven(seed: u64) -> DrivenPartition {
    let config = LogConfig {
        segment_bytes: 8 << 20,
        first_segment_bytes: 8 << 20,
        batch_bytes_max: 6 << 20,
        housekeeping: Housekeeping::Owner,
        ..LogConfig::default()
    };
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1)));
    let entropy = Arc::new(SeededEntropy::new(seed));
    let mut driven =
        DrivenPartition::open(SimulatedDisk::new(256 << 20), config, clock, entropy, 0).unwrap();
    driven.put_queue(1, &QueueSettings::default()).unwrap();
    driven
}

#[test]
fn between_two_turns_of_a_tenant_each_other_one_has_a_short_turn() {
    for seed in 0..20 {
        let mut chance = SplitMix64::new(seed);
        let mut driven = driven(seed);
        let floods = FLOODING.map(|_| Arc::new(CommitCounter::default()));
        let waiting = Arc::new(CommitCounter::default());
        // The floods come first: the other tenant begins behind all that waits.
        let mut since = None;
        for turn in 0..60 {
            for (tenant, flood) in FLOODING.iter().zip(&floods) {
                let more = if turn == 0 { 12 } else { chance.next_below(3) };
                for _ in 0..more {
                    let tasks = 1 + chance.next_below(256);
                    let bytes =
                        chance.next_below(SUBMISSION_BYTES_MAX / tasks) >> chance.next_below(12);
                    enqueue_as(&mut driven, *tenant, tasks, bytes, flood);
                }
            }
            let counts = || floods.each_ref().map(|flood| flood.get());
            let (answered, before) = *since.get_or_insert_with(|| {
                enqueue_as(&mut driven, WAITING, 1, 0, &waiting);
                (waiting.get().0, counts())
            });
            driven.run_turn().unwrap();
            driven.housekeep();
            for (now, before) in counts().iter().zip(before) {
                let (tasks, bytes) = (now.0 - before.0, (now.1 - before.1) as u64);
                // The rest of a round, a round, each up to the submission that ends it, and what
                // shares the turn.
                assert!(tasks < 3 * CONTESTED_ITEMS_MAX, "{tasks} tasks, seed {seed}");
                assert!(bytes < 3 * SUBMISSION_BYTES_MAX, "{bytes} bytes, seed {seed}");
            }
            if waiting.get().0 > answered {
                since = None;
            }
        }
        assert!(waiting.get().0 >= 60 / (3 * FLOODING.len()), "{:?}", waiting.get());
    }
}
