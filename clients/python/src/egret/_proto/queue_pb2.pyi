from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_BYTES: _ClassVar[Format]
    FORMAT_JSON: _ClassVar[Format]

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    TASK_STATE_WAITING: _ClassVar[TaskState]
    TASK_STATE_DELAYED: _ClassVar[TaskState]
    TASK_STATE_READY: _ClassVar[TaskState]
    TASK_STATE_LEASED: _ClassVar[TaskState]
    TASK_STATE_COMPLETED: _ClassVar[TaskState]
    TASK_STATE_DEAD: _ClassVar[TaskState]
    TASK_STATE_CANCELLED: _ClassVar[TaskState]
FORMAT_BYTES: Format
FORMAT_JSON: Format
TASK_STATE_UNSPECIFIED: TaskState
TASK_STATE_WAITING: TaskState
TASK_STATE_DELAYED: TaskState
TASK_STATE_READY: TaskState
TASK_STATE_LEASED: TaskState
TASK_STATE_COMPLETED: TaskState
TASK_STATE_DEAD: TaskState
TASK_STATE_CANCELLED: TaskState

class Error(_message.Message):
    __slots__ = ("code", "message", "retryable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retryable: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retryable: bool = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("backoff", "base_ms", "max_ms", "jitter")
    class Backoff(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BACKOFF_UNSPECIFIED: _ClassVar[RetryPolicy.Backoff]
        BACKOFF_FIXED: _ClassVar[RetryPolicy.Backoff]
        BACKOFF_LINEAR: _ClassVar[RetryPolicy.Backoff]
        BACKOFF_EXPONENTIAL: _ClassVar[RetryPolicy.Backoff]
    BACKOFF_UNSPECIFIED: RetryPolicy.Backoff
    BACKOFF_FIXED: RetryPolicy.Backoff
    BACKOFF_LINEAR: RetryPolicy.Backoff
    BACKOFF_EXPONENTIAL: RetryPolicy.Backoff
    class Jitter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        JITTER_UNSPECIFIED: _ClassVar[RetryPolicy.Jitter]
        JITTER_NONE: _ClassVar[RetryPolicy.Jitter]
        JITTER_FULL: _ClassVar[RetryPolicy.Jitter]
        JITTER_EQUAL: _ClassVar[RetryPolicy.Jitter]
    JITTER_UNSPECIFIED: RetryPolicy.Jitter
    JITTER_NONE: RetryPolicy.Jitter
    JITTER_FULL: RetryPolicy.Jitter
    JITTER_EQUAL: RetryPolicy.Jitter
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    BASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    backoff: RetryPolicy.Backoff
    base_ms: int
    max_ms: int
    jitter: RetryPolicy.Jitter
    def __init__(self, backoff: _Optional[_Union[RetryPolicy.Backoff, str]] = ..., base_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., jitter: _Optional[_Union[RetryPolicy.Jitter, str]] = ...) -> None: ...

class NewTask(_message.Message):
    __slots__ = ("payload", "format", "priority", "ordering_key", "run_at_ms", "delay_ms", "max_attempts", "retry", "timeout_ms", "unique_key", "unique_window_ms", "tags", "metadata", "traceparent", "tracestate", "callback_url", "after", "queue")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    CALLBACK_URL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    format: Format
    priority: int
    ordering_key: str
    run_at_ms: int
    delay_ms: int
    max_attempts: int
    retry: RetryPolicy
    timeout_ms: int
    unique_key: str
    unique_window_ms: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.ScalarMap[str, str]
    traceparent: str
    tracestate: str
    callback_url: str
    after: _containers.RepeatedScalarFieldContainer[str]
    queue: str
    def __init__(self, payload: _Optional[bytes] = ..., format: _Optional[_Union[Format, str]] = ..., priority: _Optional[int] = ..., ordering_key: _Optional[str] = ..., run_at_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., unique_key: _Optional[str] = ..., unique_window_ms: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., callback_url: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., queue: _Optional[str] = ...) -> None: ...

class Enqueued(_message.Message):
    __slots__ = ("number", "id", "replayed", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    id: str
    replayed: bool
    error: Error
    def __init__(self, number: _Optional[int] = ..., id: _Optional[str] = ..., replayed: bool = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("queue", "tasks")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    tasks: _containers.RepeatedCompositeFieldContainer[NewTask]
    def __init__(self, queue: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[NewTask, _Mapping]]] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Enqueued]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Enqueued, _Mapping]]] = ...) -> None: ...

class EnqueueRequest(_message.Message):
    __slots__ = ("queue", "tasks", "atomic")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    queue: str
    tasks: _containers.RepeatedCompositeFieldContainer[NewTask]
    atomic: bool
    def __init__(self, queue: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[NewTask, _Mapping]]] = ..., atomic: bool = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Enqueued]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Enqueued, _Mapping]]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("id", "queue", "payload", "format", "lease", "lease_until_ms", "attempt", "max_attempts", "priority", "ordering_key", "created_at_ms", "tags", "metadata", "traceparent", "tracestate", "lease_ms", "timeout_ms")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    payload: bytes
    format: Format
    lease: bytes
    lease_until_ms: int
    attempt: int
    max_attempts: int
    priority: int
    ordering_key: str
    created_at_ms: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.ScalarMap[str, str]
    traceparent: str
    tracestate: str
    lease_ms: int
    timeout_ms: int
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., payload: _Optional[bytes] = ..., format: _Optional[_Union[Format, str]] = ..., lease: _Optional[bytes] = ..., lease_until_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., priority: _Optional[int] = ..., ordering_key: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., lease_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class TaskReport(_message.Message):
    __slots__ = ("lease", "completed", "failed", "nack", "snooze", "release", "heartbeat")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    SNOOZE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    completed: Completed
    failed: Failed
    nack: Nack
    snooze: Snooze
    release: Release
    heartbeat: Heartbeat
    def __init__(self, lease: _Optional[bytes] = ..., completed: _Optional[_Union[Completed, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., nack: _Optional[_Union[Nack, _Mapping]] = ..., snooze: _Optional[_Union[Snooze, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Completed(_message.Message):
    __slots__ = ("result", "format", "attachments")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    format: Format
    attachments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, result: _Optional[bytes] = ..., format: _Optional[_Union[Format, str]] = ..., attachments: _Optional[_Iterable[str]] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("error", "permanent")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    error: str
    permanent: bool
    def __init__(self, error: _Optional[str] = ..., permanent: bool = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("delay_ms", "reason")
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    delay_ms: int
    reason: str
    def __init__(self, delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Snooze(_message.Message):
    __slots__ = ("delay_ms",)
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    delay_ms: int
    def __init__(self, delay_ms: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("lease_ms",)
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("hello", "credits", "reports", "drain")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    credits: int
    reports: _containers.RepeatedCompositeFieldContainer[TaskReport]
    drain: bool
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., credits: _Optional[int] = ..., reports: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ..., drain: bool = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("queues", "worker", "lease_ms")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    worker: str
    lease_ms: int
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., worker: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("welcome", "tasks", "accepted", "refused", "lost", "drained")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    tasks: _containers.RepeatedCompositeFieldContainer[Assignment]
    accepted: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedCompositeFieldContainer[Refused]
    lost: _containers.RepeatedCompositeFieldContainer[LostLease]
    drained: bool
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., tasks: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., accepted: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[_Union[Refused, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[LostLease, _Mapping]]] = ..., drained: bool = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("lease_ms",)
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("number", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    error: Error
    def __init__(self, number: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class LostLease(_message.Message):
    __slots__ = ("lease", "id", "reason")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    id: str
    reason: str
    def __init__(self, lease: _Optional[bytes] = ..., id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ClaimRequest(_message.Message):
    __slots__ = ("queues", "worker", "lease_ms", "max", "wait_ms")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    worker: str
    lease_ms: int
    max: int
    wait_ms: int
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., worker: _Optional[str] = ..., lease_ms: _Optional[int] = ..., max: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ClaimResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[TaskReport]
    def __init__(self, reports: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[ReportOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[ReportOutcome, _Mapping]]] = ...) -> None: ...

class ReportOutcome(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("number", "worker", "started_at_ms", "ended_at_ms", "outcome", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    worker: str
    started_at_ms: int
    ended_at_ms: int
    outcome: str
    error: str
    def __init__(self, number: _Optional[int] = ..., worker: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., outcome: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "queue", "state", "priority", "ordering_key", "created_at_ms", "run_at_ms", "lease_until_ms", "ended_at_ms", "attempts", "max_attempts", "history", "payload", "format", "result", "result_format", "error", "tags", "metadata", "traceparent", "tracestate", "callback_url", "after", "unique_key", "attachments")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    CALLBACK_URL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    state: TaskState
    priority: int
    ordering_key: str
    created_at_ms: int
    run_at_ms: int
    lease_until_ms: int
    ended_at_ms: int
    attempts: int
    max_attempts: int
    history: _containers.RepeatedCompositeFieldContainer[Attempt]
    payload: bytes
    format: Format
    result: bytes
    result_format: Format
    error: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.ScalarMap[str, str]
    traceparent: str
    tracestate: str
    callback_url: str
    after: _containers.RepeatedScalarFieldContainer[str]
    unique_key: str
    attachments: _containers.RepeatedCompositeFieldContainer[Attachment]
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., priority: _Optional[int] = ..., ordering_key: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., run_at_ms: _Optional[int] = ..., lease_until_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., max_attempts: _Optional[int] = ..., history: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., payload: _Optional[bytes] = ..., format: _Optional[_Union[Format, str]] = ..., result: _Optional[bytes] = ..., result_format: _Optional[_Union[Format, str]] = ..., error: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., callback_url: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., unique_key: _Optional[str] = ..., attachments: _Optional[_Iterable[_Union[Attachment, _Mapping]]] = ...) -> None: ...

class Attachment(_message.Message):
    __slots__ = ("name", "content_type", "size_bytes", "crc32c")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    name: str
    content_type: str
    size_bytes: int
    crc32c: int
    def __init__(self, name: _Optional[str] = ..., content_type: _Optional[str] = ..., size_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class TaskRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("id", "brief")
    ID_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    id: str
    brief: bool
    def __init__(self, id: _Optional[str] = ..., brief: bool = ...) -> None: ...

class WaitTaskRequest(_message.Message):
    __slots__ = ("id", "wait_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    wait_ms: int
    def __init__(self, id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class WaitTasksRequest(_message.Message):
    __slots__ = ("waits", "cancelled")
    WAITS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    waits: _containers.RepeatedCompositeFieldContainer[Wait]
    cancelled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, waits: _Optional[_Iterable[_Union[Wait, _Mapping]]] = ..., cancelled: _Optional[_Iterable[int]] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("number", "id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    id: str
    def __init__(self, number: _Optional[int] = ..., id: _Optional[str] = ...) -> None: ...

class WaitTasksResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[WaitOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[WaitOutcome, _Mapping]]] = ...) -> None: ...

class WaitOutcome(_message.Message):
    __slots__ = ("number", "task", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    task: Task
    error: Error
    def __init__(self, number: _Optional[int] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class DeleteTaskResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("queue", "state", "tag", "limit", "cursor")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    queue: str
    state: TaskState
    tag: str
    limit: int
    cursor: str
    def __init__(self, queue: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., tag: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_cursor", "unavailable_partitions")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    next_cursor: str
    unavailable_partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., next_cursor: _Optional[str] = ..., unavailable_partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class QueueSettings(_message.Message):
    __slots__ = ("max_attempts", "retry", "lease_ms", "timeout_ms", "concurrency", "key_concurrency", "rate_per_second", "rate_burst", "completed", "dead", "cancelled", "unique_window_ms", "aging_ms")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    KEY_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    RATE_BURST_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    AGING_MS_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    retry: RetryPolicy
    lease_ms: int
    timeout_ms: int
    concurrency: int
    key_concurrency: int
    rate_per_second: float
    rate_burst: int
    completed: Retention
    dead: Retention
    cancelled: Retention
    unique_window_ms: int
    aging_ms: int
    def __init__(self, max_attempts: _Optional[int] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., lease_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., concurrency: _Optional[int] = ..., key_concurrency: _Optional[int] = ..., rate_per_second: _Optional[float] = ..., rate_burst: _Optional[int] = ..., completed: _Optional[_Union[Retention, _Mapping]] = ..., dead: _Optional[_Union[Retention, _Mapping]] = ..., cancelled: _Optional[_Union[Retention, _Mapping]] = ..., unique_window_ms: _Optional[int] = ..., aging_ms: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("age_ms", "count")
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    age_ms: int
    count: int
    def __init__(self, age_ms: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class PutQueueRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: QueueSettings
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ...) -> None: ...

class QueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class QueueInfo(_message.Message):
    __slots__ = ("name", "settings", "paused", "draining", "created_at_ms", "counts", "oldest_ready_ms", "unavailable_partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_READY_MS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: QueueSettings
    paused: bool
    draining: bool
    created_at_ms: int
    counts: TaskCounts
    oldest_ready_ms: int
    unavailable_partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ..., paused: bool = ..., draining: bool = ..., created_at_ms: _Optional[int] = ..., counts: _Optional[_Union[TaskCounts, _Mapping]] = ..., oldest_ready_ms: _Optional[int] = ..., unavailable_partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class TaskCounts(_message.Message):
    __slots__ = ("waiting", "delayed", "ready", "leased", "completed", "dead", "cancelled")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    delayed: int
    ready: int
    leased: int
    completed: int
    dead: int
    cancelled: int
    def __init__(self, waiting: _Optional[int] = ..., delayed: _Optional[int] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., completed: _Optional[int] = ..., dead: _Optional[int] = ..., cancelled: _Optional[int] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueInfo]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueInfo, _Mapping]]] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: bool = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("name", "states")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    name: str
    states: _containers.RepeatedScalarFieldContainer[TaskState]
    def __init__(self, name: _Optional[str] = ..., states: _Optional[_Iterable[_Union[TaskState, str]]] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    def __init__(self, deleted: _Optional[int] = ...) -> None: ...

class RequeueDeadRequest(_message.Message):
    __slots__ = ("name", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    limit: int
    def __init__(self, name: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class RequeueDeadResponse(_message.Message):
    __slots__ = ("requeued",)
    REQUEUED_FIELD_NUMBER: _ClassVar[int]
    requeued: int
    def __init__(self, requeued: _Optional[int] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("name", "cron", "time_zone", "queue", "task", "missed", "paused", "next_at_ms", "last_at_ms", "last_task", "waiting")
    class Missed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MISSED_UNSPECIFIED: _ClassVar[Schedule.Missed]
        MISSED_SKIP: _ClassVar[Schedule.Missed]
        MISSED_ONE: _ClassVar[Schedule.Missed]
        MISSED_ALL: _ClassVar[Schedule.Missed]
    MISSED_UNSPECIFIED: Schedule.Missed
    MISSED_SKIP: Schedule.Missed
    MISSED_ONE: Schedule.Missed
    MISSED_ALL: Schedule.Missed
    NAME_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TASK_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    name: str
    cron: str
    time_zone: str
    queue: str
    task: NewTask
    missed: Schedule.Missed
    paused: bool
    next_at_ms: int
    last_at_ms: int
    last_task: str
    waiting: bool
    def __init__(self, name: _Optional[str] = ..., cron: _Optional[str] = ..., time_zone: _Optional[str] = ..., queue: _Optional[str] = ..., task: _Optional[_Union[NewTask, _Mapping]] = ..., missed: _Optional[_Union[Schedule.Missed, str]] = ..., paused: bool = ..., next_at_ms: _Optional[int] = ..., last_at_ms: _Optional[int] = ..., last_task: _Optional[str] = ..., waiting: bool = ...) -> None: ...

class ScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules",)
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ...) -> None: ...

class DeleteScheduleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("queues", "states")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[TaskState]
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[_Union[TaskState, str]]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("changes", "missed")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[TaskChange]
    missed: int
    def __init__(self, changes: _Optional[_Iterable[_Union[TaskChange, _Mapping]]] = ..., missed: _Optional[int] = ...) -> None: ...

class TaskChange(_message.Message):
    __slots__ = ("id", "queue", "state", "at_ms", "attempt")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    state: TaskState
    at_ms: int
    attempt: int
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., at_ms: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...
