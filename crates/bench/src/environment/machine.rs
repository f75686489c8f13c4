//! Machine, kernel and file system, from `/proc` and `/etc`.

use std::fs;
use std::io::{Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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

/// Type and options of the file system that holds `path`.
pub(super) fn mount_of(path: &Path) -> Option<(String, String)> {
    let path = path.canonicalize().ok()?;
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    parse_mounts(&text, &path)
}

/// See proc_pid_mountinfo(5): `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/x rw,errors=x`.
pub(super) fn parse_mounts(text: &str, path: &Path) -> Option<(String, String)> {
    let mut best: Option<(usize, (String, String))> = None;
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
        let point = point.replace("\\040", " ");
        // A later mount on the same place hides the earlier one.
        if path.starts_with(&point) && best.as_ref().is_none_or(|(len, _)| point.len() >= *len) {
            let mut options: Vec<&str> = of_mount.split(',').collect();
            options.extend(
                of_file_system
                    .split(',')
                    .filter(|option| !of_mount.split(',').any(|other| other == *option)),
            );
            best = Some((point.len(), ((*name).to_owned(), options.join(","))));
        }
    }
    best.map(|(_, found)| found)
}

/// Median time to write 4 KiB into a file on the file system of `data_dir` and have it on disk.
pub(super) fn fsync_latency(data_dir: &Path) -> Result<Duration> {
    let parent = data_dir.parent().unwrap_or(data_dir);
    // Beside the data, not in it: a file that a server does not know is taken along by its backups.
    ensure!(
        fs::metadata(parent)?.dev() == fs::metadata(data_dir)?.dev(),
        "{} is a mount point of its own",
        data_dir.display()
    );
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
