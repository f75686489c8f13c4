//! Names of queues and of schedules.

use crate::error::QueueError;

/// Bytes of a name of a queue or a schedule, at most.
pub const NAME_BYTES_MAX: usize = 128;

/// Refuses a name that is not valid for a queue: letters, digits and `-_.:`, not `-` first.
pub(crate) fn check_name(name: &str) -> Result<(), QueueError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(allowed)
        && !name.starts_with('-')
    {
        return Ok(());
    }
    Err(QueueError::Invalid {
        what: "name",
        reason: format!(
            "`{name}` is not 1 to {NAME_BYTES_MAX} letters, digits and `-_.:`, beginning with none of `-`"
        ),
    })
}
