//! Which of the ticks that wait for room get it.

use super::*;

const HOURLY: &str = "0 * * * *";

/// A tenant that may have so many tasks, and has them; their numbers begin with one.
fn full(tasks: u64) -> Rig {
    let mut rig = Rig::new();
    rig.budget.share = TenantShare::new(Limit::new("all", 100), Limit::new("one", tasks));
    (0..tasks).for_each(|_| enqueue(&mut rig, QUEUE));
    rig.turn(NOW_MS);
    rig
}

fn enqueue(rig: &mut Rig, queue: u32) {
    let task = Enqueue { queue, ..Enqueue::default() };
    rig.state.enqueue(0, &task).unwrap();
}

/// A schedule of which each task counts for two.
fn put_large(rig: &mut Rig, next_ms: u64) {
    rig.callback = true;
    rig.put("large", HOURLY, MissedTickPolicy::Skip, next_ms);
    rig.callback = false;
}

#[test]
fn no_more_than_a_thousand_ticks_are_made_up_for_piece_by_piece() {
    for room in [1, 3] {
        let mut rig = with_waiting_tick(MissedTickPolicy::All);
        let (mut now_ms, mut made, mut gone) = (NOW_MS + 3_600_000, 0, 0);
        let has_caught_up = (0..2_000).any(|_| {
            for _ in 0..room {
                gone += 1;
                rig.state.delete(gone).unwrap();
            }
            now_ms += 1_000;
            made += rig.turn(now_ms).0;
            rig.next_ms("a") > now_ms
        });
        assert!(has_caught_up, "{made} tasks, with room for {room} at a time");
        assert_eq!(made, MISSED_MAX as usize);
        assert!(rig.schedule_runner.backlogs.is_empty());
    }
}

#[test]
fn a_tick_that_waits_goes_before_those_that_come_later() {
    let mut rig = full(1);
    rig.put("older", HOURLY, MissedTickPolicy::Skip, NOW_MS + 1_000);
    rig.put("later", HOURLY, MissedTickPolicy::Skip, NOW_MS + 1_500);
    assert_eq!(rig.turn(NOW_MS + 1_000).0, 0);
    // There is room when the other one comes, and nothing has looked for it yet.
    rig.state.delete(1).unwrap();
    assert_eq!(rig.turn(NOW_MS + 1_500).0, 0);
    assert_eq!(rig.turn(NOW_MS + 2_000).0, 1);
    assert_eq!(rig.next_ms("older"), NOW_MS + 3_600_000);
    assert_eq!(rig.next_ms("later"), NOW_MS + 1_500);
    rig.state.delete(2).unwrap();
    assert_eq!(rig.turn(NOW_MS + 3_000).0, 1);
    assert_eq!(rig.next_ms("later"), NOW_MS + 3_600_000);
}

#[test]
fn what_is_made_up_for_leaves_room_for_other_schedules_that_wait() {
    let mut rig = full(2);
    rig.put("often", "* * * * * *", MissedTickPolicy::All, NOW_MS + 1_000);
    rig.put("hourly", HOURLY, MissedTickPolicy::Skip, NOW_MS + 2_000);
    assert_eq!(rig.turn(NOW_MS + 1_000).0, 0);
    assert_eq!(rig.turn(NOW_MS + 2_000).0, 0);
    rig.state.delete(1).unwrap();
    rig.state.delete(2).unwrap();
    assert_eq!(rig.turn(NOW_MS + 10_000).0, 2);
    assert_eq!(rig.next_ms("often"), NOW_MS + 2_000);
    assert_eq!(rig.next_ms("hourly"), NOW_MS + 3_600_000);
}

#[test]
fn a_task_that_counts_for_two_is_not_passed_over_by_those_of_its_tenant() {
    let mut rig = full(3);
    put_large(&mut rig, NOW_MS + 1_000);
    rig.put("small", HOURLY, MissedTickPolicy::Skip, NOW_MS + 2_000);
    let hourly = encode_description(HOURLY, MissedTickPolicy::Skip);
    rig.put_for_tenant("other", OTHER_QUEUE, "small", &hourly, NOW_MS + 2_000);
    assert_eq!(rig.turn(NOW_MS + 1_000).0, 0);
    // There is room for the small one, which waits behind the large one; the other tenant's does
    // not.
    rig.state.delete(1).unwrap();
    assert_eq!(rig.turn(NOW_MS + 2_000).0, 1);
    assert_eq!(rig.next_ms("small"), NOW_MS + 2_000);
    rig.state.delete(2).unwrap();
    assert_eq!(rig.turn(NOW_MS + 3_000).0, 1);
    assert_eq!(rig.next_ms("large"), NOW_MS + 3_600_000);
    rig.state.delete(3).unwrap();
    assert_eq!(rig.turn(NOW_MS + 4_000).0, 1);
    assert_eq!(rig.next_ms("small"), NOW_MS + 3_600_000);
}

#[test]
fn a_task_that_counts_for_two_holds_up_no_other_tenant_where_there_is_room_for_one() {
    let mut rig = full(3);
    rig.state.delete(1).unwrap();
    enqueue(&mut rig, OTHER_QUEUE);
    // Three of the four tasks that may be.
    rig.budget.share = TenantShare::new(Limit::new("all", 4), Limit::new("one", 3));
    rig.budget.tasks = 1;
    put_large(&mut rig, NOW_MS + 1_000);
    let hourly = encode_description(HOURLY, MissedTickPolicy::Skip);
    rig.put_for_tenant("other", OTHER_QUEUE, "small", &hourly, NOW_MS + 2_000);
    assert_eq!(rig.turn(NOW_MS + 2_000).0, 1);
    assert_eq!(rig.next_ms("large"), NOW_MS + 1_000);
}

#[test]
fn a_task_for_which_there_can_never_be_room_holds_up_none() {
    let mut rig = full(1);
    put_large(&mut rig, NOW_MS + 1_000);
    rig.put("small", HOURLY, MissedTickPolicy::Skip, NOW_MS + 2_000);
    assert_eq!(rig.turn(NOW_MS + 1_000).0, 0);
    rig.state.delete(1).unwrap();
    assert_eq!(rig.turn(NOW_MS + 2_000).0, 1);
    assert_eq!(rig.next_ms("large"), NOW_MS + 1_000);
}
