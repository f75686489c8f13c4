//! How much of the volume the copies of one tenant take.
//!
//! What a branch alone has is its own. Once a template is taken of it, both share that, and neither
//! has it alone; so extents that are shared are distinguished by where they are on the device: what
//! the source or a template of it has costs the tenant nothing, all else counts once.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use egret_base::Timestamp;
use egret_linux::directory::{Directory, Kind, kind_of};
use egret_linux::extents::{FileExtent, visit_extents};

use super::disk_use::{DiskUse, allocated_bytes, disk_use};
use super::driver::Driver;
use super::mounted::MountedVolume;
use super::walk::{is_gone, walk};
use crate::core::tenant_disk::{Ranges, TenantDisk};
use crate::model::BranchId;

/// A copy that belongs to a tenant.
#[derive(Clone, Debug)]
pub struct TenantCopy {
    pub path: PathBuf,
    /// Directories that a reset has staged or put aside: they take room, and are the copy's no more
    /// or not yet.
    pub leftovers: Vec<PathBuf>,
    /// The branch; `None` for a template of one.
    pub branch: Option<BranchId>,
    /// What has not been modified since is the source's.
    pub since: Timestamp,
}

/// Measures what a tenant's copies take that neither of `originals` has: the source and its
/// templates. A copy that goes meanwhile takes nothing.
pub fn measure(
    mounted: &MountedVolume,
    copies: &[TenantCopy],
    originals: &[PathBuf],
) -> io::Result<TenantDisk> {
    let mut survey = Survey {
        disk: TenantDisk::default(),
        ranges: Ranges::default(),
        visited_paths: BTreeSet::new(),
        originals,
        // Without a template of the tenant's own, only originals share anything with its branches.
        counts_shared: copies.iter().any(|copy| copy.branch.is_none()),
    };
    // Templates first: a branch has then what was added since.
    let (templates, branches): (Vec<&TenantCopy>, Vec<&TenantCopy>) =
        copies.iter().partition(|copy| copy.branch.is_none());
    let driver = mounted.volume.driver();
    for copy in templates.into_iter().chain(branches) {
        let DiskUse { mut bytes, uncounted } = survey.measure(&copy.path, copy.since, driver)?;
        for leftover in &copy.leftovers {
            bytes += survey.measure(leftover, copy.since, driver)?.bytes;
        }
        survey.disk.bytes += bytes;
        if let Some(branch) = copy.branch {
            survey.disk.branches.insert(branch, bytes);
            if let Some(uncounted) = uncounted {
                let reason = uncounted.to_string();
                survey.disk.uncounted.insert(branch, reason);
            }
        }
    }
    Ok(survey.disk)
}

struct Survey<'a> {
    disk: TenantDisk,
    /// What is on the device of the originals' files that were looked at, and of the copies.
    ranges: Ranges,
    /// Files of the originals that were looked at, by their path in the data directory.
    visited_paths: BTreeSet<Vec<OsString>>,
    originals: &'a [PathBuf],
    counts_shared: bool,
}

impl Survey<'_> {
    /// What a directory takes; nothing where it is not there, or goes meanwhile.
    fn measure(&mut self, path: &Path, since: Timestamp, driver: Driver) -> io::Result<DiskUse> {
        let measured = match driver {
            Driver::Copy => disk_use(path),
            Driver::Btrfs | Driver::Reflink => self.measure_unshared(path, since),
        };
        match measured {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(DiskUse { bytes: 0, uncounted: None })
            }
            measured => measured,
        }
    }

    /// What a directory has that neither the originals nor copies measured before have.
    fn measure_unshared(&mut self, path: &Path, since: Timestamp) -> io::Result<DiskUse> {
        // One second earlier, for the file system's coarse clock.
        let since_s = since.as_micros().div_euclid(1_000_000) - 1;
        let mut bytes = 0;
        let uncounted = walk(path, &mut |entry| {
            let stat = entry.stat;
            let is_changed = stat.st_ctime >= since_s && stat.st_mtime >= since_s;
            if kind_of(stat) == Kind::File && is_changed {
                bytes += match entry.read()? {
                    Some(file) => self.own_bytes(&file, entry.parents, entry.name)?,
                    None => allocated_bytes(stat),
                };
            }
            Ok(())
        })?;
        Ok(DiskUse { bytes, uncounted })
    }

    fn own_bytes(&mut self, file: &File, parents: &[OsString], name: &OsStr) -> io::Result<u64> {
        let mut own = 0;
        let mut shared: Vec<FileExtent> = Vec::new();
        visit_extents(file, &mut |extent| {
            if !extent.is_shared {
                own += extent.length;
            } else if self.counts_shared {
                shared.push(extent);
            }
        })?;
        if shared.is_empty() {
            return Ok(own);
        }
        self.add_originals(parents, name)?;
        let new_bytes = shared.iter().map(|extent| self.ranges.add(extent.physical, extent.length));
        Ok(own + new_bytes.sum::<u64>())
    }

    /// Adds the extents of the files of this path in the originals.
    fn add_originals(&mut self, parents: &[OsString], name: &OsStr) -> io::Result<()> {
        let mut path = parents.to_vec();
        path.push(name.to_owned());
        if self.visited_paths.contains(&path) {
            return Ok(());
        }
        for original in self.originals {
            let opened = Directory::open(original).and_then(|root| open_below(root, parents, name));
            match opened {
                Ok(file) => visit_extents(&file, &mut |extent| {
                    self.ranges.add(extent.physical, extent.length);
                })?,
                // It has no such file, or something else of that name, or goes meanwhile.
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.visited_paths.insert(path);
        Ok(())
    }
}

fn open_below(root: Directory, parents: &[OsString], name: &OsStr) -> io::Result<File> {
    let mut directory = root;
    for step in parents {
        directory = directory.enter(step)?;
    }
    Ok(directory.open_file(name)?.0)
}
