//! The data directory: its lock and the places of files in it.

mod reserve;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use egret_base::lifecycle::Failures;
use egret_base::parts::{KNOWN_PARTS, KnownParts};
use egret_base::{Condition, Timestamp};
use egret_linux::trust;
use egret_postgres::embedded::Layout;
use egret_postgres::postmaster::check_socket_path;
use egret_server::Tokens;
use egret_state::Tables;
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

/// The engines that keep files of their own, and the file that each makes first.
const ENGINE_PARTS: [(&str, &str); 2] =
    [("queue", "queue/partitions"), ("series", "series/shards")];
const POSTGRES_PART: &str = "postgres";
const STATE_PART: &str = "state.db";
const STATE_LOST: &str = "the content of state.db is lost: branches are restored from their manifests, tokens are not, and a new admin token is created";
const STATE_INCOMPLETE: &str = "a part of the content of state.db is lost";

/// Tables of `state.db` that can be empty while the others are not: sizes of pools, and passwords
/// of roles of branches. Without rows of branches or templates their files would be rebuilt from
/// manifests, which a start does with a whole new `state.db` only.
const SIDE_TABLES: [&str; 2] = ["pool", "role_password"];

/// The data directory of one Egret, locked for as long as this value is kept.
pub struct DataDir {
    path: PathBuf,
    run_dir: PathBuf,
    state_lost: Condition,
    state_incomplete: Condition,
    _lock: File,
}

impl DataDir {
    /// Makes the directory where it is missing and takes its lock.
    ///
    /// # Errors
    /// When it cannot be made, or another Egret holds the lock: its pid is named.
    pub fn open(data_dir: PathBuf) -> anyhow::Result<Self> {
        if !data_dir.exists() {
            // The user that PostgreSQL runs as passes through and sees nothing.
            let created = fs::DirBuilder::new().recursive(true).mode(0o711).create(&data_dir);
            created.with_context(|| format!("create the data directory {}", data_dir.display()))?;
        }
        let data_dir =
            data_dir.canonicalize().with_context(|| format!("examine {}", data_dir.display()))?;
        check_data_dir(&data_dir)?;
        let lock = take_lock(&data_dir)?;
        let run_dir = choose_run_dir(&data_dir)?;
        Ok(Self {
            path: data_dir,
            run_dir,
            state_lost: Condition::new("state_lost", STATE_PART),
            state_incomplete: Condition::new("state_incomplete", STATE_PART),
            _lock: lock,
        })
    }

    /// Path of the data directory.
    pub fn data_dir(&self) -> &Path {
        &self.path
    }

    /// Where the sockets of branches go.
    pub(crate) fn branch_sockets(&self) -> PathBuf {
        self.run_dir.join("branches")
    }

    /// Path of the clock's record.
    pub(crate) fn clock_file(&self) -> PathBuf {
        self.path.join("clock")
    }

    pub(crate) fn state_db(&self) -> PathBuf {
        self.path.join("state.db")
    }

    /// Where the first start leaves the admin token.
    pub(crate) fn admin_token_file(&self) -> PathBuf {
        self.path.join("admin.token")
    }

    /// The embedded server's files, its data in `data`.
    pub fn layout(&self, data: PathBuf) -> Layout {
        Layout {
            data,
            socket_dir: self.run_dir.join("postgres"),
            log_file: self.path.join("postgres-start.log"),
            password_file: self.path.join(egret_branches::PASSWORD_FILE),
        }
    }

    /// The engines whose directory was there at an earlier start and is gone, with what to say of
    /// each: begun anew it would look as if nothing had ever been in it.
    pub(crate) fn missing_engines(&self) -> Vec<(&'static str, String)> {
        let missing = ENGINE_PARTS.into_iter().filter_map(|(part, file)| {
            let path = self.path.join(file);
            let is_missing = self.was_present(part) && !path.exists();
            is_missing.then(|| {
                let reason = format!(
                    "{} is missing, although there was one at an earlier start: mount or restore it; `egret repair` shows what can be saved",
                    path.display()
                );
                (part, reason)
            })
        });
        missing.collect()
    }

    /// Whether an embedded server was made at an earlier start, wherever its files are now.
    pub(crate) fn had_database(&self) -> bool {
        let is_there = |name: &str| self.path.join(name).exists();
        is_there(egret_branches::PASSWORD_FILE)
            || is_there("volume.img")
            || self.was_present(POSTGRES_PART)
    }

    /// What to say when the files of the embedded server were there at an earlier start and are
    /// gone.
    pub(crate) fn missing_database(&self, source: &Path) -> Option<String> {
        let was_there = self.was_present(POSTGRES_PART);
        (was_there && !source.join("PG_VERSION").exists()).then(|| {
            format!(
                "{} holds no database, although there was one at an earlier start: mount or restore it; `egret repair` shows what can be done",
                source.display()
            )
        })
    }

    /// Reports that `state.db` is gone, where there was one at an earlier start.
    pub(crate) fn report_missing_state(&self) {
        if self.was_present(STATE_PART) && !self.state_db().exists() {
            let reason = "state.db is missing, although there was one at an earlier start";
            self.state_lost.fail(reason, STATE_LOST);
        }
    }

    /// The contents of `state.db`, by the parts that keep something in it.
    pub(crate) fn state_tables() -> [Tables; 2] {
        [Tokens::TABLES, egret_branches::TABLES]
    }

    /// Whether there was a `state.db` at an earlier start.
    pub(crate) fn had_state(&self) -> bool {
        self.was_present(STATE_PART)
    }

    /// Why the list of what there was at an earlier start cannot be read, where that is so. Nothing
    /// is missed then.
    pub(crate) fn list_error(&self) -> Option<String> {
        let error = self.read_known_parts().err()?;
        Some(format!("{error:#}: missing parts would go unnoticed; `egret repair` fixes it"))
    }

    /// Lets the next start begin a part anew. Of the embedded server the password is moved aside,
    /// under a name with `.damaged-` and `stamp` in it: while it is there, no other server is made.
    ///
    /// # Errors
    /// When the password cannot be moved, or the list of what there was cannot be read or written.
    pub(crate) fn forget_part(&self, part: &str, stamp: &str) -> anyhow::Result<()> {
        let password = self.path.join(egret_branches::PASSWORD_FILE);
        if part == POSTGRES_PART && password.exists() {
            let name = format!("{}.damaged-{stamp}", egret_branches::PASSWORD_FILE);
            let moved = fs::rename(&password, self.path.join(name));
            moved.with_context(|| format!("move {} aside", password.display()))?;
        }
        let changed = self.read_known_parts()?.change(|parts| {
            parts.remove(part);
        });
        changed.context("write the list of what is in the data directory")
    }

    /// Records which parts exist, for the next start.
    ///
    /// # Errors
    /// When the list cannot be read or written.
    pub(crate) fn record_present_parts(
        &self,
        failures: &Failures,
        has_postgres: bool,
    ) -> anyhow::Result<()> {
        let known = self.read_known_parts()?;
        let changed = known.change(|parts| {
            let mut present: Vec<&'static str> = vec![STATE_PART];
            present.extend(ENGINE_PARTS.map(|(part, _)| part));
            present.extend(has_postgres.then_some(POSTGRES_PART));
            for part in present {
                if failures.reason(part).is_none() {
                    parts.insert(part.to_owned(), 0);
                }
            }
        });
        changed.context("write the list of what is in the data directory")
    }

    /// Keeps some disk space back for a start on a full disk.
    pub(crate) fn reserve_disk_space(&self) {
        if let Err(error) = reserve::create_if_room(&self.path) {
            tracing::warn!(%error, "cannot reserve disk space");
        }
    }

    /// Moves everything in `state.db` out of its write-ahead log, for tools that copy the file
    /// while Egret is stopped.
    pub(crate) fn seal_state(&self) {
        let path = self.state_db();
        if !path.exists() {
            return;
        }
        if let Err(error) = egret_state::checkpoint_and_truncate(&path) {
            tracing::warn!(%error, "state.db is complete only together with state.db-wal: copy both");
        }
    }

    fn was_present(&self, part: &str) -> bool {
        self.read_known_parts().is_ok_and(|known| known.number(part).is_some())
    }

    fn read_known_parts(&self) -> anyhow::Result<KnownParts> {
        KnownParts::read(&self.path)
            .with_context(|| format!("read {}", self.path.join(KNOWN_PARTS).display()))
    }

    /// Moves a `state.db` aside that is unreadable, or lacks tables that it had at an earlier
    /// start; its parts are rebuilt. Of tables without which the others stay true, only those are
    /// made anew, empty. While one that was set aside is there, at this start or at an earlier one,
    /// what it held is lost. Both are said.
    ///
    /// # Errors
    /// When it cannot be examined or moved.
    pub(crate) fn repair_state(&self, now: Timestamp) -> anyhow::Result<()> {
        let path = self.state_db();
        let mut reasons = Vec::new();
        egret_state::set_aside_non_file_logs(&path, now)?;
        // Of this start and of earlier ones.
        let logs = join_names(&egret_state::repair::logs_set_aside(&path)?);
        if !logs.is_empty() {
            reasons.push(format!(
                "a log of state.db was not a file and is now {logs}: the latest changes may be \
                 lost, and revoked tokens may be valid again; check it, then remove it or move it \
                 out of the data directory; this condition ends with the next start"
            ));
            // At once: what follows may fail.
            self.state_incomplete.fail(&reasons[0], STATE_INCOMPLETE);
        }
        let aside = egret_state::set_aside_if_corrupt(&path, now)?;
        if aside.is_none() && self.had_state() && path.exists() {
            let missing = egret_state::missing_tables(&path, &Self::state_tables())?;
            if !missing.is_empty() {
                reasons.extend(Self::repair_tables(&path, &missing, now)?);
            }
        }
        if !reasons.is_empty() {
            self.state_incomplete.fail(reasons.join("; "), STATE_INCOMPLETE);
        }
        let aside = join_names(&egret_state::repair::files_set_aside(&path)?);
        if !aside.is_empty() {
            let reason = format!(
                "state.db was unreadable or incomplete and was set aside as {aside}: while Egret \
                 is stopped, `egret repair` shows which parts can be restored"
            );
            self.state_lost.fail(reason, STATE_LOST);
        }
        Ok(())
    }

    /// Makes tables that are missing, and says what is lost; a file without those that matter is
    /// set aside.
    fn repair_tables(
        path: &Path,
        missing: &[String],
        now: Timestamp,
    ) -> anyhow::Result<Option<String>> {
        let is_side = |name: &String| SIDE_TABLES.contains(&name.as_str());
        if missing.iter().all(is_side) {
            egret_state::create_missing_tables(path, &Self::state_tables())?;
            return Ok(Some(format!("the content of {} is lost", missing.join(", "))));
        }
        tracing::warn!(?missing, "state.db lacks tables that it had");
        egret_state::set_aside(path, now)?;
        Ok(None)
    }
}

/// The names of files, for a sentence.
fn join_names(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths
        .iter()
        .filter_map(|path| path.file_name())
        .map(|name| name.to_string_lossy())
        .collect();
    names.join(", ")
}

/// What every data directory of Egret's holds after its first start.
const LOCK_FILE: &str = "egret.lock";

/// What may be in a directory before that: parts that a backup brought back, mounts of their own,
/// and what a new file system holds.
const ALLOWED_ENTRIES: [&str; 9] = [
    "branch.key",
    "lost+found",
    "queue",
    "run",
    "series",
    "state.db",
    "superuser.password",
    "volume",
    "volume.img",
];

/// Refuses a directory that is not Egret's own, or that others could change. Its mode is left as it
/// is, but for one case: PostgreSQL, which runs as another user where Egret is root, must be able
/// to pass through an empty directory that was handed over closed.
fn check_data_dir(data_dir: &Path) -> anyhow::Result<()> {
    let display_path = data_dir.display();
    let metadata = fs::metadata(data_dir).with_context(|| format!("examine {display_path}"))?;
    let user = rustix::process::geteuid();
    if !metadata.is_dir() {
        bail!("egret.data_dir: {display_path} is not a directory");
    }
    if metadata.uid() != user.as_raw() {
        bail!(
            "egret.data_dir: {display_path} belongs to user id {} and Egret runs as {}: run it as that user, or chown the directory",
            metadata.uid(),
            user.as_raw()
        );
    }
    trust::check(data_dir).map_err(|error| anyhow::anyhow!("egret.data_dir: {error}"))?;
    if data_dir.join(LOCK_FILE).exists() {
        return Ok(());
    }
    let entries = fs::read_dir(data_dir).with_context(|| format!("read {display_path}"))?;
    for entry in entries {
        let name = entry.with_context(|| format!("read {display_path}"))?.file_name();
        if !name.to_str().is_some_and(|name| ALLOWED_ENTRIES.contains(&name)) {
            bail!(
                "egret.data_dir: {display_path} is not Egret's and not empty (it holds {}): name an empty directory, or one that does not exist",
                name.display()
            );
        }
    }
    if user.is_root() && metadata.mode() & SEARCH_MODE != SEARCH_MODE {
        let mode = metadata.mode() & 0o7777 | SEARCH_MODE;
        fs::set_permissions(data_dir, fs::Permissions::from_mode(mode))
            .with_context(|| format!("give PostgreSQL access to {display_path}"))?;
    }
    Ok(())
}

/// Search permission for all users, which shows nothing of what is inside.
const SEARCH_MODE: u32 = 0o011;

/// Takes the lock that keeps a second Egret out; the kernel gives it back however this one ends.
fn take_lock(data_dir: &Path) -> anyhow::Result<File> {
    let path = data_dir.join(LOCK_FILE);
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        file.read_to_string(&mut holder).with_context(|| format!("read {}", path.display()))?;
        bail!(
            "another egret (pid {}) uses {}: stop it, or give this one a directory and ports of its own (egret.data_dir)",
            holder.trim(),
            data_dir.display()
        );
    }
    if let Err(error) = reserve::release_if_full(data_dir) {
        tracing::warn!(%error, "cannot release the reserve of disk space");
    }
    file.set_len(0).context("write the lock file")?;
    file.rewind().context("write the lock file")?;
    writeln!(file, "{}", std::process::id()).context("write the lock file")?;
    Ok(file)
}

/// `run` in the data directory, or where that is too long for unix sockets, a directory under the
/// system's own for sockets, named after the data directory.
fn choose_run_dir(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let inside = data_dir.join("run");
    let check_longest_path =
        |run: &Path| check_socket_path(&run.join("branches").join("x".repeat(33)), 5432);
    let directory = match check_longest_path(&inside) {
        Ok(()) => inside,
        Err(too_long) => {
            let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
            let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            let system = if rustix::process::geteuid().is_root() {
                Some(PathBuf::from("/run"))
            } else {
                std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
            };
            let fallback = system.map(|parent| parent.join(format!("egret-{name}")));
            fallback.filter(|path| check_longest_path(path).is_ok()).ok_or(too_long)?
        }
    };
    create_private_directory(&directory)?;
    Ok(directory)
}

/// Makes a directory of this user that no other user can write to, where it is missing.
fn create_private_directory(path: &Path) -> anyhow::Result<()> {
    if !path.exists() {
        let created = fs::DirBuilder::new().mode(0o711).create(path);
        created.with_context(|| format!("create {}", path.display()))?;
    }
    let metadata =
        fs::symlink_metadata(path).with_context(|| format!("examine {}", path.display()))?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} is not a directory of this user: remove it", path.display());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o711))
        .with_context(|| format!("change the mode of {}", path.display()))
}

#[cfg(test)]
mod tests;
