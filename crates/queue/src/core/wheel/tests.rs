//! The wheel beside a sorted map.

use std::collections::BTreeSet;

use egret_base::{Entropy, SeededEntropy};

use super::*;

#[derive(Clone, Debug, Default)]
struct Timer {
    due: u64,
    turn: u64,
    links: Links,
    used: bool,
}

impl Row for Timer {
    fn is_free(&self) -> bool {
        !self.used
    }
}

impl TimerRow for Timer {
    fn due_ms(&self) -> u64 {
        self.due
    }

    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

fn draw(entropy: &SeededEntropy, below: u64) -> u64 {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    u64::from_le_bytes(bytes) % below
}

/// Random insertions, removals and steps of time; everything due comes out, in time, and nothing
/// else.
fn compare(seed: u64, spread_ms: u64) {
    let entropy = SeededEntropy::new(seed);
    let start = 1_790_000_000_000 + draw(&entropy, 1 << 40);
    let (mut rows, mut wheel, mut model) =
        (Slab::<Timer>::default(), Wheel::new(start), BTreeSet::new());
    let mut now = start;
    for turn in 0..400 {
        match draw(&entropy, 10) {
            0..=5 => {
                let due = (now + draw(&entropy, spread_ms)).saturating_sub(draw(&entropy, 3));
                let place = rows.insert(Timer { due, turn, used: true, ..Timer::default() });
                wheel.insert(&mut rows, place);
                model.insert((due, turn, place));
            }
            6 => {
                if let Some(timer) = model.iter().nth(draw(&entropy, 20) as usize).copied() {
                    wheel.remove(&mut rows, timer.2);
                    rows.remove(timer.2);
                    model.remove(&timer);
                }
            }
            _ => {
                now += draw(&entropy, spread_ms);
                // A budget may end in the middle; the rest comes with the next calls.
                let budget = 1 + draw(&entropy, 40);
                for _ in 0..budget {
                    let before = wheel.parts().0;
                    match wheel.step(&mut rows, now) {
                        WheelStep::Due(place) => {
                            let Timer { due, turn, .. } = rows.remove(place);
                            // One that was late already when it came may stand behind others.
                            let first = model.iter().find(|(due, ..)| *due >= before);
                            let in_order = due <= before || first == Some(&(due, turn, place));
                            assert!(due <= now && in_order, "seed {seed}");
                            assert!(model.remove(&(due, turn, place)), "seed {seed}");
                        }
                        WheelStep::Moved => {}
                        WheelStep::Idle => {
                            assert!(
                                model.first().is_none_or(|(due, ..)| *due > now),
                                "seed {seed}"
                            );
                            break;
                        }
                    }
                }
            }
        }
        assert_eq!(wheel.len(), model.len() as u64);
        let first = model.first().map(|(due, ..)| (*due).max(wheel.parts().0));
        let next = wheel.next_ms();
        assert_eq!(next.is_some(), first.is_some());
        assert!(next <= first, "seed {seed}: {next:?} {first:?}");
        let (at, heads) = wheel.parts();
        let restored = Wheel::restore(at, heads, wheel.len()).unwrap();
        assert_eq!(restored.next_ms(), next);
    }
}

#[test]
fn everything_comes_out_when_it_is_due() {
    for seed in 0..200 {
        for spread in [3, 200, 70_000, 1 << 31, 1 << 36] {
            compare(seed, spread);
        }
    }
}

#[test]
fn timers_of_a_slot_come_in_the_order_of_their_times() {
    let (mut rows, mut wheel) = (Slab::<Timer>::default(), Wheel::new(0));
    for due in [5_000, 4_097, 4_100, 4_096, 5_001] {
        let place = rows.insert(Timer { due, used: true, ..Timer::default() });
        wheel.insert(&mut rows, place);
    }
    let mut seen = Vec::new();
    loop {
        match wheel.step(&mut rows, 4_999) {
            WheelStep::Due(place) => seen.push(rows.get(place).due),
            WheelStep::Moved => {}
            WheelStep::Idle => break,
        }
    }
    assert_eq!(seen, [4_096, 4_097, 4_100]);
    assert_eq!(wheel.len(), 2);
}

/// Also when the budget ends while they move to finer slots, and others come meanwhile.
#[test]
fn timers_of_one_time_come_in_the_order_of_their_insertion() {
    let (mut rows, mut wheel) = (Slab::<Timer>::default(), Wheel::new(0));
    let insert = |rows: &mut Slab<Timer>, wheel: &mut Wheel, turn, is_first: bool| {
        let place = rows.insert(Timer { due: 300_000, turn, used: true, ..Timer::default() });
        if !is_first { wheel.insert(rows, place) } else { wheel.insert_first(rows, place) }
    };
    for turn in 1..6 {
        insert(&mut rows, &mut wheel, turn, false);
    }
    insert(&mut rows, &mut wheel, 0, true);
    for turn in 6..20 {
        assert_eq!(wheel.step(&mut rows, 299_999), WheelStep::Moved);
        insert(&mut rows, &mut wheel, turn, false);
    }
    let mut seen = Vec::new();
    loop {
        match wheel.step(&mut rows, 300_000) {
            WheelStep::Due(place) => seen.push(rows.get(place).turn),
            WheelStep::Moved => {}
            WheelStep::Idle => break,
        }
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
}
