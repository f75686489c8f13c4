"""Working on tasks over one stream: credits, handlers, heartbeats, reports, and a graceful stop.

Reports that wait are packed into one message, as tasks are on the producer's side. A report stays
in memory until Egret has acknowledged it, and is sent again over the next stream when the
connection is lost: the lease it carries stays valid.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import deque
from typing import Any, Deque, Iterable, Optional, Sequence

import grpc
import grpc.aio

from . import errors
from . import payload as codec
from ._proto import queue_pb2 as pb
from .connection import (
    GOODBYE_SECONDS,
    STREAM_ENDED,
    Backoff,
    Connection,
    Wakeup,
    end_of,
    finished,
    opened,
    within,
    write,
)
from .heartbeat import HeartbeatThread
from .payload import Duration, milliseconds
from .report import Report, Running, text_of
from .task import Handler, PermanentError, Retry, Snooze, Task

logger = logging.getLogger("egret")

MESSAGE_REPORTS_MAX = 1_000
"""Most reports in one message."""
MESSAGE_BYTES_MAX = 1 << 20
"""A message whose results and texts have reached so many bytes takes no further report."""
UNACKNOWLEDGED_MAX = 10_000
"""With so many reports unacknowledged, a worker asks for no more tasks."""
RESULT_BYTES_MAX = 6 << 20
"""A larger result is not sent: its message would end the stream, for every task of the worker."""
LEASE_MS_LEAST = 100
"""Egret grants no shorter lease."""
LEASE_MS_IDLE = 60_000
"""While no lease is shorter, running tasks are looked through as often as this one would need."""
BACKOFF_REPORT = 0.1
"""Seconds before a report that was refused for the moment is sent again; doubled each time."""
BACKOFF_REPORT_LONGEST = 5.0
"""Most seconds between two tries of one report."""


class Worker:
    """Runs a handler for each task of some queues. Made by ``Client.worker``."""

    def __init__(
        self,
        connection: Connection,
        queues: Sequence[str],
        handler: Handler,
        *,
        concurrency: int,
        name: Optional[str],
        lease: Optional[Duration],
        grace: Duration,
        signals: bool,
    ) -> None:
        if not queues:
            raise ValueError("a worker needs at least one queue")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._connection = connection
        self._handler = handler
        self._concurrency = concurrency
        self._grace = milliseconds(grace, "grace") / 1000
        self._signals = signals
        self._hello = pb.Hello(
            queues=queues,
            worker=name or f"{socket.gethostname()}-{os.getpid()}",
            lease_ms=0 if lease is None else milliseconds(lease, "lease"),
        )
        self._running: dict[bytes, Running] = {}
        self._waiting: Deque[Report] = deque()
        self._beats: Deque[Running] = deque()
        # By number: the report, or the running task of a heartbeat.
        self._sent: dict[int, Report | Running] = {}
        self._later = 0
        self._number = 0
        self._credits = 0
        self._wakeup = Wakeup()
        self._backoff = Backoff()
        # Whether Egret may still push tasks over the stream there is, and was asked not to.
        self._has_credits = False
        self._drain_sent = False
        # The lease that the pace of the heartbeats is made for.
        self._pace_ms = LEASE_MS_IDLE
        self._beating: Optional[asyncio.TimerHandle] = None
        self._heartbeats = HeartbeatThread(connection, lambda: list(self._running.values()))
        self._stop_called = False
        self._signalled = False
        self._stopping = False
        self._abandoned = False
        self._finished = False
        self._timers: list[asyncio.TimerHandle] = []
        self._call: Any = None
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]
        self.messages_sent = 0
        self.heartbeats_sent = 0
        self.completed = 0

    @property
    def running(self) -> int:
        """Tasks whose handlers run now."""
        return len(self._running)

    async def run(self) -> None:
        """Works until ``stop`` is called, and returns when everything is reported.

        Being cancelled stops gracefully too, before ``CancelledError`` goes on; being cancelled
        again gives up at once. Raises an ``EgretError`` when Egret refuses the worker, for example
        because of its token. A lost connection is no error: the worker connects again.
        """
        self._loop = asyncio.get_running_loop()
        restore = self._watch_signals() if self._signals else []
        if self._stop_called:
            self._begin_stop()
        work = asyncio.ensure_future(self._drive())
        self._heartbeats.start()
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                self._cut_short()
                work.cancel()
                await asyncio.wait((work,))
            except errors.EgretError as error:
                logger.warning("the worker failed while it was stopping: %s", error)
            raise
        finally:
            self._finished = True
            self._heartbeats.end()
            for timer in self._timers:
                timer.cancel()
            for number in restore:
                self._loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Takes no more tasks, lets those that run finish within the grace time, gives the others
        back, waits until Egret has acknowledged every report, and ends ``run``."""
        self._stop_called = True
        # Before `run` there is no loop yet, and nothing to stop.
        if self._loop is not None and not self._finished:
            self._loop.call_soon_threadsafe(self._begin_stop)

    def _begin_stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._wakeup.ring()
        if self._running:
            self._timers.append(self._loop.call_later(self._grace, self._cut_short))
        else:
            self._cut_short()

    def _watch_signals(self) -> list[int]:
        numbers = [signal.SIGINT, signal.SIGTERM]
        for number in numbers:
            self._loop.add_signal_handler(number, self._signal)
        return [int(number) for number in numbers]

    def _signal(self) -> None:
        """The first signal stops gracefully, the second one at once."""
        again, self._signalled = self._signalled, True
        self._stop_called = True
        self._begin_stop()
        if again:
            self._cut_short()

    def _cut_short(self) -> None:
        """Gives running tasks back: the grace time is over, or a second signal has ended it."""
        for running in list(self._running.values()):
            self._interrupt(running, "stop")
        self._timers.append(self._loop.call_later(GOODBYE_SECONDS, self._abandon))

    def _abandon(self) -> None:
        self._abandoned = True
        self._wakeup.ring()
        if self._call is not None:
            # A write to a server that reads nothing would not end.
            self._timers.append(self._loop.call_later(GOODBYE_SECONDS, self._call.cancel))

    # ---- Handlers. ----

    def _start(self, assignments: Iterable[pb.Assignment]) -> None:
        now = self._loop.time()
        for assignment in assignments:
            lease = assignment.lease
            if self._stopping:
                # Pushed before Egret had heard of the stop.
                self._report(Report(assignment.id, lease, "release"))
                continue
            lease_ms = max(assignment.lease_ms, LEASE_MS_LEAST)
            running = Running(assignment.id, lease, lease_ms, now)
            self._running[lease] = running
            if lease_ms < self._pace_ms:
                self._pace(lease_ms)
            running.job = _spawn(self._handle(running, assignment), self._loop)

    async def _handle(self, running: Running, assignment: pb.Assignment) -> None:
        id, lease = running.id, running.lease
        try:
            result, format = codec.encode(await self._handler(Task(assignment)))
            report = Report(id, lease, "completed", result=result, format=format)
            if len(result) > RESULT_BYTES_MAX:
                text = f"the result has {len(result)} bytes, more than a message takes"
                logger.warning("task %s: %s", id, text)
                report = Report(id, lease, "failed", text=text)
        except asyncio.CancelledError:
            report = Report(id, lease, "release")
            if not running.ended_by:
                report = Report(id, lease, "failed", text="the handler was cancelled")
        except Snooze as snooze:
            report = Report(id, lease, "snooze", delay_ms=snooze.delay_ms)
        except Retry as retry:
            report = Report(id, lease, "nack", text=retry.reason, delay_ms=retry.delay_ms)
        except PermanentError as error:
            logger.warning("task %s failed permanently: %s", id, error)
            report = Report(id, lease, "permanent", text=text_of(error))
        except Exception as error:
            if running.ended_by:
                # Its own clean-up failed after it was interrupted, which says nothing of the task.
                logger.warning("task %s was interrupted: %s", id, text_of(error))
                report = Report(id, lease, "release")
            else:
                attempt = assignment.attempt
                logger.warning("attempt %d of task %s failed", attempt, id, exc_info=True)
                report = Report(id, lease, "failed", text=text_of(error))
        if self._running.pop(lease, None) is not None:
            self._credits += 1
        # A lease that was lost may be another's by now, and its report would be refused.
        if running.ended_by != "lost":
            self._waiting.append(report)
        self._wakeup.ring()

    def _interrupt(self, running: Running, why: str) -> None:
        if running.ended_by:
            return
        running.ended_by = why
        if running.job is not None:
            running.job.cancel()

    def _report(self, report: Report) -> None:
        self._waiting.append(report)
        self._wakeup.ring()

    def _lost(self, running: Optional[Running], reason: str) -> None:
        if running is not None and not running.ended_by:
            logger.warning("the lease of task %s is lost: %s", running.id, reason)
            self._interrupt(running, "lost")

    # ---- What Egret says. ----

    def _take(self, response: pb.WorkResponse) -> None:
        if response.tasks:
            self._start(response.tasks)
        sent = self._sent
        for number in response.accepted:
            report = sent.pop(number, None)
            if type(report) is Running:
                report.held_at = self._loop.time()
                report.overdue = False
            elif type(report) is Report and report.kind == "completed":
                self.completed += 1
        for refused in response.refused:
            self._refused(sent.pop(refused.number, None), refused.error)
        for lost in response.lost:
            self._lost(self._running.get(lost.lease), lost.reason)
        if response.HasField("welcome"):
            self._backoff.reset()
        if response.drained:
            self._has_credits = False
        if self._stopping or len(sent) < UNACKNOWLEDGED_MAX <= len(sent) + len(response.accepted):
            self._wakeup.ring()

    def _refused(self, report: Report | Running | None, error: pb.Error) -> None:
        if report is None:
            return
        if isinstance(report, Running):
            if error.code == "lease_lost":
                self._lost(self._running.get(report.lease), error.message)
            return
        if error.code == "lease_lost":
            # One that is sent again may have been taken the first time, with the answer lost.
            level = logging.INFO if report.again else logging.WARNING
            message = "task %s: %s came too late: %s"
            logger.log(level, message, report.id, report.kind, error.message)
        elif error.retryable:
            delay = min(BACKOFF_REPORT * 2**report.tries, BACKOFF_REPORT_LONGEST)
            report.tries += 1
            self._later += 1
            self._loop.call_later(delay, self._again, report)
        elif report.kind == "completed":
            # A result that is too large, for one: the attempt must not hang until its lease ends.
            logger.warning("task %s: its result was refused: %s", report.id, error.message)
            text = f"the result was refused: {error.code}: {error.message}"
            self._report(Report(report.id, report.lease, "failed", text=text))
        else:
            logger.error("task %s: %s was refused: %s", report.id, report.kind, error.message)

    def _again(self, report: Report) -> None:
        self._later -= 1
        self._report(report)

    # ---- The stream. ----

    async def _drive(self) -> None:
        self._beat()
        try:
            while not self._done():
                if await self._connected():
                    error = await self._stream()
                    if error is None:
                        return
                    if not error.retryable:
                        raise error
                    logger.info("lost the connection to the server; reconnecting: %s", error)
                    await within(self._backoff.delay(), self._given_up)
        finally:
            if self._beating is not None:
                self._beating.cancel()
            left = [running.job for running in self._running.values() if running.job is not None]
            for running in list(self._running.values()):
                self._interrupt(running, "lost")
            if left:
                await asyncio.wait(left, timeout=GOODBYE_SECONDS)
            if self._waiting or self._sent:
                lost = len(self._waiting) + len(self._sent)
                logger.error("%d reports were not acknowledged before the worker ended", lost)

    def _done(self) -> bool:
        if self._abandoned:
            return True
        return self._stopping and not (
            self._has_credits or self._running or self._waiting or self._sent or self._later
        )

    async def _connected(self) -> bool:
        """Waits for a connection; false when the worker was done meanwhile."""
        ready = asyncio.ensure_future(self._connection.ready())
        given_up = asyncio.ensure_future(self._given_up())
        try:
            await asyncio.wait((ready, given_up), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
                return True
            return False
        finally:
            ready.cancel()
            given_up.cancel()

    async def _given_up(self) -> None:
        while not self._done():
            await self._wakeup.wait()

    async def _stream(self) -> Optional[errors.EgretError]:
        """One stream from its beginning to its end; why it ended unless it was this worker."""
        call = self._call = self._connection.stream("Work", pb.WorkResponse)
        self._begin()
        reader = asyncio.ensure_future(self._read(call))
        try:
            # A write that fails would hide why Egret has refused the stream.
            await opened(call)
            hello = pb.WorkRequest(hello=self._hello)
            self._pack(hello)
            message: Optional[pb.WorkRequest] = hello
            while not reader.done():
                if message is not None:
                    await write(call, message)
                    self.messages_sent += 1
                elif self._done():
                    await call.done_writing()
                    return None
                else:
                    await self._wakeup.wait()
                message = self._next()
        except STREAM_ENDED:
            # The reader knows why.
            pass
        except BaseException:
            # Nothing else ends the stream then, and the reader would wait for its end.
            call.cancel()
            raise
        finally:
            await finished(call, reader)
            self._has_credits = False
        if not reader.cancelled():
            reader.result()
        if self._abandoned:
            return None
        return await end_of(call)

    def _begin(self) -> None:
        """What an earlier stream left unacknowledged goes over the new one, which counts anew."""
        unacknowledged = [sent for sent in self._sent.values() if isinstance(sent, Report)]
        for report in unacknowledged:
            report.again = True
        self._sent.clear()
        self._number = 0
        self._waiting.extendleft(reversed(unacknowledged))
        self._credits = self._concurrency - len(self._running)
        self._drain_sent = False
        self._beats.clear()
        for running in self._running.values():
            self._beat_for(running)

    def _next(self) -> Optional[pb.WorkRequest]:
        if not (self._waiting or self._beats or self._credits_due() or self._drain_due()):
            return None
        message = pb.WorkRequest()
        self._pack(message)
        return message

    def _credits_due(self) -> bool:
        waits = self._stopping or len(self._sent) + self._later >= UNACKNOWLEDGED_MAX
        return self._credits > 0 and not waits

    def _drain_due(self) -> bool:
        return self._stopping and self._has_credits and not self._drain_sent

    def _pack(self, message: pb.WorkRequest) -> None:
        if self._credits_due():
            message.credits = self._credits
            self._credits = 0
            self._has_credits = True
        if self._drain_due():
            message.drain = True
            self._drain_sent = True
        waiting, beats, sent = self._waiting, self._beats, self._sent
        number = self._number
        end = number + MESSAGE_REPORTS_MAX
        size = 0
        add = message.reports.add
        while beats and number < end:
            running = beats.popleft()
            running.beat_waits = False
            if running.lease in self._running and running.ended_by != "lost":
                # What the queue says may have changed since, and the pace is made for this lease.
                add(lease=running.lease).heartbeat.lease_ms = running.lease_ms
                sent[number] = running
                number += 1
                self.heartbeats_sent += 1
        while waiting and number < end and size < MESSAGE_BYTES_MAX:
            report = waiting.popleft()
            report.write_to(add())
            size += report.size
            sent[number] = report
            number += 1
        self._number = number

    async def _read(self, call: Any) -> None:
        try:
            while True:
                response = await call.read()
                if response is grpc.aio.EOF:
                    return
                self._take(response)
        except grpc.aio.AioRpcError:
            pass
        finally:
            self._wakeup.ring()

    # ---- Heartbeats. ----

    def _beat(self) -> None:
        """Puts tasks up for a heartbeat before a third of their lease has passed."""
        self._heartbeats.loop_is_alive()
        now = self._loop.time()
        pace_ms = LEASE_MS_IDLE
        for running in list(self._running.values()):
            lease = running.lease_ms / 1000
            if running.ended_by == "lost":
                continue
            if now - running.held_at < lease:
                running.overdue = False
            elif running.overdue:
                # The answer had the time since the last look to be read, had it come.
                self._lost(running, f"egret has acknowledged no heartbeat for {lease:g} s")
                continue
            else:
                running.overdue = True
            pace_ms = min(pace_ms, running.lease_ms)
            # What is left for the next look must not be older than a third of its lease by then.
            if now - running.beat_at >= lease / 4:
                running.beat_at = now
                self._beat_for(running)
        if self._beats:
            self._wakeup.ring()
        self._pace(pace_ms)

    def _beat_for(self, running: Running) -> None:
        # One is enough, however long nothing can be sent.
        if not running.beat_waits and running.ended_by != "lost":
            running.beat_waits = True
            self._beats.append(running)

    def _pace(self, lease_ms: int) -> None:
        """The next look is in time for a lease that lasts so long, and then the others are too."""
        if lease_ms < self._pace_ms:
            self._heartbeats.leases_are_shorter()
        self._pace_ms = lease_ms
        if self._beating is not None:
            self._beating.cancel()
        self._beating = self._loop.call_later(lease_ms / 1000 / 12, self._beat)


if sys.version_info >= (3, 12):

    def _spawn(work: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        # A handler that never waits is done without a round through the loop.
        return asyncio.Task(work, loop=loop, eager_start=True)

else:

    def _spawn(work: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        return loop.create_task(work)
