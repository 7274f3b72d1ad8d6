"""The catalog: which resource kinds the cluster has, by discovery at the start and by CRDs as they come and go."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._kube.api_client import ApiClient
from trioperator._kube.discovery import discover
from trioperator._kube.objects import RawObject
from trioperator._logs import get_logger
from trioperator._model.crd import find_conversion_webhook, name_of_crd, resources_of_crd
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource
from trioperator._runtime.watching.scope import ObservedItems
from trioperator.errors import TrioperatorError

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Delays between discoveries of API groups whose servers are not available.
_BACKOFF: Final = Backoff(initial=5.0, maximum=300.0)


class _Definition(NamedTuple):
    """The relevant parts of a CRD. No kinds are served until it is established."""

    name: tuple[str, str]
    resources: frozenset[Resource]
    webhook: JsonObject | None


class Catalog:
    """The resource kinds of a cluster. *notify* is called when they may have changed. ``crds`` observes CRDs.

    ``undiscovered`` are the API groups whose servers have not been available yet: they may serve any kinds.
    """

    def __init__(self, client: ApiClient, notify: Callable[[], None]) -> None:
        self._client = client
        self._notify = notify
        self._discovered: frozenset[Resource] = frozenset()
        self._defined: set[tuple[str, str]] = set()
        self.undiscovered: frozenset[str] = frozenset()
        self.crds = ObservedItems(_read_crd, notify)

    async def discover(self, nursery: trio.Nursery, groups: frozenset[str] | None) -> None:
        """Discover the kinds of API *groups* (None: of all); in the background, groups that are unavailable now."""
        discovery = await discover(self._client, groups)
        self._discovered, self.undiscovered = discovery.resources, discovery.broken
        if discovery.broken:
            nursery.start_soon(self._discover_the_rest, name="discover the rest")

    async def _discover_the_rest(self) -> None:
        """Discover the API groups again whose servers are not available, until they are."""
        for attempt in itertools.count(1):
            await trio.sleep(_BACKOFF.delay(attempt))
            try:
                discovery = await discover(self._client, self.undiscovered)
            except TrioperatorError as error:
                _logger.debug("Discovering %s is put off: %s", ", ".join(sorted(self.undiscovered)), error)
                continue
            before = self._describe()
            self._discovered = discovery.resources | (self._discovered - discovery.resources)
            self.undiscovered = discovery.broken
            if self._describe() != before:
                self._notify()
            if not self.undiscovered:
                return

    def _describe(self) -> tuple[frozenset[str], set[tuple[Resource, bool]]]:
        return self.undiscovered, {(resource, resource.preferred) for resource in self._discovered}

    def resources(self) -> frozenset[Resource]:
        """Return the kinds that are served: custom ones as their CRDs define them, all others as discovered."""
        custom = frozenset(resource for crd in self.crds for resource in crd.resources)
        self._defined |= {crd.name for crd in self.crds}
        builtin = {r for r in self._discovered if (r.group, r.plural) not in self._defined}
        return custom | builtin

    def conversions(self) -> dict[tuple[str, str], JsonObject | None]:
        """Return the webhooks for conversions, or None, by the groups and plurals of the CRDs that are known."""
        return {crd.name: crd.webhook for crd in self.crds}

    def has(self, resource: Resource) -> bool:
        """Check whether there may be objects of a kind, in any version, though none may be served."""
        kinds = {(r.group, r.plural) for r in self.resources()} | {crd.name for crd in self.crds}
        return (resource.group, resource.plural) in kinds


_logger = get_logger("trioperator.runtime.watching")


def _read_crd(obj: RawObject) -> _Definition:
    crd = obj.decode()
    return _Definition(name_of_crd(crd), resources_of_crd(crd), find_conversion_webhook(crd))
