"""Kopf's holder of indices, for operators that look at them outside of handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trioperator import Index, OperatorRegistry


class OperatorIndexers:
    """Holder of the indices of the operator that is run with ``indexers=``. Without it, there are none."""

    def __init__(self) -> None:
        self.indices = _Indices()


class _Indices(Mapping[str, Index[Any, Any]]):
    """The indices of the operator that runs with a registry, by the ids of their handlers."""

    registry: OperatorRegistry | None = None

    def __getitem__(self, key: str) -> Index[Any, Any]:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def _found(self) -> Mapping[str, Index[Any, Any]]:
        return {} if self.registry is None else self.registry.indices
