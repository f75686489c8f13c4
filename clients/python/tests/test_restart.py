"""The server ends and comes back: the program that runs the tests restarts it (see ``server``)."""

from __future__ import annotations

import asyncio

from egret import State, Task, UnknownOutcome

from .server import ServerTest, kill_server, stop_server


class Restart(ServerTest):
    async def test_nothing_acknowledged_is_lost(self) -> None:
        seen: dict[int, int] = {}
        half = asyncio.get_running_loop().create_future()

        async def handle(task: Task) -> int:
            n: int = task.payload
            seen[n] = seen.get(n, 0) + 1
            if len(seen) == 300 and not half.done():
                half.set_result(None)
            await asyncio.sleep(0.01)
            return n

        # Short, so that what the dead server had pushed on its way out comes back soon.
        worker, _ = self.start(handle, concurrency=64, lease=2)
        acknowledged: dict[int, str] = {}
        unknown = 0
        numbers = iter(range(4000))

        async def caller(keyed: bool) -> None:
            nonlocal unknown
            for n in numbers:
                key = f"task-{n}" if keyed else None
                try:
                    acknowledged[n] = (await self.queue.enqueue(n, unique_key=key)).id
                except UnknownOutcome:
                    self.assertFalse(keyed, "a task with a key is sent again instead")
                    unknown += 1

        callers = asyncio.gather(*(caller(number % 2 == 0) for number in range(32)))
        await self.soon(half)
        await kill_server()
        await self.soon(callers)
        # A caller has at most one task on its way when the connection is lost.
        self.assertLessEqual(unknown, 16)
        self.assertEqual(len(acknowledged), 4000 - unknown)
        self.assertEqual(len(set(acknowledged.values())), len(acknowledged))
        for id in acknowledged.values():
            task = await self.soon(self.client.wait(id))
            self.assertEqual(task.state, State.COMPLETED)
        self.assertLessEqual(set(acknowledged), set(seen))

    async def test_a_report_outlives_the_connection(self) -> None:
        loop = asyncio.get_running_loop()
        started, go_on = loop.create_future(), loop.create_future()
        attempts = 0

        async def handle(task: Task) -> str:
            nonlocal attempts
            attempts += 1
            started.set_result(None)
            await go_on
            return "kept"

        self.start(handle, lease=60)
        enqueued = await self.queue.enqueue(1)
        await self.soon(started)
        killing = asyncio.ensure_future(kill_server())
        # The handler ends while no server listens; its report goes to the server that comes back.
        await asyncio.sleep(0.1)
        go_on.set_result(None)
        await self.soon(killing)
        self.assertEqual(await self.soon(self.client.result(enqueued.id)), "kept")
        self.assertEqual(attempts, 1)

    async def test_a_server_that_stops_leaves_no_doubt(self) -> None:
        async def handle(task: Task) -> None:
            pass

        worker, _ = self.start(handle, concurrency=16)
        some = asyncio.get_running_loop().create_future()
        numbers = iter(range(4000))
        ids: set[str] = set()

        async def caller() -> None:
            for n in numbers:
                ids.add((await self.queue.enqueue(n)).id)
                if len(ids) == 1000:
                    some.set_result(None)

        callers = asyncio.gather(*(caller() for _ in range(32)))
        await self.soon(some)
        await self.soon(stop_server())
        await self.soon(callers)
        self.assertEqual(len(ids), 4000)

        async def all_completed() -> bool:
            return (await self.queue.info()).counts.completed >= 4000

        await self.until(all_completed)
        # None was enqueued twice, and each was worked on once.
        self.assertEqual((await self.queue.info()).counts.completed, 4000)
        self.assertEqual(worker.completed, 4000)
