//! Which writes a turn does, counted in samples.

use super::*;
use crate::core::record::{HistogramBatch, SampleBatch};
use crate::worker::write_ack::WriteAck;

/// A write whose samples are of a series by which it is known.
fn write(priority: WritePriority, series: u64, sample_count: usize) -> Submission {
    let mut samples = SampleBatch::default();
    (0..sample_count).for_each(|time_ms| samples.push(series, time_ms as i64, 0.0));
    Submission::Write(Write {
        samples,
        histograms: HistogramBatch::default(),
        new_series: Vec::new(),
        priority,
        ack: WriteAck::new(1).0,
    })
}

/// The series of the writes of a turn, and how many samples of bulk writes it has.
fn run_turn(backlog: &mut BulkBacklog, mut queued: Vec<Submission>) -> (Vec<u64>, usize) {
    backlog.plan_turn(&mut queued);
    let mut bulk_samples = 0;
    let series = queued.iter().filter_map(|submission| match submission {
        Submission::Write(write) => {
            let is_bulk = write.priority == WritePriority::Bulk;
            bulk_samples += if is_bulk { write.sample_count() } else { 0 };
            Some(write.samples.series[0])
        }
        _ => None,
    });
    (series.collect(), bulk_samples)
}

#[test]
fn a_live_write_is_in_the_next_turn_however_much_of_a_backfill_waits() {
    let mut backlog = BulkBacklog::default();
    let backfill = (0..100).map(|piece| write(WritePriority::Bulk, piece, 10_000)).collect();
    let (mut done, samples) = run_turn(&mut backlog, backfill);
    assert_eq!((&*done, samples), (&[0, 1, 2][..], 30_000));
    for turn in 1_000.. {
        if backlog.is_empty() {
            break;
        }
        let (series, samples) = run_turn(&mut backlog, vec![write(WritePriority::Live, turn, 20)]);
        assert_eq!(series[0], turn, "the live write comes first");
        assert!(samples <= TURN_SAMPLES_MAX);
        done.extend(&series[1..]);
    }
    assert!(done.into_iter().eq(0..100), "bulk writes keep their order");
    assert_eq!((backlog.len(), backlog.bytes()), (0, 0));
}

#[test]
fn each_turn_does_a_bulk_write_whatever_else_comes() {
    let mut backlog = BulkBacklog::default();
    let large = TURN_SAMPLES_MAX + 1;
    for turn in 0..3 {
        let queued =
            vec![write(WritePriority::Bulk, turn, large), write(WritePriority::Live, 10, large)];
        assert_eq!(run_turn(&mut backlog, queued), (vec![10, turn], large));
    }
    assert!(backlog.is_empty());
}

#[test]
fn what_is_no_write_keeps_its_place_among_live_writes() {
    let mut backlog = BulkBacklog::default();
    let mut queued = vec![
        write(WritePriority::Bulk, 1, 10),
        write(WritePriority::Live, 2, 10),
        Submission::Run(Box::new(|_| {})),
        write(WritePriority::Live, 3, 10),
    ];
    backlog.plan_turn(&mut queued);
    let kinds: Vec<_> = queued
        .iter()
        .map(|submission| match submission {
            Submission::Write(write) => write.samples.series[0],
            _ => 0,
        })
        .collect();
    assert_eq!(kinds, [2, 0, 3, 1]);
}

#[test]
fn what_waits_is_weighed_and_drained() {
    let mut backlog = BulkBacklog::default();
    let pieces = (0..5).map(|piece| write(WritePriority::Bulk, piece, TURN_SAMPLES_MAX)).collect();
    run_turn(&mut backlog, pieces);
    assert_eq!(backlog.len(), 4);
    let weights = backlog.writes.iter().map(Write::log_bytes).sum::<usize>();
    assert_eq!(backlog.bytes(), weights);
    assert_eq!(backlog.drain().count(), 4);
    assert_eq!((backlog.len(), backlog.bytes()), (0, 0));
}
