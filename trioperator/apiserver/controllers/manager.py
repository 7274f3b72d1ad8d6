"""Controller manager: runs all controllers in one task, which reconciles one object after the other.

Nothing is polled: changes of the store queue objects, and controllers requeue them. With one task the order of events
is the same in each run.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

import trio

from trioperator.errors import ApiError

from ..store.storage import Change, Table
from .client import Client
from .controller import Controller, Pace

Item = TypeVar("Item")


class WorkQueue(Generic[Item]):
    """Queue of distinct items. An item that is added twice is due once, at the earlier time."""

    def __init__(self) -> None:
        self._due: dict[Item, float] = {}
        self._heap: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()  # items that are due at the same time are first in, first out
        self._changed = trio.Event()

    def add(self, item: Item, *, after: float = 0) -> None:
        """Add an item that is due after a delay in seconds. Never waits."""
        due = trio.current_time() + after
        if due < self._due.get(item, math.inf):
            self._due[item] = due
            heapq.heappush(self._heap, (due, next(self._numbers), item))
            self._changed.set()

    async def take(self) -> Item:
        """Wait until an item is due, remove it from the queue and return it."""
        await trio.lowlevel.checkpoint()
        while True:
            due = self._earliest()
            if due <= trio.current_time():
                _, _, item = heapq.heappop(self._heap)
                del self._due[item]
                return item
            self._changed = trio.Event()
            with trio.move_on_at(due):
                await self._changed.wait()

    def _earliest(self) -> float:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # removed already, or added again with an earlier time
        return self._heap[0][0] if self._heap else math.inf


_log: Final = logging.getLogger(__name__)
_MIN_DELAY: Final = 0.001
_MIN_BACKOFF: Final = 1.0  # seconds until an object is requeued after an error
_MAX_BACKOFF: Final = 300.0

_Item = tuple[int, str]  # the number of the controller, and the key of its object


async def serve_controllers(
    client: Client,
    kinds: Iterable[type[Controller]],
    *,
    pace: Pace,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the controllers until cancelled; ``started()`` means that they follow changes."""
    manager = _Manager(client, [kind(client, pace) for kind in kinds])
    with client.following(manager.observe):
        await manager.serve(task_status)


class _Manager:
    """Controllers with their work queue."""

    def __init__(self, client: Client, controllers: Sequence[Controller]) -> None:
        self._client = client
        self._controllers = controllers
        self._queue: WorkQueue[_Item] = WorkQueue()
        self._failures: dict[_Item, int] = {}

    def observe(self, table: Table, change: Change) -> None:
        """Queue the objects that the change is relevant for."""
        for version in (change.old, change.new):
            if version is not None:
                for number, controller in enumerate(self._controllers):
                    for key in controller.keys_for(table.resource, version.obj):
                        self._queue.add((number, key))

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        for number, controller in enumerate(self._controllers):
            await controller.prepare()
            for obj in self._client.all(controller.resource):
                for key in controller.keys_for(controller.resource, obj):
                    self._queue.add((number, key))
        task_status.started()
        while True:
            await self._reconcile(await self._queue.take())

    async def _reconcile(self, item: _Item) -> None:
        number, key = item
        controller = self._controllers[number]
        obj = self._client.get(controller.resource, key)
        try:
            requeue_after = await (controller.forget(key) if obj is None else controller.reconcile(obj))
        except ApiError as error:
            _log.warning("The controller of %s failed to reconcile %s: %s", controller.resource[1], key, error)
            requeue_after = self._backoff(item)
        except Exception:  # noqa: BLE001 -- an error of one object does not stop the others
            _log.exception("The controller of %s failed to reconcile %s.", controller.resource[1], key)
            requeue_after = self._backoff(item)
        else:
            self._failures.pop(item, None)
        if requeue_after is not None and math.isfinite(requeue_after):
            # A shorter delay may not advance the clock at all: floating point is too coarse.
            self._queue.add(item, after=max(requeue_after, _MIN_DELAY) if requeue_after > 0 else 0)

    def _backoff(self, item: _Item) -> float:
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        return min(_MAX_BACKOFF, _MIN_BACKOFF * (1 << min(failures - 1, 10)))
