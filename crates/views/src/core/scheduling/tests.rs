//! Components and their paces.

use egret_base::settings::ConfigDuration;

use super::*;

fn member(view: i64, reads: &[i64], schedule: Option<Schedule>) -> Member {
    Member { view, reads: reads.to_vec(), schedule }
}

#[test]
fn views_that_read_each_other_are_one_component() {
    let members = [
        member(1, &[], None),
        member(2, &[], None),
        member(3, &[1], None),
        member(4, &[], None),
        member(5, &[2, 3], None),
        member(6, &[4], None),
    ];
    let found = components(&members);
    let ids = |component: &Vec<&Member>| component.iter().map(|one| one.view).collect();
    let ids: Vec<Vec<i64>> = found.iter().map(ids).collect();
    assert_eq!(ids, [vec![1, 2, 3, 5], vec![4, 6]]);
}

#[test]
fn the_tightest_schedule_counts() {
    let second = Duration::from_secs(1);
    let lag = |seconds| Some(Schedule::Lag(ConfigDuration::secs(seconds)));
    let pace = |schedules: &[Option<Schedule>]| {
        let members: Vec<Member> =
            schedules.iter().map(|one| member(1, &[], one.clone())).collect();
        RefreshTiming::from_component(&members.iter().collect::<Vec<_>>(), second)
    };
    assert_eq!(pace(&[None, None]).lag, Some(second));
    assert_eq!(pace(&[None, lag(60), lag(5)]).lag, Some(5 * second));
    assert_eq!(pace(&[Some(Schedule::Manual), None]), RefreshTiming::default());
    let cron = Some(Schedule::Cron("0 * * * *".to_owned()));
    assert_eq!(pace(&[cron.clone(), lag(3)]).lag, Some(3 * second));
    assert_eq!(pace(&[cron]).crons, ["0 * * * *"]);
}

#[test]
fn a_refresh_that_takes_long_begins_earlier() {
    let pace = RefreshTiming { lag: Some(Duration::from_secs(1)), crons: Vec::new() };
    assert_eq!(pace.next_delay(Duration::ZERO), Some(Duration::from_millis(800)));
    assert_eq!(pace.next_delay(Duration::from_millis(100)), Some(Duration::from_millis(640)));
    assert_eq!(pace.next_delay(Duration::from_secs(3)), Some(Duration::from_millis(125)));
    assert_eq!(RefreshTiming::default().next_delay(Duration::ZERO), None);
}
