"""Logs of Pods: what tests say that containers have written, as no containers are run."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, Final

import trio

from ..model.errors import bad_request, invalid
from ..model.go_numbers import parse_int64
from ..model.scalars import canonical_time
from ..model.status_causes import forbidden, invalid_value
from ..store.state import State
from ..store.storage import Change, Stored, Table
from .reader import read_flag

_PODS: Final = ("", "pods")
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Which lines of a log a client wants."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime.datetime | datetime.timedelta | None = None  # a time, or how long ago
    limit: int | None = None  # bytes


def read_log_options(name: str, query: Mapping[str, str]) -> LogOptions:
    """Parse the options of a request for the log of a Pod. Raises 400 or 422 if they are invalid."""
    lowest = {"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1}
    numbers = {field: _read_number(query, field) for field in lowest}
    causes = [
        invalid_value(field, number, f"must be greater than {'or equal to ' if lowest[field] == 0 else ''}0")
        for field, number in numbers.items()
        if number is not None and number < lowest[field]
    ]
    seconds, time = numbers["sinceSeconds"], _read_time(query, "sinceTime")
    if seconds is not None and time is not None:
        causes.append(forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if causes:
        raise invalid("PodLogOptions", "", name, causes)
    return LogOptions(
        container=query.get("container", ""),
        follow=read_flag(query, "follow"),
        previous=read_flag(query, "previous"),
        timestamps=read_flag(query, "timestamps"),
        tail=numbers["tailLines"],
        since=time if seconds is None else datetime.timedelta(seconds=seconds),
        limit=numbers["limitBytes"],
    )


def _read_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return parse_int64(text)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _read_time(query: Mapping[str, str], name: str) -> datetime.datetime | None:
    text = query.get(name, "")
    if text in {"", "null"}:
        return None
    try:
        return datetime.datetime.fromisoformat(canonical_time(text))
    except ValueError as error:
        raise bad_request(str(error)) from None


class _Log:
    """Log of one container: lines with their times. *changed* is set by the next one, and at the end."""

    def __init__(self) -> None:
        self.lines: list[tuple[datetime.datetime, bytes]] = []
        self.has_ended = False
        self.changed = trio.Event()

    def wake(self) -> None:
        changed, self.changed = self.changed, trio.Event()
        changed.set()


class PodLogs:
    """The logs of all Pods of one cluster. They go with their Pods, and followers with them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._logs: dict[str, dict[str, _Log]] = {}  # by uids and containers
        state.store.on_change.append(self._observe)

    def write(self, pod: Stored, container: str, text: str) -> None:
        """Append lines to the log of a container. Raises 400 if the Pod has no such container."""
        log = self._find(pod, _choose_container(pod.obj, container))
        log.lines += [(self._state.now(), line.encode() + b"\n") for line in text.splitlines()]
        log.wake()

    def read(self, pod: Stored, options: LogOptions) -> bytes | FollowedLog:
        """Return the log of a container so far, or a stream that goes on. Raises 400 if there is none."""
        container = _choose_container(pod.obj, options.container)
        if options.previous:
            name = pod.obj["metadata"]["name"]
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        log = self._find(pod, container)
        start = self._find_start(log, options)
        if options.follow:
            return FollowedLog(log, start, timestamps=options.timestamps)
        return _render(log, start, timestamps=options.timestamps)[: options.limit]

    def _find(self, pod: Stored, container: str) -> _Log:
        log = self._logs.setdefault(pod.uid, {}).setdefault(container, _Log())
        log.has_ended = _has_ended(pod.obj)
        return log

    def _find_start(self, log: _Log, options: LogOptions) -> int:
        start = 0 if options.tail is None else max(0, len(log.lines) - options.tail)
        if (since := options.since) is not None:
            earliest = self._state.now() - since if isinstance(since, datetime.timedelta) else since
            start = max(start, next((at for at, line in enumerate(log.lines) if line[0] >= earliest), len(log.lines)))
        return start

    def _observe(self, table: Table, change: Change) -> None:
        if table.resource != _PODS or change.old is None or change.old.uid not in self._logs:
            return
        logs = self._logs[change.old.uid]
        if change.new is None:
            del self._logs[change.old.uid]
        for log in logs.values():
            log.has_ended = change.new is None or _has_ended(change.new.obj)
            log.wake()


class FollowedLog:
    """A stream of the lines of a log, which ends with its container."""

    def __init__(self, log: _Log, start: int, *, timestamps: bool) -> None:
        self._log = log
        self._at = start
        self._timestamps = timestamps

    async def receive(self) -> bytes | None:
        """Return the next lines, or None at the end."""
        while self._at >= len(self._log.lines):
            if self._log.has_ended:
                return None
            await self._log.changed.wait()
        chunk = _render(self._log, self._at, timestamps=self._timestamps)
        self._at = len(self._log.lines)
        return chunk


def _render(log: _Log, start: int, *, timestamps: bool) -> bytes:
    if not timestamps:
        return b"".join(line for _, line in log.lines[start:])
    return b"".join(f"{time:%Y-%m-%dT%H:%M:%S.%f}000Z ".encode() + line for time, line in log.lines[start:])


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _choose_container(pod: Mapping[str, Any], wanted: str) -> str:
    """Return the name of the container that a request is about. Raises 400 if there is none, or the choice is open."""
    name = pod["metadata"]["name"]
    containers = [each["name"] for each in pod["spec"].get("containers") or ()]
    initial = [each["name"] for each in pod["spec"].get("initContainers") or ()]
    if wanted:
        if wanted not in {*containers, *initial}:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(containers) == 1:
        return str(containers[0])
    choice = " ".join([*initial, *containers])
    raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{choice}]")
