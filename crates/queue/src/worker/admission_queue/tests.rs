//! Turns of tenants.

use std::sync::Arc;

use super::*;
use crate::QueueError;
use crate::model::TaskOptions;
use crate::worker::sinks::{EnqueueReceipt, ProduceSink};
use crate::worker::submission::{EnqueueBatch, Grouping, Item};

struct DiscardingProduceSink;

impl ProduceSink for DiscardingProduceSink {
    fn deliver_receipts(&self, _: &[(u64, Result<EnqueueReceipt, QueueError>)]) {}
}

fn batch(tenant: u32, items: usize) -> Submission {
    let item = Item {
        number: 0,
        queue: 1,
        shard: 0,
        priority: 0,
        callback: false,
        run_at_ms: 0,
        delay_ms: 0,
        key: 0,
        unique: None,
        origin: None,
        options: TaskOptions::default(),
        tags: 0..0,
        after: 0..0,
        content: 0..0,
    };
    Submission::Enqueue(EnqueueBatch {
        grouping: Grouping::Separate,
        tenant,
        items: vec![item; items],
        bytes: Arc::default(),
        sink: Arc::new(DiscardingProduceSink),
    })
}

#[test]
fn a_flood_of_one_tenant_does_not_hold_another_up() {
    let mut waiting = FairQueue::default();
    for _ in 0..1_000 {
        waiting.push(batch(7, 100));
    }
    waiting.push(batch(8, 1));
    let before = std::iter::from_fn(|| waiting.pop()).take_while(|one| one.tenant() == 7);
    assert_eq!(before.count(), 3);
    let rest = std::iter::from_fn(|| waiting.pop());
    assert_eq!(rest.count(), 997);
    assert!(waiting.is_empty());
}

#[test]
fn a_large_submission_lengthens_no_turn_of_several_tenants() {
    let mut waiting = FairQueue::default();
    waiting.push(batch(7, 1_000));
    assert!(waiting.fits(200, 256), "one tenant alone fills its turns");
    waiting.push(batch(8, 1));
    waiting.push(batch(7, 1_000));
    assert!(waiting.is_contested());
    assert!(waiting.fits(0, 256), "what is larger than a turn has its own");
    assert!(!waiting.fits(1, 256));
}

#[test]
fn large_tasks_of_one_tenant_do_not_hold_another_up() {
    let mut waiting = FairQueue::default();
    for _ in 0..100 {
        let Submission::Enqueue(mut large) = batch(7, 1) else {
            unreachable!("it was made so");
        };
        large.bytes = Arc::new(vec![0; 256 << 10]);
        waiting.push(Submission::Enqueue(large));
    }
    waiting.push(batch(8, 1));
    let before = std::iter::from_fn(|| waiting.pop()).take_while(|one| one.tenant() == 7);
    assert_eq!(before.count(), 2);
}

#[test]
fn a_tenant_may_take_as_much_as_is_left_for_others() {
    let shares = TenantBufferQuota::new(1_000);
    let taken_by = |tenant| (0..).take_while(|_| shares.reserve(tenant, 10).is_ok()).count();
    assert_eq!(taken_by(1), 50);
    assert_eq!(taken_by(2), 25);
    // What waits alone is taken, however large.
    shares.reserve(3, 5_000).unwrap();
    shares.reserve(3, 1).unwrap_err();
    shares.release(3, 5_000);
    shares.release(1, 500);
    assert_eq!(taken_by(1), 38);
}
