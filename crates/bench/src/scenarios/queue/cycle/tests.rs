//! The load against a task queue in memory, with time and mistakes as the test wants them.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use super::*;
use crate::record::Recording;

/// Answers at most so many things per poll, in order.
#[derive(Default)]
struct Memory {
    waiting: VecDeque<u64>,
    ready: VecDeque<u64>,
    reports: VecDeque<(u64, u64)>,
    credits: u32,
    asked: u64,
    reported: u64,
    most_waiting: usize,
    most_credits: u32,
    loses: Option<u64>,
    repeats: Option<u64>,
}

impl Broker for Memory {
    fn enqueue(&mut self, payload: &[u8]) {
        assert_eq!(payload.len(), 14);
        assert_eq!(&payload[..8], &self.asked.to_le_bytes());
        self.waiting.push_back(self.asked);
        self.asked += 1;
        self.most_waiting = self.most_waiting.max(self.waiting.len());
    }

    fn add_credits(&mut self, credits: u32) {
        self.credits += credits;
        self.most_credits = self.most_credits.max(self.credits);
    }

    fn complete(&mut self, handle: &[u8]) {
        let task = u64::from_le_bytes(handle.try_into().unwrap());
        self.reports.push_back((self.reported, task));
        self.reported += 1;
    }

    fn poll(&mut self, _: &mut Context<'_>, events: &mut Events) -> Poll<Result<()>> {
        let mut payload = [0; 14];
        for _ in 0..3 {
            if let Some(number) = self.waiting.pop_front() {
                events.enqueued.push(number);
                if self.loses != Some(number) {
                    self.ready.push_back(number);
                }
            }
        }
        while self.credits > 0
            && let Some(number) = self.ready.pop_front()
        {
            self.credits -= 1;
            write_number(&mut payload, number);
            events.push_delivery(&payload, &number.to_le_bytes())?;
            if self.repeats.take_if(|twice| *twice == number).is_some() {
                self.ready.push_back(number);
            }
        }
        let reports = self.reports.drain(..).map(|(report, _)| report);
        events.completed.extend(reports);
        let any = !events.enqueued.is_empty()
            || !events.delivered.is_empty()
            || !events.completed.is_empty();
        if any { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

fn plan(callers: u32, batch: u32, cycles: u64) -> CyclePlan {
    CyclePlan {
        callers,
        slots: 4,
        batch,
        payload_bytes: 14,
        rate: None,
        seed: 1,
        cycles: Some(cycles),
        purpose: Purpose::Cycles,
    }
}

/// Runs until the load has ended the window and everything is answered.
fn run(broker: Memory, plan: &CyclePlan) -> (CycleLoad<Memory>, Poll<Result<()>>) {
    let signals = Arc::new(Signals::new(Instant::now()));
    signals.open_window(Instant::now(), None);
    let mut cycle = CycleLoad::new(broker, plan, signals);
    let mut context = Context::from_waker(Waker::noop());
    let polled = cycle.poll(&mut context);
    (cycle, polled)
}

#[test]
fn callers_wait_for_their_acknowledgement() {
    let (cycle, polled) = run(Memory::default(), &plan(5, 1, 1_000));
    assert!(matches!(polled, Poll::Ready(Ok(()))));
    assert_eq!(cycle.broker.most_waiting, 5);
    assert_eq!(cycle.broker.most_credits, 4);
    let outcome = cycle.into_outcome();
    assert!((1_000..1_010).contains(&outcome.cycles), "{}", outcome.cycles);
    assert_eq!((outcome.ledger.lost(), outcome.ledger.duplicated), (0, 0));
    let accepted = outcome.ledger.accepted();
    let recording = Recording::merge([outcome.recorder]);
    for operation in [ENQUEUE, END_TO_END] {
        assert_eq!(recording.successes(operation), accepted, "{operation}");
    }
}

#[test]
fn a_call_is_answered_when_its_last_task_is() {
    let (cycle, polled) = run(Memory::default(), &plan(2, 10, 100));
    assert!(matches!(polled, Poll::Ready(Ok(()))));
    assert!(cycle.broker.most_waiting <= 20);
    assert_eq!(cycle.outcome.ledger.accepted() % 10, 0);
}

#[test]
fn what_is_lost_or_done_twice_is_noticed() {
    let broker = Memory { loses: Some(17), repeats: Some(23), ..Memory::default() };
    // It waits for the lost task until it gives it up.
    let (cycle, polled) = run(broker, &plan(5, 1, 1_000));
    assert!(polled.is_pending());
    let ledger = &cycle.outcome.ledger;
    assert_eq!((ledger.lost(), ledger.duplicated), (1, 2));
}

#[test]
fn a_fill_makes_its_tasks_and_works_on_none() {
    let fill = CyclePlan { purpose: Purpose::Fill(1_000), cycles: None, ..plan(5, 100, 0) };
    let (cycle, polled) = run(Memory::default(), &fill);
    assert!(matches!(polled, Poll::Ready(Ok(()))));
    assert_eq!(cycle.broker.ready.len(), 1_000);
    assert_eq!(cycle.outcome.ledger.accepted(), 1_000);
}

#[test]
fn an_open_loop_charges_what_waits() {
    let signals = Arc::new(Signals::new(Instant::now()));
    let open =
        CyclePlan { rate: Some((1_000.0, Spacing::Constant)), cycles: None, ..plan(1, 1, 0) };
    let mut cycle = CycleLoad::new(Memory::default(), &open, signals.clone());
    // A window that is over: everything in it is due, and late.
    let begun = Instant::now() - Duration::from_millis(300);
    let signals = Arc::new(Signals::new(begun));
    signals.open_window(begun, Some(Duration::from_millis(200)));
    cycle.signals = signals;
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(cycle.poll(&mut context), Poll::Ready(Ok(()))));
    let outcome = cycle.into_outcome();
    assert_eq!(outcome.late, 200);
    assert_eq!(outcome.ledger.accepted(), 200);
    // They were completed after its end, and nevertheless their latencies count.
    assert_eq!(outcome.cycles, 0);
    let latencies = Recording::merge([outcome.recorder]).metrics();
    let end_to_end = &latencies[END_TO_END];
    assert_eq!(end_to_end.samples, 200);
    assert!(end_to_end.p50.unwrap() > 150.0);
}
