"""Enqueueing over one stream, with everything that waits packed into one message.

No timer holds a task back: whenever the stream can be written to, what waits then is sent. One
caller alone therefore pays no delay, and many callers share the cost of a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Deque, Optional, Sequence, Union

import grpc
import grpc.aio

from . import errors
from ._proto import queue_pb2 as pb
from .connection import (
    BACKOFF_FIRST,
    BACKOFF_LONGEST,
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
from .model import Enqueued

logger = logging.getLogger("egret")

MESSAGE_TASKS_MAX = 1_000
"""Most tasks in one message."""
MESSAGE_BYTES_MAX = 1 << 20
"""A message that has reached so many bytes takes no further task."""

_STOPPING = "stopping"
"""The code of what Egret does not take in any more because it stops."""

_NOT_NOW = frozenset({_STOPPING, "queue_partition_failed"})
"""Codes of tasks that were not taken and may be after a while, perhaps by another partition."""
LATER_SHARE = 4
"""At most one of so many places is for tasks that are sent again later, so that others find room."""
WINDOW_SHARE = 0.9
"""A task in doubt is sent again in this part of its unique window; the rest is for the way."""

_REFUSALS = (errors.Unauthenticated, errors.Denied)
# Statuses that a server or a proxy gives before it has done anything.
_SAYS_NO = (*_REFUSALS, errors.InvalidRequest, errors.NotFound, errors.LimitReached)


class _Entry:
    """A task whose outcome a caller waits for."""

    __slots__ = (
        "queue", "task", "size", "future", "doubt", "window", "sent_at", "refused_at", "tries"
    )

    def __init__(
        self, queue: str, task: pb.NewTask, size: int, future: asyncio.Future[Enqueued]
    ) -> None:
        self.queue = queue
        self.task = task
        self.size = size
        self.future = future
        # What ended the stream over which it was sent, before the outcome came.
        self.doubt: Optional[errors.EgretError] = None
        # How many seconds its unique key is remembered; `None`: as its queue says.
        self.window = task.unique_window_ms / 1000 or None
        # When it was first sent, and when it was first refused for the moment.
        self.sent_at: Optional[float] = None
        self.refused_at: Optional[float] = None
        self.tries = 0


class Producer:
    """Sends tasks and hands each caller its outcome.

    At most ``tasks_max`` tasks and ``bytes_max`` bytes are without an outcome at a time; further
    callers wait for room. While Egret cannot be reached, tasks wait: each stretch without
    progress lasts at most ``patience`` seconds.
    """

    def __init__(
        self, connection: Connection, *, tasks_max: int, bytes_max: int, patience: float
    ) -> None:
        self._connection = connection
        self._tasks_max = tasks_max
        self._bytes_max = bytes_max
        self._patience = patience
        self._tasks = 0
        self._bytes = 0
        self._blocked: Deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiting: Deque[_Entry] = deque()
        self._sent: dict[int, _Entry] = {}
        # Refused for the moment, each until its timer puts it among those that wait.
        self._later: set[_Entry] = set()
        self._later_bytes = 0
        self._wakeup = Wakeup()
        self._backoff = Backoff()
        self._driver: Optional[asyncio.Task[None]] = None
        self._closing = False
        # The moment since when nothing has succeeded although something waits.
        self._stuck_since: Optional[float] = None
        self._heard = False
        self.messages_sent = 0

    async def enqueue(self, queue: str, task: pb.NewTask) -> Enqueued:
        """Sends a task and returns its acknowledgement."""
        if self._closing:
            raise errors.Unavailable("client_closed", "the client is closed")
        size = task.ByteSize() + len(queue)
        if size > MESSAGE_BYTES_MAX:
            return await self._alone(queue, task)
        if self._blocked or self._full(size):
            await self._room(size)
        else:
            self._tasks += 1
            self._bytes += size
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Entry(queue, task, size, future))
        if self._driver is None:
            self._driver = asyncio.ensure_future(self._run())
        self._wakeup.ring()
        return await future

    async def _alone(self, queue: str, task: pb.NewTask) -> Enqueued:
        # A message larger than the server takes ends the stream, for everybody who uses it.
        request = pb.EnqueueRequest(queue=queue, tasks=[task])
        outcomes = await enqueue_many(self._connection, request)
        outcome = outcomes[0]
        if isinstance(outcome, errors.EgretError):
            raise outcome
        return outcome

    # ---- Room: what waits is bounded, and who comes first is served first. ----

    def _full(self, size: int) -> bool:
        return self._tasks >= self._tasks_max or (
            self._tasks > 0 and self._bytes + size > self._bytes_max
        )

    async def _room(self, size: int) -> None:
        room = asyncio.get_running_loop().create_future()
        self._blocked.append((size, room))
        try:
            await room
        except asyncio.CancelledError:
            if room.done() and not room.cancelled():
                self._leave(size)
            raise
        if self._closing:
            self._leave(size)
            raise errors.Unavailable("client_closed", "the client is closed")

    def _leave(self, size: int) -> None:
        self._tasks -= 1
        self._bytes -= size
        while self._blocked:
            next_size, room = self._blocked[0]
            if not room.done():
                if self._full(next_size):
                    return
                # Counted here, so that no other caller takes the room before its owner has run.
                self._tasks += 1
                self._bytes += next_size
                room.set_result(None)
            self._blocked.popleft()

    # ---- Outcomes. ----

    def _settle(self, entry: _Entry, outcome: Enqueued) -> None:
        self._leave(entry.size)
        if not entry.future.done():
            entry.future.set_result(outcome)

    def _refuse(self, entry: _Entry, error: errors.EgretError) -> None:
        self._leave(entry.size)
        if not entry.future.done():
            # Whatever is said of it now, it may have been enqueued before.
            certain = entry.doubt is None or isinstance(error, errors.UnknownOutcome)
            entry.future.set_exception(error if certain else _unknown(error))

    def _take(self, response: pb.ProduceResponse) -> None:
        self._heard = True
        self._stuck_since = None
        self._backoff.reset()
        sent = self._sent
        not_now: list[tuple[_Entry, pb.Error]] = []
        for outcome in response.outcomes:
            # A refused task has no id, which is cheaper to ask than whether there is an error.
            task_id = outcome.id
            entry = sent.pop(outcome.number, None)
            if entry is None:
                continue
            if task_id:
                self._settle(entry, Enqueued(task_id, outcome.replayed))
            elif outcome.error.code in _NOT_NOW:
                not_now.append((entry, outcome.error))
            else:
                self._refuse(entry, errors.of_item(outcome.error))
        if not_now:
            self._put_off(not_now)
        if self._closing:
            self._wakeup.ring()

    # ---- What Egret does not take for the moment. ----

    def _put_off(self, refused: Sequence[tuple[_Entry, pb.Error]]) -> None:
        """Sends tasks again after a while, as long as their callers are patient."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        due: dict[int, list[_Entry]] = {}
        for entry, error in refused:
            if entry.refused_at is None:
                entry.refused_at = now
            full = (
                len(self._later) * LATER_SHARE >= self._tasks_max
                or self._later_bytes * LATER_SHARE >= self._bytes_max
            )
            if full or now - entry.refused_at >= self._patience:
                self._refuse(entry, errors.of_item(error))
                continue
            self._later.add(entry)
            self._later_bytes += entry.size
            due.setdefault(entry.tries, []).append(entry)
            entry.tries += 1
        for tries, entries in due.items():
            delay = Backoff(min(BACKOFF_FIRST * 2 ** min(tries, 16), BACKOFF_LONGEST)).delay()
            left = min(entry.refused_at or now for entry in entries) + self._patience - now
            loop.call_later(min(delay, left), self._again, entries)

    def _again(self, entries: Sequence[_Entry]) -> None:
        for entry in entries:
            if entry in self._later:
                self._later.remove(entry)
                self._later_bytes -= entry.size
                self._waiting.append(entry)
        self._wakeup.ring()

    # ---- The stream. ----

    async def _run(self) -> None:
        ended: errors.EgretError = errors.Unavailable("client_closed", "the client is closed")
        try:
            await self._drive()
        except errors.EgretError as error:
            ended = error
        except Exception as error:
            logger.exception("enqueueing has failed")
            ended = errors.Internal("client_fault", f"the client has failed: {error!r}")
        finally:
            # No answer can come any more: fail the waiting callers.
            self._after(ended)
            self._driver = None

    async def _drive(self) -> None:
        while True:
            await self._something_waits()
            if not self._waiting:
                if self._later:
                    await self._wakeup.wait()
                    continue
                return
            loop = asyncio.get_running_loop()
            if self._stuck_since is None:
                self._stuck_since = loop.time()
            left = self._stuck_since + self._patience - loop.time()
            if left <= 0 or not await within(left, self._connection.ready):
                self._give_up()
                continue
            error = await self._learn_windows(left) or await self._stream()
            if error is not None:
                self._after(error)
                await asyncio.sleep(self._backoff.delay())

    async def _something_waits(self) -> None:
        while not self._waiting and not self._closing:
            await self._wakeup.wait()

    async def _learn_windows(self, timeout: float) -> Optional[errors.EgretError]:
        """Asks how long the unique keys of tasks in doubt are remembered, where none of them says."""
        waiting = (*self._waiting, *self._later)
        unknown = [one for one in waiting if one.doubt is not None and one.window is None]
        for queue in {entry.queue for entry in unknown}:
            request = pb.QueueRequest(name=queue)
            timeout = min(timeout, self._connection.call_timeout)
            try:
                info = await self._connection.call("GetQueue", request, pb.QueueInfo, timeout)
                window = info.settings.unique_window_ms / 1000
            except errors.EgretError as error:
                if error.retryable:
                    return error
                # Egret does not tell, for one to a token without `queue:read`.
                window = 0.0
            for entry in unknown:
                if entry.queue == queue:
                    entry.window = window
        return None

    async def _stream(self) -> Optional[errors.EgretError]:
        """One stream from its beginning to its end; why it ended unless it was this client."""
        call = self._connection.stream("Produce", pb.ProduceResponse)
        reader = asyncio.ensure_future(self._read(call))
        self._heard = False
        number = 0
        try:
            # What is written to a stream that is refused meanwhile could not be told from what was
            # lost on the way.
            await opened(call)
            while not reader.done():
                if self._waiting:
                    message, number = self._pack(number)
                    if message is not None:
                        await write(call, message)
                        self.messages_sent += 1
                elif self._closing and not self._sent and not self._later:
                    await call.done_writing()
                    return None
                else:
                    await self._wakeup.wait()
        except STREAM_ENDED:
            # The reader knows why.
            pass
        except BaseException:
            # Nothing else ends the stream then, and the reader would wait for its end.
            call.cancel()
            raise
        finally:
            await finished(call, reader)
        if not reader.cancelled():
            reader.result()
        return await end_of(call)

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

    def _pack(self, number: int) -> tuple[Optional[pb.ProduceRequest], int]:
        waiting, sent = self._waiting, self._sent
        tasks: list[pb.NewTask] = []
        size = 0
        queue = ""
        now = asyncio.get_running_loop().time()
        while waiting and len(tasks) < MESSAGE_TASKS_MAX and size < MESSAGE_BYTES_MAX:
            entry = waiting.popleft()
            if entry.future.done():
                # Its caller went away before it was sent.
                self._leave(entry.size)
                continue
            if entry.sent_at is None:
                entry.sent_at = now
            elif entry.doubt is not None and (
                now - entry.sent_at >= (entry.window or 0.0) * WINDOW_SHARE
            ):
                # Its key may be forgotten, and it would be enqueued twice.
                self._refuse(entry, _too_late(entry.doubt, entry.window or 0.0))
                continue
            if not tasks:
                queue = entry.queue
            elif entry.queue != queue:
                entry.task.queue = entry.queue
            tasks.append(entry.task)
            size += entry.size
            sent[number] = entry
            number += 1
        if not tasks:
            return None, number
        return pb.ProduceRequest(queue=queue, tasks=tasks), number

    def _after(self, error: errors.EgretError) -> None:
        """What becomes of the tasks of a stream that has ended."""
        refused = isinstance(error, _REFUSALS) and not self._heard
        # An Egret that stops answers what it has received, and ends the stream then.
        unseen = error.code == _STOPPING
        sent, self._sent = self._sent, {}
        again: list[_Entry] = []
        for entry in sent.values():
            if refused:
                self._refuse(entry, error)
                continue
            if not unseen:
                entry.doubt = error
            if unseen or entry.task.unique_key:
                again.append(entry)
            else:
                self._refuse(entry, error)
        self._waiting.extendleft(reversed(again))
        if not error.retryable:
            self._refuse_waiting(error)

    def _give_up(self) -> None:
        self._stuck_since = None
        error = errors.Unavailable(
            "unreachable",
            f"egret could not be reached within {self._patience:g} s",
            retryable=True,
        )
        self._refuse_waiting(error)

    def _refuse_waiting(self, error: errors.EgretError) -> None:
        left = (*self._waiting, *self._later)
        self._waiting.clear()
        self._later.clear()
        self._later_bytes = 0
        for entry in left:
            self._refuse(entry, error)

    async def close(self) -> None:
        """Waits for the outcomes of what was enqueued, then ends the stream."""
        self._closing = True
        for size, room in self._blocked:
            if not room.done():
                self._tasks += 1
                self._bytes += size
                room.set_result(None)
        self._blocked.clear()
        self._wakeup.ring()
        if self._driver is not None:
            await self._driver


async def enqueue_many(
    connection: Connection, request: pb.EnqueueRequest
) -> list[Union[Enqueued, errors.EgretError]]:
    """Sends tasks by a call of their own, and returns an outcome for each."""
    try:
        response = await connection.raw_call("Enqueue", request, pb.EnqueueResponse)
    except grpc.aio.AioRpcError as error:
        cause = errors.of_rpc(error)
        if errors.refused_by_egret(error) or isinstance(cause, _SAYS_NO):
            raise cause from error
        keyed = all(task.unique_key for task in request.tasks)
        raise _unknown(cause, retryable=keyed) from error
    return [
        errors.of_item(outcome.error)
        if outcome.HasField("error")
        else Enqueued(outcome.id, outcome.replayed)
        for outcome in response.outcomes
    ]


def _too_late(cause: errors.EgretError, window: float) -> errors.UnknownOutcome:
    told = f"is remembered for {window:g} s only" if window else "may be forgotten"
    error = errors.UnknownOutcome(
        "unknown_outcome",
        "the connection was lost before the task was acknowledged, it may be enqueued or not, and it "
        f"is not sent again as its unique key {told}: {cause.message}",
    )
    error.__cause__ = cause
    return error


def _unknown(cause: errors.EgretError, *, retryable: bool = False) -> errors.UnknownOutcome:
    error = errors.UnknownOutcome(
        "unknown_outcome",
        "the connection was lost before the task was acknowledged, it may be enqueued or not: "
        f"{cause.message}",
        retryable=retryable,
    )
    error.__cause__ = cause
    return error
