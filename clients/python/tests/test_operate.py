"""Looking, operating, schedules, changes, and errors."""

from __future__ import annotations

import asyncio
import uuid

from egret import (
    Client,
    Conflict,
    EgretError,
    Enqueued,
    EnqueueRefused,
    InvalidRequest,
    LimitReached,
    NewTask,
    NotFound,
    PermanentError,
    QueueSettings,
    Retention,
    RetryPolicy,
    State,
    Task,
    Unauthenticated,
    Unavailable,
    errors,
)
from egret._proto import queue_pb2 as pb

from .server import TOKEN, URL, ServerTest


class Looking(ServerTest):
    async def test_listing_goes_through_all_pages(self) -> None:
        await self.queue.enqueue_many(
            [NewTask(n, tags=["even"] if n % 2 == 0 else []) for n in range(250)]
        )
        listed = [task.id async for task in self.queue.tasks(page=40)]
        self.assertEqual((len(listed), len(set(listed))), (250, 250))
        even = [task async for task in self.queue.tasks("ready", tag="even")]
        self.assertEqual(len(even), 125)
        self.assertEqual(even[0].tags, ["even"])
        self.assertEqual([task async for task in self.queue.tasks(State.DEAD)], [])

    async def test_a_brief_look_leaves_the_payload_out(self) -> None:
        enqueued = await self.queue.enqueue({"n": 1})
        self.assertEqual((await self.client.get(enqueued.id)).payload, {"n": 1})
        brief = await self.client.get(enqueued.id, brief=True)
        self.assertEqual((brief.id, brief.payload), (enqueued.id, None))

    async def test_cancel_requeue_delete(self) -> None:
        enqueued = await self.queue.enqueue(1)
        self.assertEqual((await self.client.cancel(enqueued.id)).state, State.CANCELLED)
        self.assertEqual((await self.client.requeue(enqueued.id)).state, State.READY)
        await self.client.delete(enqueued.id)
        with self.assertRaises(NotFound) as raised:
            await self.client.get(enqueued.id)
        self.assertEqual(raised.exception.code, "task_not_found")
        self.assertFalse(raised.exception.retryable)


class Operating(ServerTest):
    async def test_settings_are_kept_and_changed_one_by_one(self) -> None:
        await self.queue.put(
            max_attempts=7,
            lease=12.5,
            concurrency=3,
            rate_per_second=99.5,
            retry=RetryPolicy("linear", base=2, max=60, jitter="equal"),
            completed=Retention(age=3600, count=500),
        )
        info = await self.queue.put(concurrency=0)
        settings: QueueSettings = info.settings
        self.assertEqual((settings.max_attempts, settings.lease), (7, 12.5))
        self.assertEqual((settings.concurrency, settings.rate_per_second), (0, 99.5))
        self.assertEqual(settings.retry, RetryPolicy("linear", base=2, max=60, jitter="equal"))
        self.assertEqual(settings.completed, Retention(age=3600, count=500))
        self.assertIn(self.name, [queue.name for queue in await self.client.queues()])

    async def test_pause_and_resume(self) -> None:
        async def handle(task: Task) -> None:
            pass

        await self.queue.put()
        self.assertTrue((await self.queue.pause()).paused)
        worker, _ = self.start(handle)
        enqueued = await self.queue.enqueue(1)
        with self.assertRaises(EgretError):
            await self.client.wait(enqueued.id, timeout=0.3)
        self.assertEqual((await self.client.get(enqueued.id)).state, State.READY)
        self.assertFalse((await self.queue.resume()).paused)
        await self.soon(self.client.result(enqueued.id))

    async def test_a_draining_queue_takes_nothing(self) -> None:
        await self.queue.put()
        self.assertTrue((await self.queue.drain()).draining)
        with self.assertRaises(EgretError) as raised:
            await self.queue.enqueue(1)
        self.assertEqual(raised.exception.code, "queue_draining")
        self.assertFalse((await self.queue.resume()).draining)
        await self.queue.enqueue(1)

    async def test_dead_tasks_are_put_back_and_purged(self) -> None:
        async def handle(task: Task) -> None:
            raise PermanentError("no")

        worker, running = self.start(handle)
        enqueued = [await self.queue.enqueue(n) for n in range(3)]
        for task in enqueued:
            self.assertEqual((await self.soon(self.client.wait(task.id))).state, State.DEAD)
        worker.stop()
        await self.soon(running)
        self.assertEqual(await self.queue.requeue_dead(2), 2)
        counts = (await self.queue.info()).counts
        self.assertEqual((counts.ready, counts.dead), (2, 1))
        self.assertEqual(await self.queue.purge([State.DEAD]), 1)
        self.assertEqual(await self.queue.purge(), 2)

    async def test_a_queue_with_tasks_is_deleted_by_force_only(self) -> None:
        await self.queue.enqueue(1)
        with self.assertRaises(EgretError) as raised:
            await self.queue.delete()
        self.assertEqual(raised.exception.code, "queue_in_use")
        await self.queue.delete(force=True)
        with self.assertRaises(NotFound) as missing:
            await self.queue.info()
        self.assertEqual(missing.exception.code, "queue_not_found")


class Schedules(ServerTest):
    async def test_a_schedule_ticks_until_it_is_paused(self) -> None:
        seen: asyncio.Queue[object] = asyncio.Queue()

        async def handle(task: Task) -> None:
            seen.put_nowait(task.payload)

        self.start(handle)
        schedule = self.client.schedule(f"every-second-{uuid.uuid4().hex[:8]}")
        task = NewTask({"report": "daily"}, tags=["scheduled"])
        made = await schedule.put(
            "* * * * * *", self.name, task, time_zone="Europe/Zurich", missed="skip"
        )
        self.assertEqual((made.queue, made.missed, made.paused), (self.name, "skip", False))
        self.assertEqual(made.payload, {"report": "daily"})
        self.assertIsNotNone(made.next_at)
        for _ in range(2):
            self.assertEqual(await self.soon(seen.get()), {"report": "daily"})
        self.assertTrue((await schedule.pause()).paused)
        info = await schedule.info()
        self.assertIsNotNone(info.last_at)
        self.assertFalse(info.waiting)
        self.assertTrue((await self.client.get(info.last_task)).id)
        self.assertIn(schedule.name, [other.name for other in await self.client.schedules()])
        self.assertFalse((await schedule.resume()).paused)
        await schedule.delete()
        with self.assertRaises(NotFound):
            await schedule.info()

    async def test_a_bad_expression_is_refused(self) -> None:
        with self.assertRaises(InvalidRequest):
            await self.client.schedule("bad").put("every tuesday", self.name, 1)


class Changes(ServerTest):
    async def test_changes_are_told(self) -> None:
        async def handle(task: Task) -> None:
            pass

        async with self.client.watch(self.name) as changes:
            enqueued = await self.queue.enqueue(1)
            self.start(handle)
            states: list[State] = []

            async def read() -> None:
                async for change in changes:
                    self.assertEqual((change.id, change.queue), (enqueued.id, self.name))
                    states.append(change.state)
                    if change.state.ended:
                        return

            await self.soon(read())
            self.assertEqual(states, [State.READY, State.LEASED, State.COMPLETED])
            self.assertEqual(changes.missed, 0)

    async def test_closing_ends_the_loop(self) -> None:
        async with self.client.watch(self.name, ["dead"]) as changes:

            async def read() -> list[object]:
                return [change async for change in changes]

            reading = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            changes.close()
            self.assertEqual(await self.soon(reading), [])


class Refusals(ServerTest):
    async def test_a_wrong_token_is_said_at_every_door(self) -> None:
        async def handle(task: Task) -> None:
            pass

        async with Client(URL, "wrong") as stranger:
            calls = [
                stranger.get("any"),
                stranger.queue("any").enqueue(1),
                stranger.queue("any").enqueue_many([NewTask(1)]),
                stranger.work("any", handle),
            ]
            for call in calls:
                with self.assertRaises(Unauthenticated) as raised:
                    await self.soon(call)
                self.assertFalse(raised.exception.retryable)

    async def test_a_queue_that_is_not_there(self) -> None:
        async def handle(task: Task) -> None:
            pass

        calls = [
            self.client.queue("nobody").enqueue(1),
            self.client.queue("nobody").info(),
            self.client.work([self.name, "nobody"], handle),
        ]
        for call in calls:
            with self.assertRaises(NotFound) as raised:
                await self.soon(call)
            self.assertEqual(raised.exception.code, "queue_not_found")

    async def test_one_bad_task_does_not_harm_the_others(self) -> None:
        outcomes = await self.soon(
            asyncio.gather(
                self.queue.enqueue(1),
                self.queue.enqueue(2, priority=10),
                self.queue.enqueue(3),
                return_exceptions=True,
            )
        )
        self.assertIsInstance(outcomes[0], Enqueued)
        self.assertIsInstance(outcomes[1], EgretError)
        self.assertIsInstance(outcomes[2], Enqueued)

    async def test_a_code_is_the_same_class_at_every_door(self) -> None:
        with self.assertRaises(InvalidRequest):
            await self.queue.enqueue(1, priority=10)
        with self.assertRaises(InvalidRequest):
            await self.client.get("x")
        with self.assertRaises(EnqueueRefused) as raised:
            await self.queue.enqueue_many([NewTask(1, priority=10)])
        self.assertIsInstance(raised.exception.outcomes[0], InvalidRequest)
        with self.assertRaises(LimitReached) as limit:
            await self.queue.enqueue_many([NewTask(n) for n in range(1001)])
        self.assertEqual(limit.exception.code, "limit_exceeded")
        of_one = errors.of_item(pb.Error(code="limit_exceeded", retryable=True))
        self.assertIsInstance(of_one, LimitReached)
        enqueued = await self.queue.enqueue(1)
        await self.queue.drain()
        with self.assertRaises(Conflict) as draining:
            await self.queue.enqueue(1)
        self.assertEqual(draining.exception.code, "queue_draining")
        await self.client.cancel(enqueued.id)
        with self.assertRaises(Conflict) as ended:
            await self.client.cancel(enqueued.id)
        self.assertEqual(ended.exception.code, "task_wrong_state")

    async def test_enqueue_many_says_which_were_refused(self) -> None:
        with self.assertRaises(EnqueueRefused) as raised:
            await self.queue.enqueue_many([NewTask(1), NewTask(2, priority=10)])
        outcomes = raised.exception.outcomes
        self.assertIsInstance(outcomes[0], Enqueued)
        self.assertIsInstance(outcomes[1], EgretError)

    async def test_an_atomic_call_enqueues_all_tasks_or_none(self) -> None:
        with self.assertRaises(EnqueueRefused) as raised:
            await self.queue.enqueue_many([NewTask(1), NewTask(2, priority=10)], atomic=True)
        for outcome in raised.exception.outcomes:
            self.assertIsInstance(outcome, EgretError)
        self.assertEqual([task async for task in self.queue.tasks()], [])
        made = await self.queue.enqueue_many([NewTask(1), NewTask(2)], atomic=True)
        self.assertEqual(len([task async for task in self.queue.tasks()]), len(made))

    async def test_a_payload_that_is_too_large_ends_nobody_elses_stream(self) -> None:
        outcomes = await self.soon(
            asyncio.gather(
                self.queue.enqueue(1),
                self.queue.enqueue(b"x" * (2 << 20)),
                self.queue.enqueue(b"x" * (8 << 20)),
                self.queue.enqueue(4),
                return_exceptions=True,
            )
        )
        self.assertIsInstance(outcomes[0], Enqueued)
        self.assertIsInstance(outcomes[1], LimitReached)
        # More than a message takes.
        self.assertIsInstance(outcomes[2], LimitReached)
        self.assertIsInstance(outcomes[3], Enqueued)

    async def test_what_cannot_be_sent_is_refused_here(self) -> None:
        for payload in (object(), {"n": float("nan")}):
            with self.assertRaises((TypeError, ValueError)):
                await self.queue.enqueue(payload)
        with self.assertRaises(ValueError):
            await self.queue.enqueue(1, delay=-1)
        with self.assertRaises(TypeError):
            await self.queue.enqueue(1, tags="red")

    async def test_no_message_shows_a_password_of_the_url(self) -> None:
        for scheme in ("ftp://", "http://", ""):
            with self.assertRaises(ValueError) as raised:
                Client(scheme + "admin:TOPSECRET@host", TOKEN)
            self.assertNotIn("TOPSECRET", str(raised.exception))

    async def test_a_server_that_is_not_there(self) -> None:
        # Nothing listens on the discard port.
        async with Client("http://127.0.0.1:9", TOKEN, patience=0.5) as nobody:
            with self.assertRaises(Unavailable) as raised:
                await self.soon(nobody.get("any"))
            self.assertTrue(raised.exception.retryable)
            with self.assertRaises(Unavailable) as waited:
                await self.soon(nobody.queue("any").enqueue(1))
            self.assertEqual(waited.exception.code, "unreachable")
