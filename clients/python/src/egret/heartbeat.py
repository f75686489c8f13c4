"""Heartbeats while the event loop is blocked: by a thread and a channel of their own.

A worker sends its heartbeats over the stream of work, as long as its loop runs. A handler that blocks
the loop would lose the leases of all its tasks. So a thread looks whether the loop is late, and then
sends them in its place.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable, Optional, Sequence

import grpc

from ._proto import queue_pb2 as pb
from .connection import SERVICE, Connection
from .report import Running

logger = logging.getLogger("egret")

LATE = 1 / 6
"""The part of the shortest lease after which a loop that has not looked at its tasks counts as blocked."""
PAUSE_LONGEST = 1.0
"""Most seconds between two looks."""
BATCH_MAX = 1_000
"""Most heartbeats in one call."""


class HeartbeatThread:
    """Keeps the leases of ``running()`` while the loop does not call ``loop_is_alive``."""

    def __init__(self, connection: Connection, running: Callable[[], Sequence[Running]]) -> None:
        self._connection = connection
        self._running = running
        self._ended = False
        self._wakeup = threading.Event()
        self._seen_at = time.monotonic()
        self._channel: Optional[grpc.Channel] = None
        self._thread = threading.Thread(target=self._run, name="egret-heartbeats", daemon=True)
        self.sent = 0

    def start(self) -> None:
        """Begins to watch the loop."""
        self._thread.start()

    def end(self) -> None:
        """Ends the thread, without waiting: its last call may take until its timeout."""
        self._ended = True
        self._wakeup.set()

    def leases_are_shorter(self) -> None:
        """A task with a shorter lease than those before has come."""
        self._wakeup.set()

    def loop_is_alive(self) -> None:
        """The loop has looked after its tasks."""
        self._seen_at = time.monotonic()

    def _run(self) -> None:
        pause = PAUSE_LONGEST
        while True:
            self._wakeup.wait(pause)
            self._wakeup.clear()
            if self._ended:
                break
            running = [one for one in self._running() if one.ended_by != "lost"]
            leases = [one.lease_ms / 1000 for one in running]
            shortest = min(leases, default=PAUSE_LONGEST / LATE)
            pause = min(shortest * LATE, PAUSE_LONGEST)
            if running and time.monotonic() - self._seen_at >= shortest * LATE:
                self._beat(running, shortest)
        if self._channel is not None:
            self._channel.close()

    def _beat(self, running: Sequence[Running], shortest: float) -> None:
        for first in range(0, len(running), BATCH_MAX):
            batch = running[first : first + BATCH_MAX]
            request = pb.ReportRequest()
            for one in batch:
                request.reports.add(lease=one.lease).heartbeat.lease_ms = one.lease_ms
            sent_at = time.monotonic()
            try:
                response = self._report()(
                    request, metadata=self._connection.metadata, timeout=max(shortest, 1.0)
                )
            except grpc.RpcError as error:
                logger.info("cannot send heartbeats while the event loop is blocked: %s", error)
                return
            self.sent += len(batch)
            for one, outcome in zip(batch, response.outcomes):
                if not outcome.HasField("error"):
                    # The time of the loop is that of `time.monotonic`.
                    one.held_at = max(one.held_at, sent_at)
                    one.overdue = False

    def _report(self) -> Any:
        if self._channel is None:
            self._channel = self._connection.open_blocking()
        return self._channel.unary_unary(
            SERVICE + "Report",
            request_serializer=pb.ReportRequest.SerializeToString,
            response_deserializer=pb.ReportResponse.FromString,
        )
