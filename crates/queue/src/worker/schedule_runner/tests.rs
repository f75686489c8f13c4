//! Ticks that were missed, and turns with too much to do.

mod order;

use std::sync::Arc;

use egret_base::{Limit, Timestamp};
use egret_log::Batch;

use super::*;
use crate::core::command::{Enqueue, PutSchedule};
use crate::model::QueueSettings;
use crate::store::content::Content;
use crate::worker::watch::Watchers;

fn cron_schedule(cron: &str) -> CronSchedule {
    CronSchedule::new(cron, "").unwrap()
}

fn ms(text: &str) -> u64 {
    let time: Timestamp = text.parse().unwrap();
    time.as_millis_unsigned()
}

const POLICIES: [MissedTickPolicy; 3] =
    [MissedTickPolicy::Skip, MissedTickPolicy::One, MissedTickPolicy::All];

/// After a start of Egret at `now_ms`.
fn plan_after_start(cron: &str, policy: MissedTickPolicy, tick_ms: u64, now_ms: u64) -> TickPlan {
    let until_ms = now_ms - LATE_MS;
    plan_ticks(
        &cron_schedule(cron),
        MissedTicks { policy, until_ms, made_up: 0 },
        tick_ms,
        now_ms,
        u32::MAX,
    )
}

#[test]
fn missed_ticks_are_left_out_or_made_up_for() {
    let (tick, now) = (ms("2026-11-21T12:00:00Z"), ms("2026-11-21T12:05:30Z"));
    let next_ms = ms("2026-11-21T12:06:00Z");
    for (policy, tasks) in POLICIES.into_iter().zip([0, 1, 6]) {
        let expected = TickPlan { tasks, next_ms };
        assert_eq!(plan_after_start("* * * * *", policy, tick, now), expected);
        // One that is only a little late has not been missed, and stands for those before.
        let expected = TickPlan { tasks: tasks.max(1), next_ms };
        let late = plan_after_start("* * * * *", policy, tick, now - 20_000);
        assert_eq!(late, expected, "{policy:?}");
    }
}

#[test]
fn no_more_than_a_thousand_missed_ticks_are_made_up_for() {
    let tick = ms("2026-11-21T12:00:00Z");
    for missed in [999, 1_000, 1_001, 500_000] {
        // The last was missed by eleven seconds.
        let now = tick + (missed - 1) * 60_000 + 11_000;
        let next_ms = now - 11_000 + 60_000;
        let all = missed.min(1_000) as u32;
        for (policy, tasks) in POLICIES.into_iter().zip([0, 1, all]) {
            let expected = TickPlan { tasks, next_ms };
            assert_eq!(plan_after_start("* * * * *", policy, tick, now), expected, "{missed}");
        }
    }
}

#[test]
fn no_tick_is_left_out_while_egret_runs() {
    let tick = ms("2026-11-21T12:00:00Z");
    let now_ms = tick + 30_400;
    for policy in POLICIES {
        // It looked shortly before the tick, however long it has had to do since then.
        let late = MissedTicks { policy, until_ms: tick - LATE_MS, made_up: 0 };
        let made = plan_ticks(&cron_schedule("* * * * * *"), late, tick, now_ms, u32::MAX);
        let next_ms = tick + 31_000;
        assert_eq!(made, TickPlan { tasks: 31, next_ms }, "{policy:?}");
        // What there is no room for comes later.
        let made = plan_ticks(&cron_schedule("* * * * * *"), late, tick, now_ms, 7);
        let next_ms = tick + 7_000;
        assert_eq!(made, TickPlan { tasks: 7, next_ms }, "{policy:?}");
    }
}

const NOW_MS: u64 = 1_795_262_400_000;
const QUEUE: u32 = 1;
const OTHER_QUEUE: u32 = 2;

/// A partition's state and records, turn by turn.
struct Rig {
    state: State,
    schedule_runner: ScheduleRunner,
    records: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// What reading a record fails with.
    error: Option<LogError>,
    budget: TickBudget,
    /// Whether the end of the tasks of schedules that are put is told of, so that each counts for
    /// two.
    callback: bool,
}

impl Rig {
    fn new() -> Self {
        let mut state = State::default();
        state.put_queue(QUEUE, "t", "q", &QueueSettings::default());
        state.put_queue(OTHER_QUEUE, "other", "q", &QueueSettings::default());
        Self {
            state,
            schedule_runner: ScheduleRunner::new(0),
            records: BTreeMap::new(),
            next: 1,
            error: None,
            budget: TickBudget {
                tasks: 1_000_000,
                share: TenantShare::new(Limit::new("all", 1_000_000), Limit::new("one", 0)),
                bytes: 1 << 20,
            },
            callback: false,
        }
    }

    fn put(&mut self, name: &str, cron: &str, missed: MissedTickPolicy, next_ms: u64) {
        self.put_for_tenant("t", QUEUE, name, &encode_description(cron, missed), next_ms);
    }

    fn put_encoded(&mut self, name: &str, schedule: &[u8], next_ms: u64) {
        self.put_for_tenant("t", QUEUE, name, schedule, next_ms);
    }

    fn put_for_tenant(
        &mut self,
        tenant: &str,
        queue: u32,
        name: &str,
        schedule: &[u8],
        next_ms: u64,
    ) {
        let mut carried = Content::default();
        carried.private.schedule = schedule;
        let mut content = Vec::new();
        content::encode(&mut content, &carried);
        let put = PutSchedule {
            tenant,
            name,
            next_ms,
            paused: false,
            task: Enqueue {
                queue,
                content: &content,
                callback: self.callback,
                ..Enqueue::default()
            },
        };
        self.state.put_schedule(self.next, &put).unwrap();
        let mut record = Vec::new();
        record::encode(&Command::PutSchedule(put), &mut record);
        self.records.insert(self.next, record);
        self.next += 1;
    }

    /// Does what has come at a time; returns the tasks made and the bytes written.
    fn turn(&mut self, now_ms: u64) -> (usize, usize) {
        self.with_turn(now_ms, |ticks, turn, room, read| {
            ticks.run(turn, room, read);
        })
    }

    /// The clock is set to a time.
    fn step(&mut self, now_ms: u64, by_ms: i64) {
        self.with_turn(now_ms, |ticks, turn, _, read| {
            ticks.step_clock(turn, by_ms, read);
        });
    }

    fn with_turn(
        &mut self,
        now_ms: u64,
        run: impl FnOnce(&mut ScheduleRunner, &mut BatchTurn<'_>, &TickBudget, &ReadRecord),
    ) -> (usize, usize) {
        let mut batch = Batch::new();
        let before = self.state.len();
        let mut turn = BatchTurn {
            state: &mut self.state,
            batch: &mut batch,
            watchers: &mut Watchers::default(),
            first: Seq(self.next),
            now: Timestamp::from_micros(now_ms as i64 * 1_000),
            seed: 7,
        };
        let (records, error) = (self.records.clone(), self.error.clone());
        let read = move |seq: Seq| match &error {
            Some(error) => Err(error.clone()),
            None => Ok(records[&seq.0].clone().into()),
        };
        run(&mut self.schedule_runner, &mut turn, &self.budget, &read);
        self.next += batch.len() as u64;
        (self.state.len() - before, batch.frame_bytes())
    }

    /// Everything in memory is lost, and read again from a snapshot.
    fn restart(&mut self) {
        self.state = State::restore(self.state.take_snapshot());
        self.schedule_runner = ScheduleRunner::new(0);
    }

    fn next_ms(&self, name: &str) -> u64 {
        self.state.schedule("t", name).unwrap().next_ms
    }

    fn due_ms(&self) -> Option<u64> {
        self.schedule_runner.next_due_ms(&self.state)
    }
}

fn encode_description(cron: &str, missed: MissedTickPolicy) -> Vec<u8> {
    let description = Description { cron, time_zone: "", missed, put_ms: 1 };
    description.encode()
}

fn unreadable() -> LogError {
    LogError::Io {
        action: "open",
        file: "segment".to_owned(),
        source: Arc::new(std::io::Error::from_raw_os_error(24)),
    }
}

#[test]
fn a_schedule_that_cannot_be_read_now_goes_on_later() {
    let mut rig = Rig::new();
    rig.turn(NOW_MS);
    rig.put("a", "* * * * * *", MissedTickPolicy::Skip, NOW_MS);
    // Its record is part of the turn that is not committed yet.
    rig.error = Some(LogError::Ahead { seq: Seq(1), next: Seq(1) });
    assert_eq!(rig.turn(NOW_MS).0, 0);
    assert_eq!(rig.due_ms(), Some(NOW_MS), "in the next turn");
    rig.error = Some(unreadable());
    assert_eq!(rig.turn(NOW_MS).0, 0);
    assert_eq!(rig.due_ms(), Some(NOW_MS + RETRY_MS), "after a pause");
    rig.put("b", "* * * * * *", MissedTickPolicy::Skip, NOW_MS + 500);
    assert_eq!(rig.due_ms(), Some(NOW_MS + 500), "others need not wait");
    rig.error = None;
    assert_eq!(rig.turn(NOW_MS + 500).0, 1);
    assert_eq!(rig.turn(NOW_MS + 1_000).0, 2 + 1);
    assert_eq!(rig.next_ms("a"), NOW_MS + 2_000);
    // One that is deleted meanwhile is not tried again.
    rig.error = Some(unreadable());
    rig.schedule_runner.cron_schedules.clear();
    rig.turn(NOW_MS + 2_000);
    rig.state.delete_schedule("t", "a").unwrap();
    rig.state.delete_schedule("t", "b").unwrap();
    rig.turn(NOW_MS + 3_000);
    assert_eq!(rig.due_ms(), None);
}

#[test]
fn what_came_while_a_schedule_could_not_be_read_was_missed() {
    for (missed, tasks) in POLICIES.into_iter().zip([10, 10, 61]) {
        let mut rig = Rig::new();
        rig.put("a", "* * * * * *", missed, NOW_MS);
        rig.error = Some(unreadable());
        for second in 0..60 {
            assert_eq!(rig.turn(NOW_MS + second * 1_000).0, 0);
        }
        rig.error = None;
        let made = rig.turn(NOW_MS + 60_000).0;
        // Those of the last ten seconds are not late, from end to end.
        assert_eq!(made, tasks + usize::from(missed != MissedTickPolicy::All), "{missed:?}");
    }
}

#[test]
fn what_is_no_schedule_rests() {
    let mut rig = Rig::new();
    rig.put_encoded("a", b"", NOW_MS);
    rig.put("b", "no cron", MissedTickPolicy::All, NOW_MS);
    assert_eq!(rig.turn(NOW_MS).0, 0);
    assert_eq!((rig.next_ms("a"), rig.next_ms("b")), (NEVER_MS, NEVER_MS));
    assert_eq!(rig.due_ms(), None);
}

#[test]
fn a_turn_makes_no_more_than_it_has_room_for() {
    let mut rig = Rig::new();
    for number in 0..100 {
        rig.put(&format!("s{number:03}"), "* * * * *", MissedTickPolicy::All, NOW_MS);
    }
    rig.budget.bytes = 1_500;
    let now_ms = NOW_MS + 86_400_000 + 30_000;
    let (mut made, mut turns) = (0, 0);
    while rig.due_ms().is_some_and(|due| due <= now_ms) {
        let (tasks, bytes) = rig.turn(now_ms);
        assert!(bytes <= 4_096, "{bytes} bytes");
        let most = (TURN_TASKS_MAX + MISSED_MAX + TICKS_MAX) as usize;
        assert!((1..=most).contains(&tasks), "{tasks} tasks");
        made += tasks;
        turns += 1;
    }
    assert_eq!(made, 100 * 1_000);
    assert!(turns >= 100_000 / 4_048, "{turns}");
    // Records are not many kilobytes either when nothing is made.
    rig.budget.bytes = 64 << 10;
    let (tasks, bytes) = rig.turn(now_ms + 30_000);
    assert_eq!(tasks, 100);
    assert!(bytes <= 64 << 10, "{bytes} bytes");
}

#[test]
fn there_are_no_more_tasks_than_may_be() {
    for (missed, tasks) in POLICIES.into_iter().zip([10, 10, 300]) {
        let mut rig = Rig::new();
        rig.turn(NOW_MS);
        rig.put("a", "* * * * * *", missed, NOW_MS + 1_000);
        rig.budget.tasks = 7;
        assert_eq!(rig.turn(NOW_MS + 9_000).0, 7);
        rig.budget.tasks = 0;
        for second in 10..=300 {
            assert_eq!(rig.turn(NOW_MS + second * 1_000).0, 0);
            let again_ms = NOW_MS + second * 1_000 + RETRY_MS;
            assert_eq!(rig.due_ms(), Some(again_ms), "not before");
        }
        rig.budget.tasks = 1_000;
        let made = rig.turn(NOW_MS + 300_000).0;
        let expected = if missed == MissedTickPolicy::All { tasks - 7 } else { tasks + 1 };
        assert_eq!(made, expected, "{missed:?}");
    }
}

#[test]
fn a_partition_with_much_to_do_leaves_no_tick_out() {
    let mut rig = Rig::new();
    rig.turn(NOW_MS);
    rig.put("a", "* * * * * *", MissedTickPolicy::Skip, NOW_MS + 1_000);
    // It looks every five seconds, and is given room for one task each time.
    rig.budget.tasks = 1;
    let turns = 1..=20;
    let made: usize = turns.map(|turn| rig.turn(NOW_MS + turn * 5_000).0).sum();
    assert_eq!(made, 20);
    rig.budget.tasks = 1_000;
    assert_eq!(rig.turn(NOW_MS + 100_000).0, 80);
}

/// A tenant with three tasks, which are all that it may have, and a schedule whose tick of the
/// fourth second waits.
fn with_waiting_tick(missed: MissedTickPolicy) -> Rig {
    let mut rig = Rig::new();
    rig.budget.share = TenantShare::new(Limit::new("all", 100), Limit::new("one", 3));
    rig.turn(NOW_MS);
    rig.put("a", "* * * * * *", missed, NOW_MS + 1_000);
    let made: Vec<usize> = (1..=4).map(|second| rig.turn(NOW_MS + second * 1_000).0).collect();
    assert_eq!(made, [1, 1, 1, 0]);
    // Waiting costs a look a second, and no record.
    let no_bytes = Batch::new().frame_bytes();
    assert_eq!(rig.due_ms(), Some(NOW_MS + 5_000));
    assert_eq!(rig.turn(NOW_MS + 5_000), (0, no_bytes));
    assert_eq!(rig.next_ms("a"), NOW_MS + 4_000);
    rig
}

#[test]
fn a_tick_without_room_at_its_tenant_waits_for_it_and_stands_for_those_that_come_meanwhile() {
    for (missed, tasks) in POLICIES.into_iter().zip([1, 1, 3]) {
        let mut rig = with_waiting_tick(missed);
        for number in 1..=3 {
            rig.state.delete(number).unwrap();
        }
        assert_eq!(rig.turn(NOW_MS + 6_000).0, tasks, "{missed:?}");
        assert_eq!(rig.next_ms("a"), NOW_MS + 7_000);
        assert_eq!(rig.due_ms(), Some(NOW_MS + 7_000));
    }
}

#[test]
fn a_tick_that_waits_for_room_waits_after_a_restart_too() {
    for (missed, tasks) in POLICIES.into_iter().zip([1, 1, 3]) {
        let mut rig = with_waiting_tick(missed);
        rig.restart();
        let now_ms = NOW_MS + 3_600_000;
        assert_eq!(rig.turn(now_ms).0, 0);
        for number in 1..=3 {
            rig.state.delete(number).unwrap();
        }
        assert_eq!(rig.turn(now_ms + 1_000).0, tasks, "{missed:?}");
        if missed != MissedTickPolicy::All {
            assert_eq!(rig.next_ms("a"), now_ms + 2_000);
        }
    }
}

#[test]
fn a_tick_that_waits_for_room_waits_after_the_clock_is_set_back_too() {
    let mut rig = with_waiting_tick(MissedTickPolicy::Skip);
    let now_ms = NOW_MS - 30 * DAY_MS as u64;
    rig.step(now_ms, -30 * DAY_MS);
    assert_eq!(rig.turn(now_ms).0, 0);
    rig.state.delete(1).unwrap();
    assert_eq!(rig.turn(now_ms + 1_000).0, 1);
    assert_eq!(rig.next_ms("a"), now_ms + 2_000);
}

/// What was missed is made up for as its schedule says, whether or not there is room.
#[test]
fn a_tick_that_was_missed_and_is_left_out_does_not_wait_for_room() {
    for (missed, waits) in POLICIES.into_iter().zip([false, true, true]) {
        let mut rig = Rig::new();
        rig.budget.share = TenantShare::new(Limit::new("all", 100), Limit::new("one", 1));
        rig.put("b", "* * * * *", MissedTickPolicy::Skip, NOW_MS);
        assert_eq!(rig.turn(NOW_MS).0, 1);
        // Egret starts a minute after this one.
        rig.restart();
        rig.put("a", "0 * * * *", missed, NOW_MS);
        assert_eq!(rig.turn(NOW_MS + 60_000).0, 0);
        let expected = if waits { NOW_MS } else { NOW_MS + 3_600_000 };
        assert_eq!(rig.next_ms("a"), expected, "{missed:?}");
    }
}

#[test]
fn ticks_that_wait_for_room_hold_up_no_other_tenant() {
    let mut rig = Rig::new();
    rig.budget.share = TenantShare::new(Limit::new("all", 1_000), Limit::new("one", 5));
    rig.turn(NOW_MS);
    for number in 0..600 {
        let name = format!("s{number:03}");
        rig.put(&name, "* * * * *", MissedTickPolicy::Skip, NOW_MS + 1_000);
    }
    let often = encode_description("* * * * * *", MissedTickPolicy::Skip);
    rig.put_for_tenant("other", OTHER_QUEUE, "often", &often, NOW_MS + 1_000);
    let mut made = 0;
    while rig.due_ms().is_some_and(|due| due <= NOW_MS + 1_000) {
        made += rig.turn(NOW_MS + 1_000).0;
    }
    assert_eq!(made, 5 + 1);
    for second in 2..=3 {
        assert_eq!(rig.turn(NOW_MS + second * 1_000).0, 1);
    }
    let own: Vec<u64> = (rig.state.schedules())
        .filter(|(tenant, ..)| *tenant == "t")
        .map(|(_, _, schedule)| schedule.last_task.number)
        .filter(|number| *number > 0)
        .collect();
    assert_eq!(own.len(), 5);
    for number in own {
        rig.state.delete(number).unwrap();
    }
    assert_eq!(rig.turn(NOW_MS + 4_000).0, 5 + 1);
}
