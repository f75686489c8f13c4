"""Payloads and results: bytes stay bytes, everything else travels as JSON."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any, Optional, Union

from ._proto import queue_pb2 as pb

#: A length of time: seconds as a number, or a ``timedelta``.
Duration = Union[int, float, timedelta]

#: A point in time: an aware ``datetime``, or seconds since 1970.
Instant = Union[int, float, datetime]

_BYTES = pb.FORMAT_BYTES
_JSON = pb.FORMAT_JSON

# Made once: `json.dumps` with options makes an encoder for each call.
_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_dump_ascii = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_load = json.JSONDecoder().decode


def encode(value: Any) -> tuple[bytes, pb.Format]:
    """The bytes of a value and what they are.

    Raises ``TypeError`` or ``ValueError`` for what JSON cannot hold.
    """
    kind = type(value)
    if kind is bytes:
        return value, _BYTES
    if kind is bytearray or kind is memoryview:
        return bytes(value), _BYTES
    try:
        return _dump(value).encode(), _JSON
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can hold and UTF-8 cannot.
        return _dump_ascii(value).encode(), _JSON


def decode(data: bytes, format: pb.Format) -> Any:
    """The value that ``encode`` made the bytes of; ``None`` for JSON that was left out."""
    if format == _JSON:
        return _load(data.decode()) if data else None
    return data


def text(value: str, name: str) -> str:
    """The text itself; raises ``TypeError`` or ``ValueError`` for what cannot be sent as one."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        message = f"{name} cannot be sent: {value!r} has half of a surrogate pair"
        raise ValueError(message) from None
    return value


def milliseconds(duration: Duration, name: str) -> int:
    """A duration in whole milliseconds, rounded up so that a short one does not become none."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds < 1e12:
        raise ValueError(f"{name} must be a duration of zero seconds or more, not {duration!r}")
    exact = seconds * 1000
    whole = int(exact)
    # 0.3 s is 299.99999999999994 or 300.00000000000006 ms in floating point.
    return whole if exact - whole < 1e-6 else whole + 1


def unix_milliseconds(instant: Instant, name: str) -> int:
    """A point in time in milliseconds since 1970."""
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise ValueError(f"{name} needs a time zone: {instant!r} does not say which one it is in")
        instant = instant.timestamp()
    return round(instant * 1000)


def moment(unix_ms: int) -> Optional[datetime]:
    """A time of the contract, in UTC; zero stands for none."""
    return datetime.fromtimestamp(unix_ms / 1000, timezone.utc) if unix_ms else None
