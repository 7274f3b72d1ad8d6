"""Scopes: which resource kinds in which namespaces are watched, now and when CRDs and namespaces come and go.

One reflector with one object table for each kind, or for each kind and namespace where the operator is restricted to
some. Kinds that cannot be listed hold up nobody else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Generic, TypeVar

import trio

from trioperator.errors import TrioperatorError
from trioperator.handling.handler import BackgroundHandler, ChangeHandler, ResourceHandler
from trioperator.handling.registry import KindHandlers, OperatorRegistry
from trioperator.handling.stopping import DaemonStoppingReason
from trioperator.kube.client import Client
from trioperator.kube.discovery import discover
from trioperator.kube.watch import RawObject
from trioperator.logs import get_logger
from trioperator.model.crd import resources_of_crd
from trioperator.model.namespaces import NamespacePattern, is_exact, match_namespace
from trioperator.model.resource import Resource, Selector, select_resources
from trioperator.runtime.background import Background
from trioperator.runtime.indexing import Indexing
from trioperator.runtime.reflector import Reflector
from trioperator.runtime.table import Kind, ObjectTable, Queue
from trioperator.settings import OperatorSettings

__all__ = ["Scope", "Scopes"]

T = TypeVar("T")

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES = "/api/v1/namespaces"
# Seconds that one kind may take with its first list before the others go on without it.
_PATIENCE = 5.0
# Seconds before API groups that could not say what they serve are asked again: doubled up to the longest.
_SHORTEST_DELAY, _LONGEST_DELAY = 5.0, 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """Say where objects are handled: everywhere, or in the namespaces that match any of the patterns."""

    clusterwide: bool = True
    namespaces: tuple[NamespacePattern, ...] = ()

    def includes(self, namespace: str) -> bool:
        """Tell whether the objects of a namespace are handled."""
        return self.clusterwide or any(match_namespace(namespace, pattern) for pattern in self.namespaces)

    @property
    def exact(self) -> frozenset[str]:
        """Give the namespaces that are named exactly, for where namespaces cannot be listed."""
        return frozenset(p for p in self.namespaces if isinstance(p, str) and is_exact(p))


class _Collected(Generic[T]):
    """Keep what is of interest of each object that a reflector sees, and say when that changes."""

    def __init__(self, extract: Callable[[RawObject], T], news: Callable[[], None]) -> None:
        self._extract = extract
        self._news = news
        self._items: dict[str, T] = {}
        self.complete = False

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def observe(self, type: str | None, obj: RawObject) -> str:
        key = obj.uid or obj.name
        before = self._items.get(key)
        if type == "DELETED":
            self._items.pop(key, None)
        else:
            try:
                self._items[key] = self._extract(obj)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                get_logger(__name__).warning("%s is not understood, and is passed over: %r", obj.name, error)
        if self.complete and repr(self._items.get(key)) != repr(before):  # resources are equal by their names
            self._news()
        return key

    def conclude(self, listed: Collection[str]) -> None:
        for key in set(self._items) - set(listed):
            del self._items[key]
        self.complete = True
        self._news()


class _Stream:
    """Be one list-and-watch, with the objects that it has brought."""

    __slots__ = ("gone", "reflector", "scope", "table")

    def __init__(self, table: ObjectTable, reflector: Reflector) -> None:
        self.table = table
        self.reflector = reflector
        self.scope = trio.CancelScope()
        self.gone = False  # and all its objects with it


class Scopes:
    """Start and stop the watching of resource kinds, as handlers ask for them and the cluster has them."""

    def __init__(
        self,
        client: Client,
        queue: Queue,
        *,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        scope: Scope,
        memo: Any,
        indexing: Indexing,
        background: Background,
    ) -> None:
        self._client = client
        self._queue = queue
        self._settings = settings
        self._scope = scope
        self._memo = memo
        self._indexing = indexing
        self._background = background
        self._held: list[ObjectTable] = []
        self._populated = trio.Event()
        self._populated.set()
        self._handlers = registry.resource_handlers()
        self._selectors = tuple(dict.fromkeys(h.selector for h in self._handlers))
        self._logger = get_logger("trioperator.runtime.scopes")
        self._discovered: frozenset[Resource] = frozenset()
        self._defined: set[tuple[str, str]] = set()
        self._streams: dict[tuple[Resource, str | None], _Stream] = {}
        self._problems: dict[Selector, str] = {}
        self._changed = trio.Event()
        self._crds = _Collected(lambda obj: resources_of_crd(obj.decode()), lambda: self._changed.set())
        self._namespaces = _Collected(lambda obj: obj.name, lambda: self._changed.set())

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. It has started when every kind is listed, or cannot be for now."""
        if not self._selectors:
            task_status.started()
            return
        async with trio.open_nursery() as intake:
            discovery = await discover(self._client, self._groups)
            self._discovered = discovery.resources
            if discovery.broken:
                intake.start_soon(self._discover_the_rest, discovery.broken, name="discover the rest")
            if not self._settings.scanning.disabled:
                await self._start_observing(intake)
            elif self._unserved:
                self._logger.warning("Namespaces are not looked at%s.", self._unserved)
            self._adjust(intake)
            await self._wait_for_lists()
            await self._populated.wait()
            task_status.started()
            while True:
                await self._changed.wait()
                self._adjust(intake)

    async def _discover_the_rest(self, groups: frozenset[str]) -> None:
        """Ask API groups again that could not say what they serve, until they can: their servers may be back then."""
        delay = _SHORTEST_DELAY
        while groups:
            await trio.sleep(delay)
            delay = min(_LONGEST_DELAY, 2 * delay)
            try:
                discovery = await discover(self._client, groups)
            except TrioperatorError as error:
                self._logger.debug("Discovering %s is put off: %s", ", ".join(sorted(groups)), error)
                continue
            groups = discovery.broken
            if discovery.resources - self._discovered:
                self._discovered |= discovery.resources
                self._changed.set()

    @property
    def _groups(self) -> frozenset[str] | None:
        """The API groups that must be known: all of them if any selector names none."""
        groups = [selector.group for selector in self._selectors]
        if any(group is None for group in groups):
            return None
        return frozenset(group for group in groups if group is not None) | {"", "apiextensions.k8s.io"}

    async def _start_observing(self, intake: trio.Nursery) -> None:
        """Follow the CRDs, and the namespaces where they matter; wait for the first lists, but not for ever."""
        observed: dict[str, _Collected[Any]] = {_CRDS: self._crds}
        if not self._scope.clusterwide:
            observed[_NAMESPACES] = self._namespaces
        for path, collected in observed.items():
            reflector = Reflector(self._client, path, collected, settings=self._settings)
            intake.start_soon(reflector.serve, name=f"observe {path}")
            with trio.move_on_after(_PATIENCE):
                await reflector.tried.wait()
            if reflector.trouble is not None:
                self._logger.warning(
                    "What comes and goes in %s is not noticed for now%s: %s. Where that is meant so, set"
                    " settings.scanning.disabled to hear no more of it.",
                    path,
                    self._unserved if path == _NAMESPACES else "",
                    reflector.trouble,
                )

    @property
    def _unserved(self) -> str:
        patterns = [str(pattern) for pattern in self._scope.namespaces if pattern not in self._scope.exact]
        return f", and the patterns {', '.join(patterns)} stand for nothing" if patterns else ""

    def _resources(self) -> frozenset[Resource]:
        """Give what the cluster has: as discovered at the start, but for what CRDs define, which they know better."""
        custom = frozenset(resource for resources in self._crds for resource in resources)
        self._defined |= {(resource.group, resource.plural) for resource in custom}
        builtin = {r for r in self._discovered if (r.group, r.plural) not in self._defined}
        return custom | builtin

    def _wanted(self) -> dict[Resource, KindHandlers]:
        """Match selectors with resources, and say once what cannot be served."""
        by_resource: dict[Resource, list[ResourceHandler]] = {}
        problems: dict[Selector, str] = {}
        resources = self._resources()
        selections = {selector: select_resources(selector, resources) for selector in self._selectors}
        for handler in self._handlers:
            selection = selections[handler.selector]
            if selection.problem:
                problems[handler.selector] = selection.problem
            for resource in selection.resources:
                if _stores(handler) and "patch" not in resource.verbs:
                    problems[handler.selector] = f"{resource} cannot be patched: {handler} is not called for it."
                else:
                    by_resource.setdefault(resource, []).append(handler)
        for selector, problem in problems.items():
            if self._problems.get(selector) != problem:
                self._logger.warning("%s", problem)
        self._problems = problems
        return {resource: KindHandlers.of(handlers) for resource, handlers in by_resource.items()}

    def _targets(self) -> dict[tuple[Resource, str | None], Kind]:
        kinds = [Kind(resource, handlers) for resource, handlers in self._wanted().items()]
        targets: dict[tuple[Resource, str | None], Kind] = {}
        for kind in kinds:
            if self._scope.clusterwide or not kind.resource.namespaced:
                targets[kind.resource, None] = kind
            else:
                targets |= {(kind.resource, namespace): kind for namespace in self._served_namespaces()}
        return targets

    def _served_namespaces(self) -> Iterable[str]:
        if not self._namespaces.complete:
            return self._scope.exact
        return [name for name in self._namespaces if self._scope.includes(name)]

    def _adjust(self, intake: trio.Nursery) -> None:
        """Stop the streams that are not wanted any more, and start those that are missing."""
        self._changed = trio.Event()
        targets = self._targets()
        for key in set(self._streams) - set(targets):
            self._logger.debug("Watching %s ends.", key)
            stream = self._streams.pop(key)
            stream.gone = not self._exists(*key)
            stream.scope.cancel(reason="out of scope")
        started: list[_Stream] = []
        for key, kind in targets.items():
            if key in self._streams:
                self._streams[key].table.kind = kind  # a CRD that has changed may have other subresources
            else:
                stream = self._streams[key] = self._make_stream(key, kind)
                started.append(stream)
        self._hold_for_indices(intake, [stream.table for stream in started])
        for stream in started:
            intake.start_soon(self._serve_stream, stream, name=f"stream {stream.reflector.path}")

    def _hold_for_indices(self, intake: trio.Nursery, tables: Collection[ObjectTable]) -> None:
        """Keep the objects of new tables from being handled, until those that are indexed are in the indices."""
        is_populating = not self._populated.is_set()
        if not is_populating and not any(table.kind.handlers.indices for table in tables):
            return
        for table in tables:
            table.hold()
        self._held += tables
        if not is_populating:
            self._populated = trio.Event()
            intake.start_soon(self._populate, name="populate indices")

    async def _populate(self) -> None:
        """Fill the indices with what the first lists have brought; then let the objects that were held be handled."""
        done: set[ObjectTable] = set()
        while pending := {table for table in self._held if table.kind.handlers.indices} - done:
            for table in pending:
                await table.listed.wait()
            await self._indexing.populate(pending)
            done |= pending
        held, self._held = self._held, []
        self._populated.set()
        for table in held:
            table.release()

    def _exists(self, resource: Resource, namespace: str | None) -> bool:
        """Tell whether objects of the kind may be there still, in whatever version, though they are not watched."""
        kinds = {(r.group, r.plural) for r in self._resources()}
        return (resource.group, resource.plural) in kinds and (namespace is None or namespace in self._namespaces)

    def _make_stream(self, key: tuple[Resource, str | None], kind: Kind) -> _Stream:
        resource, namespace = key
        timeout = self._settings.persistence.consistency_timeout
        table = ObjectTable(
            kind, self._queue, memo=self._memo, consistency_timeout=timeout, indices=self._indexing.indices
        )
        path = resource.get_path(namespace=namespace)
        return _Stream(table, Reflector(self._client, path, table, settings=self._settings))

    async def _serve_stream(self, stream: _Stream) -> None:
        with stream.scope:
            await stream.reflector.serve()
        if stream.gone:  # the kind or the namespace is gone, and all its objects with it
            stream.table.conclude(())
        else:  # they may be there still, in another version perhaps, and are not ours any more
            stream.table.retire()
            for known in stream.table:
                self._background.stop(known, DaemonStoppingReason.FILTERS_MISMATCH)
        stream.table.listed.set()  # nobody need wait for it any more
        self._indexing.leave(stream.table)

    async def _wait_for_lists(self) -> None:
        """Wait until each stream has tried to list, but not for ever: a kind that hangs holds up nobody else."""
        with trio.move_on_after(_PATIENCE):
            for stream in list(self._streams.values()):
                await stream.reflector.tried.wait()


def _stores(handler: ResourceHandler) -> bool:
    """Tell whether the objects must be patched for a handler, whatever it does."""
    return isinstance(handler, ChangeHandler) or (isinstance(handler, BackgroundHandler) and handler.finalizer)
