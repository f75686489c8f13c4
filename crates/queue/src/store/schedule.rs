//! Description of a schedule in its record: the expression, and when it was put.

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint};

use super::{content, record};
use crate::core::command::Command;
use crate::model::MissedTickPolicy;

/// Description of a schedule, beside its task.
pub(crate) struct Description<'a> {
    pub cron: &'a str,
    pub time_zone: &'a str,
    pub missed: MissedTickPolicy,
    /// When it was put, in Unix milliseconds: later than all that it replaces, whatever the clock
    /// said. Of two with one name, which a crash may leave, the later is valid.
    pub put_ms: u64,
}

impl<'a> Description<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.missed as u8];
        put_bytes(&mut out, self.cron.as_bytes());
        put_bytes(&mut out, self.time_zone.as_bytes());
        put_varint(&mut out, self.put_ms);
        out
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes, "a schedule");
        let missed = match from.u8()? {
            0 => MissedTickPolicy::Skip,
            1 => MissedTickPolicy::One,
            2 => MissedTickPolicy::All,
            _ => return Err(from.malformed()),
        };
        Ok(Self {
            missed,
            cron: from.text()?,
            time_zone: from.text()?,
            // The first versions did not store it.
            put_ms: match from.rest() {
                [] => 0,
                _ => from.varint()?,
            },
        })
    }
}

/// When a schedule was put, by its record.
pub(crate) fn put_ms(record: &[u8]) -> u64 {
    let Ok(Command::PutSchedule(put)) = record::decode(record) else {
        return 0;
    };
    let task_content = content::decode(put.task.content);
    task_content.map_or(0, |carried| {
        let description = Description::decode(carried.private.schedule);
        description.map_or(0, |described| described.put_ms)
    })
}
