"""What is pending for an object: the wishes of its handlers, merged into one patch, and still apart by who has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trioperator.model.patch import Patch, PatchFn, merge_patches

__all__ = ["Pending", "Sent", "Wish"]


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """Be what one call of a handler wants stored. ``by`` names the handler."""

    by: str
    patch: Mapping[str, Any]
    fns: tuple[PatchFn, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """Remember a change by functions that was sent, and may be applied or not: there was no answer.

    ``wanted`` is the object as it was to become; ``ops`` are JSON patches, by subresource.
    """

    wanted: Mapping[str, Any]
    ops: Mapping[str | None, Sequence[Mapping[str, Any]]]


class Pending(Patch):
    """Be all wishes of an object's handlers as one patch, the later ones on top. Made for the object *onto*."""

    __slots__ = ("sent", "wishes")

    def __init__(
        self, wishes: Iterable[Wish] = (), *, onto: Mapping[str, Any] | None = None, sent: Sent | None = None
    ) -> None:
        self.wishes = tuple(wishes)
        self.sent = sent
        merged: dict[str, Any] = {}
        for wish in self.wishes:
            merged = merge_patches(merged, wish.patch, onto=onto)
        super().__init__(merged, fns=[fn for wish in self.wishes for fn in wish.fns])

    def and_then(self, wishes: Iterable[Wish], *, onto: Mapping[str, Any] | None) -> Pending:
        """Give what is pending when others have come."""
        return Pending((*self.wishes, *wishes), onto=onto, sent=self.sent)
