"""What a handler is given, and what it raises to decide about its task."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Awaitable, Callable, Optional

from . import payload as codec
from ._proto import queue_pb2 as pb
from .payload import Duration, milliseconds


class PermanentError(Exception):
    """Raised by a handler: trying again cannot help, the task is dead at once."""


class Retry(Exception):
    """Raised by a handler: not now, again after ``delay`` (seconds). The attempt counts."""

    def __init__(self, delay: Duration = 0, reason: str = "") -> None:
        super().__init__(f"again in {delay} s" + (f": {reason}" if reason else ""))
        self.delay_ms = milliseconds(delay, "delay")
        self.reason = reason


class Snooze(Exception):
    """Raised by a handler: not yet, again after ``delay`` (seconds). The attempt does not count."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"again in {delay} s")
        self.delay_ms = milliseconds(delay, "delay")


class Task:
    """A task in the hands of a handler."""

    __slots__ = ("_assignment", "_payload")

    def __init__(self, assignment: pb.Assignment) -> None:
        self._assignment = assignment
        self._payload: Any = _UNREAD

    @property
    def id(self) -> str:
        return self._assignment.id

    @property
    def queue(self) -> str:
        return self._assignment.queue

    @property
    def payload(self) -> Any:
        """What was enqueued: bytes, or what the JSON holds."""
        if self._payload is _UNREAD:
            self._payload = codec.decode(self._assignment.payload, self._assignment.format)
        return self._payload

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._assignment.attempt

    @property
    def max_attempts(self) -> int:
        return self._assignment.max_attempts

    @property
    def priority(self) -> int:
        """0 to 9; 9 goes first."""
        return self._assignment.priority

    @property
    def ordering_key(self) -> str:
        return self._assignment.ordering_key

    @property
    def created_at(self) -> Optional[datetime]:
        """When it was enqueued, in UTC."""
        return codec.moment(self._assignment.created_at_ms)

    @property
    def tags(self) -> list[str]:
        return list(self._assignment.tags)

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self._assignment.metadata)

    @property
    def traceparent(self) -> str:
        return self._assignment.traceparent

    @property
    def tracestate(self) -> str:
        return self._assignment.tracestate

    def __repr__(self) -> str:
        return f"<task {self.id} of {self.queue!r}, attempt {self.attempt}>"


_UNREAD = object()

Handler = Callable[[Task], Awaitable[Any]]
