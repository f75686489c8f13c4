"""The server that the tests run against. The program that runs the tests has started it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import unittest
import uuid
from typing import Any, Awaitable, Callable

from egret import Client, Task, Worker

URL = os.environ["EGRET_URL"]
TOKEN = os.environ["EGRET_TOKEN"]

# Handlers that fail are what many tests are about.
logging.getLogger("egret").propagate = False
logging.getLogger("egret").addHandler(logging.NullHandler())

#: Far longer than anything here takes on a slow machine; only a broken test waits for it.
PATIENCE = 60.0


async def kill_server() -> None:
    """Has the server killed and started again by the program that runs the tests.

    It reads ``KILL`` from standard output and answers with a line when the server is up again.
    """
    await _ask_for("KILL")


async def stop_server() -> None:
    """The same with ``STOP``, by the signal that lets the server end in an orderly way."""
    await _ask_for("STOP")


async def _ask_for(word: str) -> None:
    print(word, flush=True)
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if not line:
        raise RuntimeError("nobody is there to restart the server")


class ServerTest(unittest.IsolatedAsyncioTestCase):
    """A test with a client and a queue of its own."""

    async def asyncSetUp(self) -> None:
        # unittest turns it on, which makes everything several times slower.
        asyncio.get_running_loop().set_debug(False)
        self.client = Client(URL, TOKEN)
        self.addAsyncCleanup(self.client.close)
        self.name = f"python-{uuid.uuid4().hex[:12]}"
        self.queue = self.client.queue(self.name)
        await self.queue.put()

    def start(
        self, handler: Callable[[Task], Awaitable[Any]], **options: Any
    ) -> tuple[Worker, asyncio.Future[None]]:
        """Starts a worker on the queue, which is stopped when the test ends."""
        worker = self.client.worker(self.name, handler, **options)
        running = asyncio.ensure_future(worker.run())

        async def end() -> None:
            worker.stop()
            await asyncio.wait((running,))

        self.addAsyncCleanup(end)
        return worker, running

    async def soon(self, what: Awaitable[Any]) -> Any:
        """What must happen, and does not take long."""
        return await asyncio.wait_for(what, PATIENCE)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Asks the server again and again until something holds."""

        async def ask() -> None:
            while not await holds():
                await asyncio.sleep(0.01)

        await self.soon(ask())
