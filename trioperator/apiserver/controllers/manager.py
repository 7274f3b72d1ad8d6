"""Run controllers: one task, which looks at one object after the other.

Nothing is polled: changes of the store say what is to be looked at, and controllers say when to look again. With one
task the order of what happens is the same in each run.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final

import trio

from trioperator.errors import ApiError

from ..store.storage import Change, Table
from .client import Client
from .controller import Controller, Pace
from .workqueue import WorkQueue

__all__ = ["serve_controllers"]

_log: Final = logging.getLogger(__name__)
_SHORTEST_WAIT: Final = 0.001
_SHORTEST_DELAY: Final = 1.0  # seconds until an object is looked at again that something was refused for
_LONGEST_DELAY: Final = 300.0

_Item = tuple[int, str]  # the number of the controller, and the key of its object


async def serve_controllers(
    client: Client,
    kinds: Iterable[type[Controller]],
    *,
    pace: Pace,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run controllers of those kinds until cancelled; started() means that they take notice of changes."""
    service = _Service(client, [kind(client, pace) for kind in kinds])
    with client.following(service.observe):
        await service.serve(task_status)


class _Service:
    def __init__(self, client: Client, controllers: Sequence[Controller]) -> None:
        self._client = client
        self._controllers = controllers
        self._agenda: WorkQueue[_Item] = WorkQueue()
        self._failures: dict[_Item, int] = {}

    def observe(self, table: Table, change: Change) -> None:
        """Put on the agenda whom the change concerns."""
        for version in (change.old, change.new):
            if version is not None:
                for number, controller in enumerate(self._controllers):
                    for key in controller.keys_for(table.resource, version.obj):
                        self._agenda.add((number, key))

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        for number, controller in enumerate(self._controllers):
            await controller.prepare()
            for obj in self._client.all(controller.resource):
                for key in controller.keys_for(controller.resource, obj):
                    self._agenda.add((number, key))
        task_status.started()
        while True:
            await self._attend(await self._agenda.take())

    async def _attend(self, item: _Item) -> None:
        number, key = item
        controller = self._controllers[number]
        obj = self._client.get(controller.resource, key)
        try:
            again = await (controller.clear(key) if obj is None else controller.reconcile(obj))
        except ApiError as error:
            _log.warning("The controller of %s cannot go on with %s: %s", controller.resource[1], key, error)
            again = self._backoff(item)
        except Exception:  # noqa: BLE001 - one object that is not understood does not stop the others
            _log.exception("The controller of %s has failed on %s.", controller.resource[1], key)
            again = self._backoff(item)
        else:
            self._failures.pop(item, None)
        if again is not None and math.isfinite(again):
            # Less than that may not move the clock at all, by the limits of floating point.
            self._agenda.add(item, after=max(again, _SHORTEST_WAIT) if again > 0 else 0)

    def _backoff(self, item: _Item) -> float:
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        return min(_LONGEST_DELAY, _SHORTEST_DELAY * (1 << min(failures - 1, 10)))
