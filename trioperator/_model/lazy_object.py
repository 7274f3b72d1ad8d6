"""Large objects: kept as JSON, and decoded while they are used.

Decoded JSON takes 25 to 45 times the memory of its text: lists of empty lists do. Anybody who may create an object
decides how much that is, and daemons and timers keep theirs for as long as it exists.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from trioperator._model.freed_memory import IS_PLAIN, leaving_room, order_room, return_memory
from trioperator._model.jsontypes import copy_json

#: Bytes of JSON from which on an object is a large one. Most objects are smaller: they stay decoded, as to decode one
#: takes as long as a tenth of a call of a handler.
LARGE: Final = 8 * 1024
# Estimated bytes of decoded objects that stay decoded: those that were decoded last.
_BUDGET: Final = 8 * 1024 * 1024
# Members up to which a mapping in a huge object is divided, and levels of such mappings. Few objects have more.
_MAX_MEMBERS: Final = 64
_LEVELS: Final = 4
# Estimated bytes of a value, whatever it is. Each has one of these signs.
_VALUE: Final = 64
_SIGNS: Final = (b"[", b"{", b",", b":")

#: Calls a function when what is being done now waits: as the ``run_sync_soon`` of a Trio token, from any thread.
Soon: TypeAlias = Callable[[Callable[[], None]], None]

T = TypeVar("T")

# Whether others have frozen objects in this process, as far as that is known.
_frozen: Final = threading.Event()

_NOTHING: Final[Mapping[str, Any]] = {}
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let no garbage be collected within the block: there is none in JSON, and to look for it takes ten times as long.

    New objects count as old at its end: else the next collection would look through all of them. If it is used
    by two threads at once, garbage is collected again after the first of them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _others_freeze():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _others_freeze() -> bool:
    """Return whether others have frozen objects, which are to stay so. They are not counted again: it takes long."""
    if not _frozen.is_set() and gc.get_freeze_count():
        _frozen.set()
    return _frozen.is_set()


def _estimate(raw: bytes) -> int:
    """Return how many bytes a decoded object takes."""
    return len(raw) + _VALUE * sum(map(raw.count, _SIGNS))


def decode_json(raw: bytes | msgspec.Raw) -> Any:
    """Decode JSON of any size. Raises what ``msgspec.json.decode`` raises."""
    if len(memoryview(raw)) < LARGE:
        return msgspec.json.decode(raw)
    with _no_collection():
        return msgspec.json.decode(raw)


def use_decoded(raw: msgspec.Raw, use: Callable[[Any], T]) -> T:
    """Return what a function makes of JSON, which is decoded for it only."""
    if len(memoryview(raw)) < LARGE:
        return use(msgspec.json.decode(raw))
    _recent.give_up()
    with _no_collection(), leaving_room():
        return use(msgspec.json.decode(raw))


class LazyObject(Mapping[str, Any]):
    """An object whose JSON is known to be valid, and which is decoded again by *decode* whenever it is needed.

    The objects decoded last stay so, within a budget for all of them. One that is beyond it on its own is huge: it is
    decoded when somebody looks at what is large in it, and stays so until whoever uses it waits, or until another such
    object is decoded. Its small members, as its metadata, always stay. Without *soon*, it does not stay. All methods
    may be called from any thread.
    """

    __slots__ = ("__weakref__", "_cost", "_decode", "_decoded", "_large", "_small", "_soon", "outline")

    def __init__(self, decode: Callable[[], dict[str, Any]], *, cost: int, soon: Soon | None) -> None:
        self._decode = decode
        self._decoded: dict[str, Any] | None = None
        self._cost = cost
        self._soon = soon
        self._small: dict[str, Any] = {}
        self._large: Collection[str] | None = None  # the names of the other members; None: any member may be one
        self.outline: dict[str, Any] | None = None  # of a huge object: see :func:`outline_of`

    @classmethod
    def of(
        cls,
        raw: bytes,
        decode: Callable[[], dict[str, Any]],
        *,
        soon: Soon | None,
        decoded: dict[str, Any] | None = None,
        added: Mapping[str, Any] = _NOTHING,
    ) -> LazyObject:
        """Return the object in *raw*, decoded now unless it is *decoded* already, or huge. Raises what *decode* raises.

        *added* are members that *decode* adds.
        """
        found = cls(decode, cost=_estimate(raw), soon=soon)
        if found.is_huge and (outline := _sketch(raw)) is not None:
            return found._with_outline({**outline, **added})
        found._stay(found._decode_alone() if decoded is None else decoded)
        return found

    def _with_outline(self, outline: dict[str, Any]) -> LazyObject:
        self.outline = outline
        self._large = [name for name, value in outline.items() if _is_sketchy(value)]
        self._small = {name: value for name, value in outline.items() if name not in self._large}
        return self

    def copy(self) -> LazyObject:
        """Return another view of the same JSON, which shares nothing that is decoded."""
        copied = LazyObject(self._decode, cost=self._cost, soon=self._soon)
        copied._small, copied._large, copied.outline = copy_json(self._small), self._large, self.outline
        return copied

    def _having(self, key: object) -> Mapping[str, Any]:
        """Return what has a member, if the object has it: what stays decoded where that is enough."""
        return self._get() if self._large is None or key in self._large else self._small

    @property
    def is_decoded(self) -> bool:
        """Whether it is decoded just now."""
        return self._decoded is not None

    def _get(self) -> dict[str, Any]:
        decoded = self._decoded
        if decoded is None:
            decoded = self._decode_alone()
            decoded.update(self._small)
            self._stay(decoded)
        return decoded

    @property
    def is_huge(self) -> bool:
        """Whether it is beyond the budget on its own."""
        return self._cost > _BUDGET

    def _decode_alone(self) -> dict[str, Any]:
        """Decode the object; before that, give up the huge one that was decoded last, if this is another one."""
        if not self.is_huge:
            return self._decode()
        _recent.replace(self)
        with _no_collection(), leaving_room():
            return self._decode()

    def _stay(self, decoded: dict[str, Any]) -> None:
        if not self.is_huge:
            self._decoded = decoded
            _recent.add(self, self._cost)
        elif self.call_soon(self.rest):
            self._decoded = decoded
            _recent.replace(self)

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
        """Keep the JSON only. The memory of a huge object is returned to the system when others have let it go, too."""
        was_decoded, self._decoded = self.is_decoded, None
        if was_decoded and self.is_huge:
            with _no_collection():
                order_room()
            if IS_PLAIN:
                self.call_soon(return_memory)

    def __getitem__(self, key: str) -> Any:
        return self._having(key)[key]

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key, or *default* if it is missing."""
        return self._having(key).get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())

    def __bool__(self) -> bool:
        return True  # an object has a name at least

    def __contains__(self, key: object) -> bool:
        return key in self._having(key)

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return self._decode_alone()

    def __repr__(self) -> str:
        return f"LazyObject({self._get()!r})"


class _Recent:
    """Cache of the objects that were decoded last."""

    def __init__(self) -> None:
        self._objects: deque[tuple[weakref.ref[LazyObject], int]] = deque()
        self._left = _BUDGET
        self._huge: weakref.ref[LazyObject] | None = None
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

    def replace(self, found: LazyObject) -> None:
        """Let a huge object stay decoded, in place of the one before it."""
        with self._lock:
            before, self._huge = self._huge, weakref.ref(found)
        given_up = None if before is None else before()
        if given_up is not None and given_up is not found:
            given_up.rest()

    def give_up(self) -> None:
        """Let no huge object stay decoded."""
        found = None if self._huge is None else self._huge()
        if found is not None:
            found.rest()


_recent: Final = _Recent()


def _sketch(raw: bytes) -> dict[str, Any] | None:
    """Return the outline of an object; None if it has too many members. Raises what decoding it raises."""
    raw.decode()  # this is not checked where JSON is passed over
    members = _decode_members(raw)
    if len(members) > _MAX_MEMBERS:
        return None
    room = _Room(LARGE)
    outline = room.divide(members, _LEVELS)
    if "metadata" in members and _is_sketchy(outline["metadata"]):  # whoever looks at an object looks there
        metadata = _decode_members(members["metadata"])
        outline["metadata"] = {
            name: room.fill(value, 0) if name == "managedFields" else msgspec.json.decode(value)
            for name, value in metadata.items()
        }
    return outline


class _Room:
    """How many bytes of JSON are still decoded in an outline. All else in it stays JSON."""

    def __init__(self, left: int) -> None:
        self._left = left

    def divide(self, members: Mapping[str, msgspec.Raw], levels: int) -> dict[str, Any]:
        """Decode the small ones of some members."""
        smallest_first = sorted(members, key=lambda name: len(memoryview(members[name])))
        found = {name: self.fill(members[name], levels) for name in smallest_first}
        return {name: found[name] for name in members}

    def fill(self, raw: msgspec.Raw, levels: int) -> Any:
        """Decode a value if there is room for it, else what is small in it, if it is a mapping."""
        text = memoryview(raw)
        if len(text) <= self._left:
            self._left -= len(text)
            return msgspec.json.decode(raw)
        if not levels or bytes(text[:1]) != b"{":
            return None if len(text) == len(b"null") and bytes(text) == b"null" else raw  # it counts as absent
        members = _decode_members(raw)
        return raw if len(members) > _MAX_MEMBERS else self.divide(members, levels - 1)


def _is_sketchy(value: Any, levels: int = _LEVELS + 1) -> bool:
    """Return whether anything in a part of an outline is still JSON."""
    if type(value) is dict and levels:
        return any(_is_sketchy(inner, levels - 1) for inner in value.values())
    return type(value) is msgspec.Raw


def outline_of(value: Any) -> Any:
    """Return what can be compared without decoding what is large: of a huge object, its outline, else what it is.

    In an outline, ``msgspec.Raw`` stands for what is large: equal ones are equal values, but values may also be equal
    where these are not. It is only to be looked at.
    """
    return value if type(value) is not LazyObject else value._get() if value.outline is None else value.outline


def is_outlined(value: Any) -> bool:
    """Return whether a value is a huge object that has an outline."""
    return type(value) is LazyObject and value.outline is not None


def outline_of_json(raw: bytes) -> dict[str, Any]:
    """Return the outline of an object that would be huge, else the decoded object."""
    outline = _sketch(raw) if _estimate(raw) > _BUDGET else None
    return decode_json(raw) if outline is None else outline


def complete(value: Any) -> Any:
    """Return a part of an outline, decoded."""
    return copy_json(value) if _is_sketchy(value) else value


def may_be_equal(one: Any, other: Any) -> bool:
    """Return whether two values, of which one is JSON in an outline, may be the same, by what they begin with."""
    return _find_sign(one) == _find_sign(other)


def _find_sign(value: Any) -> bytes:
    if type(value) is msgspec.Raw:
        sign = bytes(memoryview(value)[:1])
        return sign if sign in (b"{", b"[") else b""
    return b"{" if isinstance(value, Mapping) else b"[" if isinstance(value, list) else b""


def are_equal(one: Any, other: Any, levels: int = _LEVELS + 1) -> bool:
    """Return whether two parts of outlines, or of objects, are the same."""
    if type(one) is msgspec.Raw or type(other) is msgspec.Raw:
        is_same = type(one) is type(other) and one == other
        return bool(is_same or (may_be_equal(one, other) and complete(one) == complete(other)))
    if levels and type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(are_equal(one[key], other[key], levels - 1) for key in one)
    return bool(one == other)


def conserve(body: Mapping[str, Any], like: Mapping[str, Any], *, raw: bytes | None = None) -> Mapping[str, Any]:
    """Return an object that was made of another one, *like*, or of its outline: lazy if that is. *raw* is its JSON."""
    if type(like) is not LazyObject or type(body) is not dict:
        return body
    raw = msgspec.json.encode(body) if raw is None else raw
    return LazyObject.of(
        raw, lambda: msgspec.json.decode(raw), soon=like._soon, decoded=None if is_outlined(like) else body
    )


def conserve_part(part: Mapping[str, Any], like: Mapping[str, Any], *, raw: bytes) -> Mapping[str, Any]:
    """Return a part of an object, or of its outline, as :func:`conserve` does. A part of an outline is one itself."""
    if type(like) is LazyObject and type(part) is dict and _is_sketchy(part):
        return LazyObject(lambda: msgspec.json.decode(raw), cost=like._cost, soon=like._soon)._with_outline(part)
    return conserve(part, like, raw=raw)


def rest_huge(*objects: object) -> None:
    """Release what is decoded of huge objects, so that later allocations do not scatter over their memory."""
    for found in objects:
        if type(found) is LazyObject and found.is_huge:
            found.rest()
