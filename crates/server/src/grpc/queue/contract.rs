//! The calls of the contract: the scopes that each needs, and which of them last.

const PRODUCE: &[&str] = &["queue:produce", "queue:write"];
const WORK: &[&str] = &["queue:work", "queue:write"];
const OPERATE: &[&str] = &["queue:operate", "queue:write"];
const READ: &[&str] = &["queue:read"];
const READ_RESULT: &[&str] = &["queue:produce", "queue:read"];

/// Every call of the contract, with the scopes of which its caller needs one. Which queues a scope
/// covers is compared by each call.
pub(super) const CALLS: &[(&str, &[&str])] = &[
    ("Produce", PRODUCE),
    ("Work", WORK),
    ("Watch", READ),
    ("WaitTasks", READ_RESULT),
    ("Enqueue", PRODUCE),
    ("Claim", WORK),
    ("Report", WORK),
    ("GetTask", READ_RESULT),
    ("WaitTask", READ_RESULT),
    ("ListTasks", READ),
    ("CancelTask", OPERATE),
    ("RequeueTask", OPERATE),
    ("DeleteTask", OPERATE),
    ("PutQueue", OPERATE),
    ("GetQueue", READ),
    ("ListQueues", READ),
    ("DeleteQueue", OPERATE),
    ("PauseQueue", OPERATE),
    ("ResumeQueue", OPERATE),
    ("DrainQueue", OPERATE),
    ("PurgeQueue", OPERATE),
    ("RequeueDead", OPERATE),
    ("PutSchedule", OPERATE),
    ("GetSchedule", READ),
    ("ListSchedules", READ),
    ("DeleteSchedule", OPERATE),
    ("PauseSchedule", OPERATE),
    ("ResumeSchedule", OPERATE),
];

/// Calls that last as long as their clients want.
pub(super) const LONG_LIVED_CALLS: [&str; 6] =
    ["Produce", "Work", "Watch", "WaitTasks", "Claim", "WaitTask"];
