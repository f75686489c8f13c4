//! Machine, kernel and file system, from `/proc` and `/etc`.

use std::fs;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How often the fsync latency is measured.
const FSYNCS: usize = 25;

/// A block as PostgreSQL's log writes it at the least.
const BLOCK: [u8; 4096] = [0x5a; 4096];

pub(super) fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // ARM kernels name no model there.
    value(&text, "model name", ':').unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

pub(super) fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = value(&text, "MemTotal", ':')
        .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

pub(super) fn kernel() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

pub(super) fn os() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = value(&text, "PRETTY_NAME", '=');
    name.map_or_else(
        || std::env::consts::OS.to_owned(),
        |name| name.trim_matches('"').to_owned(),
    )
}

/// The value of the first line that begins with `key`.
fn value(text: &str, key: &str, separator: char) -> Option<String> {
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
    pub(super) fn of(path: &Path) -> Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("find {}", path.display()))?;
        let text =
            fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
        parse_mounts(&text, &path).with_context(|| format!("no mount contains {}", path.display()))
    }

    /// The directory beside `data_dir` on this mount. A subvolume of btrfs has a device number of
    /// its own, but what is beside it is written to the same disk in the same way.
    ///
    /// # Errors
    /// When `data_dir` is where the mount begins: what is beside it is on another one.
    pub(super) fn beside<'a>(&self, data_dir: &'a Path) -> Result<&'a Path> {
        ensure!(
            self.point != data_dir,
            "{} is a mount point of its own",
            data_dir.display()
        );
        Ok(data_dir.parent().unwrap_or(data_dir))
    }
}

/// See proc_pid_mountinfo(5): `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/x
/// rw,errors=x`.
pub(super) fn parse_mounts(text: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<Mount> = None;
    for line in text.lines() {
        let Some((place, kind)) = line.split_once(" - ") else {
            continue;
        };
        let place: Vec<&str> = place.split(' ').collect();
        let kind: Vec<&str> = kind.split(' ').collect();
        let (Some(point), Some(of_mount)) = (place.get(4), place.get(5)) else {
            continue;
        };
        let (Some(name), Some(of_file_system)) = (kind.first(), kind.get(2)) else {
            continue;
        };
        let point = PathBuf::from(point.replace("\\040", " "));
        // A later mount on the same place hides the earlier one.
        let is_inner = best
            .as_ref()
            .is_none_or(|best| point.starts_with(&best.point));
        if path.starts_with(&point) && is_inner {
            let mut options: Vec<&str> = of_mount.split(',').collect();
            options.extend(
                of_file_system
                    .split(',')
                    .filter(|option| !of_mount.split(',').any(|other| other == *option)),
            );
            best = Some(Mount {
                point,
                kind: (*name).to_owned(),
                options: options.join(","),
            });
        }
    }
    best
}

/// Median time to write 4 KiB into a file on the file system of `data_dir` and have it on disk.
///
/// # Errors
/// When there is no place for that file.
pub(super) fn fsync_latency(data_dir: &Path) -> Result<Duration> {
    let data_dir = data_dir
        .canonicalize()
        .with_context(|| format!("find {}", data_dir.display()))?;
    // Beside the data, not in it: a file that a server does not know is taken along by its backups.
    let parent = Mount::of(&data_dir)?.beside(&data_dir)?;
    let mut file = tempfile::tempfile_in(parent)
        .with_context(|| format!("make a file in {}", parent.display()))?;
    file.write_all(&BLOCK)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(FSYNCS);
    for _ in 0..FSYNCS {
        let begun = Instant::now();
        file.rewind()?;
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[FSYNCS / 2])
}
