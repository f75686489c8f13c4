"""What a worker keeps of each task: that it runs, and then how it ended."""

from __future__ import annotations

import asyncio
from typing import Any, Optional

from ._proto import queue_pb2 as pb

TEXT_BYTES_MAX = 8_000
"""What is longer in an error or a reason is cut off, as Egret keeps no more of it."""


class Running:
    """A task whose handler runs, and what ended it if it was not the handler."""

    __slots__ = ("id", "lease", "lease_ms", "beat_at", "beat_waits", "held_at", "overdue", "job", "ended_by")

    def __init__(self, id: str, lease: bytes, lease_ms: int, now: float) -> None:
        self.id = id
        self.lease = lease
        self.lease_ms = lease_ms
        self.beat_at = now
        # A heartbeat is to be sent with the next message.
        self.beat_waits = False
        # When Egret last said that the lease is this worker's; it lasts for `lease_ms` at most from then.
        self.held_at = now
        self.overdue = False
        self.job: Optional[asyncio.Task[None]] = None
        # "lost", "stop", or empty while the handler is left alone.
        self.ended_by = ""


class Report:
    """The end of an attempt, kept until it is acknowledged."""

    __slots__ = ("id", "lease", "kind", "result", "format", "text", "delay_ms", "size", "tries", "again")

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
        self.text, text_bytes = sendable(text) if text else ("", 0)
        self.delay_ms = delay_ms
        # About how many bytes it has in a message.
        self.size = len(result) + text_bytes
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
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        # It cannot say itself.
        return type(error).__name__


def sendable(text: object) -> tuple[str, int]:
    """The text as a message can hold it, cut to what Egret keeps, and its bytes.

    What has no UTF-8 (half of a surrogate pair, as JSON may bring) is replaced by ``?``: a report must
    never fail for its text.
    """
    data = str(text)[:TEXT_BYTES_MAX].encode("utf-8", "replace")
    if len(data) > TEXT_BYTES_MAX:
        # Cut in the middle of a character, the rest of that is left out.
        data = data[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
    return data.decode(), len(data)
