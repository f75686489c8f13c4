//! What keeps a server of a hostile user apart from everything else on the machine.
//!
//! A branch's user may become superuser of the branch, and so may run code of any kind in its
//! processes. Landlock leaves these their data directory, their socket directory and the PostgreSQL
//! programs; seccomp leaves them no connection to anything. Where Egret is root each branch also
//! has an operating-system user of its own, from a range of ids that no account has, and a root
//! file system that holds nothing but these. Its files are shown to that user by an idmapped mount,
//! so that nothing is changed on the disk. Socket and log of such a server are in a small file
//! system in memory, which this process reaches through `/proc/PID/root`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::settings::ByteSize;
use egret_base::sync::lock;
use egret_linux::confine::{
    CommonPaths, Confinement, LANDLOCK_SIGNALS, PathTable, PrivateUser, ProcessLimits, Reach,
    Replacement, has_processes, kill_processes_of, landlock_version, mount, user_of,
};

use rustix::thread::CapabilitySet;

use crate::control_groups::ControlGroups;
use crate::error::{PostgresError, io_error};
use crate::owner::{RunAsUser, current_user_name};
use crate::provision::Binaries;

/// Where programs of every package are read and run from.
const LIBRARY_DIRECTORIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// What the server and its libraries read.
const SHARED_FILES: [&str; 12] = [
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/usr/share/i18n",
    "/usr/share/icu",
    "/usr/share/locale",
    "/usr/share/pgsql",
    "/usr/share/postgresql",
    "/usr/share/zoneinfo",
    "/var/cache/postgresql",
];

/// The file in which the server looks up the name of a connecting process (`peer` authentication).
const PASSWD_FILE: &str = "/etc/passwd";

/// Says where accounts are, for a server that is shown those of the machine.
const NSSWITCH_FILE: &str = "/etc/nsswitch.conf";

/// Devices without an effect on anything else.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// The file system in memory for a server's socket and log, in bytes and files.
const SCRATCH_BYTES: u64 = 1 << 20;
const SCRATCH_FILES: u64 = 64;

/// Directory of the lock files of user ids in use: one file for each, owned by root.
const UID_LOCKS_DIRECTORY: &str = "/run/egret-users";

/// How often the remaining processes of a user are killed before its id is given up.
const KILL_ROUNDS: u32 = 200;
/// The wait between two of these rounds.
const KILL_PAUSE: Duration = Duration::from_millis(5);

/// The bounds that an operator sets.
#[derive(Clone, Copy, Debug)]
pub struct IsolationLimits {
    /// The first of the user ids that servers get.
    pub uid_base: u32,
    /// How many there are.
    pub uid_count: u32,
    /// Private memory of each process; `None` for a quarter of the machine's.
    pub process_memory_max: Option<ByteSize>,
    /// Processes and threads of each server, programs that it starts included.
    pub processes_max: u32,
}

/// The means of this machine to keep servers apart.
#[derive(Debug)]
pub struct Isolation {
    landlock: i32,
    /// Why servers have no user of their own; `None` when they do.
    shared_user: Option<String>,
    /// Whether this process finds files of a server's root file system (CAP_SYS_PTRACE, see
    /// proc_pid_root(5)).
    can_enter_roots: bool,
    limits: ProcessLimits,
    /// The only account that a server is shown: Egret's own.
    accounts_file: PathBuf,
    /// User id and group id that own the files on the disk.
    file_owner: (u32, u32),
    users: Arc<Users>,
    groups: ControlGroups,
    /// The paths that the last server reached as most others do.
    path_table: Mutex<Option<Arc<PathTable>>>,
}

/// The ids of [`IsolationLimits`].
#[derive(Debug)]
struct Users {
    base: u32,
    count: u32,
    /// Ids that servers of this Egret have.
    leased_ids: Mutex<BTreeSet<u32>>,
}

/// A user id of one server's own.
#[derive(Debug)]
pub(crate) struct UserLease {
    id: u32,
    /// Locked while the lease lives, against other Egrets of this machine.
    _lock_file: Option<File>,
    users: Arc<Users>,
}

impl Isolation {
    /// Finds out what works here: `data` is a directory on the file system of the servers' files,
    /// which belong to `owner`, and `run` one for small files of Egret's. Servers are bounded by
    /// `groups` as well.
    ///
    /// # Errors
    /// [`PostgresError::Io`] when the list of accounts cannot be written.
    pub fn probe(
        limits: IsolationLimits,
        groups: ControlGroups,
        data: &Path,
        run: &Path,
        owner: &RunAsUser,
    ) -> Result<Self, PostgresError> {
        let accounts_file = run.join("accounts");
        let uid = rustix::process::geteuid().as_raw();
        let line = format!("{}:x:{uid}:{uid}::/nonexistent:/nonexistent\n", current_user_name());
        fs::write(&accounts_file, line).map_err(io_error("write", &accounts_file))?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(&accounts_file, mode).map_err(io_error("write", &accounts_file))?;
        let memory = crate::tuning::detect_machine(data).memory.bytes() / 4;
        let users = Arc::new(Users {
            base: limits.uid_base,
            count: limits.uid_count,
            leased_ids: Mutex::default(),
        });
        let limits = ProcessLimits {
            memory_bytes_max: limits.process_memory_max.map_or(memory, ByteSize::bytes),
            processes_max: limits.processes_max.into(),
        };
        let shared_user = users.probe(data, owner, limits).err();
        Ok(Self {
            landlock: landlock_version(),
            shared_user,
            can_enter_roots: rustix::thread::capabilities(None)
                .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE)),
            limits,
            accounts_file,
            file_owner: (owner.uid, owner.gid),
            users,
            groups,
            path_table: Mutex::default(),
        })
    }

    /// The control groups of servers.
    pub fn groups(&self) -> &ControlGroups {
        &self.groups
    }

    /// Whether a superuser of a server reaches nothing outside of it.
    pub fn is_complete(&self) -> bool {
        self.shared_user.is_none() && self.landlock >= LANDLOCK_SIGNALS
    }

    /// Whether Landlock does all that is asked of it: without, files that every user may read and
    /// processes of the source's user are within reach.
    pub fn bounds_files_and_signals(&self) -> bool {
        self.landlock >= LANDLOCK_SIGNALS
    }

    /// Whether the operating system keeps a superuser of a server from files and processes outside
    /// of it, by at least one of the layers.
    pub fn bounds_superusers(&self) -> bool {
        self.shared_user.is_none() || self.bounds_files_and_signals()
    }

    /// Describes what is bounded on this machine, for an operator.
    pub fn describe(&self) -> String {
        let user = match &self.shared_user {
            None => "an operating-system user for each branch".to_owned(),
            Some(reason) => format!("the source's operating-system user ({reason})"),
        };
        let landlock = match self.landlock {
            0 => "NO Landlock (the kernel does not support it: branches can read files that every user may read)"
                .to_owned(),
            version => format!("Landlock {version}"),
        };
        format!("{user}, {landlock}, seccomp")
    }

    /// A user id for a server that is about to start; `None` where all have one.
    ///
    /// # Errors
    /// [`PostgresError::NoUserLeft`].
    pub(crate) fn lease(&self) -> Result<Option<UserLease>, PostgresError> {
        if self.shared_user.is_some() {
            return Ok(None);
        }
        let mut leased_ids = lock(&self.users.leased_ids);
        let mut ids = self.users.base..self.users.base.saturating_add(self.users.count);
        let free_id = ids.find_map(|id| {
            if leased_ids.contains(&id) {
                return None;
            }
            let lock_file = lock_uid(id).ok().flatten()?;
            (!has_processes(id)).then_some((id, lock_file))
        });
        let (id, claim) = free_id.ok_or(PostgresError::NoUserLeft { count: self.users.count })?;
        leased_ids.insert(id);
        Ok(Some(self.users.new_lease(id, Some(claim))))
    }

    /// The lease of a process that an earlier Egret started.
    pub(crate) fn lease_of_process(&self, pid: i32) -> Option<UserLease> {
        let id = user_of(pid)?;
        let is_ours = id >= self.users.base && id - self.users.base < self.users.count;
        if !is_ours {
            return None;
        }
        lock(&self.users.leased_ids).insert(id);
        Some(self.users.new_lease(id, lock_uid(id).ok().flatten()))
    }

    /// A small file system in memory for the socket and the log of a server: what it writes there
    /// is bounded, and not on the disk of Egret's own files. `None` where this process would not
    /// find the socket in it.
    pub(crate) fn mount_scratch(&self, lease: &UserLease) -> std::io::Result<Option<OwnedFd>> {
        let mounted = self
            .can_enter_roots
            .then(|| mount::small_tmpfs(lease.id, SCRATCH_BYTES, SCRATCH_FILES));
        mounted.transpose()
    }

    /// Prepares what bounds a server. `scratch` takes the place of `socket_dir`, where there is
    /// one.
    pub(crate) fn confine(
        &self,
        binaries: &Binaries,
        data: &Path,
        socket_dir: &Path,
        preload_libraries: &str,
        user: Option<(&UserLease, Option<OwnedFd>)>,
    ) -> Result<Confinement, PostgresError> {
        let fail = io_error("confine the server of", data);
        let lease = user.as_ref().map(|(lease, _)| *lease);
        let mut writable = vec![data.to_owned()];
        let user = match user {
            None => None,
            Some((lease, scratch)) => match self.private_user(lease, data) {
                Ok(user) => Some(PrivateUser {
                    scratch: scratch.map(|mount| (mount, socket_dir.to_owned())),
                    ..user
                }),
                Err(error) => return Err(fail(error)),
            },
        };
        if user.as_ref().is_none_or(|user| user.scratch.is_none()) {
            writable.push(socket_dir.to_owned());
        }
        let common = self
            .common_paths(binaries, preload_libraries, lease.is_some())
            .map_err(io_error("confine the server of", data))?;
        let reach = Reach { common_paths: common, writable };
        Confinement::new(&reach, self.limits, user).map_err(fail)
    }

    /// What servers of this installation reach alike.
    fn common_paths(
        &self,
        binaries: &Binaries,
        preload_libraries: &str,
        has_own_user: bool,
    ) -> std::io::Result<Arc<PathTable>> {
        let mut common = CommonPaths {
            executable: to_paths(&LIBRARY_DIRECTORIES),
            readable: to_paths(&SHARED_FILES),
            devices: to_paths(&DEVICES),
            replacements: Vec::new(),
        };
        common.executable.extend(installation_directories(binaries));
        common.executable.extend(directories_of(preload_libraries));
        if has_own_user {
            common.replacements.push(Replacement {
                path: self.accounts_file.clone(),
                shown_at: PASSWD_FILE.into(),
            });
        } else {
            common.readable.extend(to_paths(&[PASSWD_FILE, NSSWITCH_FILE]));
        }
        let cached = lock(&self.path_table).clone();
        if let Some(table) = cached.filter(|table| table.is_current(&common)) {
            return Ok(table);
        }
        let table = Arc::new(PathTable::look_up(common)?);
        *lock(&self.path_table) = Some(table.clone());
        Ok(table)
    }

    fn private_user(&self, lease: &UserLease, data: &Path) -> std::io::Result<PrivateUser> {
        let mapping = mount::owner_mapping(self.file_owner.0, self.file_owner.1, lease.id)?;
        Ok(PrivateUser {
            id: lease.id,
            mounts: vec![(mount::mount_with_owner(data, &mapping)?, data.to_owned())],
            scratch: None,
        })
    }
}

impl Users {
    fn new_lease(self: &Arc<Self>, id: u32, lock_file: Option<File>) -> UserLease {
        UserLease { id, _lock_file: lock_file, users: self.clone() }
    }

    /// Whether servers can have users of their own, else why not.
    fn probe(&self, data: &Path, owner: &RunAsUser, limits: ProcessLimits) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("Egret is not root".to_owned());
        }
        if self.count == 0 {
            return Err("branches.uid_count is 0".to_owned());
        }
        let last = self.base.saturating_add(self.count - 1);
        lock_uid(last).map_err(|error| format!("{UID_LOCKS_DIRECTORY} cannot be used: {error}"))?;
        try_private_user(data, owner, last, limits).map_err(|error| {
            format!("a user and a root file system of its own do not work here: {error}; they need CAP_SYS_ADMIN and a file system that maps owners")
        })
    }
}

impl UserLease {
    /// The user id, which is the group id as well.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Kills the processes that the user has at this moment. Returns whether there were none.
    pub(crate) fn kill_current(&self) -> bool {
        !has_processes(self.id) || kill_processes_of(self.id) == 0
    }

    /// Kills every process of the user: a server's superuser may have started some that the server
    /// does not know. Waits for their ends.
    pub(crate) async fn end_processes(&self) {
        for _ in 0..KILL_ROUNDS {
            if self.kill_current() {
                return;
            }
            tokio::time::sleep(KILL_PAUSE).await;
        }
    }

    /// As [`UserLease::end_processes`], on a thread that may wait.
    fn kill_processes(&self) {
        for _ in 0..KILL_ROUNDS {
            if self.kill_current() {
                return;
            }
            std::thread::sleep(KILL_PAUSE);
        }
        tracing::error!(
            uid = self.id,
            "cannot kill the processes of a branch; its user id is not reused before they exit"
        );
    }

    /// Gives the id back, after the server has ended or failed to start.
    pub(crate) fn release(self) {
        self.kill_processes();
        // An id whose processes are still ending is passed over by `Isolation::lease`, and only as
        // long as they are.
        lock(&self.users.leased_ids).remove(&self.id);
    }
}

/// Confines a child to `data` as user `id`, whose files belong to `owner` on the disk.
fn try_private_user(
    data: &Path,
    owner: &RunAsUser,
    id: u32,
    limits: ProcessLimits,
) -> std::io::Result<()> {
    let mapping = mount::owner_mapping(owner.uid, owner.gid, id)?;
    let user = PrivateUser {
        id,
        mounts: vec![(mount::mount_with_owner(data, &mapping)?, data.to_owned())],
        scratch: None,
    };
    let common =
        CommonPaths { executable: to_paths(&LIBRARY_DIRECTORIES), ..CommonPaths::default() };
    let reach = Reach {
        common_paths: Arc::new(PathTable::look_up(common)?),
        writable: vec![data.to_owned()],
    };
    Confinement::new(&reach, limits, Some(user))?.try_in_child()
}

/// Locks an id against other Egrets of this machine; `None` when one of them has it.
fn lock_uid(id: u32) -> std::io::Result<Option<File>> {
    let directory = Path::new(UID_LOCKS_DIRECTORY);
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(directory.join(id.to_string()))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Directories of the installation that the programs belong to.
fn installation_directories(binaries: &Binaries) -> Vec<PathBuf> {
    let is_bin = binaries.directory.file_name().is_some_and(|name| name == "bin");
    let prefix = binaries.directory.parent().filter(|_| is_bin);
    vec![prefix.unwrap_or(&binaries.directory).to_owned()]
}

/// Directories of libraries that are named by their whole path.
fn directories_of(libraries: &str) -> Vec<PathBuf> {
    libraries
        .split(',')
        .map(|library| Path::new(library.trim().trim_matches('"')))
        .filter(|library| library.is_absolute())
        .filter_map(|library| library.parent().map(Path::to_owned))
        .collect()
}

fn to_paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}
