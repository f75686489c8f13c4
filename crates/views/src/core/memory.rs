//! How much memory the steps of a statement have that sort and hash.

/// What a step has at least, in kB, if that many fit: as much as a server gives one that was not
/// told anything.
pub(crate) const STEP_KB: u64 = 4 * 1024;

/// The least that a server takes, in kB.
const STEP_KB_MIN: u64 = 64;

/// What a row takes in a step, about, in bytes.
const ROW_BYTES: u64 = 512;

/// What a step may be: every source, as it may be joined to the others, and whatever groups, sorts
/// or looks for rows of a table.
const STEPS: [&str; 9] = [
    " AS t",
    " JOIN ",
    " GROUP BY ",
    " ORDER BY ",
    "DISTINCT ",
    "EXISTS ",
    " OVER ",
    "DELETE FROM ",
    "UPDATE ",
];

/// `work_mem`, in kB, of a statement that may use so many bytes: enough for so many changes in each
/// step, or all there is where it computes everything.
pub(crate) fn work_mem_kb(memory_max: u64, statement: &str, changes: Option<u64>) -> u64 {
    let steps = STEPS
        .iter()
        .map(|step| statement.matches(step).count())
        .sum::<usize>()
        .max(1) as u64;
    let step_max = (memory_max / 1024 / steps).max(STEP_KB_MIN);
    let wanted = match changes {
        None => step_max,
        Some(changes) => STEP_KB.max(changes.saturating_mul(ROW_BYTES) / 1024),
    };
    wanted.min(step_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_what_changes_need_up_to_a_share() {
        let sql = "SELECT k, sum(w) FROM (SELECT t1.k, t2.w FROM a AS t1, b AS t2) AS r GROUP BY k";
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(0)), STEP_KB);
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(1_000)), STEP_KB);
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(100_000)), 50_000);
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(u64::MAX)), 87_381);
        assert_eq!(work_mem_kb(256 * MIB, sql, None), 87_381);
    }

    #[test]
    fn however_little_there_is_the_server_takes_it() {
        assert_eq!(work_mem_kb(MIB, "SELECT 1", Some(1)), 1024);
        assert_eq!(work_mem_kb(0, &" JOIN ".repeat(100), None), 64);
    }
}
