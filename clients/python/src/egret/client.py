"""The client: queues, tasks, schedules and workers of one Egret."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Iterable, Mapping, Optional, Sequence, Union

import grpc
import grpc.aio

from . import errors
from ._proto import queue_pb2 as pb
from .connection import Backoff, Connection, end_of
from .model import (
    Enqueued,
    NewTask,
    QueueInfo,
    QueueSettings,
    Retention,
    RetryPolicy,
    ScheduleInfo,
    State,
    TaskChange,
    TaskInfo,
    missed_number,
    new_task,
    state_number,
)
from .payload import Duration, Instant
from .producer import Producer, enqueue_many
from .task import Handler
from .worker import Worker

WAIT_SECONDS_MAX = 60
"""The longest that one long poll of ``wait`` may last; it makes as many as are needed."""


class Client:
    """One Egret, with one connection and one stream of tasks for everybody who enqueues.

    ``url`` is like ``http://127.0.0.1:7070`` or ``https://host``; ``root_certificates`` (PEM) are
    those that an ``https`` server is checked with, instead of the ones of the system.
    ``call_timeout`` is how many seconds a single call may take.

    Backpressure: ``waiting_tasks_max`` tasks and ``waiting_bytes_max`` bytes may be enqueued and
    not yet acknowledged; further calls of ``enqueue`` wait for room. While Egret cannot be reached,
    tasks wait for ``patience`` seconds before they fail with ``Unavailable``.

    Use it as ``async with Client(...) as client``, or call ``close``. A client belongs to the event
    loop that first uses it.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        call_timeout: float = 30.0,
        patience: float = 60.0,
        waiting_tasks_max: int = 10_000,
        waiting_bytes_max: int = 64 << 20,
        root_certificates: Optional[bytes] = None,
    ) -> None:
        self._connection = Connection(
            url, token, call_timeout=call_timeout, root_certificates=root_certificates
        )
        self._producer = Producer(
            self._connection,
            tasks_max=waiting_tasks_max,
            bytes_max=waiting_bytes_max,
            patience=patience,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for the outcomes of what was enqueued, then closes the connection."""
        await self._producer.close()
        await self._connection.close()

    @property
    def produce_messages_sent(self) -> int:
        """Messages that the tasks enqueued so far were packed into."""
        return self._producer.messages_sent

    # ---- Working. ----

    async def work(
        self,
        queues: Union[str, Sequence[str]],
        handler: Handler,
        *,
        concurrency: int = 64,
        name: Optional[str] = None,
        lease: Optional[Duration] = None,
        grace: Duration = 30,
        signals: bool = False,
    ) -> None:
        """Runs ``handler`` for each task until it is cancelled or a signal comes.

        See ``worker`` for what the arguments mean.
        """
        await self.worker(
            queues,
            handler,
            concurrency=concurrency,
            name=name,
            lease=lease,
            grace=grace,
            signals=signals,
        ).run()

    def worker(
        self,
        queues: Union[str, Sequence[str]],
        handler: Handler,
        *,
        concurrency: int = 64,
        name: Optional[str] = None,
        lease: Optional[Duration] = None,
        grace: Duration = 30,
        signals: bool = False,
    ) -> Worker:
        """A worker, to be run by ``run`` and stopped by ``stop``.

        ``handler`` is called with a ``Task``; what it returns is the task's result, what it raises
        decides what becomes of the task (``PermanentError``, ``Retry`` and ``Snooze``, anything
        else is a failure and tried again as the queue says). It is cancelled when its lease is
        lost. It must not block the event loop, or no heartbeat is sent: use ``asyncio.to_thread``.

        ``concurrency`` is how many tasks are worked on at a time, ``name`` is for people to read,
        ``lease`` (seconds) is how long a task is held without a heartbeat instead of what the queue
        says, ``grace`` (seconds) is how long running tasks may go on after a stop before they are
        given back. With ``signals``, SIGINT and SIGTERM stop the worker.
        """
        return Worker(
            self._connection,
            [queues] if isinstance(queues, str) else list(queues),
            handler,
            concurrency=concurrency,
            name=name,
            lease=lease,
            grace=grace,
            signals=signals,
        )

    # ---- Tasks. ----

    async def get(self, id: str, *, brief: bool = False) -> TaskInfo:
        """A task with its attempts; with ``brief`` without payload and result."""
        request = pb.GetTaskRequest(id=id, brief=brief)
        return TaskInfo(await self._connection.call("GetTask", request, pb.Task))

    async def wait(self, id: str, timeout: Optional[float] = None) -> TaskInfo:
        """Waits until a task has ended, and returns it.

        Raises ``TimedOut`` after ``timeout`` seconds; without one it waits as long as it takes, and
        through times when Egret cannot be reached.
        """
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        backoff = Backoff()
        while True:
            left = float(WAIT_SECONDS_MAX) if end is None else end - loop.time()
            left = min(max(left, 0.0), WAIT_SECONDS_MAX)
            request = pb.WaitTaskRequest(id=id, wait_ms=int(left * 1000))
            try:
                message = await self._connection.call(
                    "WaitTask", request, pb.Task, left + self._connection.call_timeout
                )
                task = TaskInfo(message)
                if task.state.ended:
                    return task
                backoff.reset()
            except errors.EgretError as error:
                if not error.retryable or (end is not None and loop.time() >= end):
                    raise
                await asyncio.sleep(backoff.delay())
            if end is not None and loop.time() >= end:
                message_text = f"task {id} has not ended within {timeout:g} s"
                raise errors.TimedOut("wait_timed_out", message_text, retryable=True)

    async def result(self, id: str, timeout: Optional[float] = None) -> Any:
        """Waits until a task has completed, and returns its result.

        Raises ``TaskFailed`` when it is dead, ``TaskCancelled`` when it was cancelled, ``TimedOut``
        after ``timeout`` seconds.
        """
        task = await self.wait(id, timeout)
        if task.state is State.DEAD:
            raise errors.TaskFailed("task_failed", task.error or f"task {id} is dead")
        if task.state is State.CANCELLED:
            raise errors.TaskCancelled("task_cancelled", f"task {id} was cancelled")
        return task.result

    async def cancel(self, id: str) -> TaskInfo:
        """Cancels a task that has not ended; a worker that holds it is told."""
        return await self._task_call("CancelTask", id)

    async def requeue(self, id: str) -> TaskInfo:
        """Puts a dead or cancelled task back, with its attempts at zero."""
        return await self._task_call("RequeueTask", id)

    async def _task_call(self, method: str, id: str) -> TaskInfo:
        return TaskInfo(await self._connection.call(method, pb.TaskRequest(id=id), pb.Task))

    async def delete(self, id: str) -> None:
        """Deletes a task that is not leased."""
        await self._connection.call("DeleteTask", pb.TaskRequest(id=id), pb.DeleteTaskResponse)

    # ---- Queues, schedules, changes. ----

    def queue(self, name: str) -> Queue:
        """The queue of this name, whether it exists yet or not."""
        return Queue(self._connection, self._producer, name)

    async def queues(self) -> list[QueueInfo]:
        """Every queue of the tenant."""
        response = await self._connection.call(
            "ListQueues", pb.ListQueuesRequest(), pb.ListQueuesResponse
        )
        return [QueueInfo.of_message(queue) for queue in response.queues]

    def schedule(self, name: str) -> Schedule:
        """The schedule of this name, whether it exists yet or not."""
        return Schedule(self._connection, name)

    async def schedules(self) -> list[ScheduleInfo]:
        """Every schedule of the tenant."""
        response = await self._connection.call(
            "ListSchedules", pb.ListSchedulesRequest(), pb.ListSchedulesResponse
        )
        return [ScheduleInfo.of_message(schedule) for schedule in response.schedules]

    def watch(
        self,
        queues: Union[str, Iterable[str]] = (),
        states: Iterable[Union[State, str]] = (),
    ) -> Watch:
        """The changes of tasks from now on, of all queues and to all states unless said otherwise.

        Use it as ``async with client.watch(...) as changes`` and ``async for change in changes``.
        """
        names = [queues] if isinstance(queues, str) else list(queues)
        request = pb.WatchRequest(queues=names, states=[state_number(state) for state in states])
        return Watch(self._connection, request)


class Queue:
    """One queue. Made by ``Client.queue``."""

    def __init__(self, connection: Connection, producer: Producer, name: str) -> None:
        self._connection = connection
        self._producer = producer
        self.name = name

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
        first. ``ordering_key``: tasks with the same key are worked on in order. ``delay`` (seconds
        or timedelta) or ``run_at`` (aware datetime or seconds since 1970): not before.
        ``timeout``: the longest that an attempt may take. ``unique_key``: a second task with this
        key within ``unique_window`` is not enqueued, the answer is the first one. ``callback_url``:
        told by POST when the task has ended. ``after``: ids of tasks that must complete before.
        What is left out is as the queue says.

        Tasks of concurrent callers share messages. Raises ``UnknownOutcome`` when the connection
        was lost at the wrong moment; with a ``unique_key`` the task is sent again instead. Cancelled
        while it waits for room or for the stream, the task is not sent; later it may be enqueued.
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

    async def enqueue_many(self, tasks: Iterable[NewTask]) -> list[Enqueued]:
        """Enqueues up to 1,000 tasks by one call, and returns their outcomes in the same order.

        ``after`` may name tasks of the same call: ``#0`` is the first. Raises ``EnqueueRefused``
        when some were refused; the others are enqueued then.
        """
        messages = [task.to_message() for task in tasks]
        request = pb.EnqueueRequest(queue=self.name, tasks=messages)
        outcomes = await enqueue_many(self._connection, request)
        enqueued = [outcome for outcome in outcomes if isinstance(outcome, Enqueued)]
        if len(enqueued) < len(outcomes):
            raise errors.EnqueueRefused(outcomes)
        return enqueued

    async def tasks(
        self,
        state: Union[State, str, None] = None,
        *,
        tag: str = "",
        page: int = 100,
    ) -> AsyncIterator[TaskInfo]:
        """The tasks of a state, with a tag, or all, without payloads and results.

        Egret is asked for ``page`` of them at a time, 1 to 1,000.
        """
        request = pb.ListTasksRequest(
            queue=self.name, state=state_number(state), tag=tag, limit=page
        )
        while True:
            response = await self._connection.call("ListTasks", request, pb.ListTasksResponse)
            for task in response.tasks:
                yield TaskInfo(task)
            if not response.next_cursor:
                return
            request.cursor = response.next_cursor

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


class Schedule:
    """One schedule. Made by ``Client.schedule``."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    async def put(
        self,
        cron: str,
        queue: str,
        task: Any,
        *,
        time_zone: str = "",
        missed: str = "unspecified",
        paused: bool = False,
    ) -> ScheduleInfo:
        """Creates or replaces the schedule: a task per tick of a cron expression.

        ``cron`` has five fields, or six with seconds first. ``task`` is a payload, or a ``NewTask``
        with options. ``time_zone`` is an IANA name, UTC when empty. ``missed`` says what becomes of
        ticks while Egret was down: ``skip``, ``one`` or ``all`` (up to 1,000).
        """
        message = task.to_message() if isinstance(task, NewTask) else new_task(task)
        request = pb.Schedule(
            name=self.name,
            cron=cron,
            time_zone=time_zone,
            queue=queue,
            task=message,
            missed=missed_number(missed),
            paused=paused,
        )
        return ScheduleInfo.of_message(
            await self._connection.call("PutSchedule", request, pb.Schedule)
        )

    async def info(self) -> ScheduleInfo:
        """The schedule with its last and next tick."""
        return await self._call("GetSchedule")

    async def pause(self) -> ScheduleInfo:
        """No tick until ``resume``."""
        return await self._call("PauseSchedule")

    async def resume(self) -> ScheduleInfo:
        """Ends a pause."""
        return await self._call("ResumeSchedule")

    async def _call(self, method: str) -> ScheduleInfo:
        request = pb.ScheduleRequest(name=self.name)
        return ScheduleInfo.of_message(await self._connection.call(method, request, pb.Schedule))

    async def delete(self) -> None:
        """Deletes the schedule; tasks it has made stay."""
        request = pb.ScheduleRequest(name=self.name)
        await self._connection.call("DeleteSchedule", request, pb.DeleteScheduleResponse)


class Watch:
    """A subscription to changes of tasks. Made by ``Client.watch``.

    It ends with an error when the connection is lost, as nobody can say what was missed then.
    """

    def __init__(self, connection: Connection, request: pb.WatchRequest) -> None:
        self._connection = connection
        self._request = request
        self._call: Any = None
        self._closed = False
        self.missed = 0
        """Changes left out so far because they were not read fast enough."""

    async def __aenter__(self) -> Watch:
        self._open()
        # Egret's first answer is that the call is open; what happens from then on is told.
        try:
            await self._call.initial_metadata()
            if self._call.done():
                raise await end_of(self._call)
        except grpc.aio.AioRpcError as error:
            raise errors.of_rpc(error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the subscription, and the loop that reads it."""
        self._closed = True
        if self._call is not None:
            self._call.cancel()

    def _open(self) -> None:
        if self._call is None:
            self._call = self._connection.subscribe("Watch", self._request, pb.WatchResponse)

    async def __aiter__(self) -> AsyncIterator[TaskChange]:
        self._open()
        try:
            async for response in self._call:
                self.missed += response.missed
                for change in response.changes:
                    yield TaskChange.of_message(change)
        except grpc.aio.AioRpcError as error:
            raise errors.of_rpc(error) from error
        except asyncio.CancelledError:
            # gRPC raises it when the call was cancelled, be it by `close`.
            if not self._closed:
                raise
