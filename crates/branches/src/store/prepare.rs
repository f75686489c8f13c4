//! What makes a copy of a source a template: nothing of it reaches out, and the branch role owns
//! what it may change.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use egret_linux::directory::{DEPTH_MAX, DepthExceeded, Directory, Kind};
use egret_postgres::PostgresError;
use egret_postgres::bounded;
use egret_postgres::cluster::{IDENT_MAP, SUPERUSER, ident_map, write_owned};
use egret_postgres::error::server_error;
use egret_postgres::listen::quote_literal;
use egret_postgres::owner::RunAsUser;
use tokio_postgres::Client;

use super::egret_schema::{self, DocumentRetention};
use crate::error::{BranchesError, io_error};

/// The role by which users work on a branch; a superuser only of a branch that was asked for with
/// one.
pub const ROLE: &str = "egret_branch";

/// Files that belong to a running server or to its role in replication.
const REMOVED_FILES: [&str; 7] = [
    "postmaster.pid",
    "postmaster.opts",
    "standby.signal",
    "recovery.signal",
    "backup_manifest",
    "backup_label.old",
    "current_logfiles",
];

/// Directories whose content is the source's own business (as pg_basebackup leaves them out, and
/// the source's server log).
const EMPTIED_DIRECTORIES: [&str; 8] = [
    "pg_replslot",
    "pg_notify",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_dynshmem",
    "pg_logical/snapshots",
    "log",
];

/// Makes a fresh copy of a data directory startable as a stranger to its source.
///
/// The copy belongs to the server's user, and Egret may be root: no link in it is followed.
pub(crate) fn neutralise_files(data: &Path, owner: &RunAsUser) -> Result<(), BranchesError> {
    let top = Directory::open(data).map_err(io_error("open", data))?;
    if let Some(link) = find_link(&top, Path::new(""), 0).map_err(io_error("read", data))? {
        return Err(BranchesError::Source {
            reason: format!(
                "{} is a link to a place outside the data directory: copies would share its \
                 target; move the files back",
                link.display()
            ),
        });
    }
    for name in REMOVED_FILES {
        top.remove(OsStr::new(name)).map_err(io_error("remove", &data.join(name)))?;
    }
    for name in EMPTIED_DIRECTORIES {
        empty_directory(&top, name).map_err(io_error("empty", &data.join(name)))?;
    }
    let hba = format!(
        "# Written by Egret: a branch is reached through Egret's own sessions alone.\n\
         local all all peer map={IDENT_MAP}\n"
    );
    write_owned(&data.join("pg_hba.conf"), &hba, owner)?;
    // Egret enters as the roles of the application as well; `all` means them from PostgreSQL 16 on.
    let roles = ident_map(&[SUPERUSER, ROLE, "all"]);
    write_owned(&data.join("pg_ident.conf"), &roles, owner)?;
    Ok(())
}

/// The first symbolic link below a directory; `path` is how it is called, `depth` how many are
/// above it.
fn find_link(directory: &Directory, path: &Path, depth: usize) -> std::io::Result<Option<PathBuf>> {
    for name in directory.names()? {
        let name = name?;
        let path = path.join(&name);
        match directory.kind(&name)? {
            Kind::Link => return Ok(Some(path)),
            Kind::Directory if depth == DEPTH_MAX => return Err(DepthExceeded { path }.into()),
            Kind::Directory => {
                if let Some(link) = find_link(&directory.enter(&name)?, &path, depth + 1)? {
                    return Ok(Some(link));
                }
            }
            Kind::File | Kind::Other => {}
        }
    }
    Ok(None)
}

/// Removes what is in a directory, if it is there.
fn empty_directory(top: &Directory, path: &str) -> std::io::Result<()> {
    let mut steps = path.split('/').map(OsStr::new);
    let first = steps.next().expect("splitting gives at least one part");
    let opened = top
        .enter(first)
        .and_then(|directory| steps.try_fold(directory, |directory, step| directory.enter(step)));
    match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        opened => opened?.clear(),
    }
}

/// Rolls back what the source had prepared, for its locks would be held in every branch.
pub(crate) async fn roll_back_prepared(client: &Client) -> Result<(), PostgresError> {
    let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
    let doing = "list the prepared transactions";
    for row in bounded::query(client, doing, sql, &[]).await? {
        let gid: String = bounded::get_value(&row, 0, doing)?;
        let command = format!("ROLLBACK PREPARED {}", quote_literal(&gid));
        client
            .batch_execute(&command)
            .await
            .map_err(server_error("roll back a prepared transaction"))?;
    }
    Ok(())
}

/// Takes every right that reaches beyond the copy from every role, removes passwords, and makes
/// the branch role a member of every ordinary role.
pub(crate) async fn prepare_roles(client: &Client) -> Result<(), PostgresError> {
    client
        .batch_execute(include_str!("sql/prepare_roles.sql"))
        .await
        .map_err(server_error("prepare the roles of the template"))
}

/// Makes the branch role a superuser of its branch.
pub(crate) async fn grant_superuser(client: &Client) -> Result<(), PostgresError> {
    let sql = format!("ALTER ROLE {ROLE} SUPERUSER");
    client.batch_execute(&sql).await.map_err(server_error("make the branch role a superuser"))
}

/// In one database: deletes what Egret keeps there for others, drops subscriptions and foreign
/// passwords, and hands the superuser's objects to the branch role (REASSIGN OWNED refuses those of
/// the bootstrap superuser).
pub(crate) async fn prepare_database(
    client: &Client,
    documents: DocumentRetention,
) -> Result<(), PostgresError> {
    roll_back_prepared(client).await?;
    egret_schema::purge(client, documents).await?;
    client
        .batch_execute(include_str!("sql/prepare_database.sql"))
        .await
        .map_err(server_error("prepare a database of the template"))
}
