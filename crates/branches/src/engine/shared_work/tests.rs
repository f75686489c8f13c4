//! Results serve those that came before the work began, and no others.

use std::pin::pin;

use futures_util::FutureExt;

use super::*;

#[tokio::test]
async fn a_result_serves_those_that_came_before_the_work_began() {
    let work = SharedWork::default();
    let Work::Turn(first) = work.join().await else {
        panic!("nothing was done yet");
    };
    let mut second = pin!(work.join());
    let mut third = pin!(work.join());
    assert!((&mut second).now_or_never().is_none());
    assert!((&mut third).now_or_never().is_none());
    // It began before they came.
    first.finish(1);
    let Work::Turn(turn) = second.await else {
        panic!("an older result was shared");
    };
    turn.finish(2);
    let Work::Shared(result) = third.await else {
        panic!("the same was done again");
    };
    assert_eq!(result, 2);
    let Work::Turn(unfinished) = work.join().await else {
        panic!("an older result was shared");
    };
    assert!(work.try_take_turn().is_none() && work.is_under_way());
    drop(unfinished);
    assert!(!work.is_under_way() && work.try_take_turn().is_some());
}
