//! Recovery of a shard from its checkpoint and its log.

use std::sync::Arc;

use egret_base::sync::read_lock;
use egret_log::{Log, Seq};
use egret_metrics_model::Labels;

use super::shard::Core;
use crate::core::head::HeadSeries;
use crate::core::index::FRESH_MAX;
use crate::core::record::{self, Record, SampleBatch};
use crate::error::SeriesError;
use crate::store::checkpoint::{Checkpoint, FlushWatermark};

/// Begins with the series of a checkpoint.
pub(crate) fn restore(checkpoint: Checkpoint, core: &mut Core) {
    for piece in checkpoint.series.chunks(FRESH_MAX) {
        let add = |(number, labels): &(u64, Labels)| core.add(*number, labels.clone());
        let added: Vec<_> = piece.iter().map(add).collect();
        core.shared.index.add(added.into_iter());
        build_index(core);
    }
    core.head.skip_numbers(checkpoint.next_number);
}

fn build_index(core: &Core) {
    while let Some(work) = core.shared.index.work(FRESH_MAX) {
        core.shared.index.carry_out(work);
    }
}

/// Applies the records of a log again. Samples that blocks have are skipped, and so are those of
/// unknown series: all of theirs are in blocks.
///
/// # Errors
/// [`SeriesError::Log`] and [`SeriesError::Malformed`].
pub(crate) fn replay<L: Log>(
    log: &L,
    in_blocks: FlushWatermark,
    core: &mut Core,
) -> Result<(), SeriesError> {
    let mut batch = SampleBatch::default();
    for entry in log.read_from(log.first()) {
        let (seq, bytes) = entry?;
        let taken =
            record::take(&bytes, &mut batch).map_err(|malformed| SeriesError::Malformed {
                place: format!("record {seq} of shard {}", core.shared.number),
                malformed,
            })?;
        match taken {
            Record::Series(series) => add_series(core, seq, series)?,
            Record::Samples => {
                core.note(seq, &batch.times_ms);
                core.note_bytes(bytes.len());
                if seq < in_blocks.seq {
                    batch.retain(|time_ms| time_ms >= in_blocks.end);
                }
                // What became of them was told when they came.
                let _ = core.take(&batch);
            }
            Record::Deletion(deletion) => core.delete(seq, &deletion),
            Record::Histograms(mut batch) => {
                core.note(seq, &batch.times_ms);
                core.note_bytes(bytes.len());
                if seq < in_blocks.seq {
                    batch.retain(|time_ms| time_ms >= in_blocks.end);
                }
                let _ = core.take_histograms(&batch);
            }
        }
        core.next = seq.plus(1);
    }
    core.publish();
    Ok(())
}

fn add_series(core: &mut Core, seq: Seq, series: Vec<(u64, &[u8])>) -> Result<(), SeriesError> {
    let mut added: Vec<Arc<HeadSeries>> = Vec::new();
    for (number, key) in series {
        if number < core.head.next_number() {
            continue;
        }
        let key = std::str::from_utf8(key).ok();
        let labels = key
            .and_then(Labels::from_key)
            .ok_or_else(|| SeriesError::Malformed {
                place: format!("record {seq} of shard {}", core.shared.number),
                malformed: egret_base::codec::DecodeError {
                    what: "a series of the series log",
                },
            })?;
        let known = read_lock(&core.known);
        let is_known = known.series(&labels).is_some();
        drop(known);
        added.push(if is_known {
            core.add_again(number, labels)
        } else {
            core.add(number, labels)
        });
    }
    core.shared.index.add(added.into_iter());
    build_index(core);
    Ok(())
}
