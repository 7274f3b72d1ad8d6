"""Objects that are in several caches, as their kind has other versions now: what is done in one waits for the other.

Each version has a cache of its own, with its own states of the objects. Work in progress for an object in an earlier
version goes on there to its end, as that is what its handlers were given, and is told of changes; the state in the
newer version takes over what is remembered of it. Before that is handled, everything is stored that the earlier version
has left. An object that is missing in the first list of the newer version was deleted since the earlier watch ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.cache.watch_event import WatchEvent

S = TypeVar("S", bound="_State")
S_co = TypeVar("S_co", bound="_State", covariant=True)


class _Cache(Protocol[S_co]):
    """The cache of one version."""

    @property
    def objects(self) -> Mapping[str, S_co]: ...
    @property
    def predecessors(self) -> Predecessors[Any]: ...


class _State(Protocol):
    """The state of an object in the cache of one version."""

    @property
    def uid(self) -> str: ...
    @property
    def cache(self) -> _Cache[Any]: ...
    @property
    def comparable_version(self) -> int: ...
    def remember(self) -> Memory: ...
    def inherit(self, memory: Memory, /) -> None: ...
    def catch_up(self, version: int, /) -> None: ...
    def requeue(self) -> None: ...
    def tell(self, event: WatchEvent, /) -> None: ...
    def forget_version(self) -> None: ...


class Predecessors(Generic[S]):
    """The ``states`` of a cache's objects in another version, until what is remembered of them is taken over."""

    def __init__(self) -> None:
        self.states: dict[str, S] = {}

    def add(self, cache: _Cache[S]) -> None:
        """Add the states of a cache, and those which it has not taken over itself."""
        self.states |= cache.predecessors.states
        self.states |= cache.objects

    def find(self, state: S) -> Iterator[S]:
        """Yield the states of an object in earlier versions, the earliest one first."""
        if (before := self.states.get(state.uid)) is not None:
            yield from before.cache.predecessors.find(before)
            yield before

    def hand_over(self, state: S) -> None:
        """Let a state take over what is remembered of its object, and which version of it was written last."""
        if (before := self.states.pop(state.uid, None)) is not None:
            before.cache.predecessors.hand_over(before)
            state.inherit(before.remember())
            state.catch_up(before.comparable_version)

    def lend(self, state: S) -> None:
        """Let a state have what is remembered of its object until now, and take it over later."""
        if (before := self.states.get(state.uid)) is not None:
            before.cache.predecessors.lend(before)
            state.inherit(before.remember())

    def tell(self, key: str, event: WatchEvent) -> None:
        """Pass what an object is now to what may still be done for it in another version."""
        if (before := self.states.get(key)) is not None:
            before.tell(event)

    def forget_versions(self) -> None:
        """Treat the next states as newer than those in other versions: etcd was restored."""
        for state in self.states.values():
            state.forget_version()
        for predecessors in {id(state.cache): state.cache.predecessors for state in self.states.values()}.values():
            predecessors.forget_versions()

    def find_missing(self, listed: Collection[str]) -> list[S]:
        """Return the states of objects that are not listed."""
        return [state for key, state in self.states.items() if key not in listed]

    def keep(self, listed: Collection[str]) -> None:
        """Forget the objects that are not listed: they are gone."""
        for key in [key for key in self.states if key not in listed]:
            self.states.pop(key).tell(WatchEvent("DELETED", 0))

    def remember(self) -> dict[str, Memory]:
        """Return what is remembered of objects whose states have not taken that over."""
        for state in self.states.values():
            state.cache.predecessors.lend(state)
        return {key: state.remember() for key, state in self.states.items()}


class AtWork:
    """Which states of objects are being reconciled: at most one of each object."""

    def __init__(self) -> None:
        self._at_work: dict[str, _State] = {}
        self._waiting: dict[str, set[_State]] = {}

    def begin(self, state: _State) -> bool:
        """Begin to reconcile a state. Returns False if another one of its object is running: then it is requeued."""
        if self._at_work.setdefault(state.uid, state) is state:
            return True
        self._waiting.setdefault(state.uid, set()).add(state)
        return False

    def end(self, state: _State) -> None:
        """Note that a state is no longer reconciled."""
        del self._at_work[state.uid]
        if self._waiting:
            for other in self._waiting.pop(state.uid, ()):
                other.requeue()
