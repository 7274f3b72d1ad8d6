"""Watched resource kinds, and what is remembered of their objects during a pause."""

from __future__ import annotations

from typing import Any

import msgspec

from trioperator.handling.registry import KindHandlers
from trioperator.model.fields import FieldPath
from trioperator.model.resource import Resource

__all__ = ["Kind", "Memory"]


class Kind(msgspec.Struct, frozen=True, eq=False):
    """A watched resource kind, with the handlers of its objects. Only digests of its ``digested_fields`` are stored."""

    resource: Resource
    handlers: KindHandlers
    digested_fields: tuple[FieldPath, ...] = ()

    @property
    def has_status(self) -> bool:
        """Whether the status is a subresource, patched by requests of its own."""
        return "status" in self.resource.subresources


class Memory(msgspec.Struct, frozen=True, eq=False):
    """What an operator remembers of an object while it is paused: its memo, and whether it was handled before."""

    memo: Any
    initial: bool
