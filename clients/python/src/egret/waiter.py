"""Waiting for tasks over one stream, however many callers wait.

A stream for each of them would use up those that one connection may have, and every other call would
hang.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Deque, Optional

import grpc.aio

from . import errors
from ._proto import queue_pb2 as pb
from .connection import STREAM_ENDED, Connection, Wakeup, end_of, finished, opened, write

logger = logging.getLogger("egret")

MESSAGE_WAITS_MAX = 1_000
"""Most waits in one message."""
OPEN_MAX = 9_000
"""Waits that Egret has at a time; it takes a thousand more, so that what is cancelled is always read."""


class Waiter:
    """Sends waits, and hands each caller the task as it ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._number = 0
        self._waits: dict[int, tuple[str, asyncio.Future[pb.Task]]] = {}
        self._unsent: Deque[int] = deque()
        self._sent: set[int] = set()
        self._cancelled: list[int] = []
        self._wakeup = Wakeup()
        self._driver: Optional[asyncio.Task[None]] = None

    async def wait(self, id: str) -> pb.Task:
        """Waits until a task has ended. Raises what Egret refuses it with, or why the stream ended."""
        number = self._number
        self._number += 1
        future: asyncio.Future[pb.Task] = asyncio.get_running_loop().create_future()
        self._waits[number] = (id, future)
        self._unsent.append(number)
        if self._driver is None:
            self._driver = asyncio.ensure_future(self._run())
        self._wakeup.ring()
        try:
            return await future
        finally:
            self._waits.pop(number, None)
            if number in self._sent:
                self._sent.remove(number)
                self._cancelled.append(number)
                self._wakeup.ring()

    async def close(self) -> None:
        """Ends the stream; who still waits is told."""
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.wait((self._driver,))

    async def _run(self) -> None:
        ended: errors.EgretError = errors.Unavailable("client_closed", "the client is closed")
        try:
            await self._connection.ready()
            ended = await self._stream()
        except errors.EgretError as error:
            ended = error
        except Exception as error:
            logger.exception("waiting for tasks has failed")
            ended = errors.Internal("client_fault", f"the client has failed: {error!r}")
        finally:
            self._driver = None
            waits, self._waits = self._waits, {}
            self._unsent.clear()
            self._sent.clear()
            self._cancelled.clear()
            for _, future in waits.values():
                if not future.done():
                    future.set_exception(ended)

    async def _stream(self) -> errors.EgretError:
        """One stream from its beginning to its end, and why it ended."""
        call = self._connection.stream("WaitTasks", pb.WaitTasksResponse)
        reader = asyncio.ensure_future(self._read(call))
        try:
            await opened(call)
            while not reader.done():
                message = self._pack()
                if message is None:
                    await self._wakeup.wait()
                else:
                    await write(call, message)
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

    def _pack(self) -> Optional[pb.WaitTasksRequest]:
        message = pb.WaitTasksRequest(cancelled=self._cancelled[:MESSAGE_WAITS_MAX])
        del self._cancelled[:MESSAGE_WAITS_MAX]
        while self._unsent and len(self._sent) < OPEN_MAX and len(message.waits) < MESSAGE_WAITS_MAX:
            number = self._unsent.popleft()
            wait = self._waits.get(number)
            if wait is not None:
                message.waits.add(number=number, id=wait[0])
                self._sent.add(number)
        return message if message.waits or message.cancelled else None

    async def _read(self, call: Any) -> None:
        try:
            while True:
                response = await call.read()
                if response is grpc.aio.EOF:
                    return
                for outcome in response.outcomes:
                    self._take(outcome)
                self._wakeup.ring()
        except grpc.aio.AioRpcError:
            pass
        finally:
            self._wakeup.ring()

    def _take(self, outcome: pb.WaitOutcome) -> None:
        self._sent.discard(outcome.number)
        wait = self._waits.pop(outcome.number, None)
        if wait is None or wait[1].done():
            return
        if outcome.HasField("error"):
            wait[1].set_exception(errors.of_item(outcome.error))
        else:
            wait[1].set_result(outcome.task)
