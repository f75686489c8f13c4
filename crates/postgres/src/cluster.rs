//! A data directory: made by `initdb`, with authentication and settings that Egret writes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use egret_base::Entropy;

use crate::error::{PostgresError, io_error};
use crate::owner::{RunAsUser, current_user_name};
use crate::provision::{Binaries, run_program};
use crate::tuning::{self, Build, Machine};

/// The bootstrap superuser of every cluster that Egret makes.
pub const SUPERUSER: &str = "egret";
/// The name in `pg_ident.conf` that lets Egret's operating-system user in.
pub const IDENT_MAP: &str = "egret";

/// The major version of the cluster in `data`, or `None` when there is none.
pub fn major(data: &Path) -> Option<u32> {
    read_no_follow(&data.join("PG_VERSION")).ok()?.trim().parse().ok()
}

/// Makes a cluster in the empty directory `data`, with data checksums and SCRAM passwords, and
/// returns the superuser's generated password.
///
/// An interrupted attempt leaves a marker beside the directory; only then is what is in it removed.
///
/// # Errors
/// [`PostgresError`] when a directory cannot be prepared or `initdb` fails.
pub fn create(
    binaries: &Binaries,
    data: &Path,
    owner: &RunAsUser,
    entropy: &dyn Entropy,
    password_file: &Path,
) -> Result<(), PostgresError> {
    fs::create_dir_all(data).map_err(io_error("create", data))?;
    let marker = unfinished_marker(data);
    clear_unfinished(data, &marker, password_file)?;
    write_private(&marker, "initdb was not finished\n")?;
    fs::set_permissions(data, fs::Permissions::from_mode(0o700))
        .map_err(io_error("change the mode of", data))?;
    owner.chown(data)?;
    let password = generate_password(entropy);
    write_private(password_file, &format!("{password}\n"))?;
    let initdb_password_file = data.with_extension("password");
    write_private(&initdb_password_file, &format!("{password}\n"))?;
    owner.chown(&initdb_password_file)?;
    let result = initdb(binaries, data, owner, &initdb_password_file);
    fs::remove_file(&initdb_password_file).map_err(io_error("remove", &initdb_password_file))?;
    result.map_err(|error| match owner.closed_ancestor(data) {
        Some(directory) => PostgresError::Barrier { directory, name: owner.name.clone() },
        None => error,
    })?;
    fs::remove_file(&marker).map_err(io_error("remove", &marker))
}

/// There while `initdb` is at work on a data directory.
fn unfinished_marker(data: &Path) -> PathBuf {
    data.with_extension("unfinished")
}

fn initdb(
    binaries: &Binaries,
    data: &Path,
    owner: &RunAsUser,
    password_file: &Path,
) -> Result<(), PostgresError> {
    let program = binaries.program("initdb");
    let mut command = Command::new(&program);
    command
        .arg("--pgdata")
        .arg(data)
        .arg("--pwfile")
        .arg(password_file)
        .args(["--username", SUPERUSER, "--auth", "scram-sha-256"])
        .args(["--encoding", "UTF8", "--data-checksums"])
        .args(locale_arguments(binaries.major))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .current_dir("/");
    owner.apply(&mut command);
    let output = run_program(&mut command).map_err(io_error("run", &program))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    Err(PostgresError::Program {
        program: "initdb",
        output: lines[lines.len().saturating_sub(6)..].join("; "),
    })
}

/// The C.UTF-8 locale sorts by code point, fast and the same on every machine; from 17 on
/// PostgreSQL carries it itself.
fn locale_arguments(major: u32) -> &'static [&'static str] {
    if major >= 17 {
        &["--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C"]
    } else {
        &["--locale", "C.UTF-8"]
    }
}

/// 192 random bits in URL-safe letters.
pub(crate) fn generate_password(entropy: &dyn Entropy) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut random = [0_u8; 32];
    entropy.fill(&mut random);
    random.iter().map(|byte| char::from(LETTERS[usize::from(byte & 63)])).collect()
}

/// Writes the files that Egret owns in a data directory: authentication and settings.
///
/// # Errors
/// [`PostgresError::Io`] when a file cannot be written.
pub fn configure(
    binaries: &Binaries,
    data: &Path,
    owner: &RunAsUser,
    machine: &Machine,
    sessions_max: u32,
) -> Result<(), PostgresError> {
    let build = Build {
        major: binaries.major,
        wal_compression: supported_wal_compression(binaries, data, owner),
    };
    let settings = tuning::fit_settings(machine, &build, sessions_max);
    write_owned(&data.join("egret.conf"), &tuning::render_config(&settings, machine), owner)?;
    write_owned(&data.join("pg_hba.conf"), &host_based_authentication(), owner)?;
    write_owned(&data.join("pg_ident.conf"), &ident_map(&[SUPERUSER]), owner)?;
    let main = data.join("postgresql.conf");
    let text = read_no_follow(&main)?;
    let include = "include 'egret.conf'\ninclude_if_exists 'user.conf'\n";
    if !text.contains(include) {
        write_owned(&main, &format!("{text}\n# Egret's settings, then yours.\n{include}"), owner)?;
    }
    Ok(())
}

/// The fastest method that this build of the server accepts. `pglz`, which every build has, is not
/// used: to compress a page takes longer than to write it, and a write to a page after a checkpoint
/// waits for it.
fn supported_wal_compression(binaries: &Binaries, data: &Path, owner: &RunAsUser) -> &'static str {
    for method in ["lz4", "zstd"] {
        let mut command = Command::new(binaries.program("postgres"));
        command
            .args(["-C", "wal_compression", "-c"])
            .arg(format!("wal_compression={method}"))
            .arg("-D")
            .arg(data)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/");
        owner.apply(&mut command);
        if command.status().is_ok_and(|status| status.success()) {
            return method;
        }
    }
    "off"
}

/// Egret's own user enters as the superuser by the kernel's word (`peer`); all other users by
/// password; none by trust.
fn host_based_authentication() -> String {
    format!(
        "# Written by Egret at every start.\n\
         local all {SUPERUSER} peer map={IDENT_MAP}\n\
         local replication {SUPERUSER} peer map={IDENT_MAP}\n\
         local all,replication all scram-sha-256\n\
         host all,replication all 127.0.0.1/32 scram-sha-256\n\
         host all,replication all ::1/128 scram-sha-256\n"
    )
}

/// The map by which Egret's operating-system user may enter as each of `roles`.
pub fn ident_map(roles: &[&str]) -> String {
    let user = current_user_name();
    let mut text = "# Written by Egret.\n".to_owned();
    for role in roles {
        text.push_str(&format!("{IDENT_MAP} {user} {role}\n"));
    }
    text
}

/// Replaces a file of a data directory in one step, owned by the server's user, mode 0600.
///
/// The directory belongs to that user, and Egret may be root: no link that lies there is followed.
///
/// # Errors
/// [`PostgresError::Io`].
pub fn write_owned(path: &Path, text: &str, owner: &RunAsUser) -> Result<(), PostgresError> {
    let new_path = path.with_extension("egret-new");
    replace_file(&new_path, text, Some(owner))?;
    fs::rename(&new_path, path).map_err(io_error("write", path))
}

/// Writes a file that only its owner may read, in one step and flushed, replacing what was there; a
/// link that was there is replaced, not followed.
///
/// # Errors
/// [`PostgresError::Io`].
pub fn write_private(path: &Path, text: &str) -> Result<(), PostgresError> {
    replace_file(path, text, None)
}

fn replace_file(path: &Path, text: &str, owner: Option<&RunAsUser>) -> Result<(), PostgresError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new_path = PathBuf::from(name);
    match fs::remove_file(&new_path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io_error("replace", &new_path)(error));
        }
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&new_path)
        .map_err(io_error("write", &new_path))?;
    file.write_all(text.as_bytes()).map_err(io_error("write", &new_path))?;
    if let Some(owner) = owner {
        owner.fchown(&file).map_err(io_error("change the owner of", &new_path))?;
    }
    file.sync_all().map_err(io_error("flush", &new_path))?;
    fs::rename(&new_path, path).map_err(io_error("write", path))
}

/// Largest file of a data directory that is read into memory: `postmaster.pid` has some hundred
/// bytes, a commented `postgresql.conf` some ten thousand.
const OWN_FILE_BYTES_MAX: u64 = 256 << 10;

/// Reads a file of a data directory without following a link or waiting for a pipe.
pub(crate) fn read_no_follow(path: &Path) -> Result<String, PostgresError> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(NO_FOLLOW)
        .open(path)
        .map_err(io_error("read", path))?;
    let mut text = String::new();
    file.take(OWN_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(io_error("read", path))?;
    if text.len() as u64 > OWN_FILE_BYTES_MAX {
        let reason = format!("it is larger than {OWN_FILE_BYTES_MAX} bytes");
        return Err(io_error("read", path)(std::io::Error::new(
            std::io::ErrorKind::FileTooLarge,
            reason,
        )));
    }
    Ok(text)
}

/// `O_NOFOLLOW`, and `O_NONBLOCK` against pipes, for files in directories that belong to another
/// user than Egret's.
pub(crate) const NO_FOLLOW: i32 =
    rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits().cast_signed();

/// Creates a directory for sockets that only the server's user (and root) may enter.
///
/// # Errors
/// [`PostgresError::Io`].
pub fn create_private_directory(path: &Path, owner: &RunAsUser) -> Result<(), PostgresError> {
    fs::create_dir_all(path).map_err(io_error("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(io_error("change the mode of", path))?;
    owner.chown(path)
}

/// Removes what an interrupted `initdb` left, which its marker tells. Anything else that is there
/// is a user's data, and a password without data says that the data is somewhere else.
fn clear_unfinished(data: &Path, marker: &Path, password_file: &Path) -> Result<(), PostgresError> {
    let refuse = |reason: &str| {
        Err(PostgresError::NotEmpty { data: data.to_owned(), reason: reason.to_owned() })
    };
    let mut entries = fs::read_dir(data).map_err(io_error("read", data))?.peekable();
    if !marker.exists() {
        if entries.peek().is_some() {
            return refuse(
                "it holds files but no complete cluster: to start from nothing, move them away",
            );
        }
        if password_file.exists() {
            return refuse(&format!(
                "it is empty, but {} says that a cluster was created: is a file system not \
                 mounted? To start from nothing, remove that file",
                password_file.display()
            ));
        }
    }
    for entry in entries {
        let entry = entry.map_err(io_error("read", data))?;
        let path = entry.path();
        let removed = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(io_error("remove", &path))?;
    }
    Ok(())
}

/// Whether `data` holds a cluster that was made completely.
pub fn is_complete(data: &Path) -> bool {
    major(data).is_some() && !unfinished_marker(data).exists()
}

#[cfg(test)]
mod tests;
