"""What a queue does unless a task says otherwise. Durations are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ._proto import queue_pb2 as pb
from .payload import Duration, milliseconds


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait before the next attempt.

    ``backoff`` is ``fixed`` (``base`` each time), ``linear`` (``base`` times the number of failed
    attempts) or ``exponential`` (``base`` doubled with each). ``base`` and ``max`` (the longest
    delay) are seconds or timedeltas; without ``max`` the server's own longest delay holds.
    ``jitter`` is ``none``, ``full`` (anything from zero to the computed delay) or ``equal`` (half
    of it, and up to as much again).
    """

    backoff: str = "exponential"
    base: Duration = 1.0
    max: Optional[Duration] = None
    jitter: str = "full"

    def to_message(self) -> pb.RetryPolicy:
        """The policy as the contract has it."""
        return pb.RetryPolicy(
            backoff=number_of(pb.RetryPolicy.Backoff, "BACKOFF", self.backoff),
            base_ms=milliseconds(self.base, "base"),
            max_ms=0 if self.max is None else milliseconds(self.max, "max"),
            jitter=number_of(pb.RetryPolicy.Jitter, "JITTER", self.jitter),
        )

    @classmethod
    def of_message(cls, message: pb.RetryPolicy) -> RetryPolicy:
        """The policy that the contract's stands for."""
        return cls(
            backoff=name_of(pb.RetryPolicy.Backoff, "BACKOFF", message.backoff),
            base=message.base_ms / 1000,
            max=message.max_ms / 1000 or None,
            jitter=name_of(pb.RetryPolicy.Jitter, "JITTER", message.jitter),
        )


@dataclass(frozen=True)
class Retention:
    """How long ended tasks are kept: whichever comes first, and zero means unlimited."""

    age: Duration = 0
    """Seconds or a timedelta."""
    count: int = 0


@dataclass(frozen=True)
class QueueSettings:
    """What a queue does unless a task says otherwise. ``None`` leaves a setting as it is."""

    max_attempts: Optional[int] = None
    retry: Optional[RetryPolicy] = None
    lease: Optional[Duration] = None
    """How long a lease lasts without a heartbeat."""
    timeout: Optional[Duration] = None
    """The longest that an attempt may take, heartbeats or not."""
    concurrency: Optional[int] = None
    """Tasks leased at a time; zero: any number."""
    key_concurrency: Optional[int] = None
    """Tasks of one ordering key leased at a time; zero: any number."""
    rate_per_second: Optional[float] = None
    """Tasks handed out in a second; zero: any number."""
    rate_burst: Optional[int] = None
    """Tasks handed out at once after a pause; zero: a second's worth."""
    completed: Optional[Retention] = None
    dead: Optional[Retention] = None
    cancelled: Optional[Retention] = None
    unique_window: Optional[Duration] = None
    aging: Optional[Duration] = None
    """A task that has waited so long counts as one priority higher; zero: never."""

    def to_message(self) -> pb.QueueSettings:
        """The settings as the contract has them."""
        message = pb.QueueSettings()
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None:
                setattr(message, name, value)
        for name in _DURATIONS:
            value = getattr(self, name)
            if value is not None:
                setattr(message, f"{name}_ms", milliseconds(value, name))
        for name in _RETENTIONS:
            value = getattr(self, name)
            if value is not None:
                retention = getattr(message, name)
                # Zero in both fields is a setting too, and must be seen to be there.
                retention.SetInParent()
                retention.age_ms = milliseconds(value.age, name)
                retention.count = value.count
        if self.retry is not None:
            message.retry.CopyFrom(self.retry.to_message())
        return message

    @classmethod
    def of_message(cls, message: pb.QueueSettings) -> QueueSettings:
        """The settings that the contract's stand for."""
        found: dict[str, Any] = {}
        for name in _COUNTS:
            if message.HasField(name):
                found[name] = getattr(message, name)
        for name in _DURATIONS:
            if message.HasField(f"{name}_ms"):
                found[name] = getattr(message, f"{name}_ms") / 1000
        for name in _RETENTIONS:
            if message.HasField(name):
                retention = getattr(message, name)
                found[name] = Retention(retention.age_ms / 1000, retention.count)
        if message.HasField("retry"):
            found["retry"] = RetryPolicy.of_message(message.retry)
        return cls(**found)


_COUNTS = ("max_attempts", "concurrency", "key_concurrency", "rate_per_second", "rate_burst")
_DURATIONS = ("lease", "timeout", "unique_window", "aging")
_RETENTIONS = ("completed", "dead", "cancelled")


def number_of(kind: Any, prefix: str, name: str) -> Any:
    """The number of an enumeration of the contract."""
    try:
        return kind.Value(f"{prefix}_{name.upper()}")
    except ValueError:
        known = ", ".join(
            other.removeprefix(f"{prefix}_").lower() for other in kind.keys()[1:]
        )
        raise ValueError(f"{prefix.lower()} {name!r} is not one of {known}") from None


def name_of(kind: Any, prefix: str, value: int) -> str:
    """The name of a number of an enumeration of the contract."""
    return str(kind.Name(value)).removeprefix(f"{prefix}_").lower()
