"""One queue: enqueueing, looking, operating."""

from __future__ import annotations

from typing import Any, AsyncGenerator, AsyncIterator, Iterable, Mapping, Optional, Sequence, Union

from . import errors
from ._proto import queue_pb2 as pb
from .connection import Connection
from .model import Enqueued, NewTask, QueueInfo, State, TaskInfo, new_task, state_number
from .payload import Duration, Instant, text
from .producer import Producer, enqueue_many
from .settings import QueueSettings, Retention, RetryPolicy


class Queue:
    """One queue. Made by ``Client.queue``."""

    def __init__(self, connection: Connection, producer: Producer, name: str) -> None:
        self._connection = connection
        self._producer = producer
        # It is written into messages that others share, where it is too late to refuse it.
        self.name = text(name, "the name of a queue")

    async def enqueue(
        self,
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
    ) -> Enqueued:
        """Enqueues a task, and returns its id once it is on disk.

        ``payload``: bytes stay bytes, anything else is sent as JSON. ``priority``: 0 to 9, 9 goes
        first. ``ordering_key``: tasks with the same key are worked on one at a time, those of one
        priority in order. ``delay`` (seconds or timedelta) or ``run_at`` (aware datetime or seconds
        since 1970): not before. ``timeout``: the longest that an attempt may take. ``unique_key``:
        a second task with this key within ``unique_window`` is not enqueued, the answer is the
        first one, whatever has become of it. ``callback_url``: told by POST when the task has
        ended. ``after``: ids of tasks that must complete before. What is left out is as the queue
        says.

        Tasks of concurrent callers share messages. Raises ``UnknownOutcome`` when the connection
        was lost at the wrong moment; with a ``unique_key`` the task is sent again instead, unless
        its ``unique_window`` is about over by then. Cancelled while it waits for room or for the stream, the task is not sent; later it may be enqueued.
        """
        task = new_task(
            payload,
            priority=priority,
            ordering_key=ordering_key,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            retry=retry,
            timeout=timeout,
            unique_key=unique_key,
            unique_window=unique_window,
            tags=tags,
            metadata=metadata,
            callback_url=callback_url,
            after=after,
            traceparent=traceparent,
            tracestate=tracestate,
        )
        return await self._producer.enqueue(self.name, task)

    async def enqueue_many(
        self, tasks: Iterable[NewTask], *, atomic: bool = False
    ) -> list[Enqueued]:
        """Enqueues up to 1,000 tasks by one call, and returns their outcomes in the same order.

        ``after`` may name tasks of the same call: ``#0`` is the first. Raises ``EnqueueRefused``
        when some were refused; the others are enqueued then, unless the call is ``atomic``: then
        all tasks are enqueued or none. Raises ``UnknownOutcome`` when the connection was lost
        meanwhile; it is ``retryable`` if all have a ``unique_key``, as the same call then enqueues
        none twice while their ``unique_window`` lasts.
        """
        messages = [task.to_message() for task in tasks]
        request = pb.EnqueueRequest(queue=self.name, tasks=messages, atomic=atomic)
        outcomes = await enqueue_many(self._connection, request)
        enqueued = [outcome for outcome in outcomes if isinstance(outcome, Enqueued)]
        if len(enqueued) < len(outcomes):
            raise errors.EnqueueRefused(outcomes)
        return enqueued

    def tasks(
        self,
        state: Union[State, str, None] = None,
        *,
        tag: str = "",
        page: int = 100,
    ) -> TaskListing:
        """The tasks of a state, with a tag, or all, without payloads and results.

        Egret is asked for ``page`` of them at a time, 1 to 1,000.
        """
        request = pb.ListTasksRequest(
            queue=self.name, state=state_number(state), tag=tag, limit=page
        )
        return TaskListing(self._connection, request)

    async def put(
        self,
        *,
        max_attempts: Optional[int] = None,
        retry: Optional[RetryPolicy] = None,
        lease: Optional[Duration] = None,
        timeout: Optional[Duration] = None,
        concurrency: Optional[int] = None,
        key_concurrency: Optional[int] = None,
        rate_per_second: Optional[float] = None,
        rate_burst: Optional[int] = None,
        completed: Optional[Retention] = None,
        dead: Optional[Retention] = None,
        cancelled: Optional[Retention] = None,
        unique_window: Optional[Duration] = None,
        aging: Optional[Duration] = None,
    ) -> QueueInfo:
        """Creates the queue, or changes the settings given (see ``QueueSettings``)."""
        settings = QueueSettings(
            max_attempts=max_attempts,
            retry=retry,
            lease=lease,
            timeout=timeout,
            concurrency=concurrency,
            key_concurrency=key_concurrency,
            rate_per_second=rate_per_second,
            rate_burst=rate_burst,
            completed=completed,
            dead=dead,
            cancelled=cancelled,
            unique_window=unique_window,
            aging=aging,
        )
        request = pb.PutQueueRequest(name=self.name, settings=settings.to_message())
        message = await self._connection.call("PutQueue", request, pb.QueueInfo)
        return QueueInfo.of_message(message)

    async def info(self) -> QueueInfo:
        """Settings, counts per state and age of the queue."""
        return await self._queue_call("GetQueue")

    async def pause(self) -> QueueInfo:
        """No task is handed out until ``resume``; enqueues go on."""
        return await self._queue_call("PauseQueue")

    async def drain(self) -> QueueInfo:
        """Nothing more is enqueued until ``resume``; work goes on."""
        return await self._queue_call("DrainQueue")

    async def resume(self) -> QueueInfo:
        """Ends a pause or a drain."""
        return await self._queue_call("ResumeQueue")

    async def _queue_call(self, method: str) -> QueueInfo:
        request = pb.QueueRequest(name=self.name)
        return QueueInfo.of_message(await self._connection.call(method, request, pb.QueueInfo))

    async def delete(self, *, force: bool = False) -> None:
        """Deletes the queue if it has no tasks, or with ``force`` all its tasks too."""
        request = pb.DeleteQueueRequest(name=self.name, force=force)
        await self._connection.call("DeleteQueue", request, pb.DeleteQueueResponse)

    async def purge(self, states: Iterable[Union[State, str]] = ()) -> int:
        """Deletes the tasks of these states, or of all; returns how many.

        Leased tasks are left alone.
        """
        numbers = [state_number(state) for state in states]
        request = pb.PurgeQueueRequest(name=self.name, states=numbers)
        return (await self._connection.call("PurgeQueue", request, pb.PurgeQueueResponse)).deleted

    async def requeue_dead(self, limit: int = 0) -> int:
        """Puts dead tasks back, oldest first, at most ``limit`` unless zero; returns how many."""
        request = pb.RequeueDeadRequest(name=self.name, limit=limit)
        response = await self._connection.call("RequeueDead", request, pb.RequeueDeadResponse)
        return response.requeued


class TaskListing(AsyncIterator[TaskInfo]):
    """Tasks of a queue, page by page. Made by ``Queue.tasks``."""

    def __init__(self, connection: Connection, request: pb.ListTasksRequest) -> None:
        self.unavailable_partitions: frozenset[int] = frozenset()
        """Partitions that have failed, as of the pages read: their tasks are missing."""
        self._tasks = self._read(connection, request)

    def __aiter__(self) -> TaskListing:
        return self

    async def __anext__(self) -> TaskInfo:
        return await self._tasks.__anext__()

    async def aclose(self) -> None:
        """Reads no more pages."""
        await self._tasks.aclose()

    async def _read(
        self, connection: Connection, request: pb.ListTasksRequest
    ) -> AsyncGenerator[TaskInfo, None]:
        while True:
            response = await connection.call("ListTasks", request, pb.ListTasksResponse)
            self.unavailable_partitions |= frozenset(response.unavailable_partitions)
            for task in response.tasks:
                yield TaskInfo(task)
            if not response.next_cursor:
                return
            request.cursor = response.next_cursor
