"""Enqueueing over one stream, with everything that waits packed into one message.

No timer holds a task back: whenever the stream can be written to, what waits then is sent. One
caller alone therefore pays no delay, and many callers share the cost of a message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Deque, Optional, Union

import grpc
import grpc.aio

from . import errors
from ._proto import queue_pb2 as pb
from .connection import Backoff, Connection, Wakeup, end_of, opened, within
from .model import Enqueued

MESSAGE_TASKS_MAX = 1_000
"""Most tasks in one message."""
MESSAGE_BYTES_MAX = 1 << 20
"""A message that has reached so many bytes takes no further task."""

_STOPPING = "stopping"
"""The code of what Egret does not take in any more because it stops."""

_REFUSALS = (errors.Unauthenticated, errors.Denied)
# Statuses that a server or a proxy gives before it has done anything.
_SAYS_NO = (*_REFUSALS, errors.InvalidRequest, errors.NotFound, errors.LimitReached)


class _Entry:
    """A task whose outcome somebody waits for."""

    __slots__ = ("queue", "task", "size", "future", "maybe_enqueued")

    def __init__(
        self, queue: str, task: pb.NewTask, size: int, future: asyncio.Future[Enqueued]
    ) -> None:
        self.queue = queue
        self.task = task
        self.size = size
        self.future = future
        # It was sent over a stream that ended before the outcome came.
        self.maybe_enqueued = False


class Producer:
    """Sends tasks and hands each caller its outcome.

    At most ``tasks_max`` tasks and ``bytes_max`` bytes are without an outcome at a time; whoever
    comes then waits for room. While Egret cannot be reached tasks wait, each stretch without
    progress at most ``patience`` seconds.
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
        size = task.ByteSize()
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
                # Counted here, so that nobody takes the room before its owner has run.
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
            entry.future.set_exception(error)

    def _take(self, response: pb.ProduceResponse) -> None:
        self._heard = True
        self._stuck_since = None
        self._backoff.reset()
        sent = self._sent
        for outcome in response.outcomes:
            # A refused task has no id, which is cheaper to ask than whether there is an error.
            task_id = outcome.id
            if not task_id and outcome.error.code == _STOPPING:
                # It goes to the Egret that comes back, once this stream has ended.
                continue
            entry = sent.pop(outcome.number, None)
            if entry is None:
                continue
            if task_id:
                self._settle(entry, Enqueued(task_id, outcome.replayed))
            else:
                self._refuse(entry, errors.of_item(outcome.error))
        if self._closing:
            self._wakeup.ring()

    # ---- The stream. ----

    async def _run(self) -> None:
        try:
            await self._drive()
        finally:
            # Nobody is left to answer: no caller may wait for ever.
            ended = errors.Unavailable("client_closed", "the client is closed")
            self._after(ended)
            self._driver = None

    async def _drive(self) -> None:
        while True:
            await self._something_waits()
            if not self._waiting:
                return
            loop = asyncio.get_running_loop()
            if self._stuck_since is None:
                self._stuck_since = loop.time()
            left = self._stuck_since + self._patience - loop.time()
            if left <= 0 or not await within(left, self._connection.ready):
                self._give_up()
                continue
            error = await self._stream()
            if error is not None:
                self._after(error)
                await asyncio.sleep(self._backoff.delay())

    async def _something_waits(self) -> None:
        while not self._waiting and not self._closing:
            await self._wakeup.wait()

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
                        await call.write(message)
                        self.messages_sent += 1
                elif self._closing and not self._sent:
                    await call.done_writing()
                    await reader
                    return None
                else:
                    await self._wakeup.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            # The stream has ended; the reader knows why.
            pass
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            await asyncio.wait((reader,))
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
        while waiting and len(tasks) < MESSAGE_TASKS_MAX and size < MESSAGE_BYTES_MAX:
            entry = waiting.popleft()
            if entry.future.done():
                # Its caller went away before it was sent.
                self._leave(entry.size)
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
            elif unseen or entry.task.unique_key:
                entry.maybe_enqueued |= not unseen
                again.append(entry)
            else:
                self._refuse(entry, _unknown(error))
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
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            self._refuse(entry, _unknown(error) if entry.maybe_enqueued else error)

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
        keyed = all(task.unique_key for task in request.tasks)
        if keyed or errors.refused_by_egret(error) or isinstance(cause, _SAYS_NO):
            raise cause from error
        raise _unknown(cause) from error
    return [
        errors.of_item(outcome.error)
        if outcome.HasField("error")
        else Enqueued(outcome.id, outcome.replayed)
        for outcome in response.outcomes
    ]


def _unknown(cause: errors.EgretError) -> errors.UnknownOutcome:
    error = errors.UnknownOutcome(
        "unknown_outcome",
        "the connection was lost before the task was acknowledged, it may be enqueued or not: "
        f"{cause.message}",
    )
    error.__cause__ = cause
    return error
