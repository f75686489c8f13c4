"""What a worker keeps of each task: that it runs, and then how it ended."""

from __future__ import annotations

import asyncio
from typing import Any, Optional

from ._proto import queue_pb2 as pb

ERROR_CHARACTERS_MAX = 8_000
"""What is longer in the error of a failed attempt is cut off."""


class Running:
    """A task whose handler runs, and what ended it if it was not the handler."""

    __slots__ = ("id", "lease", "lease_ms", "beat_at", "job", "ended_by")

    def __init__(self, id: str, lease: bytes, lease_ms: int, beat_at: float) -> None:
        self.id = id
        self.lease = lease
        self.lease_ms = lease_ms
        self.beat_at = beat_at
        self.job: Optional[asyncio.Task[None]] = None
        # "lost", "stop", or empty while the handler is left alone.
        self.ended_by = ""


class Report:
    """The end of an attempt, kept until it is acknowledged."""

    __slots__ = ("id", "lease", "kind", "result", "format", "text", "delay_ms", "tries", "again")

    def __init__(
        self,
        id: str,
        lease: bytes,
        kind: str,
        *,
        result: bytes = b"",
        format: Any = 0,
        text: str = "",
        delay_ms: int = 0,
    ) -> None:
        self.id = id
        self.lease = lease
        self.kind = kind
        self.result = result
        self.format = format
        self.text = text
        self.delay_ms = delay_ms
        self.tries = 0
        # It was sent over a stream that ended before the acknowledgement came.
        self.again = False

    def write_to(self, message: pb.TaskReport) -> None:
        """Fills in the report as the contract has it."""
        kind = self.kind
        message.lease = self.lease
        if kind == "completed":
            completed = message.completed
            completed.result = self.result
            completed.format = self.format
        elif kind == "failed" or kind == "permanent":
            message.failed.error = self.text
            message.failed.permanent = kind == "permanent"
        elif kind == "nack":
            message.nack.delay_ms = self.delay_ms
            message.nack.reason = self.text
        elif kind == "snooze":
            message.snooze.delay_ms = self.delay_ms
        else:
            message.release.SetInParent()


def text_of(error: BaseException) -> str:
    """What an attempt is said to have failed with."""
    text = f"{type(error).__name__}: {error}"
    return text[:ERROR_CHARACTERS_MAX]
