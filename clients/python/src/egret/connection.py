"""The connection to one Egret: the channel, single calls, and how long to wait between attempts."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Callable, Optional, TypeVar, cast
from urllib.parse import urlsplit

import grpc
import grpc.aio

from . import errors

Reply = TypeVar("Reply")

SERVICE = "/egret.queue.v1.Queue/"

BACKOFF_FIRST = 0.1
"""Seconds before the second attempt to reach Egret."""
BACKOFF_LONGEST = 5.0
"""Most seconds between two attempts."""

GOODBYE_SECONDS = 5.0
"""How long to wait for the end of a stream over which nothing more is to come."""

_OPTIONS: tuple[tuple[str, Any], ...] = (
    # A page of results or a message full of tasks may be larger than gRPC's default of 4 MiB.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", int(BACKOFF_FIRST * 1000)),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", int(BACKOFF_LONGEST * 1000)),
    # A peer that has gone without a word is noticed within half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Clients of one process must not share a connection without knowing it.
    ("grpc.use_local_subchannel_pool", 1),
)


class Backoff:
    """Delays that double up to a longest one, each with jitter, until something succeeds."""

    def __init__(self, first: float = BACKOFF_FIRST) -> None:
        self._next = first

    def reset(self) -> None:
        """Something succeeded: the next delay is the shortest again."""
        self._next = BACKOFF_FIRST

    def delay(self) -> float:
        """Seconds to wait now: half of the delay that is due, and up to as much again."""
        due = self._next
        self._next = min(due * 2, BACKOFF_LONGEST)
        return due * (0.5 + random.random() / 2)


class Connection:
    """A channel that is opened when it is first needed, in the event loop that needs it."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        call_timeout: float,
        root_certificates: Optional[bytes],
    ) -> None:
        parts = urlsplit(url)
        # What stands before `@` may be a password.
        shown = url.rpartition("@")[2]
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the url {shown!r} is not of the form http://127.0.0.1:7070 or https://host")
        if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
            raise ValueError(f"the url {shown!r} has more than scheme, host and port")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self._secure = parts.scheme == "https"
        self._target = f"{host}:{parts.port or (443 if self._secure else 80)}"
        self._root_certificates = root_certificates
        self._channel: Optional[grpc.aio.Channel] = None
        self._calls: dict[str, Any] = {}
        self._closed = False
        self.call_timeout = call_timeout
        self.metadata = (("authorization", f"Bearer {token}"),)

    def _open(self) -> grpc.aio.Channel:
        if self._closed:
            raise errors.Unavailable("client_closed", "the client is closed")
        if self._channel is None:
            if self._secure:
                credentials = grpc.ssl_channel_credentials(self._root_certificates)
                self._channel = grpc.aio.secure_channel(self._target, credentials, _OPTIONS)
            else:
                self._channel = grpc.aio.insecure_channel(self._target, _OPTIONS)
        return self._channel

    def open_blocking(self) -> grpc.Channel:
        """A channel of its own for a thread that has no event loop; the caller closes it."""
        if self._secure:
            credentials = grpc.ssl_channel_credentials(self._root_certificates)
            return grpc.secure_channel(self._target, credentials, _OPTIONS)
        return grpc.insecure_channel(self._target, _OPTIONS)

    def _callable(self, kind: str, method: str, reply: type[Reply]) -> Any:
        made = self._calls.get(method)
        if made is None:
            make = getattr(self._open(), kind)
            made = self._calls[method] = make(
                SERVICE + method,
                request_serializer=_serialize,
                response_deserializer=cast(Any, reply).FromString,
            )
        return made

    async def call(
        self,
        method: str,
        request: Any,
        reply: type[Reply],
        timeout: Optional[float] = None,
    ) -> Reply:
        """One call with one answer, within ``timeout`` seconds or those of the client."""
        try:
            return cast(Reply, await self.raw_call(method, request, reply, timeout))
        except grpc.aio.AioRpcError as error:
            raise errors.of_rpc(error) from error

    def raw_call(
        self,
        method: str,
        request: Any,
        reply: type[Reply],
        timeout: Optional[float] = None,
    ) -> Any:
        """The same, awaitable, with gRPC's own error."""
        call = self._callable("unary_unary", method, reply)
        return call(
            request,
            metadata=self.metadata,
            timeout=self.call_timeout if timeout is None else timeout,
        )

    def stream(self, method: str, reply: type[Reply]) -> Any:
        """A new stream in both directions."""
        return self._callable("stream_stream", method, reply)(metadata=self.metadata)

    def subscribe(self, method: str, request: Any, reply: type[Reply]) -> Any:
        """A new stream of answers to one request."""
        return self._callable("unary_stream", method, reply)(request, metadata=self.metadata)

    async def ready(self) -> None:
        """Waits until Egret is connected, however long that takes.

        The channel tries again by itself, with backoff and jitter.
        """
        channel = self._open()
        state = channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)

    async def close(self) -> None:
        """Closes the channel; calls and streams that are open end."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()


def _serialize(message: Any) -> bytes:
    return cast(bytes, message.SerializeToString())


async def end_of(call: Any) -> errors.EgretError:
    """Why a stream has ended, as an error."""
    status = await call.code()
    details = await call.details()
    if status is grpc.StatusCode.OK:
        return errors.Unavailable("stream_ended", "egret ended the stream", retryable=True)
    return errors.of_status(status, details, await call.trailing_metadata())


async def write(call: Any, message: Any) -> None:
    """Writes to a stream that is open; raises one of ``STREAM_ENDED`` when it has ended."""
    if call.done():
        raise asyncio.InvalidStateError("the stream has ended")
    inner = getattr(call, "_cython_call", None)
    if inner is None:
        await call.write(message)
        return
    # `call.write` makes up a status when it fails, and the answers that are still to be read are lost
    # with the true one, which says whether what was written is in doubt.
    await inner.send_serialized_message(_serialize(message))


STREAM_ENDED = (
    grpc.aio.AioRpcError,
    asyncio.InvalidStateError,
    grpc.aio.UsageError,
    grpc.aio.InternalError,
)
"""Raised by a write to a stream that has ended; a read raises the reason."""


async def finished(call: Any, reader: asyncio.Future[None]) -> None:
    """Waits until a stream that is about to end was read to its end, but not for ever."""
    await asyncio.wait((reader,), timeout=GOODBYE_SECONDS)
    call.cancel()
    await asyncio.wait((reader,))


async def opened(call: Any) -> bool:
    """Waits until Egret has answered that a stream is open; false when it has ended instead."""
    await call.initial_metadata()
    # The end of a refused stream is told right after its headers, which may be the same thing.
    await asyncio.sleep(0)
    return not call.done()


class Wakeup:
    """Wakes one waiting coroutine; a ring before the wait is not lost."""

    __slots__ = ("_future", "_rung")

    def __init__(self) -> None:
        self._future: Optional[asyncio.Future[None]] = None
        self._rung = False

    def ring(self) -> None:
        """Lets the wait of now, or else the next one, end."""
        self._rung = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    async def wait(self) -> None:
        """Returns once it has been rung since the last wait."""
        if not self._rung:
            future = self._future = asyncio.get_running_loop().create_future()
            try:
                await future
            finally:
                # A wait that was cancelled may end after the next one has begun.
                if self._future is future:
                    self._future = None
        self._rung = False


async def within(seconds: float, work: Callable[[], Any]) -> bool:
    """Runs ``work()`` for at most so long; whether it came to its end."""
    try:
        await asyncio.wait_for(work(), seconds)
    except (asyncio.TimeoutError, TimeoutError):
        return False
    return True


__all__ = [
    "GOODBYE_SECONDS",
    "STREAM_ENDED",
    "Backoff",
    "Connection",
    "Wakeup",
    "end_of",
    "finished",
    "opened",
    "within",
    "write",
]
