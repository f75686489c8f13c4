"""Enqueueing and working: the fast path, and what becomes of a task."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import datetime, timedelta, timezone

from egret import (
    Client,
    NewTask,
    PermanentError,
    Retry,
    RetryPolicy,
    Snooze,
    State,
    Task,
    TaskCancelled,
    TaskFailed,
    TimedOut,
)

from .server import TOKEN, URL, ServerTest


class RoundTrip(ServerTest):
    async def test_a_thousand_tasks_of_many_callers(self) -> None:
        async def handle(task: Task) -> dict[str, int]:
            return {"double": task.payload["n"] * 2}

        worker, _ = self.start(handle, concurrency=128)
        numbers = iter(range(1000))
        ids: dict[int, str] = {}

        async def caller() -> None:
            for n in numbers:
                ids[n] = (await self.queue.enqueue({"n": n})).id

        await self.soon(asyncio.gather(*(caller() for _ in range(32))))
        self.assertEqual(len(set(ids.values())), 1000)
        # What waits goes out together: 32 callers cannot have needed a message for each task.
        self.assertLess(self.client.produce_messages_sent, 500)

        results = await self.soon(
            asyncio.gather(*(self.client.result(ids[n]) for n in range(0, 1000, 50)))
        )
        self.assertEqual(results, [{"double": n * 2} for n in range(0, 1000, 50)])

        async def all_acknowledged() -> bool:
            return worker.completed == 1000

        await self.until(all_acknowledged)
        self.assertEqual((await self.queue.info()).counts.completed, 1000)

    async def test_tasks_that_end_together_are_reported_together(self) -> None:
        together = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> None:
            await together

        worker, _ = self.start(handle, concurrency=100)
        await self.queue.enqueue_many(NewTask(n) for n in range(100))

        async def all_running() -> bool:
            return worker.running == 100

        async def all_acknowledged() -> bool:
            return worker.completed == 100

        await self.until(all_running)
        before = worker.messages_sent
        together.set_result(None)
        await self.until(all_acknowledged)
        self.assertLessEqual(worker.messages_sent - before, 3)

    async def test_many_tasks_enqueued_in_one_go_are_few_messages(self) -> None:
        await self.soon(asyncio.gather(*(self.queue.enqueue(n) for n in range(2000))))
        # A message takes a thousand; the first may have left with less.
        self.assertLessEqual(self.client.produce_messages_sent, 4)
        self.assertEqual((await self.queue.info()).counts.ready, 2000)

    async def test_payloads_and_results_come_as_they_went(self) -> None:
        async def handle(task: Task) -> object:
            return task.payload

        self.start(handle)
        values = [
            {"to": "ada", "n": [1, 2.5, None, True]},
            "grüße",
            7,
            None,
            [],
            b"",
            b"\x00\xff\xfe",
            b"x" * (1 << 20),
        ]
        for value in values:
            task = await self.queue.enqueue(value)
            self.assertEqual(await self.soon(self.client.result(task.id)), value)
            self.assertEqual((await self.client.get(task.id)).payload, value)

    async def test_a_task_carries_what_it_was_given(self) -> None:
        seen: asyncio.Future[Task] = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> None:
            seen.set_result(task)

        before = datetime.now(timezone.utc) - timedelta(seconds=5)
        enqueued = await self.queue.enqueue(
            1,
            priority=9,
            ordering_key="customer-7",
            max_attempts=4,
            timeout=timedelta(minutes=1),
            tags=["red", "blue"],
            metadata={"region": "zh"},
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        self.assertFalse(enqueued.replayed)
        self.start(handle)
        task = await self.soon(seen)
        self.assertEqual(task.id, enqueued.id)
        self.assertEqual(task.queue, self.name)
        self.assertEqual((task.priority, task.attempt, task.max_attempts), (9, 1, 4))
        self.assertEqual(task.ordering_key, "customer-7")
        self.assertEqual(sorted(task.tags), ["blue", "red"])
        self.assertEqual(task.metadata, {"region": "zh"})
        self.assertTrue(task.traceparent.startswith("00-0af765"))
        assert task.created_at is not None
        self.assertGreater(task.created_at, before)

    async def test_the_higher_priority_is_first(self) -> None:
        seen: list[int] = []

        async def handle(task: Task) -> None:
            seen.append(task.payload)

        # What one call enqueues is in one partition, and priorities hold within each.
        await self.queue.enqueue_many(NewTask(n, priority=n) for n in (1, 9, 5))
        worker, _ = self.start(handle, concurrency=1)

        async def all_done() -> bool:
            return worker.completed == 3

        await self.until(all_done)
        self.assertEqual(seen, [9, 5, 1])

    async def test_a_unique_key_is_enqueued_once(self) -> None:
        first = await self.queue.enqueue(1, unique_key="invoice-7", unique_window=3600)
        second = await self.queue.enqueue(2, unique_key="invoice-7", unique_window=3600)
        self.assertEqual((first.replayed, second.replayed), (False, True))
        self.assertEqual(first.id, second.id)

    async def test_a_delayed_task_is_not_early(self) -> None:
        async def handle(task: Task) -> float:
            return datetime.now(timezone.utc).timestamp()

        self.start(handle)
        due = datetime.now(timezone.utc) + timedelta(seconds=0.5)
        by_delay = await self.queue.enqueue(1, delay=0.5)
        by_time = await self.queue.enqueue(1, run_at=due)
        self.assertEqual((await self.client.get(by_delay.id)).state, State.DELAYED)
        for task in (by_delay, by_time):
            self.assertGreaterEqual(
                await self.soon(self.client.result(task.id)), due.timestamp() - 0.01
            )

    async def test_a_chain_runs_in_order(self) -> None:
        seen: list[str] = []

        async def handle(task: Task) -> None:
            seen.append(task.payload)

        outcomes = await self.queue.enqueue_many(
            [
                NewTask("extract"),
                NewTask("transform", after=["#0"]),
                NewTask("load", after=["#1", "#0"]),
            ]
        )
        last = await self.queue.enqueue("tell", after=[outcomes[2].id])
        self.assertEqual((await self.client.get(last.id)).state, State.WAITING)
        self.start(handle)
        await self.soon(self.client.wait(last.id))
        self.assertEqual(seen, ["extract", "transform", "load", "tell"])

    async def test_enqueueing_waits_for_room(self) -> None:
        async with Client(URL, TOKEN, waiting_tasks_max=10, waiting_bytes_max=1000) as small:
            queue = small.queue(self.name)
            await self.soon(asyncio.gather(*(queue.enqueue(n) for n in range(200))))
        self.assertEqual((await self.queue.info()).counts.ready, 200)


class Outcomes(ServerTest):
    async def test_a_failure_is_tried_again(self) -> None:
        async def handle(task: Task) -> str:
            if task.attempt < 3:
                raise ValueError(f"not yet, attempt {task.attempt}")
            return "done"

        self.start(handle)
        retry = RetryPolicy("fixed", base=0.05, jitter="none")
        enqueued = await self.queue.enqueue(1, max_attempts=5, retry=retry)
        task = await self.soon(self.client.wait(enqueued.id))
        self.assertEqual((task.state, task.result, task.attempts), (State.COMPLETED, "done", 3))
        self.assertEqual([a.outcome for a in task.history], ["failed", "failed", "completed"])
        self.assertEqual(task.history[0].error, "ValueError: not yet, attempt 1")

    async def test_the_last_failure_is_the_end(self) -> None:
        async def handle(task: Task) -> None:
            raise ValueError("never")

        self.start(handle)
        retry = RetryPolicy("fixed", base=0.01, jitter="none")
        enqueued = await self.queue.enqueue(1, max_attempts=2, retry=retry)
        with self.assertRaises(TaskFailed) as raised:
            await self.soon(self.client.result(enqueued.id))
        self.assertIn("ValueError: never", str(raised.exception))
        self.assertEqual((await self.client.get(enqueued.id)).attempts, 2)

    async def test_a_permanent_error_is_not_tried_again(self) -> None:
        async def handle(task: Task) -> None:
            raise PermanentError("no such customer")

        self.start(handle)
        enqueued = await self.queue.enqueue(1, max_attempts=5)
        task = await self.soon(self.client.wait(enqueued.id))
        self.assertEqual((task.state, task.attempts), (State.DEAD, 1))
        self.assertIn("no such customer", task.error)

    async def test_not_now_counts_and_not_yet_does_not(self) -> None:
        attempts: dict[str, list[int]] = {"retry": [], "snooze": []}

        async def handle(task: Task) -> None:
            seen = attempts[task.payload]
            seen.append(task.attempt)
            if len(seen) < 3:
                raise Retry(0.02, "busy") if task.payload == "retry" else Snooze(0.02)

        self.start(handle)
        for kind in attempts:
            enqueued = await self.queue.enqueue(kind, max_attempts=5)
            task = await self.soon(self.client.wait(enqueued.id))
            self.assertEqual(task.state, State.COMPLETED)
        self.assertEqual(attempts, {"retry": [1, 2, 3], "snooze": [1, 1, 1]})

    async def test_a_result_that_is_refused_fails_the_attempt(self) -> None:
        async def handle(task: Task) -> bytes:
            return b"x" * (3 << 20)

        self.start(handle)
        enqueued = await self.queue.enqueue(1, max_attempts=1)
        with self.assertRaises(TaskFailed) as raised:
            await self.soon(self.client.result(enqueued.id))
        self.assertIn("the result was refused", str(raised.exception))

    async def test_a_cancelled_task_cancels_its_handler(self) -> None:
        loop = asyncio.get_running_loop()
        started, cancelled = loop.create_future(), loop.create_future()

        async def handle(task: Task) -> None:
            started.set_result(None)
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.set_result(None)
                raise

        self.start(handle)
        enqueued = await self.queue.enqueue(1)
        await self.soon(started)
        self.assertEqual((await self.client.cancel(enqueued.id)).state, State.CANCELLED)
        await self.soon(cancelled)
        with self.assertRaises(TaskCancelled):
            await self.client.result(enqueued.id)

    async def test_an_attempt_that_takes_too_long_loses_its_lease(self) -> None:
        cancelled = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> str:
            if task.attempt > 1:
                return "second"
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.set_result(None)
                raise
            return "first"

        self.start(handle)
        retry = RetryPolicy("fixed", base=0.01, jitter="none")
        enqueued = await self.queue.enqueue(1, timeout=0.3, max_attempts=2, retry=retry)
        self.assertEqual(await self.soon(self.client.result(enqueued.id)), "second")
        await self.soon(cancelled)

    async def test_a_handler_that_blocks_the_loop_keeps_its_lease(self) -> None:
        async def handle(task: Task) -> int:
            time.sleep(2)
            return task.attempt

        self.start(handle, lease=0.5)
        enqueued = await self.queue.enqueue(1, max_attempts=3)
        self.assertEqual(await self.soon(self.client.result(enqueued.id)), 1)
        view = await self.client.get(enqueued.id)
        self.assertEqual((view.attempts, len(view.history)), (1, 1))

    async def test_heartbeats_keep_a_lease(self) -> None:
        async def handle(task: Task) -> int:
            await asyncio.sleep(2.5)
            return task.attempt

        worker, _ = self.start(handle, lease=0.6)
        enqueued = await self.queue.enqueue(1)
        self.assertEqual(await self.soon(self.client.result(enqueued.id)), 1)
        self.assertEqual((await self.client.get(enqueued.id)).attempts, 1)
        # At least one in each third of a lease, or almost.
        self.assertGreaterEqual(worker.heartbeats_sent, 8)

    async def test_heartbeats_follow_the_lease_of_each_queue(self) -> None:
        held = asyncio.get_running_loop().create_future()
        short = self.client.queue(f"{self.name}-short")
        await self.queue.put(lease=3600)
        await short.put(lease=0.6)

        async def handle(task: Task) -> int:
            await held
            return task.attempt

        worker = self.client.worker([self.name, short.name], handle)
        running = asyncio.ensure_future(worker.run())
        enqueued = [await queue.enqueue(1) for queue in (self.queue, self.queue, short)]

        async def three_leases_have_passed() -> bool:
            return worker.heartbeats_sent >= 9

        # Those of an hour need no heartbeat.
        await self.until(three_leases_have_passed)
        held.set_result(None)
        for task in enqueued:
            self.assertEqual(await self.soon(self.client.result(task.id)), 1)
        worker.stop()
        await self.soon(running)

    async def test_a_result_that_no_message_takes_fails_the_attempt(self) -> None:
        async def handle(task: Task) -> bytes:
            return b"x" * (9 << 20)

        self.start(handle)
        enqueued = await self.queue.enqueue(1, max_attempts=1)
        with self.assertRaises(TaskFailed) as raised:
            await self.soon(self.client.result(enqueued.id))
        self.assertIn("more than a message takes", str(raised.exception))

    async def test_many_waits_leave_room_for_other_calls(self) -> None:
        ids = [(await self.queue.enqueue(n, delay=600)).id for n in range(400)]
        waits = [asyncio.ensure_future(self.client.wait(id)) for id in ids]
        await self.soon(self.client.get(ids[0]))
        await self.soon(self.client.cancel(ids[1]))
        self.assertEqual((await self.soon(waits[1])).state, State.CANCELLED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        # The stream goes on for those who come later.
        await self.client.cancel(ids[2])
        self.assertEqual((await self.soon(self.client.wait(ids[2]))).state, State.CANCELLED)

    async def test_waiting_has_an_end(self) -> None:
        enqueued = await self.queue.enqueue(1)
        with self.assertRaises(TimedOut):
            await self.client.wait(enqueued.id, timeout=0.2)


class Stopping(ServerTest):
    async def test_a_stop_finishes_what_runs(self) -> None:
        loop = asyncio.get_running_loop()
        started, go_on = loop.create_future(), loop.create_future()

        async def handle(task: Task) -> str:
            started.set_result(None)
            await go_on
            return "finished"

        worker, running = self.start(handle, concurrency=1)
        first = await self.queue.enqueue(1)
        await self.soon(started)
        others = [await self.queue.enqueue(n) for n in range(5)]
        worker.stop()
        self.assertFalse(running.done())
        go_on.set_result(None)
        await self.soon(running)
        self.assertEqual((await self.client.get(first.id)).result, "finished")
        for other in others:
            info = await self.client.get(other.id)
            self.assertEqual((info.state, info.attempts), (State.READY, 0))

    async def test_a_stop_gives_back_what_takes_too_long(self) -> None:
        count = 0
        all_started = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> None:
            nonlocal count
            count += 1
            if count == 5:
                all_started.set_result(None)
            await asyncio.sleep(600)

        worker, running = self.start(handle, concurrency=5, grace=0.1)
        enqueued = [await self.queue.enqueue(n) for n in range(20)]
        await self.soon(all_started)
        worker.stop()
        await self.soon(running)
        for task in enqueued:
            info = await self.client.get(task.id)
            # A task that was given back is as if no worker had held it.
            self.assertEqual((info.state, info.attempts), (State.READY, 0))

    async def test_a_stop_amid_many_tasks_holds_none_back(self) -> None:
        async def handle(task: Task) -> None:
            await asyncio.sleep(0.001)

        worker, running = self.start(handle, concurrency=64)
        enqueueing = asyncio.gather(*(self.queue.enqueue(n) for n in range(3000)))

        async def some_are_done() -> bool:
            return worker.completed > 0

        await self.until(some_are_done)
        worker.stop()
        await self.soon(running)
        await self.soon(enqueueing)
        counts = (await self.queue.info()).counts
        # What was pushed in the last moment is not held until its lease ends.
        self.assertEqual((counts.leased, counts.delayed, counts.dead), (0, 0, 0))
        self.assertEqual(counts.ready + counts.completed, 3000)
        self.assertEqual(counts.completed, worker.completed)

    async def test_cancelling_stops_gracefully_too(self) -> None:
        started = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> str:
            started.set_result(None)
            await asyncio.sleep(0.2)
            return "finished"

        work = asyncio.ensure_future(self.client.work(self.name, handle))
        enqueued = await self.queue.enqueue(1)
        await self.soon(started)
        work.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await self.soon(work)
        self.assertEqual((await self.client.get(enqueued.id)).result, "finished")

    async def test_a_signal_stops_when_asked_to(self) -> None:
        started = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> str:
            started.set_result(None)
            await asyncio.sleep(0.2)
            return "finished"

        _, running = self.start(handle, signals=True)
        enqueued = await self.queue.enqueue(1)
        await self.soon(started)
        os.kill(os.getpid(), signal.SIGTERM)
        await self.soon(running)
        self.assertEqual((await self.client.get(enqueued.id)).result, "finished")

    async def test_a_second_signal_gives_back_what_still_runs(self) -> None:
        started = asyncio.Semaphore(0)
        cancelled = 0

        async def handle(task: Task) -> None:
            nonlocal cancelled
            started.release()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled += 1
                raise

        _, running = self.start(handle, signals=True, concurrency=3, grace=3600)
        enqueued = await self.queue.enqueue_many([NewTask(n) for n in range(4)])
        for _ in range(3):
            await self.soon(started.acquire())
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        await self.soon(running)
        self.assertEqual(cancelled, 3)
        for one in enqueued:
            task = await self.client.get(one.id)
            self.assertEqual((task.state, task.attempts), (State.READY, 0))
