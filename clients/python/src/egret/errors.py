"""What can go wrong, as one family of exceptions.

Every error carries a stable ``code`` (the documentation of Egret lists them) and says with
``retryable`` whether the same request may succeed later without being changed.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

import grpc

from ._proto import queue_pb2 as pb


class EgretError(Exception):
    """Something was refused or failed.

    ``code`` is stable, ``message`` is for people, ``retryable`` says whether the same request may
    succeed later without being changed.
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable


class InvalidRequest(EgretError):
    """The request is malformed or out of range."""


class Unauthenticated(EgretError):
    """No token, or one that Egret does not know."""


class Denied(EgretError):
    """The token does not carry the needed scope."""


class NotFound(EgretError):
    """There is no such task, queue or schedule."""


class Conflict(EgretError):
    """The request contradicts the present state."""


class LimitReached(EgretError):
    """A named limit is reached, or the request is too large."""


class Unavailable(EgretError):
    """Egret cannot be reached, or something it needs is not there at the moment."""


class TimedOut(EgretError):
    """The time allowed has passed."""


class Internal(EgretError):
    """A fault of Egret or of the machine under it."""


class LeaseLost(EgretError):
    """The lease of the report has ended, and another worker may hold the task by now."""


class UnknownOutcome(EgretError):
    """The connection was lost after a task was sent and before its acknowledgement came.

    The task may have been enqueued or not. Tasks with a ``unique_key`` are sent again by
    themselves and do not end like this while Egret can be reached again in time: within the
    ``patience`` of the client, and before their ``unique_window`` is over. For others the caller
    decides: enqueue again and perhaps have the task twice, or not. The error that ended the
    connection, or was met after it, is the ``__cause__``.
    """


class EnqueueRefused(EgretError):
    """Some tasks of an ``enqueue_many`` were refused; the others are enqueued.

    ``outcomes`` has an entry for each task, in their order: an ``Enqueued`` or an ``EgretError``.
    Code and message are those of the first task that was refused.
    """

    def __init__(self, outcomes: Sequence[Union[Any, EgretError]]) -> None:
        refused = [outcome for outcome in outcomes if isinstance(outcome, EgretError)]
        first = refused[0]
        message = f"{len(refused)} of {len(outcomes)} tasks were refused, first: {first.message}"
        retryable = all(error.retryable for error in refused)
        super().__init__(first.code, message, retryable=retryable)
        self.outcomes = list(outcomes)


class TaskFailed(EgretError):
    """The task whose result was waited for is dead; ``message`` is its last error."""


class TaskCancelled(EgretError):
    """The task whose result was waited for was cancelled."""


# One table for calls, streams and the items of a batch, so that a code means the same class everywhere.
_BY_CODE: dict[str, type[EgretError]] = {
    "invalid_request": InvalidRequest,
    "queue_not_found": NotFound,
    "task_not_found": NotFound,
    "schedule_not_found": NotFound,
    "attachment_not_found": NotFound,
    "queue_draining": Conflict,
    "queue_in_use": Conflict,
    "task_wrong_state": Conflict,
    "attachment_exists": Conflict,
    "lease_lost": LeaseLost,
    "limit_exceeded": LimitReached,
    "payload_too_large": LimitReached,
    "log_batch_too_large": LimitReached,
    "log_busy": LimitReached,
    "queue_disk_full": Unavailable,
    "queue_partition_failed": Unavailable,
    "stopping": Unavailable,
    "log_full": Unavailable,
    "log_stopped": Unavailable,
    "log_closed": Unavailable,
    "log_fenced": Unavailable,
    "queue_corrupt": Internal,
    "queue_files": Internal,
    "attachment_damaged": Internal,
}

_BY_STATUS: dict[grpc.StatusCode, type[EgretError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Denied,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.ALREADY_EXISTS: Conflict,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitReached,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
}

# Where the connection failed rather than Egret refused: trying again can help.
# A stream that is torn off midway can end as `INTERNAL` or `UNKNOWN` too, but without a code.
_TORN = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN})
_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
    }
)


def of_status(status: grpc.StatusCode, details: Optional[str], trailers: Any) -> EgretError:
    """The error that a gRPC status with these trailers stands for."""
    named = {str(key): value for key, value in (trailers or ())}
    code = named.get("egret-code")
    if isinstance(code, bytes):
        code = code.decode("utf-8", "replace")
    torn = code is None and status in _TORN
    kind = Unavailable if torn else _BY_STATUS.get(status, Internal)
    kind = _BY_CODE.get(code or "", kind)
    told = named.get("egret-retryable")
    if told is not None:
        retryable = told in ("true", b"true")
    else:
        # `too large` shares a status with limits that pass.
        passes = torn or status in _TRANSIENT
        retryable = passes and not (code or "").endswith("_too_large")
    return kind(code or status.name.lower(), details or status.name.lower(), retryable=retryable)


def of_rpc(error: grpc.aio.AioRpcError) -> EgretError:
    """The error that a failed call stands for."""
    return of_status(error.code(), error.details(), error.trailing_metadata())


def refused_by_egret(error: grpc.aio.AioRpcError) -> bool:
    """Whether Egret itself answered, so that nothing of the request was done."""
    return any(key == "egret-code" for key, _ in error.trailing_metadata() or ())


def of_item(error: pb.Error) -> EgretError:
    """The error of one item of a batch."""
    # Of a code that a newer Egret has come to know nothing is said but this.
    kind = Unavailable if error.retryable else EgretError
    kind = _BY_CODE.get(error.code, kind)
    return kind(error.code, error.message, retryable=error.retryable)
