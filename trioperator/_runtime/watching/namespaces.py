"""The namespaces in which objects are watched, as namespaces come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trioperator._kube.api_client import ApiClient
from trioperator._model.resource import Resource
from trioperator._runtime.watching.access import may_list_namespaces
from trioperator._runtime.watching.readiness import describe_pattern, describe_unmatched
from trioperator._runtime.watching.scope import ObservedItems, Scope

NAMESPACES: Final = "/api/v1/namespaces"


class Namespaces:
    """The namespaces of an operator's scope. *notify* is called when they have changed. ``items`` observes them."""

    def __init__(self, client: ApiClient, scope: Scope, notify: Callable[[], None]) -> None:
        self._client = client
        self._scope = scope
        self.items = ObservedItems(lambda obj: obj.name, notify)

    async def are_observed(self, *, patience: float) -> bool:
        """Check whether namespaces are to be watched: not if their names are known, and the role forbids it."""
        if self._scope.clusterwide:
            return False
        return not self._scope.is_exact or await may_list_namespaces(self._client, patience=patience)

    def places(self, resource: Resource) -> Iterable[str | None]:
        """Return the namespaces where objects of a kind are watched; None stands for all."""
        is_everywhere = self._scope.clusterwide or resource.namespaced is False
        return (None,) if is_everywhere else self._served()

    @property
    def are_known(self) -> bool:
        """Whether it is known in which namespaces objects are watched."""
        return self._scope.clusterwide or self._scope.is_exact or self.items.complete

    def has(self, namespace: str | None) -> bool:
        """Check whether a namespace may exist; None stands for all."""
        return namespace is None or not self.items.complete or namespace in self.items

    @property
    def unserved(self) -> str:
        """The consequence of a missing list of namespaces, in one sentence; empty if all names are known."""
        patterns = [describe_pattern(p) for p in self._scope.namespaces if p not in self._scope.exact]
        return f"The patterns {', '.join(patterns)} match nothing." if patterns else ""

    def unmatched(self) -> Iterator[str]:
        """Describe the patterns that match no namespace."""
        return describe_unmatched(self._scope.namespaces, set(self._served()))

    def _served(self) -> Iterable[str]:
        if not self.items.complete:
            return self._scope.exact
        return [name for name in self.items if self._scope.includes(name)]
