"""One schedule: a task per tick of a cron expression."""

from __future__ import annotations

from typing import Any

from ._proto import queue_pb2 as pb
from .connection import Connection
from .model import NewTask, ScheduleInfo, missed_number, new_task


class Schedule:
    """One schedule. Made by ``Client.schedule``."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    async def put(
        self,
        cron: str,
        queue: str,
        task: Any,
        *,
        time_zone: str = "",
        missed: str = "unspecified",
        paused: bool = False,
    ) -> ScheduleInfo:
        """Creates or replaces the schedule: a task per tick of a cron expression.

        ``cron`` has five fields, or six with seconds first. ``task`` is a payload, or a ``NewTask``
        with options. ``time_zone`` is an IANA name, UTC when empty. ``missed`` says what becomes of
        ticks while Egret was down: ``skip``, ``one`` or ``all`` (up to 1,000).
        """
        message = task.to_message() if isinstance(task, NewTask) else new_task(task)
        request = pb.Schedule(
            name=self.name,
            cron=cron,
            time_zone=time_zone,
            queue=queue,
            task=message,
            missed=missed_number(missed),
            paused=paused,
        )
        return ScheduleInfo.of_message(
            await self._connection.call("PutSchedule", request, pb.Schedule)
        )

    async def info(self) -> ScheduleInfo:
        """The schedule with its last and next tick."""
        return await self._call("GetSchedule")

    async def pause(self) -> ScheduleInfo:
        """No tick until ``resume``."""
        return await self._call("PauseSchedule")

    async def resume(self) -> ScheduleInfo:
        """Ends a pause."""
        return await self._call("ResumeSchedule")

    async def _call(self, method: str) -> ScheduleInfo:
        request = pb.ScheduleRequest(name=self.name)
        return ScheduleInfo.of_message(await self._connection.call(method, request, pb.Schedule))

    async def delete(self) -> None:
        """Deletes the schedule; tasks it has made stay."""
        request = pb.ScheduleRequest(name=self.name)
        await self._connection.call("DeleteSchedule", request, pb.DeleteScheduleResponse)
