//! Repair of one part of an engine's data: a directory with a log in `log` and a snapshot of what
//! the log said. Done while nothing runs; the directory as it was is kept beside the repaired one.

mod count;
mod damage;
mod examination;
mod finding;
mod older_state;
mod text;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use count::CountFile;
use damage::Damage;
use egret_base::durable;
use egret_base::parts::{self, KNOWN_PARTS, KnownParts};
pub use examination::{Examination, UnexaminedPart};
pub use finding::Finding;
use finding::failed;
pub use older_state::OlderState;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::file::end_mark::END_NAME;
use crate::file::salvage::{ReplayNeeds, examine, read_whole_log, salvage};
use crate::file::segment_pool::SPARE_PREFIX;
use crate::{Directory, FileLog, Housekeeping, Log, LogConfig, LogError, Seq};

/// What the snapshots of a part say.
#[derive(Clone, Debug)]
pub struct Snapshots {
    /// The first record that the newest one does not have, or why it is damaged.
    pub replay_from: Result<Seq, String>,
    /// What a damaged one can be replaced by.
    pub older: Option<OlderState>,
}

/// All parts of an engine's data, and the file that says how many there are.
pub struct Parts<'a> {
    /// The file that holds the number of parts.
    pub count_file: CountFile<'a>,
    /// What records say: `changes to tasks`.
    pub record_content: &'a str,
    /// What of those before the snapshot is in the log only: `payloads`.
    pub log_only_content: &'a str,
    /// Whether all records that there are, and not only those that the snapshot does not have, are
    /// read at a start.
    pub reads_all: bool,
    /// What a part is made of as a whole: `all tasks`.
    pub part_content: &'a str,
    /// Reads the snapshots in a part's directory, which may be missing.
    pub snapshots: fn(&Path) -> Result<Snapshots, LogError>,
}

impl<'a> Parts<'a> {
    /// What is wrong with the parts and the file. Nothing is changed. A part that cannot be
    /// examined keeps no other one from it.
    pub fn examine(&self) -> Examination {
        let CountFile { engine, name, .. } = &self.count_file;
        let mut examination = Examination::default();
        examination.add(format!("{engine}/{name}"), self.count_file.examine());
        // Where the number of parts is not known, the examination of the file has said why.
        for number in 0..self.count_file.count().unwrap_or(0) {
            let result = self.load_part(number).and_then(|part| part.examine());
            examination.add(format!("{engine}/{}", part_name(number)), result);
        }
        examination
    }

    /// Repairs the part of that name, or the file.
    ///
    /// # Errors
    /// As [`Part::repair`].
    pub fn repair(&self, name: &str, stamp: &str) -> Result<Option<Finding>, LogError> {
        if name == self.count_file.name {
            return self.count_file.repair();
        }
        let mut numbers = 0..self.count_file.count()?;
        match numbers.find(|number| part_name(*number) == name) {
            Some(number) => self.load_part(number)?.repair(stamp),
            None => Ok(None),
        }
    }

    fn load_part(&self, number: usize) -> Result<Part<'a>, LogError> {
        let (engine, directory) = (self.count_file.engine, self.count_file.directory);
        let name = part_name(number);
        Ok(Part {
            engine,
            directory,
            snapshots: (self.snapshots)(&directory.join(&name))?,
            name,
            record_content: self.record_content,
            log_only_content: self.log_only_content,
            part_content: self.part_content,
            reads_all: self.reads_all,
        })
    }
}

fn part_name(number: usize) -> String {
    format!("{number:03}")
}

/// Room beside the segment that is copied, in bytes: directories and names.
const ROOM_FOR_NAMES_BYTES: u64 = 1 << 20;

/// A part of an engine's data.
pub struct Part<'a> {
    /// The engine's name: `queue`.
    pub engine: &'a str,
    /// Path of the engine's directory.
    pub directory: &'a Path,
    /// The part's name in it: `001`.
    pub name: String,
    /// What its records say: `changes to tasks`.
    pub record_content: &'a str,
    /// What of those before the snapshot is in the log only: `payloads`.
    pub log_only_content: &'a str,
    /// Whether all records that there are, and not only those that the snapshot does not have, are
    /// read at a start.
    pub reads_all: bool,
    /// What it is made of as a whole: `all tasks`.
    pub part_content: &'a str,
    /// What its snapshots say.
    pub snapshots: Snapshots,
}

impl Part<'_> {
    /// What is wrong with the part, if anything is. Nothing is changed.
    ///
    /// # Errors
    /// [`LogError::Locked`], [`LogError::UnknownVersion`], [`LogError::Io`].
    pub fn examine(&self) -> Result<Option<Finding>, LogError> {
        let known_parts = self.read_known_parts()?;
        let damage = self.diagnose(&known_parts)?;
        Ok(damage.map(|damage| self.finding(&damage, &known_parts)))
    }

    /// Repairs the part, if anything is wrong with it. The directory as it was stays beside the
    /// repaired one; its name then ends in `.damaged-<stamp>`. Segments that stay as they are are
    /// linked, not copied, so that a full disk needs room for those only that are changed.
    ///
    /// # Errors
    /// As [`Part::examine`], and [`LogError::Full`] when there is no room for the segments that are
    /// changed: nothing is done then.
    pub fn repair(&self, stamp: &str) -> Result<Option<Finding>, LogError> {
        let known_parts = self.read_known_parts()?;
        let Some(damage) = self.diagnose(&known_parts)? else {
            return Ok(None);
        };
        let finding = self.finding(&damage, &known_parts);
        let mark_name = parts::end_mark_name(&self.name);
        if matches!(damage, Damage::MarkMissing(_)) {
            let result = known_parts.change(|known| {
                known.remove(&mark_name);
            });
            result.map_err(failed("write the list of parts in", self.directory))?;
            return Ok(Some(finding));
        }
        let aside = format!("{}.damaged-{stamp}", self.name);
        let aside = self.directory.join(aside);
        let next_seq = match damage.first_kept(&self.snapshots.replay_from) {
            Some(replay_from) => Some(self.replace_by_repaired(&aside, &damage, replay_from)?),
            None => {
                self.move_aside(&aside)?;
                None
            }
        };
        let noted = known_parts.change(|parts| {
            match next_seq {
                Some(next) => parts.insert(self.name.clone(), next.0),
                None => parts.remove(&self.name),
            };
            parts.remove(&mark_name);
        });
        noted.map_err(failed("write the list of parts in", self.directory))?;
        Ok(Some(finding))
    }

    fn diagnose(&self, known_parts: &KnownParts) -> Result<Option<Damage>, LogError> {
        let (path, log_path) = (self.path(), self.log_path());
        if !path.is_dir() {
            return Ok(self.is_expected(known_parts).then_some(Damage::Missing(path)));
        }
        let stated = parts::read_place(&path).map_err(failed("read", &path))?;
        let place = format!("{}/{}", self.engine, self.name);
        if let Some(stated) = stated.filter(|stated| *stated != place) {
            return Ok(Some(Damage::Misplaced { path, stated }));
        }
        let replay_from = match &self.snapshots.replay_from {
            Err(problem) => {
                return self.diagnose_without_snapshot(problem, known_parts).map(Some);
            }
            Ok(replay_from) => *replay_from,
        };
        if !log_path.is_dir() {
            return Ok(Some(Damage::LogMissing(log_path)));
        }
        let needs = self.replay_needs(replay_from);
        let cut = examine(
            &open_directory(&log_path)?,
            &self.owner_config(known_parts, replay_from),
            needs,
        )?;
        if let Some(cut) = cut {
            return Ok(Some(Damage::Log(cut)));
        }
        let mark_path = log_path.join(END_NAME);
        let had_mark = known_parts.number(&parts::end_mark_name(&self.name)).is_some();
        Ok((had_mark && !mark_path.exists()).then_some(Damage::MarkMissing(mark_path)))
    }

    /// The snapshot is damaged: whether an earlier state and the log stand for it.
    fn diagnose_without_snapshot(
        &self,
        problem: &str,
        known_parts: &KnownParts,
    ) -> Result<Damage, LogError> {
        let (log_path, problem) = (self.log_path(), problem.to_owned());
        let older = self.snapshots.older.as_ref();
        let Some(older) = older.filter(|_| log_path.is_dir()) else {
            return Ok(Damage::Snapshot(problem));
        };
        let config = self.owner_config(known_parts, older.replay_from);
        let log = read_whole_log(&open_directory(&log_path)?, &config, older.replay_from)?;
        Ok(match log {
            Some(log) => Damage::Replayable { problem, older: older.clone(), log },
            None => Damage::Snapshot(problem),
        })
    }

    fn move_aside(&self, aside: &Path) -> Result<(), LogError> {
        let path = self.path();
        if !path.exists() {
            return Ok(());
        }
        fs::rename(&path, aside).map_err(failed("rename", &path))?;
        durable::sync_directory(self.directory).map_err(failed("sync", self.directory))
    }

    /// Makes a repaired copy under the name `aside` and exchanges it with the part in one step, so
    /// that a crash leaves the one or the other in place. Returns the number of the next record.
    fn replace_by_repaired(
        &self,
        aside: &Path,
        damage: &Damage,
        replay_from: Seq,
    ) -> Result<Seq, LogError> {
        let path = self.path();
        let result = self.write_repaired_copy(aside, damage, replay_from);
        let next = result.inspect_err(|_| {
            // What is left of the copy would take room; the error that is returned matters more.
            let _ = fs::remove_dir_all(aside);
        })?;
        let exchanged = renameat_with(CWD, aside, CWD, &path, RenameFlags::EXCHANGE);
        exchanged.map_err(io::Error::from).map_err(failed("exchange", &path))?;
        durable::sync_directory(self.directory).map_err(failed("sync", self.directory))?;
        Ok(next)
    }

    fn write_repaired_copy(
        &self,
        aside: &Path,
        damage: &Damage,
        replay_from: Seq,
    ) -> Result<Seq, LogError> {
        let path = self.path();
        self.check_free_space(damage)?;
        let (written, left_out) = (damage.written_segments(), damage.left_out());
        link_directory(&path, aside, &written, left_out).map_err(failed("copy", &path))?;
        let log_path = aside.join("log");
        durable::create_directory(&log_path).map_err(failed("make", &log_path))?;
        let disk = open_directory(&log_path)?;
        // The records that are lost are expected no more.
        let config = LogConfig {
            spare_segments: 0,
            housekeeping: Housekeeping::Owner,
            ..LogConfig::default()
        };
        if matches!(damage, Damage::Log(_)) {
            salvage(&disk, &config, replay_from)?;
        }
        let (log, _) = FileLog::open(disk, config, replay_from)?;
        Ok(log.next_seq())
    }

    /// Refuses before anything is written when the file system has no room for what a repair
    /// writes.
    fn check_free_space(&self, damage: &Damage) -> Result<(), LogError> {
        let place = self.path();
        let mut needed_bytes = ROOM_FOR_NAMES_BYTES;
        for name in damage.written_segments() {
            let segment = self.log_path().join(name);
            let size = fs::metadata(&segment).map_err(failed("read", &segment))?;
            needed_bytes += size.len();
        }
        needed_bytes += match damage {
            Damage::Log(cut) => cut.growth_bytes(),
            _ => LogConfig::default().first_segment_bytes,
        };
        let space = rustix::fs::statvfs(self.directory)
            .map_err(io::Error::from)
            .map_err(failed("look at", self.directory))?;
        if space.f_bavail.saturating_mul(space.f_frsize) < needed_bytes {
            return Err(LogError::Full { place: place.display().to_string(), needed_bytes });
        }
        Ok(())
    }

    fn finding(&self, damage: &Damage, known_parts: &KnownParts) -> Finding {
        let (action, loss) = match damage {
            Damage::Snapshot(_) | Damage::Missing(_) => {
                let loss = match known_parts.number(&self.name) {
                    Some(end) if end > 1 => format!(
                        "everything in it, {}: {} records ({})",
                        self.part_content,
                        end - 1,
                        self.record_content
                    ),
                    _ => format!("everything in it, {}", self.part_content),
                };
                ("create it empty".to_owned(), loss)
            }
            Damage::Replayable { older, log, .. } => {
                (older.action(log.next), older.loss(log.next, self.record_content))
            }
            Damage::Misplaced { .. } => (
                "create it empty".to_owned(),
                "everything in it, unless its own directory is put back in its place".to_owned(),
            ),
            Damage::LogMissing(_) => (
                "begin a new log after the snapshot".to_owned(),
                format!(
                    "everything since the snapshot, and data of the snapshot that only the log \
                     holds ({})",
                    self.log_only_content
                ),
            ),
            Damage::Log(cut) => {
                (cut.action(), cut.loss(self.record_content, self.log_only_content))
            }
            Damage::MarkMissing(_) => (
                "make a new one at the next start, where the log ends now".to_owned(),
                "records at its very end, if any are bad: they are taken for an interrupted write"
                    .to_owned(),
            ),
        };
        Finding {
            part: format!("{}/{}", self.engine, self.name),
            problem: damage.problem(),
            action,
            loss,
        }
    }

    /// Whether there was such a part at an earlier start.
    fn is_expected(&self, known_parts: &KnownParts) -> bool {
        known_parts.number(&self.name).is_some() || known_parts.was_absent()
    }

    /// How the owner opens the log, which is how it is examined.
    fn owner_config(&self, known_parts: &KnownParts, replay_from: Seq) -> LogConfig {
        let end = known_parts.number(&self.name);
        LogConfig {
            must_exist: end.is_some() || replay_from > Seq::FIRST,
            durable_below: end.map(Seq).unwrap_or_default(),
            ..LogConfig::default()
        }
    }

    fn replay_needs(&self, replay_from: Seq) -> ReplayNeeds {
        ReplayNeeds { replay_from, reads_all: self.reads_all }
    }

    fn read_known_parts(&self) -> Result<KnownParts, LogError> {
        KnownParts::read(self.directory).map_err(|source| LogError::Io {
            action: "read",
            file: self.directory.join(KNOWN_PARTS).display().to_string(),
            source: Arc::new(source),
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    fn log_path(&self) -> PathBuf {
        self.path().join("log")
    }
}

fn open_directory(path: &Path) -> Result<Directory, LogError> {
    Directory::open(path).map_err(failed("open", path))
}

/// Makes a directory with the files of another. Those that the log writes in place are copied:
/// segments that are `written`. Others are replaced or removed as a whole, so that a second name
/// for them is enough. What the log makes anew is left out, and so are those named.
fn link_directory(
    from: &Path,
    to: &Path,
    written: &[String],
    left_out: &[String],
) -> io::Result<()> {
    durable::create_directory(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, source) = (entry.file_name(), entry.path());
        let target = to.join(&name);
        let name = name.to_string_lossy();
        let is_written = written.iter().any(|segment| *segment == name);
        let is_left_out = name == "lock"
            || name == END_NAME
            || name.starts_with(SPARE_PREFIX)
            || left_out.iter().any(|file| *file == name);
        if entry.file_type()?.is_dir() {
            link_directory(&source, &target, written, left_out)?;
        } else if is_left_out {
            continue;
        } else if is_written || fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    durable::sync_directory(to)
}
