//! Starting the process of a postmaster: its arguments, its user, and what confines it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Pid;

use super::Launch;
use crate::control_groups::GroupLease;
use crate::error::{PostgresError, io};
use crate::isolation::UserLease;
use crate::owner::Owner;

/// Settings by which a server finds its own files, whatever its configuration says.
fn own_places(data: &Path) -> Vec<String> {
    let place = |name: &str, path: &Path| ["-c".to_owned(), format!("{name}={}", path.display())];
    [
        place("data_directory", data),
        place("hba_file", &data.join("pg_hba.conf")),
        place("ident_file", &data.join("pg_ident.conf")),
    ]
    .concat()
}

/// The control group of a server to be kept apart, where this machine has them.
pub(super) fn group(launch: &Launch) -> Result<Option<GroupLease>, PostgresError> {
    let Some(isolation) = &launch.isolation else {
        return Ok(None);
    };
    let leased = isolation.groups().lease(&launch.data, launch.nice);
    leased.map_err(io("make a control group for", &launch.data))
}

pub(super) fn spawn(
    launch: &Launch,
    lease: Option<&UserLease>,
    group: Option<&GroupLease>,
) -> Result<Pid, PostgresError> {
    if let Some(lease) = lease {
        // The data directory is shown to this user as its own; the socket's directory is made its own.
        let user = Owner::without_account(lease.id());
        crate::cluster::private_directory(&launch.socket_dir, &user)?;
    }
    let log = File::options()
        .create(true)
        .append(true)
        .custom_flags(crate::cluster::NO_FOLLOW)
        .open(&launch.log_file)
        .map_err(io("open", &launch.log_file))?;
    let log_error = log.try_clone().map_err(io("open", &launch.log_file))?;
    let program = launch.binaries.program("postgres");
    let mut command = Command::new(&program);
    command
        .arg("-D")
        .arg(&launch.data)
        .arg("-k")
        .arg(&launch.socket_dir)
        .arg("-p")
        .arg(launch.port.to_string())
        // Files of a copied data directory may name those of the original.
        .args(own_places(&launch.data))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        // For libraries beside the program: the loader asks /proc where that is, or this variable.
        .env("LD_ORIGIN_PATH", &launch.binaries.directory)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_error);
    for (name, value) in &launch.settings {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    if lease.is_none() {
        launch.owner.apply(&mut command);
    }
    match &launch.isolation {
        None => {
            egret_linux::session::in_own_session(&mut command);
        }
        Some(isolation) => {
            let preloaded = |(name, _): &&(String, String)| name == "shared_preload_libraries";
            let libraries = launch.settings.iter().rev().find(preloaded);
            let mut confinement = isolation.confine(
                &launch.binaries,
                &launch.data,
                &launch.socket_dir,
                libraries.map_or("", |(_, value)| value.as_str()),
                lease,
            )?;
            if let Some(group) = group {
                let entrance = group
                    .entrance()
                    .map_err(io("confine the server of", &launch.data))?;
                confinement = confinement.in_group(entrance);
            }
            confinement.apply(&mut command);
        }
    }
    let child = command.spawn().map_err(io("run", &program))?;
    let pid = i32::try_from(child.id()).expect("a Linux pid is at most 2^22");
    Ok(Pid::from_raw(pid).expect("a child's pid is positive"))
}
