//! Machine, kernel and file system, from `/proc` and `/etc`.

use std::fs;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How often the fsync latency is measured.
const FSYNC_SAMPLES: usize = 25;

/// A block as PostgreSQL's log writes it at the least.
const BLOCK: [u8; 4096] = [0x5a; 4096];

pub(super) fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // ARM kernels name no model there.
    find_value(&text, "model name", ':').unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

pub(super) fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = find_value(&text, "MemTotal", ':')
        .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

pub(super) fn kernel() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

pub(super) fn os() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = find_value(&text, "PRETTY_NAME", '=');
    name.map_or_else(|| std::env::consts::OS.to_owned(), |name| name.trim_matches('"').to_owned())
}

/// The value of the first line that begins with `key`.
fn find_value(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// A mounted file system, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// Type of its file system, such as `btrfs`.
    pub(super) kind: String,
    /// Options of the mount, then those of the file system.
    pub(super) options: String,
}

impl Mount {
    /// The file system that holds `path`.
    ///
    /// # Errors
    /// When the path is not there, or the mounts cannot be read.
    pub(super) fn containing(path: &Path) -> Result<Self> {
        let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
        let text =
            fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
        parse_mounts(&text, &path).with_context(|| format!("no mount contains {}", path.display()))
    }

    /// The directory beside `data_dir` on this mount. A subvolume of btrfs has a device number of
    /// its own, but what is beside it is written to the same disk in the same way.
    ///
    /// # Errors
    /// When `data_dir` is where the mount begins: what is beside it is on another one.
    pub(super) fn parent_of<'a>(&self, data_dir: &'a Path) -> Result<&'a Path> {
        ensure!(self.point != data_dir, "{} is a mount point of its own", data_dir.display());
        Ok(data_dir.parent().unwrap_or(data_dir))
    }
}

/// See proc_pid_mountinfo(5): `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/x
/// rw,errors=x`.
pub(super) fn parse_mounts(text: &str, path: &Path) -> Option<Mount> {
    let mut innermost: Option<Mount> = None;
    for line in text.lines() {
        let Some((mount_text, file_system_text)) = line.split_once(" - ") else {
            continue;
        };
        let mount_fields: Vec<&str> = mount_text.split(' ').collect();
        let file_system_fields: Vec<&str> = file_system_text.split(' ').collect();
        let (Some(point), Some(mount_options)) = (mount_fields.get(4), mount_fields.get(5)) else {
            continue;
        };
        let (Some(name), Some(super_options)) =
            (file_system_fields.first(), file_system_fields.get(2))
        else {
            continue;
        };
        let point = PathBuf::from(point.replace("\\040", " "));
        // A later mount on the same place hides the earlier one.
        let is_inner = innermost.as_ref().is_none_or(|best| point.starts_with(&best.point));
        if path.starts_with(&point) && is_inner {
            let mut options: Vec<&str> = mount_options.split(',').collect();
            options.extend(
                super_options
                    .split(',')
                    .filter(|option| !mount_options.split(',').any(|other| other == *option)),
            );
            innermost = Some(Mount { point, kind: (*name).to_owned(), options: options.join(",") });
        }
    }
    innermost
}

/// Median time to write 4 KiB into a file on the file system of `data_dir` and have it on disk.
///
/// # Errors
/// When there is no place for that file.
pub(super) fn fsync_latency(data_dir: &Path) -> Result<Duration> {
    let data_dir =
        data_dir.canonicalize().with_context(|| format!("find {}", data_dir.display()))?;
    // Beside the data, not in it: a file that a server does not know is taken along by its backups.
    let parent = Mount::containing(&data_dir)?.parent_of(&data_dir)?;
    let mut file = tempfile::tempfile_in(parent)
        .with_context(|| format!("make a file in {}", parent.display()))?;
    file.write_all(&BLOCK)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(FSYNC_SAMPLES);
    for _ in 0..FSYNC_SAMPLES {
        let begun = Instant::now();
        file.rewind()?;
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[FSYNC_SAMPLES / 2])
}
