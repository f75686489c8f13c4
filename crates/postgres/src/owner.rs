//! The operating-system user that PostgreSQL runs as.
//!
//! PostgreSQL refuses to run as root: when Egret is root its children run as an unprivileged user,
//! which is created when it is missing.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{PostgresError, io_error};

/// The operating-system user that PostgreSQL processes run as and that owns their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAsUser {
    /// Name of the user.
    pub name: String,
    /// The numeric user id.
    pub uid: u32,
    /// The numeric primary group id.
    pub gid: u32,
    /// Whether Egret is root and must switch to this user.
    must_switch: bool,
}

impl RunAsUser {
    /// The user for PostgreSQL: Egret's own, or `name` when Egret is root.
    ///
    /// # Errors
    /// [`PostgresError::Owner`] when root's unprivileged user is missing and cannot be created,
    /// or is root itself.
    pub fn resolve(name: &str) -> Result<Self, PostgresError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::current());
        }
        let fail = |reason: &str| PostgresError::Owner {
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        let user = match uzers::get_user_by_name(name) {
            Some(user) => user,
            None => {
                create_user(name)?;
                uzers::get_user_by_name(name).ok_or_else(|| fail("was created but is not found"))?
            }
        };
        if user.uid() == 0 {
            return Err(fail("PostgreSQL refuses to run as root"));
        }
        Ok(Self {
            name: name.to_owned(),
            uid: user.uid(),
            gid: user.primary_group_id(),
            must_switch: true,
        })
    }

    pub(crate) fn current() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self {
            name: user_name(uid),
            uid,
            gid: rustix::process::getegid().as_raw(),
            must_switch: false,
        }
    }

    /// A user without an account, whose group has the same number. Only root can give it anything.
    pub(crate) fn without_account(id: u32) -> Self {
        Self { name: id.to_string(), uid: id, gid: id, must_switch: true }
    }

    /// Whether a process of this user has to change to it.
    pub(crate) fn needs_switch(&self) -> bool {
        self.must_switch
    }

    /// Makes `command` run as this user.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if self.must_switch {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// The directory above `path` that is closed to this user, as its mode has it.
    pub(crate) fn closed_ancestor(&self, path: &Path) -> Option<PathBuf> {
        let is_closed = |directory: &&Path| {
            std::fs::metadata(directory).is_ok_and(|metadata| {
                let search_bit = match (metadata.uid() == self.uid, metadata.gid() == self.gid) {
                    (true, _) => 0o100,
                    (false, true) => 0o010,
                    (false, false) => 0o001,
                };
                metadata.mode() & search_bit == 0
            })
        };
        path.ancestors().skip(1).find(is_closed).map(Path::to_path_buf)
    }

    /// Gives the file or directory `path` to this user; a link is not followed.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn chown(&self, path: &Path) -> Result<(), PostgresError> {
        if !self.must_switch {
            return Ok(());
        }
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))
            .map_err(io_error("change the owner of", path))
    }

    /// Gives an open file to this user, whatever has its name by now.
    pub(crate) fn fchown(&self, file: &std::fs::File) -> std::io::Result<()> {
        if self.must_switch {
            std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }
}

/// The name of the user that Egret itself runs as, for `peer` authentication.
pub(crate) fn current_user_name() -> String {
    user_name(rustix::process::geteuid().as_raw())
}

/// The home directory of the user that Egret itself runs as, as the user database has it.
pub(crate) fn current_home() -> PathBuf {
    use uzers::os::unix::UserExt;
    uzers::get_user_by_uid(rustix::process::geteuid().as_raw())
        .map_or_else(|| PathBuf::from("/nonexistent"), |user| user.home_dir().to_owned())
}

fn user_name(uid: u32) -> String {
    uzers::get_user_by_uid(uid)
        .map_or_else(|| uid.to_string(), |user| user.name().to_string_lossy().into_owned())
}

fn create_user(name: &str) -> Result<(), PostgresError> {
    let fail = |reason: String| PostgresError::Owner { name: name.to_owned(), reason };
    let useradd = egret_linux::trust::find_program("useradd").ok_or_else(|| {
        fail("does not exist, and useradd is in no trusted directory of PATH".to_owned())
    })?;
    let output = Command::new(useradd)
        .args(["--system", "--user-group", "--no-create-home"])
        .args(["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"])
        .args(["--", name])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| fail(format!("does not exist, and useradd could not be run: {error}")))?;
    // Exit code 9: the name exists by now, made by another Egret at the same moment.
    if output.status.success() || output.status.code() == Some(9) {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(fail(format!("does not exist, and useradd failed: {}", message.trim())))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_is_closed_is_found() {
        let place = tempfile::tempdir().expect("a directory");
        let above = place.path().join("above");
        create_dir(&above).expect("it is made");
        let data = above.join("data");
        let own = std::fs::metadata(&above).expect("it is there");
        let owner =
            |uid, gid| RunAsUser { name: "somebody".to_owned(), uid, gid, must_switch: true };
        let stranger = owner(own.uid() + 1, own.gid() + 1);
        let colleague = owner(own.uid() + 1, own.gid());
        let mode = |directory, mode| {
            set_permissions(directory, Permissions::from_mode(mode)).expect("it is ours");
        };
        mode(place.path(), 0o755);
        mode(&above, 0o710);
        assert_eq!(stranger.closed_ancestor(&data), Some(above.clone()));
        assert_eq!(colleague.closed_ancestor(&data), None);
        assert_eq!(owner(own.uid(), own.gid()).closed_ancestor(&data), None);
        mode(&above, 0o701);
        assert_eq!(stranger.closed_ancestor(&data), None);
        assert_eq!(colleague.closed_ancestor(&data), Some(above));
    }
}
