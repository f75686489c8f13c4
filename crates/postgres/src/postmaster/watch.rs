//! Waking up when something in a data directory changes, by inotify(7).

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use egret_linux::readable::Readable;
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use tokio::runtime::Handle;

use crate::error::{PostgresError, io_error};

/// A watch on the top level of a data directory, where `postmaster.pid` is.
pub(super) struct PidFileWatch {
    /// Taken by the drop alone.
    inotify: Option<Readable>,
    data: PathBuf,
}

impl PidFileWatch {
    /// Events count from this moment on.
    pub(super) fn new(data: &Path) -> Result<Self, PostgresError> {
        let fail = |error: rustix::io::Errno| io_error("watch", data)(error.into());
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(fail)?;
        let events = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVED_TO;
        add_watch(&inotify, data, events).map_err(fail)?;
        Ok(Self {
            inotify: Some(Readable::new(inotify).map_err(io_error("watch", data))?),
            data: data.to_owned(),
        })
    }

    /// Returns after the next change, having consumed all that are known by then.
    pub(super) async fn await_change(&self) -> Result<(), PostgresError> {
        let inotify = self.inotify.as_ref().expect("it is there until the drop");
        let mut ready = inotify.readable().await.map_err(io_error("watch", &self.data))?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = Reader::new(inotify, &mut buffer);
        while reader.next().is_ok() {}
        ready.clear_ready();
        Ok(())
    }
}

impl Drop for PidFileWatch {
    /// Closing an inotify instance waits for a grace period of the kernel, some ten milliseconds: a
    /// task that waited for the server need not wait for that too.
    fn drop(&mut self) {
        let inotify = self.inotify.take();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop(inotify));
        }
    }
}
