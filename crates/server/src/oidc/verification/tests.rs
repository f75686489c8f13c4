//! Verifications are bounded by address, at once, and in how many wait.

use futures_util::poll;

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn refused(entered: Result<VerificationPermit<'_>, JwtRefusal>) -> JwtRefusal {
    match entered {
        Ok(_) => panic!("it was let in"),
        Err(refusal) => refusal,
    }
}

#[tokio::test]
async fn an_address_with_too_many_failures_waits_for_the_next_minute() {
    let quota = VerificationQuota::default();
    for number in 0..FAILURES_MAX.max {
        // One site has many addresses of IPv6.
        let guess = address(&format!("2001:db8::{number:x}"));
        drop(quota.acquire(guess, NOW).await.unwrap());
        quota.count_failure(guess, NOW);
    }
    let refusal = refused(quota.acquire(address("2001:db8::ffff"), NOW).await);
    assert!(
        matches!(refusal, JwtRefusal::TooManyFailures(exceeded) if exceeded.name == FAILURES_MAX.name)
    );
    assert!(quota.acquire(address("192.0.2.1"), NOW).await.is_ok());
    let later = NOW.plus(std::time::Duration::from_secs(60));
    assert!(quota.acquire(address("2001:db8::ffff"), later).await.is_ok());
}

#[tokio::test]
async fn few_verify_at_once_and_few_wait_for_it() {
    let quota = VerificationQuota::new(1);
    let here = address("192.0.2.1");
    let verifying = quota.acquire(here, NOW).await.unwrap();
    let mut waiting: Vec<_> =
        (1..WAITERS_MAX.max).map(|_| Box::pin(quota.acquire(here, NOW))).collect();
    for entered in &mut waiting {
        assert!(poll!(entered).is_pending());
    }
    let refusal = refused(quota.acquire(here, NOW).await);
    assert!(matches!(refusal, JwtRefusal::Busy(exceeded) if exceeded.name == WAITERS_MAX.name));
    drop(verifying);
    assert!(poll!(&mut waiting[0]).is_ready());
}
