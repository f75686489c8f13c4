//! Layout of the volume, manifests, and the survey of what is on it.
//!
//! ```text
//! <volume>/source/                    data directory of the embedded server
//! <volume>/templates/<id>/  <id>.json a template and its manifest
//! <volume>/branches/<id>/   <id>.json a branch and its manifest
//! <volume>/branches/<id>.staged      the new files of a branch that is being reset, …
//! <volume>/branches/<id>.former      … and its files before the reset
//! <run>/<id>/                         a branch's socket and what its postmaster prints
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use egret_base::durable;
use egret_postgres::postmaster::pids_in_directory;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::core::reconcile::DiskSurvey;
use crate::error::{BranchesError, io_error};
use crate::model::{Branch, BranchId, Template, TemplateId};
use crate::store::volume::remove_tree;

/// What is added to the name of a branch's directory for a copy that a reset is about to put in its
/// place.
const STAGED_SUFFIX: &str = ".staged";

/// What is added to it for the files before a reset, until that is done.
const FORMER_SUFFIX: &str = ".former";

/// The number in the socket's name of every branch; its directory is private.
pub(crate) const SOCKET_PORT: u16 = 5432;

/// The paths of one Egret.
#[derive(Clone, Debug)]
pub struct Paths {
    pub volume: PathBuf,
    /// Where socket directories go; short, for unix sockets allow 107 bytes.
    pub run: PathBuf,
}

impl Paths {
    pub fn templates(&self) -> PathBuf {
        self.volume.join("templates")
    }

    pub fn branches(&self) -> PathBuf {
        self.volume.join("branches")
    }

    /// A template's data directory.
    pub fn template(&self, id: TemplateId) -> PathBuf {
        self.templates().join(id.hex())
    }

    /// A branch's data directory.
    pub fn branch(&self, id: BranchId) -> PathBuf {
        self.branches().join(id.hex())
    }

    /// The files that a reset is about to give a branch, and those that are to be removed after
    /// one.
    pub(crate) fn staged_files(&self, id: BranchId) -> PathBuf {
        self.branches().join(format!("{}{STAGED_SUFFIX}", id.hex()))
    }

    /// The files that a branch had before a reset that is not done.
    pub(crate) fn former_files(&self, id: BranchId) -> PathBuf {
        self.branches().join(format!("{}{FORMER_SUFFIX}", id.hex()))
    }

    /// All directories with files of a branch: the present ones, those that a reset is about to
    /// give it, and those that it had before a reset.
    pub(crate) fn files_of(&self, id: BranchId) -> [PathBuf; 3] {
        [self.branch(id), self.staged_files(id), self.former_files(id)]
    }

    /// A branch's socket directory.
    pub fn socket_dir(&self, id: BranchId) -> PathBuf {
        self.run.join(id.hex())
    }

    /// The socket directory of a template while it is built.
    pub(crate) fn builder_socket_dir(&self, id: TemplateId) -> PathBuf {
        self.run.join(format!("t{}", id.hex()))
    }

    /// Makes the directories that hold branches, templates and sockets.
    pub(crate) fn create_directories(&self) -> Result<(), BranchesError> {
        for directory in [self.templates(), self.branches(), self.run.clone()] {
            fs::create_dir_all(&directory).map_err(io_error("create", &directory))?;
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
            fs::set_permissions(&directory, open)
                .map_err(io_error("change the mode of", &directory))?;
        }
        Ok(())
    }
}

/// Path of the manifest of a data directory.
pub(crate) fn manifest_path(data: &Path) -> PathBuf {
    data.with_extension("json")
}

/// Writes the manifest of a template or a durable branch beside its data directory, in one step and
/// onto the disk: after a crash of the machine it is there with the files.
pub(crate) fn write_durable_manifest<T: Serialize>(
    data: &Path,
    value: &T,
) -> Result<(), BranchesError> {
    let path = manifest_path(data);
    durable::write_file(&path, &manifest_text(value), 0o666).map_err(io_error("write", &path))
}

/// Writes the manifest of a branch beside its data directory, in one step: onto the disk where the
/// branch survives a crash of the machine. `manifest` is the branch, or has more.
pub(crate) fn write_branch_manifest<T: Serialize>(
    data: &Path,
    branch: &Branch,
    manifest: &T,
) -> Result<(), BranchesError> {
    if branch.durable {
        return write_durable_manifest(data, manifest);
    }
    let path = manifest_path(data);
    let new_path = path.with_extension("json.new");
    fs::write(&new_path, manifest_text(manifest)).map_err(io_error("write", &new_path))?;
    fs::rename(&new_path, &path).map_err(io_error("write", &path))
}

fn manifest_text<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("these values have text keys and always serialise")
}

/// Reads a manifest; `None` when it is missing or not one.
pub(crate) fn read_manifest<T: DeserializeOwned>(data: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(manifest_path(data)).ok()?).ok()
}

/// The manifest of a branch that has a row for its present files while the former ones are still
/// kept. Which of the two it describes is told by the former files: as long as they are there, they
/// are the branch's.
#[derive(Serialize)]
struct DoubleManifest<'a> {
    #[serde(flatten)]
    branch: &'a Branch,
    former: &'a Branch,
}

/// What such a manifest says of the former files.
#[derive(Deserialize)]
struct FormerManifest {
    former: Option<Branch>,
}

/// Writes the manifest of a branch whose reset is recorded and whose former files are kept: these
/// are what the manifest described before. One that described nothing is not written, for files and
/// manifest would not belong together.
pub(crate) fn write_double_manifest(data: &Path, branch: &Branch) -> Result<(), BranchesError> {
    match read_former_manifest(data) {
        Some(former) => {
            let manifest = DoubleManifest { branch, former: &former };
            write_branch_manifest(data, branch, &manifest)
        }
        None => Ok(()),
    }
}

/// Reads what the manifest of a branch says of its former files, which must be kept still; `None`
/// when it is missing or not one.
pub(crate) fn read_former_manifest(data: &Path) -> Option<Branch> {
    let former = read_manifest::<FormerManifest>(data)?.former;
    former.or_else(|| read_manifest(data))
}

/// Has the manifest of a branch describe its former files alone, which are about to be put back.
pub(crate) fn restore_former_manifest(data: &Path) -> Result<(), BranchesError> {
    match read_manifest::<FormerManifest>(data).and_then(|manifest| manifest.former) {
        Some(former) => write_branch_manifest(data, &former, &former),
        None => Ok(()),
    }
}

/// Removes a file if it is there.
pub fn remove_file(path: &Path) -> Result<(), BranchesError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory with everything in it, if it is there. What is in it may be a branch's.
pub(crate) fn remove_directory(path: &Path) -> Result<(), BranchesError> {
    remove_tree(path).map_err(io_error("remove", path))
}

/// Surveys branches, templates, sockets and postmasters.
///
/// # Errors
/// [`BranchesError::Io`] when a directory cannot be read.
pub fn survey(paths: &Paths) -> Result<DiskSurvey, BranchesError> {
    let mut disk = DiskSurvey { boot_id: boot_id(), ..DiskSurvey::default() };
    for entry in list_directory(&paths.branches())? {
        match id_of_directory::<BranchId>(&entry) {
            Some(id) => {
                if let Some(manifest) = read_manifest::<Branch>(&entry) {
                    disk.branch_manifests.insert(id, manifest.created_at);
                }
                if !pids_in_directory(&entry).is_empty() {
                    disk.postmasters.insert(id);
                }
                disk.branches.insert(id);
            }
            None if is_manifest(&entry) => {}
            // It was removed meanwhile.
            None if !entry.exists() => {}
            None => {
                let former_id = id_of_leftover(&entry, FORMER_SUFFIX);
                match former_id.or_else(|| id_of_leftover(&entry, STAGED_SUFFIX)) {
                    Some(id) => drop(disk.leftovers.insert(id)),
                    None => drop(disk.foreign.insert(relative_name("branches", &entry))),
                }
                if let Some(id) = former_id {
                    if let Some(manifest) = read_manifest::<Branch>(&paths.branch(id)) {
                        disk.branch_manifests.insert(id, manifest.created_at);
                    }
                    disk.former_files.insert(id);
                }
            }
        }
    }
    for entry in list_directory(&paths.templates())? {
        match id_of_directory::<TemplateId>(&entry) {
            Some(id) => {
                if read_manifest::<Template>(&entry).is_some() {
                    disk.template_manifests.insert(id);
                }
                disk.templates.insert(id);
            }
            None if !is_manifest(&entry) => {
                disk.foreign.insert(relative_name("templates", &entry));
            }
            None => {}
        }
    }
    for entry in list_directory(&paths.run)? {
        if let Some(id) = id_of_directory::<BranchId>(&entry) {
            disk.sockets.insert(id);
        }
    }
    Ok(disk)
}

fn list_directory(directory: &Path) -> Result<Vec<PathBuf>, BranchesError> {
    let read = fs::read_dir(directory).map_err(io_error("read", directory))?;
    read.map(|entry| entry.map(|entry| entry.path()).map_err(io_error("read", directory))).collect()
}

/// The id that a directory is named after; a name in any other spelling is not one of ours.
fn id_of_directory<T: FromStr>(path: &Path) -> Option<T> {
    let name = path.file_name()?.to_str()?;
    (path.is_dir() && name.len() == 32).then(|| name.parse().ok()).flatten()
}

/// The branch whose reset has left a directory with this ending.
fn id_of_leftover(path: &Path, ending: &str) -> Option<BranchId> {
    let stem = path.file_name()?.to_str()?.strip_suffix(ending)?;
    (path.is_dir() && stem.len() == 32).then(|| stem.parse().ok()).flatten()
}

fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default();
    stem.len() == 32 && (name.ends_with(".json") || name.ends_with(".json.new"))
}

fn relative_name(parent: &str, path: &Path) -> String {
    format!("{parent}/{}", path.file_name().unwrap_or_default().to_string_lossy())
}

/// The kernel's random id of this boot.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}
