//! Waiting on tokio until a file descriptor (a pidfd, an inotify instance) becomes readable.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor registered with the runtime for reading.
#[derive(Debug)]
pub struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Registers a descriptor that is in non-blocking mode. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The kernel's refusal to watch such a descriptor.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "tokio leaves the proof of ownership to the caller")]
        // SAFETY: an `OwnedFd` is a valid, open descriptor for as long as it lives and always
        // answers with the same number; the `AsyncFd` owns it and nothing hands it out mutably.
        let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        registered.map(Self).map_err(|error| error.into_parts().1)
    }

    /// Waits until the descriptor is readable; the guard says when it was read empty.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.readable().await
    }
}

impl AsFd for Readable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
