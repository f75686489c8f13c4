//! What a tenant may have in flight beside others.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use egret_base::{ManualClock, Timestamp};

use super::*;

const FLOODING: u32 = 7;
const OTHER: u32 = 8;

fn in_flight() -> (Arc<ManualClock>, InFlight) {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1_000_000)));
    (clock.clone(), InFlight::new(clock))
}

fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A permit, where there is one at once.
fn enter(tenant: &Arc<TenantInFlight>, items: usize) -> Option<InFlightPermit> {
    match poll(&mut pin!(tenant.acquire(InFlightKind::Tasks, items))) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

#[test]
fn a_tenant_alone_has_no_bound() {
    let (_, in_flight) = in_flight();
    let flooding = in_flight.for_tenant(FLOODING);
    let permits: Option<Vec<_>> = (0..100).map(|_| enter(&flooding, 1_000)).collect();
    assert!(permits.is_some());
}

#[test]
fn beside_another_tenant_no_more_than_a_bounded_number_of_items_is_in_flight() {
    let (clock, in_flight) = in_flight();
    let (flooding, other) = (in_flight.for_tenant(FLOODING), in_flight.for_tenant(OTHER));
    drop(enter(&flooding, 1_000));
    let one = enter(&other, 1);
    assert!(one.is_some());
    let mut permits = Vec::new();
    // Many calls at once: those that are let in hold no more than the bound together.
    let mut calls: Vec<_> =
        (0..100).map(|_| Box::pin(flooding.acquire(InFlightKind::Tasks, 300))).collect();
    loop {
        let ready = calls.extract_if(.., |call| match poll(call) {
            Poll::Ready(permit) => {
                permits.push(permit);
                true
            }
            Poll::Pending => false,
        });
        drop(ready.collect::<Vec<_>>());
        assert!(permits.len() * 300 <= CONTESTED_ITEMS_MAX as usize);
        // The other tenant never waits for them.
        assert!(enter(&other, 1_000).is_some());
        if permits.pop().is_none() {
            break;
        }
    }
    assert!(calls.is_empty(), "each had its turn");
    // The other one has gone: no bound is left.
    drop(enter(&flooding, 1));
    clock.advance(std::time::Duration::from_millis(ACTIVITY_WINDOW_MS + 1));
    let permits: Option<Vec<_>> = (0..100).map(|_| enter(&flooding, 1_000)).collect();
    assert!(permits.is_some());
}

#[test]
fn a_large_call_has_its_turn_before_smaller_ones_that_came_later() {
    let (_, in_flight) = in_flight();
    let (flooding, other) = (in_flight.for_tenant(FLOODING), in_flight.for_tenant(OTHER));
    drop((enter(&other, 1), enter(&flooding, 1)));
    let first = enter(&flooding, 100);
    let mut large = Box::pin(flooding.acquire(InFlightKind::Tasks, 1_000));
    assert!(poll(&mut large).is_pending());
    assert!(enter(&flooding, 1).is_none(), "it waits behind the large one");
    drop(first);
    assert!(poll(&mut large).is_ready());
}

#[test]
fn reports_do_not_wait_behind_new_tasks() {
    let (_, in_flight) = in_flight();
    let (flooding, other) = (in_flight.for_tenant(FLOODING), in_flight.for_tenant(OTHER));
    drop((enter(&other, 1), enter(&flooding, 1)));
    let tasks = enter(&flooding, 1_000);
    assert!(tasks.is_some());
    let mut waiting = Box::pin(flooding.acquire(InFlightKind::Tasks, 1_000));
    assert!(poll(&mut waiting).is_pending());
    assert!(flooding.try_acquire(InFlightKind::Tasks, 1).is_none());
    let reports = flooding.try_acquire(InFlightKind::Reports, 1_000);
    assert!(reports.is_some());
    let more = flooding.try_acquire(InFlightKind::Reports, 1_000);
    assert!(more.is_none(), "reports are bounded as well");
}

#[test]
fn a_stream_gives_back_what_is_answered_and_the_rest_at_its_end() {
    let (_, in_flight) = in_flight();
    let (flooding, other) = (in_flight.for_tenant(FLOODING), in_flight.for_tenant(OTHER));
    drop((enter(&other, 1), enter(&flooding, 1)));
    let stream = StreamInFlight::new(flooding.clone(), InFlightKind::Tasks);
    stream.hold(enter(&flooding, 1_000).unwrap());
    assert!(enter(&flooding, 500).is_none());
    stream.release(500);
    assert!(enter(&flooding, 500).is_some());
    assert!(enter(&flooding, 600).is_none());
    drop(stream);
    assert_eq!(flooding.tasks.available_permits(), CONTESTED_ITEMS_MAX as usize);
}
