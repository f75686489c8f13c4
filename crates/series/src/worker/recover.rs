//! Recovery of a shard from its checkpoint and its log.

use std::sync::Arc;

use egret_base::sync::read_lock;
use egret_log::{Log, Seq};
use egret_metrics_model::Labels;

use super::shard::Core;
use crate::core::head::HeadSeries;
use crate::core::index::FRESH_SERIES_MAX;
use crate::core::record::{self, Record, SampleBatch};
use crate::error::SeriesError;
use crate::store::checkpoint::{Checkpoint, FlushWatermark};

/// Begins with the series of a checkpoint.
pub(crate) fn restore(checkpoint: Checkpoint, core: &mut Core) {
    for piece in checkpoint.series.chunks(FRESH_SERIES_MAX) {
        let add = |(number, labels): &(u64, Labels)| core.add_series(*number, labels.clone());
        let added: Vec<_> = piece.iter().map(add).collect();
        core.shared.index.add(added.into_iter());
        build_index(core);
    }
    core.head.skip_numbers(checkpoint.next_number);
}

fn build_index(core: &Core) {
    while let Some(job) = core.shared.index.next_job(FRESH_SERIES_MAX) {
        core.shared.index.run_job(job);
    }
}

/// Applies the records of a log again. Samples that blocks have are skipped, and so are those of
/// unknown series: all of theirs are in blocks.
///
/// # Errors
/// [`SeriesError::Log`] and [`SeriesError::Malformed`].
pub(crate) fn replay<L: Log>(
    log: &L,
    flush_watermark: FlushWatermark,
    core: &mut Core,
) -> Result<(), SeriesError> {
    let mut batch = SampleBatch::default();
    for entry in log.read_from(log.first_seq()) {
        let (seq, bytes) = entry?;
        let decoded =
            record::decode(&bytes, &mut batch).map_err(|malformed| SeriesError::Malformed {
                place: format!("record {seq} of shard {}", core.shared.number),
                malformed,
            })?;
        match decoded {
            Record::Series(series) => add_series(core, seq, series)?,
            Record::Samples => {
                core.note_samples(seq, &batch.times_ms);
                core.note_bytes(bytes.len());
                if seq < flush_watermark.seq {
                    batch.retain(|time_ms| time_ms >= flush_watermark.end);
                }
                // What became of them was told when they came.
                let _ = core.append_samples(&batch);
            }
            Record::Deletion(deletion) => core.apply_deletion(seq, &deletion),
            Record::Histograms(mut batch) => {
                core.note_samples(seq, &batch.times_ms);
                core.note_bytes(bytes.len());
                if seq < flush_watermark.seq {
                    batch.retain(|time_ms| time_ms >= flush_watermark.end);
                }
                let _ = core.append_histograms(&batch);
            }
        }
        core.next_seq = seq.plus(1);
    }
    core.publish_sizes();
    Ok(())
}

fn add_series(core: &mut Core, seq: Seq, series: Vec<(u64, &[u8])>) -> Result<(), SeriesError> {
    let mut added: Vec<Arc<HeadSeries>> = Vec::new();
    for (number, key) in series {
        if number < core.head.next_number() {
            continue;
        }
        let key = std::str::from_utf8(key).ok();
        let labels = key.and_then(Labels::from_key).ok_or_else(|| SeriesError::Malformed {
            place: format!("record {seq} of shard {}", core.shared.number),
            malformed: egret_base::codec::DecodeError { what: "a series of the series log" },
        })?;
        let keys = read_lock(&core.series_keys);
        let is_known = keys.find_series(&labels).is_some();
        drop(keys);
        added.push(if is_known {
            core.add_renumbered_series(number, labels)
        } else {
            core.add_series(number, labels)
        });
    }
    core.shared.index.add(added.into_iter());
    build_index(core);
    Ok(())
}
