//! `work_mem` of a statement, by the number of its steps that sort or hash.

/// Memory of a step in kB, unless more is needed or less is available: the default of `work_mem` in
/// PostgreSQL.
pub(crate) const STEP_MEMORY_KB: u64 = 4 * 1024;

/// Smallest `work_mem` that the server accepts, in kB.
const STEP_MEMORY_KB_MIN: u64 = 64;

/// Estimated memory of a row in a step, in bytes.
const ROW_BYTES_ESTIMATE: u64 = 512;

/// Texts in a statement that each mark a step: every source, as it may be joined to the others, and
/// whatever groups, sorts or looks up rows of a table.
const STEP_MARKERS: [&str; 9] = [
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

/// `work_mem` in kB of a statement that may use `memory_max` bytes: enough for `changes` rows in
/// each step, or an equal share of all memory if the statement reads all rows.
pub(crate) fn work_mem_kb(memory_max: u64, statement: &str, changes: Option<u64>) -> u64 {
    let steps =
        STEP_MARKERS.iter().map(|step| statement.matches(step).count()).sum::<usize>().max(1)
            as u64;
    let step_max = (memory_max / 1024 / steps).max(STEP_MEMORY_KB_MIN);
    let needed = match changes {
        None => step_max,
        Some(changes) => STEP_MEMORY_KB.max(changes.saturating_mul(ROW_BYTES_ESTIMATE) / 1024),
    };
    needed.min(step_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn work_mem_covers_the_changes_up_to_an_equal_share() {
        let sql = "SELECT k, sum(w) FROM (SELECT t1.k, t2.w FROM a AS t1, b AS t2) AS r GROUP BY k";
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(0)), STEP_MEMORY_KB);
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(1_000)), STEP_MEMORY_KB);
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(100_000)), 50_000);
        assert_eq!(work_mem_kb(256 * MIB, sql, Some(u64::MAX)), 87_381);
        assert_eq!(work_mem_kb(256 * MIB, sql, None), 87_381);
    }

    #[test]
    fn work_mem_is_at_least_what_the_server_accepts() {
        assert_eq!(work_mem_kb(MIB, "SELECT 1", Some(1)), 1024);
        assert_eq!(work_mem_kb(0, &" JOIN ".repeat(100), None), 64);
    }
}
