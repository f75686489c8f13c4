//! Attachments of results: sent under a lease before the task is completed, and named by its
//! completion.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_base::condition;
use egret_log::DurabilityMode;
use tokio::io::AsyncWriteExt;

use crate::core::state::LeaseStatus;
use crate::error::{QueueError, io};
use crate::model::{Lease, TaskId};
pub use crate::store::attachment::Attachment;
use crate::store::attachment::{
    Manifest, check_content_type, check_name, describe, put_manifest, put_tail,
};
use crate::worker::attachment_store::{AttachmentStore, sync_directories};
use crate::worker::queues::Queues;
use crate::worker::task_view::Detail;

/// Tries to make a file in a directory that others delete when it is empty.
const TRIES: usize = 10;

/// An attachment on its way in. Dropped before its end, it leaves nothing.
pub struct Upload {
    queues: Queues,
    tenant: Box<str>,
    id: TaskId,
    lease: Lease,
    attachment: Attachment,
    file: tokio::fs::File,
    unfinished: PartialFileGuard,
}

/// Deletes an incomplete file when it is dropped, unless the upload was finished.
struct PartialFileGuard {
    shelf: Arc<AttachmentStore>,
    id: TaskId,
    path: PathBuf,
    /// Bytes reserved for the file; zero once it is published under its name.
    bytes: u64,
}

impl Drop for PartialFileGuard {
    fn drop(&mut self) {
        self.shelf.release(self.id, self.bytes);
        // A file that cannot be deleted now is deleted at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// An attachment to be read.
#[derive(Debug)]
pub struct AttachmentFile {
    /// Description of the attachment: name, size and checksum.
    pub attachment: Attachment,
    /// Its bytes are the first `attachment.size_bytes`; the reader must compare the checksum.
    pub file: File,
}

/// Maps the error of a write. Which directory is full is logged, and not sent to the caller.
fn written(path: &Path, name: &str) -> impl FnOnce(std::io::Error) -> QueueError {
    let (place, name) = (path.display().to_string(), name.to_owned());
    let failed = io("writing", path);
    move |error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            let reason = format_args!("{place}: {error}");
            let message = "there is no room for an attachment";
            condition::occur("queue_attachments_full", "attachments", reason, message);
            QueueError::NoRoom { name }
        }
        _ => failed(error),
    }
}

fn not_found(id: TaskId, name: &str) -> QueueError {
    QueueError::AttachmentNotFound {
        id: id.to_string(),
        name: name.to_owned(),
    }
}

impl Queues {
    /// Starts the upload of an attachment for a task, from the worker that holds its lease.
    ///
    /// # Errors
    /// [`QueueError::LeaseLost`]; [`QueueError::Invalid`] for a name or a content type that is
    /// none; [`QueueError::Limit`]; [`QueueError::NoRoom`].
    pub async fn attach(
        &self,
        tenant: &str,
        id: TaskId,
        lease: Lease,
        name: &str,
        content_type: &str,
    ) -> Result<Upload, QueueError> {
        check_name(name)?;
        check_content_type(content_type)?;
        if self.lease_status(tenant, id, lease).await? != LeaseStatus::Held {
            return Err(QueueError::LeaseLost);
        }
        let (token, asked) = (lease.token, name.to_owned());
        self.inner.shelf.doubt(id, token);
        let count = self.on_shelf(move |shelf| {
            let others = shelf.names_of(id, token)?.into_iter();
            Ok(others.filter(|other| *other != asked).count() as u64)
        });
        self.check_count(count.await? + 1)?;
        let shelf = self.inner.shelf.clone();
        let asked = name.to_owned();
        let owner = tenant.to_owned();
        let made =
            tokio::task::spawn_blocking(move || PartialFileGuard::make(shelf, id, &owner, &asked));
        let (unfinished, file) = made.await.map_err(|_| QueueError::Stopping)??;
        Ok(Upload {
            queues: self.clone(),
            tenant: tenant.into(),
            id,
            lease,
            attachment: Attachment {
                name: name.to_owned(),
                content_type: content_type.to_owned(),
                ..Attachment::default()
            },
            file: tokio::fs::File::from_std(file),
            unfinished,
        })
    }

    /// The status of a lease; that of another tenant's task counts as ended.
    async fn lease_status(
        &self,
        tenant: &str,
        id: TaskId,
        lease: Lease,
    ) -> Result<LeaseStatus, QueueError> {
        if !lease.is_of(id) {
            return Err(QueueError::LeaseLost);
        }
        let (tenant, partition) = (tenant.to_owned(), self.inner.partition_of(id.shard())?);
        self.inner
            .ask(partition, move |turn| {
                match turn.state.queue_of(id.number()) {
                    Some(queue) if *queue.tenant == *tenant => {
                        turn.state.lease_status(id, lease.token)
                    }
                    _ => LeaseStatus::Over,
                }
            })
            .await
    }

    fn check_count(&self, count: u64) -> Result<(), QueueError> {
        let most = u64::from(self.config().attachments_max);
        Ok(egret_base::Limit::new("queue.attachments_max", most).check(count)?)
    }

    /// The manifest for a completion: attachments that were uploaded under this lease.
    ///
    /// # Errors
    /// [`QueueError::LeaseLost`]; [`QueueError::AttachmentNotFound`] for an attachment that was not
    /// uploaded completely.
    pub async fn manifest(
        &self,
        tenant: &str,
        lease: Lease,
        names: &[String],
    ) -> Result<Manifest, QueueError> {
        self.check_count(names.len() as u64)?;
        names.iter().try_for_each(|name| check_name(name))?;
        let (number, partition) = (lease.number, self.inner.partition_of(lease.shard)?);
        let found = self.inner.ask(partition, move |turn| {
            let place = turn.state.place_of(number)?;
            Some(turn.state.id_of(place))
        });
        let id = found.await?.ok_or(QueueError::LeaseLost)?;
        if self.lease_status(tenant, id, lease).await? == LeaseStatus::Over {
            return Err(QueueError::LeaseLost);
        }
        let (shelf, names) = (self.inner.shelf.clone(), names.to_vec());
        let reading = tokio::task::spawn_blocking(move || {
            let mut attachments: Vec<Attachment> = Vec::with_capacity(names.len());
            for name in names {
                if attachments.iter().any(|other| other.name == name) {
                    continue;
                }
                attachments.push(open(&shelf, id, lease.token, &name)?.attachment);
            }
            let mut manifest = Vec::new();
            put_manifest(&mut manifest, &attachments);
            Ok(Manifest(manifest))
        });
        reading.await.map_err(|_| QueueError::Stopping)?
    }

    /// Opens an attachment that a task was completed with.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`], [`QueueError::AttachmentNotFound`],
    /// [`QueueError::AttachmentDamaged`].
    pub async fn attachment(
        &self,
        tenant: &str,
        id: TaskId,
        name: &str,
    ) -> Result<AttachmentFile, QueueError> {
        check_name(name)?;
        let view = self.task(tenant, id, Detail::Whole).await?;
        let mut attachments = view.attachments.into_iter();
        let known = attachments
            .find(|one| one.name == name)
            .ok_or_else(|| not_found(id, name))?;
        let (shelf, token) = (self.inner.shelf.clone(), view.completed_by);
        let opening = tokio::task::spawn_blocking(move || {
            let opened = open(&shelf, id, token, &known.name)?;
            if opened.attachment == known {
                Ok(opened)
            } else {
                Err(damaged(id, &known.name))
            }
        });
        opening.await.map_err(|_| QueueError::Stopping)?
    }
}

fn damaged(id: TaskId, name: &str) -> QueueError {
    QueueError::AttachmentDamaged {
        id: id.to_string(),
        name: name.to_owned(),
    }
}

fn open(
    shelf: &AttachmentStore,
    id: TaskId,
    token: u64,
    name: &str,
) -> Result<AttachmentFile, QueueError> {
    let path = shelf.path_of(id, token, name);
    let opened = File::open(&path).and_then(|mut file| {
        let attachment = describe(&mut file, name)?;
        Ok(AttachmentFile { attachment, file })
    });
    opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => not_found(id, name),
        ErrorKind::InvalidData => damaged(id, name),
        _ => io("reading", &path)(error),
    })
}

impl PartialFileGuard {
    fn make(
        shelf: Arc<AttachmentStore>,
        id: TaskId,
        tenant: &str,
        name: &str,
    ) -> Result<(Self, File), QueueError> {
        let path = shelf.unfinished(id);
        let mut tries = 1;
        let file = loop {
            let directory = shelf.directory_of(id);
            std::fs::create_dir_all(&directory).map_err(written(&directory, name))?;
            match File::create_new(&path) {
                // Another thread has deleted the directory, as it was empty.
                Err(error) if error.kind() == ErrorKind::NotFound && tries < TRIES => tries += 1,
                made => break made.map_err(written(&path, name))?,
            }
        };
        // From here on the directory is not empty: it is not removed, and with it the note of its
        // owner.
        shelf.note_owner(id, tenant);
        let unfinished = Self {
            shelf,
            id,
            path,
            bytes: 0,
        };
        Ok((unfinished, file))
    }

    /// Counts bytes that are about to be written.
    fn grow(&mut self, bytes: &[u8]) -> Result<(), QueueError> {
        self.shelf.reserve(self.id, bytes.len() as u64)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Publishes the file under its name, unless there is one with the same bytes. An existing file
    /// is never replaced: a completion may have named it.
    fn put_in_place(mut self, place: &Path, attachment: &Attachment) -> Result<(), QueueError> {
        match std::fs::hard_link(&self.path, place) {
            Ok(()) => {
                // Counted with the file that has the name.
                self.bytes = 0;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let known =
                    File::open(place).and_then(|mut file| describe(&mut file, &attachment.name));
                if known.map_err(written(place, &attachment.name))? == *attachment {
                    Ok(())
                } else {
                    Err(QueueError::AttachmentExists {
                        name: attachment.name.clone(),
                    })
                }
            }
            Err(error) => Err(written(place, &attachment.name)(error)),
        }
    }
}

impl Upload {
    /// Takes in the next bytes.
    ///
    /// # Errors
    /// [`QueueError::TooLarge`], [`QueueError::Limit`], [`QueueError::NoRoom`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), QueueError> {
        let attachment = &mut self.attachment;
        attachment.size_bytes += bytes.len() as u64;
        let max_bytes = self.queues.config().attachment_bytes_max.bytes();
        if attachment.size_bytes > max_bytes {
            return Err(QueueError::TooLarge {
                what: "the attachment",
                size_bytes: attachment.size_bytes,
                limit: "queue.attachment_bytes_max",
                max_bytes,
            });
        }
        attachment.crc32c = crc32c::crc32c_append(attachment.crc32c, bytes);
        self.put(bytes).await
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<(), QueueError> {
        self.unfinished.grow(bytes)?;
        let written = written(&self.unfinished.path, &self.attachment.name);
        self.file.write_all(bytes).await.map_err(written)
    }

    /// Publishes the attachment. When this returns, it is stored with the durability of the queue's
    /// log, and a completion may name it. To upload the same content again under the same lease
    /// succeeds.
    ///
    /// # Errors
    /// [`QueueError::LeaseLost`] when the lease has ended meanwhile,
    /// [`QueueError::AttachmentExists`], and as [`Upload::write`].
    pub async fn finish(mut self) -> Result<Attachment, QueueError> {
        let mut tail = Vec::new();
        put_tail(&mut tail, &self.attachment);
        self.put(&tail).await?;
        let flushed = self.file.flush().await;
        flushed.map_err(written(&self.unfinished.path, &self.attachment.name))?;
        let Self {
            queues,
            tenant,
            id,
            lease,
            attachment,
            file,
            unfinished,
        } = self;
        let file = file.into_std().await;
        let shelf = queues.inner.shelf.clone();
        let path = shelf.path_of(id, lease.token, &attachment.name);
        let lasting = queues.config().durability != DurabilityMode::None;
        let (place, known) = (path.clone(), attachment.clone());
        let putting = tokio::task::spawn_blocking(move || {
            if lasting {
                file.sync_all().map_err(written(&place, &known.name))?;
            }
            unfinished.put_in_place(&place, &known)?;
            if lasting {
                sync_directories(&shelf, id).map_err(written(&place, &known.name))
            } else {
                Ok(())
            }
        });
        let put = putting.await.map_err(|_| QueueError::Stopping)?;
        // The lease may end at any time from here on. The upkeep then finds the file by this mark.
        queues.inner.shelf.doubt(id, lease.token);
        match queues.lease_status(&tenant, id, lease).await? {
            LeaseStatus::Held => put.map(|()| attachment),
            // A completion may have named the file; otherwise the upkeep deletes it.
            LeaseStatus::Completed => Err(QueueError::LeaseLost),
            LeaseStatus::Over => {
                let removing = queues.on_shelf(move |shelf| shelf.remove(id, &path));
                removing.await?;
                Err(QueueError::LeaseLost)
            }
        }
    }
}
