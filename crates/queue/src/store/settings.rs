//! Settings of a queue in records and snapshots.

use crate::model::{Backoff, Jitter, QueueSettings, Retention, RetryPolicy};
use egret_base::codec::{DecodeError, Reader, put_varint};

/// Appends encoded settings to `out`.
pub fn encode(out: &mut Vec<u8>, settings: &QueueSettings) {
    put_varint(out, u64::from(settings.max_attempts));
    put_retry(out, &settings.retry);
    put_varint(out, settings.lease_ms);
    put_varint(out, settings.timeout_ms);
    put_varint(out, u64::from(settings.concurrency));
    put_varint(out, u64::from(settings.key_concurrency));
    out.extend_from_slice(&settings.rate_per_second.to_le_bytes());
    put_varint(out, u64::from(settings.rate_burst));
    for retention in [settings.completed, settings.dead, settings.cancelled] {
        put_varint(out, retention.age_ms);
        put_varint(out, retention.count);
    }
    put_varint(out, settings.unique_window_ms);
    put_varint(out, settings.aging_ms);
}

/// Decodes settings.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub fn decode(from: &mut Reader<'_>) -> Result<QueueSettings, DecodeError> {
    Ok(QueueSettings {
        max_attempts: from.varint_as()?,
        retry: take_retry(from)?,
        lease_ms: from.varint()?,
        timeout_ms: from.varint()?,
        concurrency: from.varint_as()?,
        key_concurrency: from.varint_as()?,
        rate_per_second: f64::from_bits(from.u64()?),
        rate_burst: from.varint_as()?,
        completed: take_retention(from)?,
        dead: take_retention(from)?,
        cancelled: take_retention(from)?,
        unique_window_ms: from.varint()?,
        aging_ms: from.varint()?,
    })
}

fn take_retention(from: &mut Reader<'_>) -> Result<Retention, DecodeError> {
    Ok(Retention { age_ms: from.varint()?, count: from.varint()? })
}

/// Appends a retry policy.
pub(crate) fn put_retry(out: &mut Vec<u8>, retry: &RetryPolicy) {
    let backoff = match retry.backoff {
        Backoff::Fixed => 0,
        Backoff::Linear => 1,
        Backoff::Exponential => 2,
    };
    let jitter = match retry.jitter {
        Jitter::None => 0,
        Jitter::Full => 1,
        Jitter::Equal => 2,
    };
    out.extend_from_slice(&[backoff, jitter]);
    put_varint(out, retry.base_ms);
    put_varint(out, retry.max_ms);
}

/// Decodes what [`put_retry`] wrote.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub(crate) fn take_retry(from: &mut Reader<'_>) -> Result<RetryPolicy, DecodeError> {
    let backoff = match from.u8()? {
        0 => Backoff::Fixed,
        1 => Backoff::Linear,
        2 => Backoff::Exponential,
        _ => return Err(from.malformed()),
    };
    let jitter = match from.u8()? {
        0 => Jitter::None,
        1 => Jitter::Full,
        2 => Jitter::Equal,
        _ => return Err(from.malformed()),
    };
    Ok(RetryPolicy { backoff, jitter, base_ms: from.varint()?, max_ms: from.varint()? })
}
