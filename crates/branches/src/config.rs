//! The settings of the branches engine.

use egret_base::settings::{ByteSize, ConfigDuration};

egret_base::settings! {
    /// Settings of the branches engine.
    pub struct BranchesConfig in "branches" {
        /// How branches are copied: `auto` uses what the data directory's file system offers and,
        /// as root on one that offers nothing, creates a loop-mounted btrfs image; `btrfs`,
        /// `reflink` and `copy` require that method.
        volume: String = "auto".to_owned(),
        /// Size of the btrfs image made by `auto`; at most a third of the free space is taken.
        volume_size: ByteSize = ByteSize::gib(20); positive,
        /// Free space below which no branch is created or woken.
        free_min: ByteSize = ByteSize::mib(512),
        /// Free space below which the fastest-growing branch is suspended, so that the source does
        /// not run out of space.
        free_critical: ByteSize = ByteSize::mib(256),
        /// Largest number of branches that exist at a time.
        branches_max: u32 = 500,
        /// Largest number of branches of one tenant, so that no tenant takes all of them.
        tenant_branches_max: u32 = 400,
        /// How much of the volume the branches of one tenant may take, their own templates included
        /// and without what they share with the source. Over it nothing is created, and the
        /// fastest-growing branch is suspended. Empty: four fifths of the volume.
        tenant_disk_max: Option<ByteSize> = None; positive,
        /// How long a request of a tenant that has used up `tenant_disk_max` waits until files of
        /// the tenant's destroyed branches are deleted.
        tenant_purge_timeout: ConfigDuration = ConfigDuration::secs(60); positive,
        /// Largest value of a branch's memory settings: `shared_buffers`, `work_mem`,
        /// `maintenance_work_mem`. Empty: an eighth of the machine's memory.
        setting_memory_max: Option<ByteSize> = None; positive,
        /// Largest value of a setting of a branch that counts sessions, transactions or processes:
        /// `max_connections`, `max_prepared_transactions`, `max_parallel_workers`.
        setting_sessions_max: u32 = 500; positive,
        /// Largest value of `max_wal_size` and `min_wal_size` of a branch.
        setting_wal_max: ByteSize = ByteSize::gib(8); positive,
        /// Largest number of templates that exist at a time.
        templates_max: u32 = 50; positive,
        /// Largest number of templates that the branches of one tenant hold or were built from, so
        /// that no tenant takes all of them.
        tenant_templates_max: u32 = 40; positive,
        /// Number of newest templates of the source that are kept even if no branch uses them.
        templates_kept: u32 = 2,
        /// Age at which the newest template is replaced automatically; empty: only on demand.
        template_refresh: Option<ConfigDuration> = None; positive,
        /// Which documents templates of the source keep: `default` those of tenant `default`, `all`
        /// those of all tenants, `none` none. If both tenant `default` and others have documents,
        /// deleting those of the others takes time.
        documents: String = "default".to_owned(),
        /// Lifetime of a branch that is created without one; empty: until it is destroyed.
        ttl_default: Option<ConfigDuration> = None; positive,
        /// Longest lifetime that a request may set.
        ttl_max: ConfigDuration = ConfigDuration::secs(365 * 86_400); positive,
        /// Time without a session after which a branch is suspended; empty: never.
        idle_suspend: Option<ConfigDuration> = None; positive,
        /// Branches of preset `small` that are kept ready in a pool, started and with sessions
        /// connected; a create takes one from there. Recent demand raises the number. 0: none. On a
        /// volume that copies every byte, only `egret branch pool resize` fills a pool.
        pool_min: u32 = 2,
        /// Largest number of ready branches of one preset that recent demand alone asks for.
        pool_demand_max: u32 = 16,
        /// Largest number of branches in all pools together.
        pool_max: u32 = 200,
        /// Sessions that each branch in a pool keeps connected for clients of the proxy; one more
        /// answers queries through the API. 0: neither.
        pool_sessions: u32 = 1,
        /// Whether sessions in a pool are warmed up: they load what first statements need, so that
        /// it is already in memory. Costs processor time during the refill and some memory of each
        /// branch.
        pool_rehearsal: bool = true,
        /// Time without a request after which pools are filled and files are deleted, so that this
        /// work does not compete with a burst of requests.
        pool_quiet: ConfigDuration = ConfigDuration::ms(100),
        /// Longest time that this work is postponed.
        pool_patience: ConfigDuration = ConfigDuration::secs(2),
        /// How a pool is filled: `phased` (all clones, then all starts, then all sessions) or
        /// `interleaved` (one branch after the other).
        pool_refill: String = "phased".to_owned(),
        /// How long an unused session is kept connected once its branch is leased.
        session_idle: ConfigDuration = ConfigDuration::secs(30),
        /// How long a branch may take to start.
        start_timeout: ConfigDuration = ConfigDuration::secs(60); positive,
        /// How long a branch may take to stop cleanly.
        stop_timeout: ConfigDuration = ConfigDuration::secs(10),
        /// Longest time for Egret's own statements on the server of a branch, or on the one that
        /// builds a template: users of the branch control what its catalog contains.
        server_timeout: ConfigDuration = ConfigDuration::secs(300); positive,
        /// Largest amount of data that Egret accepts in one session of such statements.
        server_answer_max: ByteSize = ByteSize::mib(16); positive,
        /// Templates of one tenant's branches that are built at the same time; further ones wait.
        tenant_builds_max: u32 = 4; positive,
        /// Branches started at the same time when Egret starts; 0: twice the cores.
        start_concurrency: u32 = 0,
        /// Largest number of rows in the answer of a query through the API.
        query_rows_max: u64 = 10_000; positive,
        /// Largest size of that answer.
        query_bytes_max: ByteSize = ByteSize::mib(16); positive,
        /// Queries through the API that start at the same time, over all branches; 0: twice the
        /// cores. The others are queued, since many at once only slow each other down. A query that
        /// runs for more than 10 ms lets the next one start.
        query_concurrency: u32 = 0,
        /// How long such a query may run.
        query_timeout: ConfigDuration = ConfigDuration::secs(60); positive,
        /// How long reading the source for `egret branch verify NAME` may take each time: all of
        /// its tables are read before and after a write to the branch.
        verify_timeout: ConfigDuration = ConfigDuration::secs(600); positive,
        /// Labels that a branch may carry.
        labels_max: u32 = 32,
        /// How branches are isolated from the machine and from each other: `auto` uses every method
        /// that works on this machine and reports the others, `full` refuses to start branches if
        /// one is missing.
        isolation: String = "auto".to_owned(),
        /// If Egret runs as root: the first of the user ids that servers of branches run as. No
        /// account may have one of them.
        uid_base: u32 = 1_900_000_000; positive,
        /// How many user ids there are: each running branch gets one of its own, and a root file
        /// system that holds only what it needs. 0: branches run as the source's user.
        uid_count: u32 = 10_000,
        /// Largest private memory of one process of a branch. Empty: a quarter of the machine's
        /// memory.
        process_memory_max: Option<ByteSize> = None; positive,
        /// Largest number of processes and threads of a branch that has a user id or a control
        /// group of its own.
        processes_max: u32 = 1_000; positive,
        /// Largest number of processes and threads of all branches together, by their control
        /// group, so that the source and the machine keep the rest. A branch needs 10 of them to
        /// start.
        total_processes_max: u32 = 20_000; at_least 10,
        /// Whether each branch is in a control group (version 2) of its own, with the limits below:
        /// `auto` uses what this machine allows and reports what is missing, `full` refuses to
        /// start branches if something is missing, `off` uses none.
        cgroup: String = "auto".to_owned(),
        /// Largest memory of one branch, page cache of its files included, enforced by its control
        /// group. A branch gets no swap. Empty: half of the machine's memory.
        memory_max: Option<ByteSize> = None; positive,
        /// Largest memory of all branches together, by their control group, so that the source
        /// keeps the rest. Empty: three quarters of the machine's memory.
        total_memory_max: Option<ByteSize> = None; positive,
        /// Largest processor time of one branch in percent of a core, by its control group: 150 is
        /// one and a half cores. 0: no limit.
        cpu_percent_max: u32 = 0,
        /// Weight of all branches together when processor time is scarce, set on their control
        /// group (`cpu.weight`, 1 to 10000): Egret and the source have 100.
        total_cpu_weight: u32 = 50; positive,
        /// `oom_score_adj` of a branch's processes, so that the kernel kills them before the source
        /// when memory runs out.
        oom_score_adj: u16 = 500,
        /// Niceness (nice(1), 0 to 19) of a branch's processes, so that they yield to the source
        /// and Egret; those of preset `twin` have none.
        nice: u16 = 5,
    }
}

impl BranchesConfig {
    /// How many branches are started, or stopped, at the same time.
    pub(crate) fn start_concurrency(&self) -> usize {
        match self.start_concurrency {
            0 => std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2),
            configured => configured as usize,
        }
    }
}
