//! Slots by tenant: shares, the order of those that wait, and callers that leave.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const LONG: Duration = Duration::from_secs(3_600);

fn slots(max: u32) -> TenantSlots<&'static str> {
    TenantSlots::new("some.setting", max)
}

#[test]
fn a_tenant_takes_its_share_and_leaves_the_rest_to_others() {
    let slots = slots(4);
    let mut held: Vec<_> = (0..3).map(|_| slots.try_take("one").unwrap()).collect();
    let refused = slots.try_take("one").map(|_| ()).unwrap_err();
    let expected = "limit some.setting is 4, of which one tenant may have 3, and all of these are in use: try again in a moment, or raise the setting";
    assert_eq!(refused.to_string(), expected);
    held.push(slots.try_take("two").unwrap());
    let refused = slots.try_take("three").map(|_| ()).unwrap_err();
    let limit = "some.setting";
    assert_eq!(refused, SlotsTaken::All { limit, max: 4 });
    held.remove(0);
    slots.try_take("three").map(drop).unwrap();
}

#[test]
fn one_request_takes_no_more_than_the_share_of_its_tenant() {
    let slots = slots(4);
    let refused = slots.try_take_many("one", 4).map(|_| ()).unwrap_err();
    let expected = "limit some.setting is 4, of which one tenant may have 3, and 4 are needed at once: ask for fewer, or raise the setting";
    assert_eq!(refused.to_string(), expected);
    let _three = slots.try_take_many("one", 3).unwrap();
    slots.try_take("two").map(drop).unwrap();
}

#[tokio::test]
async fn those_that_wait_are_served_in_order_and_a_tenant_over_its_share_is_passed_over() {
    let slots = slots(4);
    let mut held: Vec<_> = (0..3).map(|_| slots.try_take("one").unwrap()).collect();
    let other = slots.try_take("two").unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(slots.take("one", LONG));
    let mut second = pin!(slots.take("two", LONG));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(other);
    assert!(first.as_mut().poll(&mut context).is_pending(), "it has its share");
    let Poll::Ready(Ok(_second)) = second.as_mut().poll(&mut context) else {
        panic!("a slot is free for it");
    };
    held.pop();
    assert!(matches!(first.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}

#[tokio::test]
async fn a_caller_that_leaves_takes_no_slot_along() {
    let slots = slots(1);
    let held = slots.try_take("one").unwrap();
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut leaving = Box::pin(slots.take("two", LONG));
        assert!(leaving.as_mut().poll(&mut context).is_pending());
        // It is granted a slot that it never looks at.
        drop(held);
    }
    let held = slots.try_take("one").unwrap();
    {
        let mut leaving = Box::pin(slots.take("two", LONG));
        assert!(leaving.as_mut().poll(&mut context).is_pending());
    }
    drop(held);
    slots.try_take("three").map(drop).unwrap();
}

#[tokio::test]
async fn a_wait_ends_with_the_name_of_the_limit() {
    let slots = slots(1);
    let _held = slots.try_take("one").unwrap();
    let refused = slots.take("two", Duration::from_millis(20)).await;
    let message = refused.map(|_| ()).unwrap_err().to_string();
    assert!(message.starts_with("limit some.setting is 1"), "{message}");
}

#[tokio::test]
async fn a_slot_is_another_ones_while_its_holder_waits() {
    let slots = slots(1);
    let mut held = slots.try_take("one").unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let (sender, ends) = oneshot::channel::<()>();
    let mut waiting = Box::pin(held.yield_during(ends));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let other = slots.try_take("two").unwrap();
    sender.send(()).unwrap();
    assert!(waiting.as_mut().poll(&mut context).is_pending(), "it has no slot yet");
    drop(other);
    assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    drop(waiting);
    assert!(slots.try_take("two").is_err());
    // A holder that leaves while it waits has nothing to give back.
    {
        let mut leaving = Box::pin(held.yield_during(std::future::pending::<()>()));
        assert!(leaving.as_mut().poll(&mut context).is_pending());
    }
    drop(held);
    let last = slots.try_take("three").unwrap();
    assert!(slots.try_take("four").is_err());
    drop(last);
}
