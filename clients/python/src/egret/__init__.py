"""Egret's task queue for Python: enqueue, work, look and operate, with asyncio.

    async with Client("http://127.0.0.1:7070", token) as client:
        await client.queue("emails").enqueue({"to": "ada@example.org"})
"""

from .client import Client
from .errors import (
    Conflict,
    Denied,
    EgretError,
    EnqueueRefused,
    Internal,
    InvalidRequest,
    LeaseLost,
    LimitReached,
    NotFound,
    TaskCancelled,
    TaskFailed,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
)
from .model import (
    Attempt,
    Enqueued,
    NewTask,
    QueueInfo,
    ScheduleInfo,
    State,
    TaskChange,
    TaskCounts,
    TaskInfo,
)
from .queue import Queue, TaskListing
from .schedule import Schedule
from .settings import QueueSettings, Retention, RetryPolicy
from .task import PermanentError, Retry, Snooze, Task
from .watch import Watch
from .worker import Worker

__all__ = [
    "Attempt",
    "Client",
    "Conflict",
    "Denied",
    "EgretError",
    "EnqueueRefused",
    "Enqueued",
    "Internal",
    "InvalidRequest",
    "LeaseLost",
    "LimitReached",
    "NewTask",
    "NotFound",
    "PermanentError",
    "Queue",
    "QueueInfo",
    "QueueSettings",
    "Retention",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "ScheduleInfo",
    "Snooze",
    "State",
    "Task",
    "TaskCancelled",
    "TaskChange",
    "TaskCounts",
    "TaskFailed",
    "TaskInfo",
    "TaskListing",
    "TimedOut",
    "Unauthenticated",
    "Unavailable",
    "UnknownOutcome",
    "Watch",
    "Worker",
]
