"""State that all parts of the embedded server share: stored objects, served kinds, clock and random numbers."""

from __future__ import annotations

import datetime
import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import trio

from ..model.errors import not_found
from ..model.kinds import Catalog, Kind
from .storage import Store, Stored, Table

if TYPE_CHECKING:
    from .data_file import DataFile


def trio_seconds() -> float:
    """Return the seconds on Trio's clock, or on the monotonic clock outside Trio."""
    try:
        return trio.current_time()
    except RuntimeError:
        return time.monotonic()


def _real_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class State:
    """State of one cluster, and its only source of time and randomness."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime.datetime] | None,
        seed: int | None,
        history: int,
        history_age: float,
        data: DataFile | None = None,
    ) -> None:
        self.store = Store(clock=trio_seconds, history=history, history_age=history_age)
        self.catalog = Catalog()
        self.random = random.Random(seed)
        self._clock = clock
        self._data = data

    async def saved(self) -> None:
        """Wait until all changes so far are in the data file, if there is one."""
        if self._data is not None:
            await self._data.flush()

    def persisted(self, name: str, make: Callable[[], str]) -> str:
        """Return a secret of the cluster: from the data file, or a new one, which is stored there."""
        if self._data is None:
            return make()
        if name not in self._data.facts:
            self._data.set_fact(name, make())
        return self._data.facts[name]

    def now(self) -> datetime.datetime:
        """Return the wall time (aware, UTC) by the given clock, or by the machine's outside Trio."""
        if self._clock is not None:
            try:
                return self._clock()
            except RuntimeError:
                return _real_now()
        return _real_now()

    def timestamp(self, *, plus: float = 0) -> str:
        """Return the wall time in the format of the API."""
        moment = self.now() + datetime.timedelta(seconds=plus) if plus else self.now()
        return f"{moment.isoformat(timespec='seconds')[:19]}Z"

    def uid(self) -> str:
        """Return a new uid."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def choose(self, letters: str) -> str:
        """Return a random letter of *letters*."""
        return self.random.choice(letters)

    def table(self, kind: Kind) -> Table:
        """Return the table that holds the kind's objects."""
        return self.store.table(kind.resource)

    def contents(self, namespace: str) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Yield all objects in the namespace, with their kinds."""
        for resource, table in tuple(self.store.tables.items()):
            kind = self.catalog.by_resource(resource)
            if kind is not None and kind.namespaced:
                for key in table.keys(f"{namespace}/"):
                    yield kind, table.objects[key].obj

    def require(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the stored object. Raises NotFoundError."""
        stored = self.table(kind).objects.get(kind.key(namespace, name))
        if stored is None:
            raise not_found(kind, name)
        return stored
