"""The nouns: what is told to Egret and what it tells. Durations are in seconds, times in UTC."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from . import payload as codec
from ._proto import queue_pb2 as pb
from .payload import Duration, Instant, milliseconds, moment, text, unix_milliseconds
from .settings import QueueSettings, RetryPolicy, name_of, number_of


class State(str, enum.Enum):
    """Where a task is in its life. The last three are ends."""

    WAITING = "waiting"
    """Other tasks must complete before."""
    DELAYED = "delayed"
    """Its time has not come: delayed, or between two attempts."""
    READY = "ready"
    LEASED = "leased"
    COMPLETED = "completed"
    DEAD = "dead"
    """Failed for good."""
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to the task by itself."""
        return self in _ENDS


_ENDS = frozenset({State.COMPLETED, State.DEAD, State.CANCELLED})
_STATES: dict[int, State] = {
    value: State(name.removeprefix("TASK_STATE_").lower())
    for name, value in pb.TaskState.items()
    if value
}
_NUMBERS: dict[State, Any] = {state: number for number, state in _STATES.items()}


def state_number(state: State | str | None) -> Any:
    """The state as the contract has it; ``None`` stands for all."""
    return 0 if state is None else _NUMBERS[State(state)]


def state_of(number: int) -> State:
    """The state that a number of the contract stands for."""
    return _STATES[number]


class Enqueued(NamedTuple):
    """The acknowledgement of a task: it is on disk."""

    id: str
    """Of the task, or of the first one with the same unique key."""
    replayed: bool
    """There was such a task already: ``id`` is the first one's, which may have ended."""


def new_task(
    payload: Any,
    *,
    priority: Optional[int] = None,
    ordering_key: Optional[str] = None,
    delay: Optional[Duration] = None,
    run_at: Optional[Instant] = None,
    max_attempts: Optional[int] = None,
    retry: Optional[RetryPolicy] = None,
    timeout: Optional[Duration] = None,
    unique_key: Optional[str] = None,
    unique_window: Optional[Duration] = None,
    tags: Optional[Sequence[str]] = None,
    metadata: Optional[Mapping[str, str]] = None,
    callback_url: Optional[str] = None,
    after: Optional[Sequence[str]] = None,
    traceparent: Optional[str] = None,
    tracestate: Optional[str] = None,
    queue: Optional[str] = None,
) -> pb.NewTask:
    """A task as the contract has it; the options are those of ``Queue.enqueue``."""
    data, format = codec.encode(payload)
    task = pb.NewTask(payload=data, format=format)
    if priority is not None:
        task.priority = priority
    if ordering_key:
        task.ordering_key = text(ordering_key, "ordering_key")
    if delay is not None:
        if run_at is not None:
            raise ValueError("a task has either a delay or a run_at, not both")
        task.delay_ms = milliseconds(delay, "delay")
    elif run_at is not None:
        task.run_at_ms = unix_milliseconds(run_at, "run_at")
    if max_attempts is not None:
        task.max_attempts = max_attempts
    if retry is not None:
        task.retry.CopyFrom(retry.to_message())
    if timeout is not None:
        task.timeout_ms = milliseconds(timeout, "timeout")
    if unique_key:
        task.unique_key = text(unique_key, "unique_key")
    if unique_window is not None:
        task.unique_window_ms = milliseconds(unique_window, "unique_window")
    if tags:
        _refuse_text(tags, "tags")
        task.tags.extend([text(tag, "a tag") for tag in tags])
    if metadata:
        for key, value in metadata.items():
            task.metadata[text(key, "a name in metadata")] = text(value, "a value in metadata")
    if callback_url:
        task.callback_url = text(callback_url, "callback_url")
    if after:
        _refuse_text(after, "after")
        task.after.extend([text(id, "an id in after") for id in after])
    if traceparent:
        task.traceparent = text(traceparent, "traceparent")
    if tracestate:
        task.tracestate = text(tracestate, "tracestate")
    if queue:
        task.queue = text(queue, "queue")
    return task


def _refuse_text(values: Sequence[str], name: str) -> None:
    # A text is a sequence of texts too, and would be taken letter by letter.
    if isinstance(values, str):
        raise TypeError(f"{name} must be a list of strings, not the string {values!r}")


@dataclass(frozen=True)
class NewTask:
    """A task for ``enqueue_many`` or a schedule; the options are those of ``Queue.enqueue``."""

    payload: Any
    priority: Optional[int] = None
    ordering_key: Optional[str] = None
    delay: Optional[Duration] = None
    run_at: Optional[Instant] = None
    max_attempts: Optional[int] = None
    retry: Optional[RetryPolicy] = None
    timeout: Optional[Duration] = None
    unique_key: Optional[str] = None
    unique_window: Optional[Duration] = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    callback_url: Optional[str] = None
    after: Sequence[str] = ()
    traceparent: Optional[str] = None
    tracestate: Optional[str] = None
    queue: Optional[str] = None
    """Where it differs from the queue of the call."""

    def to_message(self) -> pb.NewTask:
        """The task as the contract has it."""
        return new_task(**vars(self))


@dataclass(frozen=True)
class Attempt:
    """One time that a worker held a task."""

    number: int
    worker: str
    started_at: Optional[datetime]
    ended_at: Optional[datetime]
    outcome: str
    """``completed``, ``failed``, ``nack``, ``snoozed``, ``released``, ``lease_expired``,
    ``timed_out`` or ``cancelled``; empty while it runs."""
    error: str


class TaskInfo:
    """A task as it was when Egret was asked; read only.

    Payload and result are decoded when they are read; in lists and brief answers they are not
    there (``None``, or ``b""`` of bytes).
    """

    __slots__ = ("_message",)

    def __init__(self, message: pb.Task) -> None:
        self._message = message

    @property
    def id(self) -> str:
        return self._message.id

    @property
    def queue(self) -> str:
        return self._message.queue

    @property
    def state(self) -> State:
        return state_of(self._message.state)

    @property
    def priority(self) -> int:
        """0 to 9; 9 goes first."""
        return self._message.priority

    @property
    def ordering_key(self) -> str:
        return self._message.ordering_key

    @property
    def created_at(self) -> Optional[datetime]:
        return moment(self._message.created_at_ms)

    @property
    def run_at(self) -> Optional[datetime]:
        """When it becomes ready, while it is delayed."""
        return moment(self._message.run_at_ms)

    @property
    def lease_until(self) -> Optional[datetime]:
        """When the lease ends, while it is leased."""
        return moment(self._message.lease_until_ms)

    @property
    def ended_at(self) -> Optional[datetime]:
        return moment(self._message.ended_at_ms)

    @property
    def attempts(self) -> int:
        return self._message.attempts

    @property
    def max_attempts(self) -> int:
        return self._message.max_attempts

    @property
    def history(self) -> list[Attempt]:
        """The last attempts, oldest first."""
        return [
            Attempt(
                number=attempt.number,
                worker=attempt.worker,
                started_at=moment(attempt.started_at_ms),
                ended_at=moment(attempt.ended_at_ms),
                outcome=attempt.outcome,
                error=attempt.error,
            )
            for attempt in self._message.history
        ]

    @property
    def payload(self) -> Any:
        return codec.decode(self._message.payload, self._message.format)

    @property
    def result(self) -> Any:
        return codec.decode(self._message.result, self._message.result_format)

    @property
    def error(self) -> str:
        """Of the last attempt that failed."""
        return self._message.error

    @property
    def tags(self) -> list[str]:
        return list(self._message.tags)

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self._message.metadata)

    @property
    def traceparent(self) -> str:
        return self._message.traceparent

    @property
    def tracestate(self) -> str:
        return self._message.tracestate

    @property
    def callback_url(self) -> str:
        return self._message.callback_url

    @property
    def after(self) -> list[str]:
        """The ids of the tasks it waits for."""
        return list(self._message.after)

    @property
    def unique_key(self) -> str:
        return self._message.unique_key

    def __repr__(self) -> str:
        return f"<task {self.id} {self.state.value} in {self.queue!r}>"


@dataclass(frozen=True)
class TaskChange:
    """A task has come into a state."""

    id: str
    queue: str
    state: State
    at: Optional[datetime]
    attempt: int

    @classmethod
    def of_message(cls, message: pb.TaskChange) -> TaskChange:
        """The change that the contract's stands for."""
        return cls(
            id=message.id,
            queue=message.queue,
            state=state_of(message.state),
            at=moment(message.at_ms),
            attempt=message.attempt,
        )


@dataclass(frozen=True)
class TaskCounts:
    """Tasks per state."""

    waiting: int
    delayed: int
    ready: int
    leased: int
    completed: int
    dead: int
    cancelled: int


@dataclass(frozen=True)
class QueueInfo:
    """A queue as it was when Egret was asked."""

    name: str
    settings: QueueSettings
    paused: bool
    draining: bool
    created_at: Optional[datetime]
    counts: TaskCounts
    oldest_ready: float
    """Seconds that the task that has been ready longest has been so; zero without one."""
    unavailable_partitions: tuple[int, ...] = ()
    """Partitions that have failed: their tasks are not counted."""

    @classmethod
    def of_message(cls, message: pb.QueueInfo) -> QueueInfo:
        """The queue that the contract's stands for."""
        counts = message.counts
        return cls(
            name=message.name,
            settings=QueueSettings.of_message(message.settings),
            paused=message.paused,
            draining=message.draining,
            created_at=moment(message.created_at_ms),
            counts=TaskCounts(
                waiting=counts.waiting,
                delayed=counts.delayed,
                ready=counts.ready,
                leased=counts.leased,
                completed=counts.completed,
                dead=counts.dead,
                cancelled=counts.cancelled,
            ),
            oldest_ready=message.oldest_ready_ms / 1000,
            unavailable_partitions=tuple(message.unavailable_partitions),
        )


@dataclass(frozen=True)
class ScheduleInfo:
    """A schedule as it was when Egret was asked."""

    name: str
    cron: str
    time_zone: str
    queue: str
    payload: Any
    missed: str
    """``skip``, ``one`` or ``all``; ``unspecified`` when the server says nothing."""
    paused: bool
    next_at: Optional[datetime]
    last_at: Optional[datetime]
    last_task: str
    """The task of the tick at ``last_at``; empty while that tick waits."""
    waiting: bool
    """Whether the tick at ``last_at`` waits for room, as the tenant is at its limit on tasks."""

    @classmethod
    def of_message(cls, message: pb.Schedule) -> ScheduleInfo:
        """The schedule that the contract's stands for."""
        return cls(
            name=message.name,
            cron=message.cron,
            time_zone=message.time_zone,
            queue=message.queue,
            payload=codec.decode(message.task.payload, message.task.format),
            missed=name_of(pb.Schedule.Missed, "MISSED", message.missed),
            paused=message.paused,
            next_at=moment(message.next_at_ms),
            last_at=moment(message.last_at_ms),
            last_task=message.last_task,
            waiting=message.waiting,
        )


def missed_number(missed: str) -> Any:
    """A policy for missed ticks as the contract has it."""
    return number_of(pb.Schedule.Missed, "MISSED", missed)
