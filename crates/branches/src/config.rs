//! The settings of the branches engine.

use egret_base::settings::{Size, Span};

egret_base::settings! {
    /// Settings of the branches engine.
    pub struct BranchesConfig in "branches" {
        /// How copies are made: `auto` uses what the data directory's file system offers and, as
        /// root on one that offers nothing, makes a loop-mounted btrfs image; `btrfs`, `reflink`
        /// and `copy` insist on one.
        volume: String = "auto".to_owned(),
        /// Size of the btrfs image made by `auto`; at most a third of the free space is taken.
        volume_size: Size = Size::gib(20); positive,
        /// Free space below which no branch is created or woken.
        free_min: Size = Size::mib(512),
        /// Free space below which the branch that grows most is suspended, so that the source does
        /// not meet a full volume.
        free_critical: Size = Size::mib(256),
        /// Largest number of branches that exist at a time.
        branches_max: u32 = 500,
        /// Largest number of branches of one tenant, so that no tenant takes all of them.
        tenant_branches_max: u32 = 400,
        /// How much of the volume the branches of one tenant may take, their own templates included and
        /// without what they share with the source. Over it nothing is created, and the branch that
        /// grows most is suspended. Empty: four fifths of the volume.
        tenant_disk_max: Option<Size> = None; positive,
        /// How long a request of a tenant that takes all of it waits until what the tenant has destroyed
        /// is deleted.
        tenant_purge_timeout: Span = Span::secs(60); positive,
        /// Largest value of a setting of a branch that takes memory: `shared_buffers`, `work_mem`,
        /// `maintenance_work_mem`. Empty: an eighth of the machine's.
        setting_memory_max: Option<Size> = None; positive,
        /// Largest value of a setting of a branch that counts sessions, transactions or processes:
        /// `max_connections`, `max_prepared_transactions`, `max_parallel_workers`.
        setting_sessions_max: u32 = 500; positive,
        /// Largest value of `max_wal_size` and `min_wal_size` of a branch.
        setting_wal_max: Size = Size::gib(8); positive,
        /// Largest number of templates that exist at a time.
        templates_max: u32 = 50; positive,
        /// Largest number of templates that the branches of one tenant hold or were built of, so that no
        /// tenant takes all of them.
        tenant_templates_max: u32 = 40; positive,
        /// Newest templates of the source that are kept though no branch uses them.
        templates_kept: u32 = 2,
        /// Age at which the newest template is replaced by itself; empty: only on demand.
        template_refresh: Option<Span> = None; positive,
        /// Which documents templates of the source keep: `default` those of tenant `default`, `all` those
        /// of all tenants, `none` none. Deleting others takes time where tenant `default` has some too.
        documents: String = "default".to_owned(),
        /// Lifetime of a branch that asks for none; empty: until it is destroyed.
        ttl_default: Option<Span> = None; positive,
        /// Longest lifetime that may be asked for.
        ttl_max: Span = Span::secs(365 * 86_400); positive,
        /// Time without a session after which a branch is suspended; empty: never.
        idle_suspend: Option<Span> = None; positive,
        /// Branches of preset `small` that are kept ready, started and with sessions connected, so
        /// that a create takes one from this pool; recent demand raises the number. 0: none. Where
        /// every byte is copied, only `egret branch pool resize` fills a pool.
        pool_min: u32 = 2,
        /// Largest number of ready branches of one preset that recent demand alone asks for.
        pool_demand_max: u32 = 16,
        /// Largest number of branches in all pools together.
        pool_max: u32 = 200,
        /// Sessions that each branch in a pool keeps connected for clients of the proxy; one more
        /// answers queries through the API. 0: neither.
        pool_sessions: u32 = 1,
        /// Whether sessions in a pool rehearse: load what first statements need, so that these find it
        /// in memory. Costs processor time of the refill and some memory of each branch.
        pool_rehearsal: bool = true,
        /// Time without a request after which pools are filled and files are deleted, so that this
        /// work does not compete with a burst of requests.
        pool_quiet: Span = Span::ms(100),
        /// How long that work is put off at most.
        pool_patience: Span = Span::secs(2),
        /// How a pool is filled: `phased` (all clones, then all starts, then all sessions) or
        /// `interleaved` (one branch after the other).
        pool_refill: String = "phased".to_owned(),
        /// How long a session that nobody uses is kept connected once its branch is leased.
        session_idle: Span = Span::secs(30),
        /// How long a branch may take to start.
        start_timeout: Span = Span::secs(60); positive,
        /// How long a branch may take to stop cleanly.
        stop_timeout: Span = Span::secs(10),
        /// How long Egret's own exchange with a branch's server may take, or with the one that a template
        /// is built with: a user of the branch decides what its catalogue contains.
        server_timeout: Span = Span::secs(300); positive,
        /// Largest amount of data that each session of such an exchange takes.
        server_answer_max: Size = Size::mib(16); positive,
        /// Templates of one tenant's branches that are built at the same time; further ones wait.
        tenant_builds_max: u32 = 4; positive,
        /// Branches started at the same time when Egret starts; 0: twice the cores.
        start_concurrency: u32 = 0,
        /// Largest number of rows in the answer of a query through the API.
        query_rows_max: u64 = 10_000; positive,
        /// Largest size of that answer.
        query_bytes_max: Size = Size::mib(16); positive,
        /// Queries through the API that begin at the same time, over all branches; 0: twice the cores.
        /// The others wait in line, since many at once only slow each other down. One that takes
        /// longer than 10 ms makes room for the next.
        query_concurrency: u32 = 0,
        /// How long such a query may run.
        query_timeout: Span = Span::secs(60); positive,
        /// How long reading the source for `egret branch verify NAME` may take each time: all of its
        /// tables are read before and after a write to the branch.
        verify_timeout: Span = Span::secs(600); positive,
        /// Labels that a branch may carry.
        labels_max: u32 = 32,
        /// How branches are kept apart from the machine and from each other: `auto` uses all that works
        /// here and says what does not, `full` refuses to start branches where something is missing.
        isolation: String = "auto".to_owned(),
        /// As root, first of the user ids that servers of branches run as. No account may have one of
        /// them.
        uid_base: u32 = 1_900_000_000; positive,
        /// How many user ids there are: each running branch gets one of its own, and a root file system
        /// that holds only what it needs. 0: branches run as the source's user.
        uid_count: u32 = 10_000,
        /// Largest private memory of one process of a branch. Empty: a quarter of the machine's.
        process_memory_max: Option<Size> = None; positive,
        /// Largest number of processes and threads of a branch that has a user id or a control group of
        /// its own.
        processes_max: u32 = 1_000; positive,
        /// Largest number of processes and threads of all branches together, by their control group, so
        /// that the source and the machine keep the rest. A branch needs 10 of them to start.
        total_processes_max: u32 = 20_000; at_least 10,
        /// Whether each branch is in a control group (version 2) of its own, with the limits below: `auto`
        /// uses what this machine lets Egret use and says what is missing, `full` refuses to start
        /// branches where something is missing, `off` uses none.
        cgroup: String = "auto".to_owned(),
        /// Largest memory of one branch, with what the kernel caches of its files, by its control group.
        /// A branch gets no swap. Empty: half of the machine's.
        memory_max: Option<Size> = None; positive,
        /// Largest memory of all branches together, by their control group, so that the source keeps the
        /// rest. Empty: three quarters of the machine's.
        total_memory_max: Option<Size> = None; positive,
        /// Largest processor time of one branch in percent of a core, by its control group: 150 is one
        /// and a half cores. 0: as much as others leave.
        cpu_percent_max: u32 = 0,
        /// Share of all branches together in the processor time while it is short, by their control
        /// group (`cpu.weight`, 1 to 10000): Egret and the source have 100.
        total_cpu_weight: u32 = 50; positive,
        /// `oom_score_adj` of a branch's processes: the kernel takes them before the source.
        oom_score_adj: u16 = 500,
        /// By how much a branch's processes yield to the source and to Egret (nice(1), 0 to 19); those
        /// of preset `twin` do not.
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
