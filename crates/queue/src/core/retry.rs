//! How long a task waits after a failed attempt.

use crate::model::{Backoff, Jitter, RetryPolicy};

/// The delay in milliseconds after so many failed attempts, given 64 random bits.
///
/// Jitter as in Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
pub fn delay_ms(policy: &RetryPolicy, failed_attempts: u16, random: u64) -> u64 {
    let failed = u64::from(failed_attempts.max(1));
    let backoff_ms = match policy.backoff {
        Backoff::Fixed => policy.base_ms,
        Backoff::Linear => policy.base_ms.saturating_mul(failed),
        Backoff::Exponential => {
            let factor = 1_u64.checked_shl(failed as u32 - 1).unwrap_or(u64::MAX);
            policy.base_ms.saturating_mul(factor)
        }
    };
    let delay = backoff_ms.min(policy.max_ms);
    match policy.jitter {
        Jitter::None => delay,
        Jitter::Full => uniform_up_to(delay, random),
        Jitter::Equal => delay / 2 + uniform_up_to(delay - delay / 2, random),
    }
}

/// Scales 64 random bits to a number from 0 to `max`, uniformly.
fn uniform_up_to(max: u64, random: u64) -> u64 {
    ((u128::from(random) * (u128::from(max) + 1)) >> 64) as u64
}

/// 64 well-mixed bits from a seed and what they are for (the finaliser of SplitMix64).
pub fn mix(seed: u64, salt: u64) -> u64 {
    let mut word = seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
