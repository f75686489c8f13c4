"""What goes wrong: texts that no message takes, servers that say no for a while, lost connections."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator
from unittest import IsolatedAsyncioTestCase, mock

import grpc

from egret import (
    EgretError,
    Enqueued,
    NewTask,
    PermanentError,
    Retry,
    RetryPolicy,
    State,
    Task,
    TaskFailed,
    Unavailable,
    UnknownOutcome,
)
from egret._proto import queue_pb2 as pb

from .scripted import Scripted, for_ever
from .server import PATIENCE, ServerTest

HALF = "\ud83d"
"""Half of a surrogate pair: JSON holds it, UTF-8 does not."""
LONG = "\N{GRINNING FACE}" * 8_000

AT_ONCE = RetryPolicy("fixed", base=0.01, jitter="none")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Texts(ServerTest):
    async def test_no_error_text_stops_a_worker(self) -> None:
        async def handle(task: Task) -> Any:
            what = task.payload
            if what == "permanent":
                raise PermanentError(HALF)
            if what == "unspeakable":
                raise Unspeakable()
            if what == "retry":
                if task.attempt == 1:
                    raise Retry(0.01, f"busy with {HALF}")
                return task.attempt
            if what == HALF:
                raise ValueError(f"unknown {what}")
            return HALF

        self.start(handle)
        errors = {
            HALF: "ValueError: unknown ?",
            "permanent": "PermanentError: ?",
            "unspeakable": "Unspeakable",
        }
        for payload, error in errors.items():
            enqueued = await self.queue.enqueue(payload, max_attempts=1)
            with self.assertRaises(TaskFailed) as raised:
                await self.soon(self.client.result(enqueued.id))
            self.assertEqual(raised.exception.message, error)
        for payload, result in {"retry": 2, "other": HALF}.items():
            enqueued = await self.queue.enqueue(payload, max_attempts=2)
            self.assertEqual(await self.soon(self.client.result(enqueued.id)), result)

    async def test_what_is_no_text_is_refused_here(self) -> None:
        options: list[dict[str, Any]] = [
            {"unique_key": HALF},
            {"ordering_key": HALF},
            {"tags": [HALF]},
            {"metadata": {HALF: "value"}},
            {"metadata": {"name": HALF}},
            {"callback_url": HALF},
        ]
        for one in options:
            with self.assertRaisesRegex(ValueError, "half of a surrogate pair"):
                await self.queue.enqueue(1, **one)
        with self.assertRaisesRegex(ValueError, "half of a surrogate pair"):
            self.client.queue(HALF)
        with self.assertRaisesRegex(TypeError, "must be a string"):
            self.client.queue(7)  # type: ignore[arg-type]
        self.assertIsInstance(await self.soon(self.queue.enqueue(1)), Enqueued)

    async def test_many_long_errors_fit(self) -> None:
        together = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> None:
            await together
            raise ValueError("x" + LONG)

        worker, running = self.start(handle, concurrency=300)
        ids = await self.queue.enqueue_many([NewTask(n, max_attempts=1) for n in range(300)])

        async def all_run() -> bool:
            return worker.running == 300

        await self.until(all_run)
        together.set_result(None)
        for enqueued in ids:
            task = await self.soon(self.client.wait(enqueued.id))
            self.assertEqual(task.state, State.DEAD)
            self.assertTrue(task.error.startswith("ValueError: x\N{GRINNING FACE}"))
            # No character is cut in two.
            self.assertEqual(set(task.error[13:]), {"\N{GRINNING FACE}"})
            self.assertLessEqual(7_990, len(task.error.encode()))
            self.assertLessEqual(len(task.error.encode()), 8_000)
        self.assertFalse(running.done())


class Leases(ServerTest):
    async def test_a_lost_lease_makes_room_when_its_handler_has_ended(self) -> None:
        lost, go_on = (asyncio.get_running_loop().create_future() for _ in range(2))
        running = most = 0

        async def handle(task: Task) -> str:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                if task.payload != "stubborn":
                    return "done"
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    lost.set_result(None)
                    await go_on
                return "late"
            finally:
                running -= 1

        self.start(handle, concurrency=1)
        await self.queue.enqueue("stubborn", timeout=0.3, max_attempts=1)
        await self.soon(lost)
        other = await self.queue.enqueue("other")
        with self.assertRaises(EgretError):
            await self.client.wait(other.id, timeout=0.3)
        go_on.set_result(None)
        self.assertEqual(await self.soon(self.client.result(other.id)), "done")
        self.assertEqual(most, 1)


class ScriptedTest(IsolatedAsyncioTestCase):
    """A test with a server that it tells what to do."""

    async def asyncSetUp(self) -> None:
        self.server = Scripted()
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)

    async def soon(self, what: Any) -> Any:
        return await asyncio.wait_for(what, PATIENCE)


class NotNow(ScriptedTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.code = "queue_partition_failed"
        self.refusals = 0
        self.server.produce = self.produce

    async def produce(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Refuses so many tasks whose payload is `b"down"`, and takes all others."""
        number = 0
        async for request in requests:
            response = pb.ProduceResponse()
            for task in request.tasks:
                outcome = response.outcomes.add(number=number)
                if task.payload == b"down" and self.refusals > 0:
                    self.refusals -= 1
                    outcome.error.code = self.code
                    outcome.error.message = "not now"
                    outcome.error.retryable = True
                else:
                    outcome.id = f"task-{number}"
                number += 1
            yield response

    async def test_a_task_that_is_not_taken_is_sent_again(self) -> None:
        async with self.server.client() as client:
            for self.code in ("queue_partition_failed", "stopping"):
                self.refusals = 3
                enqueued = await self.soon(client.queue("any").enqueue(b"down"))
                self.assertTrue(enqueued.id)
                self.assertEqual(self.refusals, 0)

    async def test_patience_has_an_end(self) -> None:
        self.refusals = 1_000_000
        async with self.server.client(patience=0.3) as client:
            for self.code in ("queue_partition_failed", "stopping"):
                with self.assertRaises(Unavailable) as raised:
                    await self.soon(client.queue("any").enqueue(b"down"))
                self.assertEqual(raised.exception.code, self.code)
                self.assertTrue(raised.exception.retryable)

    async def test_others_find_room(self) -> None:
        self.refusals = 1_000_000
        async with self.server.client(waiting_tasks_max=8, patience=3600) as client:
            queue = client.queue("any")
            down = [asyncio.ensure_future(queue.enqueue(b"down")) for _ in range(20)]
            for _ in range(20):
                await self.soon(queue.enqueue(b"up"))
            ended = [one for one in down if one.done()]
            # A quarter of the places may wait for better times.
            self.assertEqual(len(ended), 18)
            for one in ended:
                self.assertIsInstance(one.exception(), Unavailable)
            self.refusals = 0
            for one in set(down) - set(ended):
                self.assertTrue((await self.soon(one)).id)

    async def test_closing_waits_for_them(self) -> None:
        self.refusals = 3
        client = self.server.client()
        waiting = asyncio.ensure_future(client.queue("any").enqueue(b"down"))
        await asyncio.sleep(0)
        await self.soon(client.close())
        self.assertTrue(waiting.result().id)


class FailedPartitions(ScriptedTest):
    """Answers name the partitions whose tasks are missing."""

    async def test_they_are_told_with_a_queue_and_with_a_list(self) -> None:
        async def queue(request: Any, context: Any) -> Any:
            return pb.QueueInfo(name=request.name, unavailable_partitions=[1, 3])

        async def page(request: Any, context: Any) -> Any:
            first = request.cursor == ""
            return pb.ListTasksResponse(
                tasks=[pb.Task(id="a" if first else "b", state=pb.TASK_STATE_READY)],
                next_cursor="more" if first else "",
                unavailable_partitions=[1] if first else [1, 3],
            )

        self.server.get_queue, self.server.list_tasks = queue, page
        async with self.server.client() as client:
            info = await self.soon(client.queue("any").info())
            self.assertEqual(info.unavailable_partitions, (1, 3))
            listing = client.queue("any").tasks()
            self.assertEqual([task.id async for task in listing], ["a", "b"])
            self.assertEqual(listing.unavailable_partitions, {1, 3})


class Doubt(ScriptedTest):
    """The connection is lost once after tasks were taken, and is there again at once."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.seen = 0
        self.streams = 0
        self.lasts = 0.0
        self.settings = pb.QueueSettings()
        self.server.produce = self.produce

    async def produce(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        self.streams += 1
        first = self.streams == 1
        async for request in requests:
            self.seen += len(request.tasks)
            if first:
                await asyncio.sleep(self.lasts)
                await context.abort(grpc.StatusCode.UNAVAILABLE, "torn off")
            yield pb.ProduceResponse(outcomes=[pb.Enqueued(number=0, id="first", replayed=True)])

    async def info(self, request: Any, context: Any) -> Any:
        return pb.QueueInfo(name=request.name, settings=self.settings)

    async def deny(self, request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("egret-code", "denied"), ("egret-retryable", "false")))
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")

    async def enqueue(self, **options: Any) -> Any:
        async with self.server.client() as client:
            return await self.soon(client.queue("any").enqueue(1, **options))

    async def test_within_its_window_a_task_is_sent_again(self) -> None:
        enqueued = await self.enqueue(unique_key="one", unique_window=60)
        self.assertEqual((enqueued.id, enqueued.replayed, self.seen), ("first", True, 2))

    async def test_after_its_window_a_task_is_in_doubt(self) -> None:
        self.lasts = 0.2
        with self.assertRaisesRegex(UnknownOutcome, "remembered for 0.2 s only"):
            await self.enqueue(unique_key="one", unique_window=0.2)
        self.assertEqual(self.seen, 1)

    async def test_the_window_of_the_queue_counts_too(self) -> None:
        self.server.get_queue = self.info
        self.settings.unique_window_ms = 60_000
        self.assertEqual((await self.enqueue(unique_key="one")).id, "first")
        self.streams = self.seen = 0
        self.settings.unique_window_ms = 50
        with self.assertRaises(UnknownOutcome):
            await self.enqueue(unique_key="one")
        self.assertEqual(self.seen, 1)

    async def test_a_window_that_is_not_told_is_no_window(self) -> None:
        self.server.get_queue = self.deny
        with self.assertRaisesRegex(UnknownOutcome, "may be forgotten"):
            await self.enqueue(unique_key="one")
        self.assertEqual(self.seen, 1)

    async def test_a_refusal_of_the_second_try_says_nothing_of_the_first(self) -> None:
        async def produce(requests: Any, context: Any) -> AsyncIterator[Any]:
            async for _ in requests:
                if self.streams == 0:
                    self.streams += 1
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "torn off")
                error = pb.Error(code="queue_draining", message="draining")
                yield pb.ProduceResponse(outcomes=[pb.Enqueued(number=0, error=error)])

        self.server.produce = produce
        with self.assertRaises(UnknownOutcome):
            await self.enqueue(unique_key="one", unique_window=60)


class Stubborn(ScriptedTest):
    async def produce(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Takes everything, and does not end."""
        async for _ in requests:
            yield pb.ProduceResponse(outcomes=[pb.Enqueued(number=0, id="one")])
        await for_ever()

    async def test_closing_does_not_wait_for_ever(self) -> None:
        self.server.produce = self.produce
        client = self.server.client()
        await self.soon(client.queue("any").enqueue(1))
        with mock.patch("egret.connection.GOODBYE_SECONDS", 0.1):
            await self.soon(client.close())

    async def work(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Hands out one task and never says anything again."""
        yield pb.WorkResponse(welcome=pb.Welcome(lease_ms=300))
        yield pb.WorkResponse(tasks=[pb.Assignment(id="one", lease=b"one", lease_ms=300)])
        await for_ever()

    async def lose(self, before: Any) -> None:
        self.server.work = self.work
        started, cancelled = (asyncio.get_running_loop().create_future() for _ in range(2))

        async def handle(task: Task) -> None:
            started.set_result(None)
            try:
                await for_ever()
            except asyncio.CancelledError:
                cancelled.set_result(len(worker._beats))
                raise

        async with self.server.client() as client:
            worker = client.worker("any", handle, grace=0)
            running = asyncio.ensure_future(worker.run())
            await self.soon(started)
            await before()
            # Heartbeats that the server does not read do not pile up.
            self.assertLessEqual(await self.soon(cancelled), 1)
            with mock.patch("egret.worker.GOODBYE_SECONDS", 0.1):
                worker.stop()
                await self.soon(running)

    async def test_a_lease_that_nobody_acknowledges_is_lost(self) -> None:
        async def nothing() -> None:
            pass

        with mock.patch("egret.connection.GOODBYE_SECONDS", 0.1):
            await self.lose(nothing)

    async def test_a_lease_is_lost_without_a_connection_too(self) -> None:
        await self.lose(self.server.stop)

    async def test_a_fault_of_the_client_ends_a_worker_and_does_not_hang_it(self) -> None:
        self.server.work = self.work

        async def handle(task: Task) -> None:
            pass

        for name in ("_next", "_take"):
            async with self.server.client() as client:
                worker = client.worker("any", handle)
                with mock.patch.object(worker, name, side_effect=KeyError(name)):
                    with self.assertRaises(KeyError):
                        await self.soon(worker.run())

    async def test_a_fault_of_the_client_leaves_no_caller_waiting(self) -> None:
        for name in ("_pack", "_take"):
            async with self.server.client() as client:
                with mock.patch.object(client._producer, name, side_effect=KeyError(name)):
                    with self.assertRaises(EgretError) as raised:
                        await self.soon(client.queue("any").enqueue(1))
                self.assertIn(name, raised.exception.message)
