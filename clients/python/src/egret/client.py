"""The client: one Egret, with its tasks, workers, queues and schedules."""

from __future__ import annotations

import asyncio
from typing import Any, Iterable, Optional, Sequence, Union

from . import errors
from ._proto import queue_pb2 as pb
from .connection import Backoff, Connection
from .model import QueueInfo, ScheduleInfo, State, TaskInfo, state_number
from .payload import Duration
from .producer import Producer
from .queue import Queue
from .schedule import Schedule
from .task import Handler
from .waiter import Waiter
from .watch import Watch
from .worker import Worker


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
        self._waiter = Waiter(self._connection)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for the outcomes of what was enqueued, then closes the connection."""
        await self._producer.close()
        await self._waiter.close()
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
        lost. While it blocks the event loop nothing else of the process goes on, except heartbeats, which
        a thread sends then: use ``asyncio.to_thread`` for long work.

        ``concurrency`` is how many tasks are worked on at a time, ``name`` is for people to read,
        ``lease`` (seconds) is how long a task is held without a heartbeat instead of what the queue
        says, ``grace`` (seconds) is how long running tasks may go on after a stop before they are
        given back. With ``signals``, SIGINT and SIGTERM stop the worker; the second one cancels at
        once what still runs, and gives it back.
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
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                break
            try:
                return TaskInfo(await asyncio.wait_for(self._waiter.wait(id), left))
            except (asyncio.TimeoutError, TimeoutError):
                break
            except errors.EgretError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(backoff.delay())
        # It may have ended in the last moment, and without any time it is only looked at.
        request = pb.WaitTaskRequest(id=id, wait_ms=0)
        task = TaskInfo(await self._connection.call("WaitTask", request, pb.Task))
        if task.state.ended:
            return task
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
