//! Counters never fall but where they begin anew; gauges stay about their level.

use super::*;

const STEPS: u64 = 5_000;

fn falls(shape: &Shape) -> Vec<u64> {
    (1..STEPS).filter(|step| shape.value_at(*step) < shape.value_at(step - 1)).collect()
}

#[test]
fn a_counter_falls_only_where_a_life_ends() {
    for salt in 0..20 {
        let flow = CounterShape::new(30.0, salt);
        let counter = |life| Shape::Counter { counter: flow, resets: life, per_unit: 1_000.0 };
        assert_eq!(falls(&counter(ResetSchedule::ENDLESS)), Vec::<u64>::new());
        let begins = falls(&counter(ResetSchedule::from_bits(9, salt)));
        assert_eq!(begins.len() as u64, STEPS / 512 + u64::from(begins[0] < STEPS % 512));
        assert!(begins.windows(2).all(|two| two[1] - two[0] == 512));
        let last = counter(ResetSchedule::from_bits(9, salt)).value_at(begins[0]);
        assert!(last < 30.0, "it begins near nothing, not at {last}");
    }
}

#[test]
fn a_counter_rises_by_its_rate_on_average() {
    let shape = Shape::Counter {
        counter: CounterShape::new(10.0, 3),
        resets: ResetSchedule::ENDLESS,
        per_unit: 1.0,
    };
    let mean = (shape.value_at(STEPS) - shape.value_at(0)) / STEPS as f64;
    assert!((9.0..11.0).contains(&mean), "{mean}");
    let rises = (0..STEPS).map(|step| shape.value_at(step + 1) - shape.value_at(step));
    let mut different: Vec<u64> = rises.map(|rise| rise as u64).collect();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 10, "{different:?}");
}

#[test]
fn a_gauge_sways_about_its_level_in_few_digits() {
    let shape = Shape::Gauge {
        level: 100.0,
        waves: [PeriodicShape::new(8.0, 240.0, 1), PeriodicShape::new(20.0, 5_760.0, 2)],
        noise: 5.0,
        hold_bits: 2,
        salt: 3,
        per_unit: 100.0,
    };
    for step in 0..STEPS {
        let value = shape.value_at(step);
        assert!((72.0..=133.0).contains(&value), "{value} at {step}");
        assert_eq!(value, (value * 100.0).round() / 100.0);
    }
}

#[test]
fn a_pod_is_in_one_phase_at_a_time() {
    let phases = [0, 1, 2].map(|phase| Shape::Phase { salt: 5, phase });
    let mut seen = [0.0; 3];
    for step in 0..STEPS {
        let now = phases.map(|phase| phase.value_at(step));
        assert_eq!(now.iter().sum::<f64>(), 1.0);
        (0..3).for_each(|phase| seen[phase] += now[phase]);
    }
    assert!(seen.iter().all(|count| *count > 0.0), "{seen:?}");
}
