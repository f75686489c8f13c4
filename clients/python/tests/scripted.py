"""A server that does what a test says, where Egret itself would not do it, or not when it is wanted."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Awaitable, Callable, Optional

import grpc
import grpc.aio

from egret import Client
from egret._proto import queue_pb2 as pb

Stream = Callable[[AsyncIterator[Any], Any], AsyncIterator[Any]]
Single = Callable[[Any, Any], Awaitable[Any]]


class Scripted:
    """Speaks the contract on a port of its own; ``produce``, ``work`` and single calls may be set."""

    def __init__(self) -> None:
        self.produce: Stream = take_all
        self.work: Optional[Stream] = None
        self.get_queue: Optional[Single] = None
        self.list_tasks: Optional[Single] = None
        self._server: Any = None
        self.port = 0

    async def start(self) -> None:
        """Listens, once more on the same port after ``stop``."""
        streams = {"Produce": pb.ProduceRequest, "Work": pb.WorkRequest}
        methods = {
            name: grpc.stream_stream_rpc_method_handler(
                self._stream(name.lower()), kind.FromString, lambda reply: reply.SerializeToString()
            )
            for name, kind in streams.items()
        }
        calls = {"GetQueue": pb.QueueRequest, "ListTasks": pb.ListTasksRequest}
        for name, request in calls.items():
            methods[name] = grpc.unary_unary_rpc_method_handler(
                self._single(name), request.FromString, lambda reply: reply.SerializeToString()
            )
        self._server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler("egret.queue.v1.Queue", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Tears off what is open."""
        await self._server.stop(None)

    def client(self, **options: Any) -> Client:
        """A client of this server."""
        return Client(f"http://127.0.0.1:{self.port}", "token", **options)

    def _stream(self, name: str) -> Any:
        async def serve(requests: Any, context: Any) -> AsyncIterator[Any]:
            await context.send_initial_metadata(())
            async for reply in getattr(self, name)(requests, context):
                yield reply

        return serve

    def _single(self, name: str) -> Single:
        attribute = {"GetQueue": "get_queue", "ListTasks": "list_tasks"}[name]

        async def answer(request: Any, context: Any) -> Any:
            single: Optional[Single] = getattr(self, attribute)
            assert single is not None, f"{name} was not expected"
            return await single(request, context)

        return answer


async def take_all(requests: Any, context: Any) -> AsyncIterator[pb.ProduceResponse]:
    """Acknowledges every task."""
    number = 0
    async for request in requests:
        response = pb.ProduceResponse()
        for _ in request.tasks:
            response.outcomes.add(number=number, id=f"task-{number}")
            number += 1
        yield response


async def for_ever() -> None:
    """Until the stream is torn off."""
    await asyncio.get_running_loop().create_future()
