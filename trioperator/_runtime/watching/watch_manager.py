"""The watch manager: what is watched follows what the cluster has, as CRDs and namespaces come and go.

Kinds that cannot be listed do not hold up the others. While the operator is on standby, watches are kept warm: objects
are listed, watched and indexed, but not handled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol, TypeAlias

import trio

from trioperator._concurrency.pulse import Pulse
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource, Selector
from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.watching.catalog import CRDS, Catalog
from trioperator._runtime.watching.namespaces import NAMESPACES, Namespaces
from trioperator._runtime.watching.readiness import NO_HANDLERS, describe_unwatched
from trioperator._runtime.watching.scope import Scope
from trioperator._runtime.watching.targets import Key, Requirements, name_of, select_targets
from trioperator._runtime.watching.view import RelatedKind
from trioperator._runtime.watching.watch_set import PATIENCE, WatchSet

#: The webhooks for conversions by groups and plurals of CRDs; None where there is none.
Conversions: TypeAlias = Mapping[tuple[str, str], JsonObject | None]


class Webhooks(Protocol):
    """The webhooks of the operator, as far as watches are concerned."""

    def update_resources(
        self, resources: Collection[Resource], conversions: Conversions, /, *, undiscovered: frozenset[str]
    ) -> None:
        """Take the resource kinds of the cluster, and the webhooks for conversions by groups and plurals of CRDs.

        There may be others in the API groups that are *undiscovered*.
        """

    async def wait_configured(self) -> None:
        """Wait until the webhooks are configured in the cluster, or cannot be."""


class Related(Protocol):
    """The kinds that reconcile handlers own, or whose objects they map to others."""

    @property
    def selectors(self) -> Collection[Selector]: ...
    @property
    def problems(self) -> Collection[str]: ...
    def match(self, resources: Collection[Resource], /) -> Collection[RelatedKind]: ...


class WatchManager:
    """Adjusts the watches of an operator to what its handlers require, and the cluster has.

    *webhooks* get the resource kinds of the cluster when they are known, and whenever they have changed. What looks at
    the operator looks at ``watches``.
    """

    def __init__(
        self,
        client: ApiClient,
        watches: WatchSet,
        *,
        requirements: Requirements,
        related: Related,
        scope: Scope,
        webhooks: Webhooks | None = None,
    ) -> None:
        self.watches = watches
        self._requirements = requirements
        self._related = related
        self._webhooks = webhooks
        self._changed = Pulse()
        self._catalog = Catalog(client, self._changed.set)
        self._namespaces = Namespaces(client, scope, self._changed.set)
        self._problems: Mapping[Selector, str] = {}
        self._logger = get_logger("trioperator.runtime.watching")

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. It has started when every kind is listed, or cannot be for now."""
        if not self._requirements:
            self._logger.warning("%s Nothing is watched. Have the files with the handlers been loaded?", NO_HANDLERS)
            task_status.started()
            return
        async with trio.open_nursery() as intake:
            await self._catalog.discover(intake, self._requirements.find_groups(self._related.selectors))
            if not self._requirements.settings.scanning.disabled:
                await self._observe(intake)
            elif unserved := self._namespaces.unserved:
                self._logger.warning("Namespaces are not watched. %s", unserved)
            for problem in self._namespaces.unmatched() if self._namespaces.items.complete else ():
                self._logger.warning("%s Namespaces are watched as soon as they are created.", problem)
            await self._prepare_webhooks()
            self._adjust(intake)
            self._warn_of_digested_fields()
            self._warn_of_selectors()
            await self.watches.wait_tried()
            self.watches.check_selectors()
            await self.watches.gate.opened.wait()
            task_status.started()
            while True:
                await self._changed.wait()
                self._adjust(intake)

    def remember(self, unseen: Mapping[str, Memory]) -> dict[str, Memory]:
        """Return what is remembered of the objects while the operator is paused: see :meth:`WatchSet.remember`.

        Nothing is forgotten while kinds or namespaces are unknown: their objects may exist.
        """
        is_known = self._namespaces.are_known and not self._catalog.undiscovered
        return ({} if is_known else dict(unseen)) | self.watches.remember(unseen)

    @property
    def problems(self) -> tuple[str, ...]:
        """The things that are not handled for now, in one sentence each; empty if all is well."""
        found = list(self.unserved_problems())
        for name, reflector in self.watches.reflectors():
            found += describe_unwatched(name, reflector)
        return tuple(found)

    def unserved_problems(self) -> Iterator[str]:
        """Yield the problems with handlers and namespaces for which nothing is watched."""
        if not self._requirements:
            yield NO_HANDLERS
            return
        yield from (f"Not all handlers of {selector} are called." for selector in self._problems)
        yield from self._related.problems
        yield from self._namespaces.unmatched()

    async def _observe(self, intake: trio.Nursery) -> None:
        """Observe CRDs, and namespaces where they matter; wait for the first lists, but not forever."""
        hint = "If that is intended, set settings.scanning.disabled."
        missed = f"New resource kinds are not noticed until then. {hint}"
        await self.watches.observe(intake, CRDS, self._catalog.crds, consequence=missed)
        if await self._namespaces.are_observed(patience=PATIENCE):
            missed = f"New namespaces are not noticed until then. {self._namespaces.unserved}".rstrip()
            await self.watches.observe(intake, NAMESPACES, self._namespaces.items, consequence=f"{missed} {hint}")

    async def _prepare_webhooks(self) -> None:
        """Wait until webhooks are configured, but not forever: the API server may need conversions to list objects."""
        if self._webhooks is not None:
            self._update_webhooks(self._webhooks)
            with trio.move_on_after(PATIENCE):
                await self._webhooks.wait_configured()

    def _adjust(self, intake: trio.Nursery) -> None:
        """Start and stop watches, so that they match what is wanted now."""
        self._changed.clear()
        resources = self._catalog.resources()
        if self._webhooks is not None:
            self._update_webhooks(self._webhooks)
        related = self._related.match(resources)
        targets, problems = select_targets(self._requirements, resources, related, self._namespaces.places)
        for selector, problem in problems.items():
            if self._problems.get(selector) != problem:
                self._logger.warning("%s", problem)
        self._problems = problems
        self.watches.adjust(intake, targets, served=resources, exists=self._exists)

    def _update_webhooks(self, webhooks: Webhooks) -> None:
        catalog = self._catalog
        webhooks.update_resources(catalog.resources(), catalog.conversions(), undiscovered=catalog.undiscovered)

    def _exists(self, key: Key) -> bool:
        """Check whether the objects may still exist, in any version, though they are not watched."""
        return self._catalog.has(key.resource) and self._namespaces.has(key.namespace)

    def _warn_of_digested_fields(self) -> None:
        """Warn of names in the settings that stand for no kind: the values of their fields would be stored."""
        known = {name_of(resource) for resource in self._catalog.resources()} | {"secrets"}
        unknown = set(self._requirements.settings.persistence.digested_fields) - known
        if unknown:
            text = "settings.persistence.digested_fields has names of which no kind with handlers is known: %s."
            self._logger.warning(text, ", ".join(sorted(unknown)))

    def _warn_of_selectors(self) -> None:
        """Warn of selectors in the settings for kinds that are not there: more might be handled than is wanted."""
        watching, resources = self._requirements.settings.watching, self._catalog.resources()
        known = [dataclasses.replace(resource, preferred=True) for resource in resources]
        for name in ("label_selectors", "field_selectors", "shard_selectors"):
            for selector in getattr(watching, name):
                if selector.is_specific and not any(map(selector.matches, known)):
                    text = (
                        "settings.watching.%s has a selector for %s, but no kind with handlers is known by that name."
                    )
                    self._logger.warning(text, name, selector)
