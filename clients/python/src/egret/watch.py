"""Changes of tasks as they happen."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator

import grpc
import grpc.aio

from . import errors
from ._proto import queue_pb2 as pb
from .connection import Connection, end_of
from .model import TaskChange


class Watch:
    """A subscription to changes of tasks. Made by ``Client.watch``.

    It ends with an error when the connection is lost, as it is unknown which changes were missed.
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
