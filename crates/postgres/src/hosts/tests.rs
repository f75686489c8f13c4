//! What a message says of several hosts.

use super::*;

#[test]
fn hosts_beyond_a_bound_are_counted() {
    let failures = |count: usize| -> Vec<Failure> {
        let each = (1..=count).map(|number| Failure {
            name: format!("host-{number}:5432"),
            host: Config::new(),
            error: "nothing".parse::<Config>().unwrap_err(),
        });
        each.collect()
    };
    let few = describe_failures(&failures(2));
    assert!(few.starts_with("host-1:5432: "), "{few}");
    assert!(few.contains("; host-2:5432: "), "{few}");
    assert!(!few.contains("other host"), "{few}");
    let many = describe_failures(&failures(12));
    assert!(many.contains("host-10:5432: "), "{many}");
    assert!(many.ends_with("; and 2 other hosts"), "{many}");
}
