"""Large objects: kept as JSON, and decoded while they are used.

Decoded JSON takes up to 25 times the memory of its text: a list of empty lists does. Anybody who may create an object
decides how much that is, and daemons and timers keep theirs for as long as it exists.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

#: Bytes of JSON from which on an object is a large one. Most objects are smaller: they stay decoded, as to decode one
#: takes as long as a tenth of a call of a handler.
LARGE: Final = 8 * 1024
# Estimated bytes of decoded objects that stay decoded: those that were decoded last.
_BUDGET: Final = 8 * 1024 * 1024
# Estimated bytes of a value, whatever it is. Each has one of these signs.
_VALUE: Final = 64
_SIGNS: Final = (b"[", b"{", b",", b":")

#: Calls a function when what is being done now waits: as the ``run_sync_soon`` of a Trio token, from any thread.
Soon: TypeAlias = Callable[[Callable[[], None]], None]


class LazyObject(Mapping[str, Any]):
    """An object whose JSON is known to be valid, and which is decoded again by *decode* whenever it is needed.

    What was decoded last stays so, within a budget for all objects; what is beyond the budget on its own stays so until
    whoever uses it waits. Without *soon*, it does not stay. All methods may be called from any thread.
    """

    __slots__ = ("__weakref__", "_cost", "_decode", "_decoded", "_soon")

    def __init__(self, decode: Callable[[], dict[str, Any]], *, cost: int, soon: Soon | None) -> None:
        self._decode = decode
        self._decoded: dict[str, Any] | None = None
        self._cost = cost
        self._soon = soon

    @classmethod
    def of(
        cls, raw: bytes, decode: Callable[[], dict[str, Any]], decoded: dict[str, Any], *, soon: Soon | None
    ) -> LazyObject:
        """Return the object in *raw*, which was decoded just now."""
        found = cls(decode, cost=len(raw) + _VALUE * sum(map(raw.count, _SIGNS)), soon=soon)
        found._stay(decoded)
        return found

    def copy(self) -> LazyObject:
        """Return another view of the same JSON, which shares nothing that is decoded."""
        return LazyObject(self._decode, cost=self._cost, soon=self._soon)

    @property
    def is_decoded(self) -> bool:
        """Whether it is decoded just now."""
        return self._decoded is not None

    def _get(self) -> dict[str, Any]:
        decoded = self._decoded
        if decoded is None:
            decoded = self._decode()
            self._stay(decoded)
        return decoded

    def _stay(self, decoded: dict[str, Any]) -> None:
        if self._cost <= _BUDGET:
            self._decoded = decoded
            _recent.add(self, self._cost)
        elif self.call_soon(self.rest):
            self._decoded = decoded

    def call_soon(self, fn: Callable[[], None]) -> bool:
        """Let a function be called when whoever uses the object waits. Returns whether it will be."""
        if self._soon is None:
            return False
        try:
            self._soon(fn)
        except RuntimeError:  # the event loop has ended before the thread that asks
            return False
        return True

    def rest(self) -> None:
        """Keep the JSON only."""
        self._decoded = None

    def __getitem__(self, key: str) -> Any:
        return self._get()[key]

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key, or *default* if it is missing."""
        return self._get().get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())

    def __bool__(self) -> bool:
        return True  # an object has a name at least

    def __contains__(self, key: object) -> bool:
        return key in self._get()

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return self._decode()

    def __repr__(self) -> str:
        return f"LazyObject({self._get()!r})"


class _Recent:
    """The objects that were decoded last, and have not been given up for others."""

    def __init__(self) -> None:
        self._objects: deque[tuple[weakref.ref[LazyObject], int]] = deque()
        self._left = _BUDGET
        self._lock = threading.Lock()

    def add(self, found: LazyObject, cost: int) -> None:
        """Let an object stay decoded, in place of those that were decoded first."""
        with self._lock:
            self._objects.append((weakref.ref(found), cost))
            self._left -= cost
            while self._left < 0:
                oldest, freed = self._objects.popleft()
                self._left += freed
                given_up = oldest()
                if given_up is not None:
                    given_up.rest()


_recent: Final = _Recent()


def conserve(body: Mapping[str, Any], like: Mapping[str, Any], *, raw: bytes | None = None) -> Mapping[str, Any]:
    """Return an object that was made of another one, *like*: lazy if that is, else as it is. *raw* is its JSON."""
    if type(like) is not LazyObject or type(body) is not dict:
        return body
    raw = msgspec.json.encode(body) if raw is None else raw
    return LazyObject.of(raw, lambda: msgspec.json.decode(raw), body, soon=like._soon)
