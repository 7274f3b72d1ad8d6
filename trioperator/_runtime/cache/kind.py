"""Watched resource kinds, and what is remembered of their objects during a pause."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec

from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._model.fields import FieldPath
from trioperator._model.resource import Resource

T = TypeVar("T")


class Kind(msgspec.Struct, frozen=True, eq=False):
    """A watched resource kind, with the handlers of its objects. Only digests of its ``digested_fields`` are stored.

    Where it is ``selected``, by selectors in the settings, objects are also gone when these no longer match. When its
    watch has ended, it is ``retired``, and has ``former`` handlers.
    """

    resource: Resource
    handlers: KindHandlers
    digested_fields: tuple[FieldPath, ...] = ()
    selected: bool = False
    retired: bool = False
    former: KindHandlers | None = None

    @property
    def last_handlers(self) -> KindHandlers:
        """The handlers of which there may be records on objects, and which are called for those that were deleted."""
        return self.handlers if self.former is None else self.former

    def retire(self) -> Kind:
        """Return the kind without handlers."""
        return msgspec.structs.replace(self, handlers=KindHandlers(), retired=True, former=self.last_handlers)

    @property
    def has_status(self) -> bool:
        """Whether the status is a subresource, patched by requests of its own."""
        return "status" in self.resource.subresources

    def make_stub(self, namespace: str | None, name: str, uid: str) -> dict[str, Any]:
        """Return what is known of an object whose body is not."""
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {key: value for key, value in metadata.items() if value},
        }


class Shared(msgspec.Struct):
    """What the handlers of all objects share: the memo of the operator, the indices, and who waits for news.

    ``listeners`` are called with newer states of objects, while handlers of these run.
    """

    memo: Any
    indices: Indices
    listeners: dict[Hashable, tuple[Callable[[Any], None], ...]] = msgspec.field(default_factory=dict)


class Memory(msgspec.Struct, frozen=True, eq=False):
    """Memory of an object while it is paused: its memo, and whether it was handled before.

    ``ended`` are the keys of its daemons and timers that have ended by themselves: they are not run again.
    ``deletion_handled`` is whether all delete handlers have ended: they are not called again when it is gone.
    ``resumed`` are the ids of the resume handlers that have ended, of which that was stored, while others had not.
    ``known_elsewhere`` is the newest version that was known in another version of the kind, and is not handed on.
    """

    memo: Any
    initial: bool
    ended: frozenset[Hashable] = frozenset()
    deletion_handled: bool = False
    resumed: frozenset[str] = frozenset()
    known_elsewhere: int = -1

    def join(self, other: Memory) -> Memory:
        """Return what both together remember; the own memo comes first. It is one of the two, if that says it all.

        So thousands of objects of which nothing special is known share one memory.
        """
        memo = other.memo if self.memo is None else self.memo
        ended, resumed = _unite(self.ended, other.ended), _unite(self.resumed, other.resumed)
        initial, deletion_handled = self.initial and other.initial, self.deletion_handled or other.deletion_handled
        for one in (self, other):  # without a generator: each object that is handled comes here
            is_same = one.memo is memo and one.initial == initial and one.ended == ended
            is_same = is_same and one.deletion_handled == deletion_handled and one.resumed == resumed
            if is_same and one.known_elsewhere == self.known_elsewhere:
                return one
        return Memory(memo, initial, ended, deletion_handled, resumed, self.known_elsewhere)


def _unite(one: frozenset[T], other: frozenset[T]) -> frozenset[T]:
    return one | other if one and other else one or other
