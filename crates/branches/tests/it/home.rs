//! An Egret without doors: volume, embedded server and engine in a directory of one test.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use egret_base::lifecycle::Stack;
use egret_base::settings::ByteSize;
use egret_base::{Clock, SystemClock, SystemEntropy, Timestamp};
use egret_base_test::{eventually, eventually_blocking};
use egret_branches::model::{BranchName, DEFAULT_TENANT, NewBranch, Preset};
use egret_branches::{
    BranchEndpoint, Branches, BranchesConfig, BranchesError, Children, ClientRequest, CrashPoints,
    Options, PoolStatus, ROLE, VolumeService, open_volume,
};
use egret_postgres::embedded::Layout;
use egret_postgres::pidfile::PidFile;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::{EmbeddedServer, PostgresConfig, pool};
use egret_postgres_test::{Guardian, free_port, test_directory};
use prometheus_client::registry::Registry;

/// Where everything of one test is; removed with it.
pub struct Home {
    pub directory: PathBuf,
    pub config: BranchesConfig,
    pub postgres: PostgresConfig,
    pub clock: Arc<JumpingClock>,
    _guardian: Option<Guardian>,
}

/// The system's clock, which a test may set forward.
#[derive(Default)]
pub struct JumpingClock(AtomicU64);

impl JumpingClock {
    pub fn jump(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn now(&self) -> Timestamp {
        let ahead = Duration::from_secs(self.0.load(Ordering::SeqCst));
        SystemClock.now().plus(ahead)
    }

    fn now_and_monotonic(&self) -> (Timestamp, Duration) {
        (self.now(), self.monotonic())
    }
}

/// A running engine with what is under it.
pub struct Egret {
    pub branches: Branches,
    pub source: Arc<EmbeddedServer>,
    stack: Stack,
}

impl Home {
    pub fn new(purpose: &str) -> Self {
        let directory = test_directory(purpose);
        let guardian = Guardian::new(&directory);
        let mut home = Self::at(&directory);
        home._guardian = Some(guardian);
        home
    }

    /// A home that another process looks after.
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            config: BranchesConfig {
                volume_size: ByteSize::gib(1),
                free_min: ByteSize::mib(64),
                free_critical: ByteSize::mib(32),
                // Tests of the pool ask for one.
                pool_min: 0,
                ..BranchesConfig::default()
            },
            postgres: PostgresConfig {
                port: free_port(),
                sessions_max: 20,
                ..PostgresConfig::default()
            },
            clock: Arc::default(),
            _guardian: None,
        }
    }

    pub async fn start(&self) -> Egret {
        self.start_with(None).await
    }

    pub async fn start_with(&self, steps: Option<Arc<dyn CrashPoints>>) -> Egret {
        let egret = self.build(steps);
        egret.stack.start().await.expect("egret starts");
        egret
    }

    /// Starts an Egret; returns the error if the branches cannot start.
    pub async fn try_start(&self) -> Result<Egret, String> {
        let egret = self.start().await;
        match egret.stack.failures().reason("branches") {
            None => Ok(egret),
            Some(reason) => {
                egret.stack.stop().await;
                Err(reason)
            }
        }
    }

    fn build(&self, steps: Option<Arc<dyn CrashPoints>>) -> Egret {
        crate::logs::watch();
        let mounted = open_volume(&self.directory, &self.config).expect("the volume opens");
        let (clock, entropy) = (self.clock.clone(), Arc::new(SystemEntropy));
        let layout = Layout {
            data: mounted.source(),
            socket_dir: self.directory.join("run/source"),
            log_file: self.directory.join("postgres-start.log"),
            password_file: self.directory.join("superuser.password"),
        };
        let source = Arc::new(EmbeddedServer::new(
            self.postgres.clone(),
            layout,
            clock.clone(),
            entropy.clone(),
        ));
        let options = Options {
            config: self.config.clone(),
            mounted,
            data_dir: self.directory.clone(),
            run_dir: self.directory.join("run/branches"),
            source: source.clone(),
            clock,
            entropy,
        };
        let mut metrics = Registry::default();
        let branches = match steps {
            Some(steps) => Branches::with_crash_points(options, &mut metrics, steps),
            None => Branches::new(options, &mut metrics),
        };
        let mut stack = Stack::default();
        stack.push(Arc::new(VolumeService::new(&self.directory)));
        stack.push(source.clone());
        stack.push(Arc::new(branches.clone()));
        Egret { branches, source, stack }
    }
}

impl Home {
    /// The postmasters of branches that run, those in pools included, by the branch's id.
    pub fn postmasters(&self) -> BTreeMap<String, i32> {
        let branches = self.directory.join("volume/branches");
        directories(&branches)
            .into_iter()
            .filter_map(|id| Some((PidFile::read(&branches.join(&id))?.pid, id)))
            .filter(|(pid, _)| alive(*pid))
            .map(|(pid, id)| (id, pid))
            .collect()
    }

    /// The postmasters of branches that have no name.
    pub async fn pooled(&self, egret: &Egret) -> BTreeMap<String, i32> {
        let named = egret.named().await;
        let mut all = self.postmasters();
        all.retain(|id, _| !named.contains(id));
        all
    }

    /// Waits until the pools are full and nothing is under way, then checks that no directory,
    /// socket directory or process is there but those of the named branches and of the pools.
    pub async fn assert_nothing_leaks(&self, egret: &Egret) {
        self.assert_nothing_leaks_but(egret, 0).await;
    }

    /// The same where some of the named branches do not run.
    pub async fn assert_nothing_leaks_but(&self, egret: &Egret, suspended: usize) {
        let pools = egret.branches.await_pools_filled().await.unwrap();
        egret.assert_consistent().await;
        let hot: usize = pools.iter().map(|pool| pool.hot).sum();
        let expected = egret.named().await.len() + hot;
        for place in ["volume/branches", "run/branches"] {
            let found = directories(&self.directory.join(place));
            assert_eq!(found.len(), expected, "{place}: {found:?}, pools {pools:?}");
        }
        let processes = self.processes("volume/branches");
        let postmasters: BTreeSet<i32> = self.postmasters().into_values().collect();
        let stray: Vec<&(i32, i32)> = processes
            .iter()
            .filter(|(pid, parent)| !postmasters.contains(pid) && !postmasters.contains(parent))
            .collect();
        assert!(stray.is_empty(), "{stray:?} belong to no branch");
        assert_eq!(postmasters.len(), expected - suspended, "{pools:?}");
    }

    /// Every process that works in a place of this home, and its parent.
    pub fn processes(&self, place: &str) -> Vec<(i32, i32)> {
        let place = self.directory.join(place);
        let place = place.canonicalize().unwrap_or(place);
        processes()
            .into_iter()
            .filter(|pid| {
                std::fs::read_link(format!("/proc/{pid}/cwd"))
                    .is_ok_and(|cwd| cwd.starts_with(&place))
            })
            .filter_map(|pid| Some((pid, parent(pid)?)))
            .collect()
    }
}

/// The names of the directories in a directory.
fn directories(place: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(place).unwrap();
    entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// What the files below a directory take on the disk.
pub fn disk_bytes(place: &Path) -> u64 {
    let entries = std::fs::read_dir(place).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            disk_bytes(&entry.path())
        } else {
            // What stat(2) counts in.
            metadata.blocks() * 512
        }
    });
    bytes.sum()
}

/// Loses the registry of an Egret that does not run.
pub fn lose_registry(home: &Home) {
    for suffix in ["", "-wal", "-shm"] {
        let path = home.directory.join(format!("state.db{suffix}"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
}

fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The parent of a process that has not ended.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let (state, rest) = rest.split_once(' ')?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    rest.split(' ').next()?.parse().ok()
}

/// Whether a process has not ended.
pub fn alive(pid: i32) -> bool {
    parent(pid).is_some()
}

/// The backends of a postmaster that serve the branches' role, as their titles call them.
pub fn backends(postmaster: i32) -> BTreeMap<i32, String> {
    processes()
        .into_iter()
        .filter(|pid| parent(*pid) == Some(postmaster))
        .filter_map(|pid| {
            let title = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            let title = title.trim_end_matches('\0').to_owned();
            title.contains(": egret_branch ").then_some((pid, title))
        })
        .collect()
}

/// Waits until a postmaster has at most `count_max` backends of the branches' role.
pub async fn await_backends(postmaster: i32, count_max: usize) {
    eventually("sessions of the branch end", async || {
        let left = backends(postmaster);
        if left.len() <= count_max { Ok(()) } else { Err(left) }
    })
    .await;
}

/// Ends a process as kill -9 does, and returns when it has ended.
pub fn kill(pid: i32) {
    let process = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    eventually_blocking("the killed process ends", || !alive(pid));
}

impl Egret {
    /// Sets the size of the pool of preset `small` and waits until it is full.
    pub async fn fill(&self, size: u32) -> PoolStatus {
        self.branches.resize_pool(Preset::Small, Some(size)).await.unwrap();
        self.filled().await
    }

    /// Waits until no reset is under way, also none that a start does again.
    pub async fn resets_are_over(&self) {
        eventually("no reset is under way", async || {
            let counts = self.branches.count_by_state().unwrap();
            counts.get("resetting").copied().map_or(Ok(()), Err)
        })
        .await;
    }

    /// The pool of preset `small` once every pool is full.
    pub async fn filled(&self) -> PoolStatus {
        let pools = self.branches.await_pools_filled().await.unwrap();
        of_preset(pools, Preset::Small)
    }

    /// The pool of preset `small` now.
    pub fn pool(&self) -> PoolStatus {
        of_preset(self.branches.pools().unwrap(), Preset::Small)
    }

    /// The ids of the branches that have a name.
    async fn named(&self) -> BTreeSet<String> {
        let branches = self.branches.list(DEFAULT_TENANT, |_| true).await.unwrap();
        let id = |view: egret_branches::BranchView| view.branch.id.replace('-', "");
        branches.into_iter().map(id).collect()
    }

    /// Stops everything; whatever was logged until then must have been expected.
    pub async fn stop(&self) {
        self.stack.stop().await;
        crate::logs::assert_quiet();
    }

    /// A superuser's session in the source.
    pub async fn source(&self, database: &str) -> Client {
        // A user's session, with the server's own defaults.
        pool::connect_with_defaults(self.source.connection(database, "test").options(""))
            .await
            .expect("the source accepts connections")
    }

    /// Database `app` with a table of a thousand rows in it, owned by the superuser.
    pub async fn make_app(&self) {
        let admin = self.source("postgres").await;
        admin.batch_execute("CREATE DATABASE app").await.unwrap();
        let app = self.source("app").await;
        app.batch_execute(
            "CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL);
             INSERT INTO item SELECT n, 'item ' || n FROM generate_series(1, 1000) AS n",
        )
        .await
        .unwrap();
    }

    /// Makes a branch with a plain request.
    pub async fn branch(&self, name: &str) -> egret_branches::model::Branch {
        let request = NewBranch::named(self::name(name));
        self.branches.create(request).await.unwrap().into_branch()
    }

    /// The first value that a query on a branch answers.
    pub async fn ask(&self, branch: &str, sql: &str) -> Result<Option<String>, BranchesError> {
        let answer =
            self.branches.query(DEFAULT_TENANT, &name(branch), "app", sql, &[], None).await?;
        Ok(answer.rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
    }

    /// Starts a branch that is suspended.
    pub async fn resume(&self, branch: &str) {
        let resumed = self.branches.resume(DEFAULT_TENANT, &name(branch)).await;
        resumed.unwrap();
    }

    /// Destroys a branch that has no children.
    pub async fn destroy(&self, branch: &str) {
        let destroyed =
            self.branches.destroy(DEFAULT_TENANT, &name(branch), Children::Refuse, |_| true).await;
        destroyed.unwrap();
    }

    /// Waits until the files behind every tombstone are gone and every branch that is to run does,
    /// then checks that registry and disk agree.
    pub async fn assert_consistent(&self) {
        let check = eventually("deletions and starts are over", async || {
            let check = self.branches.check_registry().await.unwrap();
            // Branches that ran before are started behind.
            let starting = check.findings.iter().all(|finding| finding.what == "postmaster");
            if check.tombstones == 0 && (check.consistent || !starting) {
                Ok(check)
            } else {
                Err(check)
            }
        })
        .await;
        assert!(check.consistent, "{check:?}");
    }
}

fn of_preset(pools: Vec<PoolStatus>, preset: Preset) -> PoolStatus {
    pools.into_iter().find(|pool| pool.preset == preset).unwrap()
}

pub fn name(text: &str) -> BranchName {
    text.parse().expect("a valid name")
}

/// What a client of the proxy is given that has shown it knows the branch's password.
pub async fn attach(
    egret: &Egret,
    branch: &str,
    database: &str,
    parameters: &[(String, String)],
) -> Result<BranchEndpoint, BranchesError> {
    let (name, branches) = (name(branch), &egret.branches);
    let (id, _) = branches.verifier(DEFAULT_TENANT, &name).await?;
    let request = ClientRequest { role: ROLE, database, parameters };
    branches.attach_client(DEFAULT_TENANT, &name, id, request).await
}
