//! Peers that do not read what is written to them.
//!
//! Two places see them. A socket that takes no more bytes is seen by [`TimedStream`], which ends
//! the connection. An HTTP/2 stream without a flow-control window writes nothing to the socket: it
//! is seen by the stream's task ([`StreamExecutor`]), to which the response's body
//! ([`OutgoingBody`]) tells whether the server or the peer has to act next. That task ends the
//! stream alone; the others of its connection go on.

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use egret_base::sync::lock;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::pace::{Pace, PaceLimit};

/// Completes when a peer has kept the server waiting for too long.
#[derive(Debug)]
pub(crate) struct Deadline {
    pub(crate) pace: Pace,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(crate) fn new(limit: PaceLimit) -> Self {
        Self { pace: Pace::new(limit), alarm: None }
    }

    /// Waits for the peer; ready when its time is used up.
    pub(crate) fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wait_end = self.pace.begin_wait(Instant::now()).into();
        match &mut self.alarm {
            Some(alarm) if alarm.deadline() == wait_end => alarm.as_mut().poll(context),
            Some(alarm) => {
                alarm.as_mut().reset(wait_end);
                alarm.as_mut().poll(context)
            }
            None => {
                let alarm = self.alarm.insert(Box::pin(tokio::time::sleep_until(wait_end)));
                alarm.as_mut().poll(context)
            }
        }
    }

    /// Notes that the peer has acted.
    pub(crate) fn record_progress(&mut self, bytes: u64) {
        if self.pace.is_waiting() {
            self.pace.record_progress(Instant::now(), bytes);
        }
    }
}

/// A connection whose writes must progress.
pub(crate) struct TimedStream<S> {
    stream: S,
    deadline: Deadline,
}

impl<S> TimedStream<S> {
    pub(crate) fn new(stream: S, limit: PaceLimit) -> Self {
        Self { stream, deadline: Deadline::new(limit) }
    }

    fn check_write(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match outcome {
            Poll::Ready(Ok(bytes)) => {
                self.deadline.record_progress(bytes as u64);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(self.deadline.poll_wait(context));
                let message = "the client reads slower than server.transfer_rate_min";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_write(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_write(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Progress of a response, shared by its body and its stream's task.
#[derive(Debug, Default)]
pub(crate) struct ResponseProgress {
    waits_for_peer: AtomicBool,
    sent_bytes: AtomicU64,
}

/// Runs HTTP/2 streams, and ends those whose peers do not read.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor {
    limit: PaceLimit,
    /// Of the request that was handed to the service last: hyper asks for its task right
    /// afterwards, on the connection's own task.
    next_progress: Arc<Mutex<Option<Arc<ResponseProgress>>>>,
}

impl StreamExecutor {
    pub(crate) fn new(limit: PaceLimit) -> Self {
        Self { limit, next_progress: Arc::default() }
    }

    /// Announces the request whose task is executed next.
    pub(crate) fn announce(&self) -> Arc<ResponseProgress> {
        let progress = Arc::<ResponseProgress>::default();
        *self.lock_next() = Some(progress.clone());
        progress
    }

    fn lock_next(&self) -> std::sync::MutexGuard<'_, Option<Arc<ResponseProgress>>> {
        lock(&self.next_progress)
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let announced = self.lock_next().take();
        match announced {
            Some(progress) => tokio::spawn(supervise(future, progress, self.limit)),
            None => tokio::spawn(async move {
                future.await;
            }),
        };
    }
}

/// Runs a stream to its end, or drops it, which resets it, when its peer reads too slowly.
async fn supervise(future: impl Future, progress: Arc<ResponseProgress>, limit: PaceLimit) {
    let mut future = pin!(future);
    let mut deadline = Deadline::new(limit);
    let mut bytes_recorded = 0;
    std::future::poll_fn(|context| {
        if future.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let bytes = progress.sent_bytes.load(Ordering::Relaxed);
        let waits_for_peer = progress.waits_for_peer.load(Ordering::Relaxed);
        if bytes > bytes_recorded || !waits_for_peer {
            deadline.record_progress(bytes - bytes_recorded);
            bytes_recorded = bytes;
        }
        if !waits_for_peer {
            return Poll::Pending;
        }
        ready!(deadline.poll_wait(context));
        tracing::debug!("a stream was reset: its peer reads slower than server.transfer_rate_min");
        Poll::Ready(())
    })
    .await;
}

/// A response's body, of which the stream's task learns whether the server or the peer has to act
/// next.
pub(crate) struct OutgoingBody {
    body: Body,
    /// `None` over HTTP/1: the socket shows whether the peer reads.
    progress: Option<Arc<ResponseProgress>>,
}

impl OutgoingBody {
    pub(crate) fn new(body: Body, progress: Option<Arc<ResponseProgress>>) -> Self {
        if let Some(progress) = &progress {
            progress.waits_for_peer.store(true, Ordering::Relaxed);
        }
        Self { body, progress }
    }
}

impl HttpBody for OutgoingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let Some(progress) = &self.progress else {
            return frame;
        };
        let waits_for_peer = frame.is_ready();
        progress.waits_for_peer.store(waits_for_peer, Ordering::Relaxed);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            progress.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
