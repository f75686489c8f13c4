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
use crate::error::{QueueError, io_error};
use crate::model::{Lease, TaskId};
pub use crate::store::attachment::Attachment;
use crate::store::attachment::{
    Manifest, check_content_type, check_name, put_manifest, put_tail, read_description,
};
use crate::worker::attachment_store::{AttachmentStore, sync_directories};
use crate::worker::queues::Queues;
use crate::worker::task_view::Detail;

/// Tries to make a file in a directory that others delete when it is empty.
const CREATE_TRIES_MAX: usize = 10;

/// An attachment on its way in. Dropped before its end, it leaves nothing.
pub struct Upload {
    queues: Queues,
    tenant: Box<str>,
    id: TaskId,
    lease: Lease,
    attachment: Attachment,
    file: tokio::fs::File,
    partial_file: PartialFileGuard,
}

/// Deletes an incomplete file when it is dropped, unless the upload was finished.
struct PartialFileGuard {
    store: Arc<AttachmentStore>,
    id: TaskId,
    path: PathBuf,
    /// Bytes reserved for the file; zero once it is published under its name.
    bytes: u64,
}

impl Drop for PartialFileGuard {
    fn drop(&mut self) {
        self.store.release(self.id, self.bytes);
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
fn write_error(path: &Path, name: &str) -> impl FnOnce(std::io::Error) -> QueueError {
    let (path_text, name) = (path.display().to_string(), name.to_owned());
    let to_io_error = io_error("writing", path);
    move |error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            let reason = format_args!("{path_text}: {error}");
            let message = "there is no room for an attachment";
            condition::occur("queue_attachments_full", "attachments", reason, message);
            QueueError::NoRoom { name }
        }
        _ => to_io_error(error),
    }
}

fn not_found(id: TaskId, name: &str) -> QueueError {
    QueueError::AttachmentNotFound { id: id.to_string(), name: name.to_owned() }
}

impl Queues {
    /// Starts the upload of an attachment for a task, from the worker that holds its lease.
    ///
    /// # Errors
    /// [`QueueError::LeaseLost`]; [`QueueError::Invalid`] for a name or a content type that is
    /// none; [`QueueError::Limit`]; [`QueueError::NoRoom`].
    pub async fn start_upload(
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
        let (token, requested_name) = (lease.token, name.to_owned());
        self.inner.attachments.mark_for_check(id, token);
        let count = self.run_on_attachments(move |shelf| {
            let others = shelf.attachment_names(id, token)?.into_iter();
            Ok(others.filter(|other| *other != requested_name).count() as u64)
        });
        self.check_attachment_count(count.await? + 1)?;
        let store = self.inner.attachments.clone();
        let asked = name.to_owned();
        let owner = tenant.to_owned();
        let creation = tokio::task::spawn_blocking(move || {
            PartialFileGuard::create(store, id, &owner, &asked)
        });
        let (unfinished, file) = creation.await.map_err(|_| QueueError::Stopping)??;
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
            partial_file: unfinished,
        })
    }

    /// The status of a lease; that of another tenant's task counts as ended.
    async fn lease_status(
        &self,
        tenant: &str,
        id: TaskId,
        lease: Lease,
    ) -> Result<LeaseStatus, QueueError> {
        if !lease.belongs_to(id) {
            return Err(QueueError::LeaseLost);
        }
        let (tenant, partition) = (tenant.to_owned(), self.inner.partition_of(id.shard())?);
        self.inner
            .run_in_turn(partition, move |turn| match turn.state.queue_of_task(id.number()) {
                Some(queue) if *queue.tenant == *tenant => turn.state.lease_status(id, lease.token),
                _ => LeaseStatus::Ended,
            })
            .await
    }

    fn check_attachment_count(&self, count: u64) -> Result<(), QueueError> {
        let attachments_max = u64::from(self.config().attachments_max);
        Ok(egret_base::Limit::new("queue.attachments_max", attachments_max).check(count)?)
    }

    /// The manifest for a completion: attachments that were uploaded under this lease.
    ///
    /// # Errors
    /// [`QueueError::LeaseLost`]; [`QueueError::AttachmentNotFound`] for an attachment that was not
    /// uploaded completely.
    pub async fn build_manifest(
        &self,
        tenant: &str,
        lease: Lease,
        names: &[String],
    ) -> Result<Manifest, QueueError> {
        self.check_attachment_count(names.len() as u64)?;
        names.iter().try_for_each(|name| check_name(name))?;
        let (number, partition) = (lease.number, self.inner.partition_of(lease.shard)?);
        let reply = self.inner.run_in_turn(partition, move |turn| {
            let slot = turn.state.slot_of(number)?;
            Some(turn.state.id_at(slot))
        });
        let id = reply.await?.ok_or(QueueError::LeaseLost)?;
        if self.lease_status(tenant, id, lease).await? == LeaseStatus::Ended {
            return Err(QueueError::LeaseLost);
        }
        let (store, names) = (self.inner.attachments.clone(), names.to_vec());
        let reading = tokio::task::spawn_blocking(move || {
            let mut attachments: Vec<Attachment> = Vec::with_capacity(names.len());
            for name in names {
                if attachments.iter().any(|other| other.name == name) {
                    continue;
                }
                attachments.push(open_attachment(&store, id, lease.token, &name)?.attachment);
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
        let expected =
            attachments.find(|one| one.name == name).ok_or_else(|| not_found(id, name))?;
        let (store, token) = (self.inner.attachments.clone(), view.completed_by);
        let opening = tokio::task::spawn_blocking(move || {
            let opened = open_attachment(&store, id, token, &expected.name)?;
            if opened.attachment == expected {
                Ok(opened)
            } else {
                Err(damaged(id, &expected.name))
            }
        });
        opening.await.map_err(|_| QueueError::Stopping)?
    }
}

fn damaged(id: TaskId, name: &str) -> QueueError {
    QueueError::AttachmentDamaged { id: id.to_string(), name: name.to_owned() }
}

fn open_attachment(
    store: &AttachmentStore,
    id: TaskId,
    token: u64,
    name: &str,
) -> Result<AttachmentFile, QueueError> {
    let path = store.attachment_path(id, token, name);
    let opened = File::open(&path).and_then(|mut file| {
        let attachment = read_description(&mut file, name)?;
        Ok(AttachmentFile { attachment, file })
    });
    opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => not_found(id, name),
        ErrorKind::InvalidData => damaged(id, name),
        _ => io_error("reading", &path)(error),
    })
}

impl PartialFileGuard {
    fn create(
        store: Arc<AttachmentStore>,
        id: TaskId,
        tenant: &str,
        name: &str,
    ) -> Result<(Self, File), QueueError> {
        let path = store.partial_path(id);
        let mut tries = 1;
        let file = loop {
            let directory = store.task_directory(id);
            std::fs::create_dir_all(&directory).map_err(write_error(&directory, name))?;
            match File::create_new(&path) {
                // Another thread has deleted the directory, as it was empty.
                Err(error) if error.kind() == ErrorKind::NotFound && tries < CREATE_TRIES_MAX => {
                    tries += 1
                }
                result => break result.map_err(write_error(&path, name))?,
            }
        };
        // From here on the directory is not empty: it is not removed, and with it the note of its
        // owner.
        store.set_owner(id, tenant);
        let guard = Self { store, id, path, bytes: 0 };
        Ok((guard, file))
    }

    /// Counts bytes that are about to be written.
    fn reserve_bytes(&mut self, bytes: &[u8]) -> Result<(), QueueError> {
        self.store.reserve(self.id, bytes.len() as u64)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Publishes the file under its name, unless there is one with the same bytes. An existing file
    /// is never replaced: a completion may have named it.
    fn publish(mut self, target_path: &Path, attachment: &Attachment) -> Result<(), QueueError> {
        match std::fs::hard_link(&self.path, target_path) {
            Ok(()) => {
                // Counted with the file that has the name.
                self.bytes = 0;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let existing = File::open(target_path)
                    .and_then(|mut file| read_description(&mut file, &attachment.name));
                if existing.map_err(write_error(target_path, &attachment.name))? == *attachment {
                    Ok(())
                } else {
                    Err(QueueError::AttachmentExists { name: attachment.name.clone() })
                }
            }
            Err(error) => Err(write_error(target_path, &attachment.name)(error)),
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
        self.write_to_file(bytes).await
    }

    async fn write_to_file(&mut self, bytes: &[u8]) -> Result<(), QueueError> {
        self.partial_file.reserve_bytes(bytes)?;
        let to_write_error = write_error(&self.partial_file.path, &self.attachment.name);
        self.file.write_all(bytes).await.map_err(to_write_error)
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
        self.write_to_file(&tail).await?;
        let flushed = self.file.flush().await;
        flushed.map_err(write_error(&self.partial_file.path, &self.attachment.name))?;
        let Self { queues, tenant, id, lease, attachment, file, partial_file: unfinished } = self;
        let file = file.into_std().await;
        let store = queues.inner.attachments.clone();
        let path = store.attachment_path(id, lease.token, &attachment.name);
        let is_durable = queues.config().durability != DurabilityMode::None;
        let (target_path, attachment_copy) = (path.clone(), attachment.clone());
        let publish_task = tokio::task::spawn_blocking(move || {
            if is_durable {
                file.sync_all().map_err(write_error(&target_path, &attachment_copy.name))?;
            }
            unfinished.publish(&target_path, &attachment_copy)?;
            if is_durable {
                sync_directories(&store, id)
                    .map_err(write_error(&target_path, &attachment_copy.name))
            } else {
                Ok(())
            }
        });
        let publish_result = publish_task.await.map_err(|_| QueueError::Stopping)?;
        // The lease may end at any time from here on. The upkeep then finds the file by this mark.
        queues.inner.attachments.mark_for_check(id, lease.token);
        match queues.lease_status(&tenant, id, lease).await? {
            LeaseStatus::Held => publish_result.map(|()| attachment),
            // A completion may have named the file; otherwise the upkeep deletes it.
            LeaseStatus::Completed => Err(QueueError::LeaseLost),
            LeaseStatus::Ended => {
                let removing = queues.run_on_attachments(move |shelf| shelf.delete_file(id, &path));
                removing.await?;
                Err(QueueError::LeaseLost)
            }
        }
    }
}
