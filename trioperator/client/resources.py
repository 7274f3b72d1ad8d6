"""The kinds that the cluster serves, looked up by their names when they are first needed."""

from __future__ import annotations

import trio

from trioperator._kube.api_client import ApiClient
from trioperator._kube.discovery import discover
from trioperator._model.resource import Resource, Selector
from trioperator.errors import ConfigError, NotFoundError


class ResourceFinder:
    """Resources by the names that were looked up. What was found is remembered until it turns out to be gone."""

    def __init__(self) -> None:
        self._found: dict[Selector, Resource] = {}
        self._lock = trio.Lock()

    async def find(self, kube: ApiClient, kind: Resource | Selector) -> Resource:
        """Return the resource of a kind; one that is looked up for the first time takes a discovery of its API group.

        Raises NotFoundError if the cluster does not serve it, ConfigError if several kinds have that name, and what
        requests raise.
        """
        if isinstance(kind, Resource):
            return kind
        if kind in self._found:
            return self._found[kind]
        async with self._lock:
            if kind not in self._found:
                groups = None if kind.group is None else frozenset({kind.group})
                discovery = await discover(kube, groups)
                self._found[kind] = _select(kind, discovery.resources)
            return self._found[kind]

    def forget(self, resource: Resource) -> None:
        """Look the resource up again next time, as it is not served any more."""
        for kind in [kind for kind, found in self._found.items() if found == resource]:
            del self._found[kind]


def _select(kind: Selector, resources: frozenset[Resource]) -> Resource:
    found = [resource for resource in resources if kind.matches(resource)]
    if len(found) > 1:
        found = [resource for resource in found if not resource.group] or found
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise ConfigError(f"The kind {kind} is ambiguous: it may be any of {names}.")
    if not found:
        raise NotFoundError(f"the server does not serve the kind {kind}", status=404, reason="NotFound")
    return found[0]
