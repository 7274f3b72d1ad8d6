"""The watch manager: which resource kinds in which namespaces are watched, as CRDs and namespaces come and go.

There is one watch, which is a reflector with its view, for each kind, or for each kind and namespace where the operator
is restricted to some. Kinds that cannot be listed do not hold up the others. While the operator is on standby, watches
are kept warm: objects are listed, watched and indexed, but not handled.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._kube.api_client import ApiClient
from trioperator._kube.discovery import discover
from trioperator._kube.watch import RawObject
from trioperator._logs import get_logger
from trioperator._model.crd import name_of_crd, resources_of_crd
from trioperator._model.resource import Resource, Selector
from trioperator._runtime.access import may_list_namespaces
from trioperator._runtime.cache import Kind, Memory, ObjectCache, ObjectState, Queue
from trioperator._runtime.watching.index_gate import IndexGate
from trioperator._runtime.watching.readiness import (
    NO_HANDLERS,
    describe_pattern,
    describe_unmatched,
    describe_unwatched,
)
from trioperator._runtime.watching.reflector import Observer, Reflector
from trioperator._runtime.watching.scope import ObservedItems, Scope
from trioperator._runtime.watching.targets import Key, Matcher, Target, find_selection, find_targets, name_of
from trioperator._runtime.watching.view import RelatedKind, Stage, View
from trioperator.errors import TrioperatorError
from trioperator.settings import OperatorSettings

__all__ = ["Related", "StopsDaemons", "WatchManager", "Webhooks"]

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES = "/api/v1/namespaces"
# Seconds that one kind may take with its first list before the others go on without it.
_PATIENCE = 5.0
# What is enough for the records of children, and for mappers that look at nothing else.
_METADATA: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
)
# Between discoveries of API groups whose servers are not available.
_BACKOFF: Final = Backoff(initial=5.0, maximum=300.0)


class Webhooks(Protocol):
    """What serves the webhooks of the operator, as far as watches are concerned."""

    def update_resources(self, resources: Collection[Resource], /) -> None:
        """Take the resource kinds of the cluster."""

    async def wait_configured(self) -> None:
        """Wait until the webhooks are configured in the cluster, or cannot be."""


class Related(Protocol):
    """The kinds that reconcile handlers own, or whose objects they map to others."""

    @property
    def selectors(self) -> Collection[Selector]: ...
    @property
    def problems(self) -> Collection[str]: ...
    def match(self, resources: Collection[Resource], /) -> Collection[RelatedKind]: ...


class _Watch:
    """One watch: a reflector, and the view of the objects that it brings."""

    __slots__ = ("gone", "reflector", "scope", "view")

    def __init__(self, view: View, reflector: Reflector) -> None:
        self.view = view
        self.reflector = reflector
        self.scope = trio.CancelScope()
        self.gone = False  # the kind or the namespace, and all objects with it


class StopsDaemons(Protocol):
    """The daemon manager, as the watch manager uses it."""

    def stop(self, state: ObjectState, reason: DaemonStoppingReason) -> None: ...


class WatchManager:
    """Starts and stops the watches of resource kinds, as handlers ask for them and the cluster has them.

    Objects are held until :meth:`activate`. *memories* are those of the manager before, if the operator was paused.
    *make_cache* makes the caches of the watches.
    *webhooks* get the resource kinds of the cluster when they are known, and whenever they have changed.
    """

    def __init__(
        self,
        client: ApiClient,
        queue: Queue,
        *,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        scope: Scope,
        memo: Any,
        stage: Stage,
        related: Related,
        daemons: StopsDaemons,
        make_cache: Callable[..., ObjectCache] = ObjectCache,
        memories: dict[str, Memory] | None = None,
        webhooks: Webhooks | None = None,
        observe: Callable[[ObjectCache], Observer] | None = None,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._queue = queue
        self._settings = settings
        self._scope = scope
        self._memo = memo
        self._stage = stage
        self._related = related
        self._daemons = daemons
        self._make_cache = make_cache
        self._memories = {} if memories is None else memories
        self._gate = IndexGate()
        self._matcher = Matcher(registry.resource_handlers(), settings)
        self._reviewed = tuple(dict.fromkeys(h.selector for h in registry.webhook_handlers()))
        self._webhooks = webhooks
        self._observe = observe  # what is between reflectors and caches, if anything
        self._announce = announce  # that the state of a watch has changed
        self._logger = get_logger("trioperator.runtime.watching")
        self._discovered: frozenset[Resource] = frozenset()
        self._defined: set[tuple[str, str]] = set()
        self._watches: dict[Key, _Watch] = {}
        self._retired: dict[Key, ObjectCache] = {}  # by their keys in whatever version
        self._observers: dict[str, Reflector] = {}
        self._changed = Pulse()
        self._crds = ObservedItems(_read_crd, self._changed.set)
        self._namespaces = ObservedItems(lambda obj: obj.name, self._changed.set)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. It has started when every kind is listed, or cannot be for now."""
        if not self._matcher.selectors and not self._reviewed:
            self._logger.warning("%s Nothing is watched. Have the files with the handlers been loaded?", NO_HANDLERS)
            task_status.started()
            return
        async with trio.open_nursery() as intake:
            discovery = await discover(self._client, self._groups)
            self._discovered = discovery.resources
            if discovery.broken:
                intake.start_soon(self._discover_the_rest, discovery.broken, name="discover the rest")
            if not self._settings.scanning.disabled:
                await self._start_observing(intake)
            elif unserved := self._unserved:
                self._logger.warning("Namespaces are not watched. %s", unserved)
            for problem in self._unmatched() if self._namespaces.complete else ():
                self._logger.warning("%s Namespaces are watched as soon as they are created.", problem)
            await self._prepare_webhooks()
            self._adjust(intake)
            self._warn_of_digested_fields()
            await self._wait_for_lists()
            await self._gate.opened.wait()
            task_status.started()
            while True:
                await self._changed.wait()
                self._adjust(intake)

    async def _prepare_webhooks(self) -> None:
        """Wait until webhooks are configured, but not for ever: the API server may need conversions to list objects."""
        if self._webhooks is not None:
            self._webhooks.update_resources(self._resources())
            with trio.move_on_after(_PATIENCE):
                await self._webhooks.wait_configured()

    def activate(self) -> None:
        """Let objects be handled."""
        self._gate.activate()

    def find(self, uid: str) -> ObjectState | None:
        """Return the cached state of an object, if it is watched."""
        found = (cache.objects.get(uid) for cache, _ in self.caches())
        return next((state for state in found if state is not None), None)

    def remember(self) -> dict[str, Memory]:
        """Return what is remembered of the objects while the operator is paused, by their keys in the caches."""
        caches = [cache for cache, _ in self.caches()]
        unseen = {} if caches and all(cache.listed.is_set() for cache in caches) else self._memories
        remembered = dict(unseen)
        for cache in (*self._retired.values(), *caches):
            for state in cache:
                cache.predecessors.hand_over(state)
                remembered[state.uid] = state.remember()
            remembered |= cache.predecessors.remember()
        return remembered

    async def _discover_the_rest(self, groups: frozenset[str]) -> None:
        """Discover the API groups again whose servers are not available, until they are."""
        for attempt in itertools.count(1):
            await trio.sleep(_BACKOFF.delay(attempt))
            try:
                discovery = await discover(self._client, groups)
            except TrioperatorError as error:
                self._logger.debug("Discovering %s is put off: %s", ", ".join(sorted(groups)), error)
                continue
            groups = discovery.broken
            before = {(resource, resource.preferred) for resource in self._discovered}
            self._discovered = discovery.resources | (self._discovered - discovery.resources)
            if {(resource, resource.preferred) for resource in self._discovered} != before:
                self._changed.set()
            if not groups:
                return

    @property
    def _groups(self) -> frozenset[str] | None:
        """The API groups that must be known: all of them if any selector names none."""
        groups = [selector.group for selector in (*self._matcher.selectors, *self._reviewed, *self._related.selectors)]
        if any(group is None for group in groups):
            return None
        return frozenset(group for group in groups if group is not None) | {"", "apiextensions.k8s.io"}

    async def _start_observing(self, intake: trio.Nursery) -> None:
        """Observe CRDs, and namespaces where they matter; wait for the first lists, but not for ever."""
        missed = "New resource kinds are not noticed until then."
        observed: list[tuple[str, ObservedItems[Any], str]] = [(_CRDS, self._crds, missed)]
        if not self._scope.clusterwide and await self._may_list_namespaces():
            missed = f"New namespaces are not noticed until then. {self._unserved}".rstrip()
            observed.append((_NAMESPACES, self._namespaces, missed))
        for path, collected, missed in observed:
            hint = f"{missed} If that is intended, set settings.scanning.disabled."
            reflector = Reflector(
                self._client,
                path,
                collected,
                settings=self._settings,
                consequence=hint,
                can_do_without=True,
                restored=functools.partial(self._distrust, path),
            )
            self._observers[path] = reflector
            intake.start_soon(reflector.serve, name=f"observe {path}")
            with trio.move_on_after(_PATIENCE):
                await reflector.tried.wait()

    async def _may_list_namespaces(self) -> bool:
        """Check whether namespaces can be listed, if the operator can do without that: if it knows all their names."""
        return not self._scope.is_exact or await may_list_namespaces(self._client, patience=_PATIENCE)

    @property
    def _unserved(self) -> str:
        patterns = [describe_pattern(p) for p in self._scope.namespaces if p not in self._scope.exact]
        return f"The patterns {', '.join(patterns)} match nothing." if patterns else ""

    def _unmatched(self) -> Iterator[str]:
        return describe_unmatched(self._scope.namespaces, set(self._served_namespaces()))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not handled for now, in one sentence each; empty if all is well."""
        found = list(self.unserved_problems())
        for name, reflector in self.reflectors():
            found += describe_unwatched(name, reflector)
        return tuple(found)

    def caches(self) -> Iterator[tuple[ObjectCache, Reflector]]:
        """Yield the caches of objects, with the reflectors that fill them."""
        for watch in self._watches.values():
            if watch.view.cache is not None:
                yield watch.view.cache, watch.reflector

    def caches_by_path(self) -> list[tuple[ObjectCache, str]]:
        """Return the caches of objects, with the paths of what they watch."""
        return [(cache, reflector.path) for cache, reflector in self.caches()]

    def unserved_problems(self) -> Iterator[str]:
        """Yield the problems with handlers and namespaces for which nothing is watched."""
        if not self._matcher.selectors and not self._reviewed:
            yield NO_HANDLERS
            return
        yield from (f"Not all handlers of {selector} are called." for selector in self._matcher.problems)
        yield from self._related.problems
        yield from self._unmatched()

    def reflectors(self) -> Iterator[tuple[str, Reflector]]:
        """Yield the reflectors, with the names of what they watch."""
        for path, reflector in self._observers.items():
            yield path.rpartition("/")[2], reflector
        for key, watch in self._watches.items():
            yield str(key), watch.reflector

    def _resources(self) -> frozenset[Resource]:
        """Return the resources of the cluster: those of CRDs as these define them, all others as discovered."""
        custom = frozenset(resource for _, resources in self._crds for resource in resources)
        self._defined |= {name for name, _ in self._crds}
        builtin = {r for r in self._discovered if (r.group, r.plural) not in self._defined}
        return custom | builtin

    def _places(self, resource: Resource) -> Iterable[str | None]:
        """Return the namespaces where objects of a kind are watched; None stands for all."""
        is_everywhere = self._scope.clusterwide or resource.namespaced is False
        return (None,) if is_everywhere else self._served_namespaces()

    def _warn_of_digested_fields(self) -> None:
        """Warn of names in the settings that stand for no kind: the values of their fields would be stored."""
        known = {name_of(resource) for resource in self._resources()} | {"secrets"}
        unknown = set(self._settings.persistence.digested_fields) - known
        if unknown:
            text = "settings.persistence.digested_fields has names of which no kind with handlers is known: %s."
            self._logger.warning(text, ", ".join(sorted(unknown)))

    def _served_namespaces(self) -> Iterable[str]:
        if not self._namespaces.complete:
            return self._scope.exact
        return [name for name in self._namespaces if self._scope.includes(name)]

    def _adjust(self, intake: trio.Nursery) -> None:
        """Stop the watches that are not wanted any more, and start those that are missing."""
        self._changed.clear()
        resources = self._resources()
        if self._webhooks is not None:
            self._webhooks.update_resources(resources)
        targets = find_targets(self._matcher.match(resources), self._related.match(resources), self._places)
        for key in set(self._watches) - set(targets):
            self._logger.debug("Watching %s ends.", key)
            watch = self._watches.pop(key)
            watch.gone = not self._exists(key.resource, key.namespace)
            watch.scope.cancel(reason="out of scope")
            if watch.view.cache is not None:
                self._retired[key.in_any_version] = watch.view.cache
        self._retired = {k: cache for k, cache in self._retired.items() if self._exists(k.resource, k.namespace)}
        started: list[_Watch] = []
        for key, target in targets.items():
            if key in self._watches:
                self._update(self._watches[key], key, target)
            else:
                watch = self._watches[key] = self._make_watch(key, target)
                started.append(watch)
        held = [(watch.view.cache, watch.reflector) for watch in started if watch.view.cache is not None]
        self._gate.hold(intake, held)
        for watch in started:
            intake.start_soon(self._serve_watch, watch, name=f"watch {watch.reflector.path}")

    def _update(self, watch: _Watch, key: Key, target: Target) -> None:
        """Let a watch be for what a target says now: a CRD that has changed may have other subresources."""
        if watch.view.cache is not None and target.kind is not None:
            watch.view.cache.update_kind(target.kind)
        if watch.view.adjust(target.related):
            watch.reflector.restart(self._select_client(key, target))

    def _exists(self, resource: Resource, namespace: str | None) -> bool:
        """Check whether objects of the kind may still exist, in any version, though they are not watched."""
        kinds = {(r.group, r.plural) for r in self._resources()} | {name for name, _ in self._crds}
        if (resource.group, resource.plural) not in kinds:
            return False
        return namespace is None or not self._namespaces.complete or namespace in self._namespaces

    def _make_watch(self, key: Key, target: Target) -> _Watch:
        cache = None if target.kind is None else self._make_object_cache(key, target.kind)
        observer = None if cache is None or self._observe is None else self._observe(cache)
        view = View(key.namespace, self._stage, cache=cache, observer=observer)
        view.adjust(target.related)
        client, path = self._select_client(key, target), key.resource.get_path(namespace=key.namespace)
        reflector = Reflector(
            client,
            path,
            view,
            settings=self._settings,
            consequence=key.consequence,
            rewind=view.rewind,
            restored=functools.partial(self._distrust, path),
            announce=self._announce,
        )
        return _Watch(view, reflector)

    def _distrust(self, path: str) -> None:
        """List all kinds again, as one was restored: the versions of others may have grown since beyond those known."""
        for cache in (*self._retired.values(), *(cache for cache, _ in self.caches())):
            cache.forget_versions()
        for watch in self._watches.values():
            if watch.reflector.path != path:
                watch.reflector.distrust()

    def _make_object_cache(self, key: Key, kind: Kind) -> ObjectCache:
        cache = self._make_cache(
            kind,
            self._queue,
            memo=self._memo,
            consistency_timeout=self._settings.persistence.consistency_timeout,
            backlog_limit=self._settings.queueing.backlog_limit,
            indices=self._stage.indexing.indices,
            memories=self._memories,
        )
        before = self._retired.pop(key.in_any_version, None)
        if before is None:
            before = self._find_version(key)
        if before is not None:
            cache.predecessors.add(before)
            if before.kind.resource not in self._resources():  # so nothing more can be stored there
                before.update_kind(msgspec.structs.replace(before.kind, resource=kind.resource))
        return cache

    def _find_version(self, key: Key) -> ObjectCache | None:
        """Return the cache of the same objects in another version, if handlers have asked for several of them."""
        places = ((other.in_any_version, watch.view.cache) for other, watch in self._watches.items())
        return next((cache for place, cache in places if cache is not None and place == key.in_any_version), None)

    def _select_client(self, key: Key, target: Target) -> ApiClient:
        """Return a client whose lists and watches are of what is read: only the metadata, if nobody reads more."""
        selection = find_selection(self._settings, key.resource, key.labels)
        is_whole = target.kind is not None or any(kind.needs_bodies for kind in target.related)
        if is_whole and not selection:
            return self._client
        return self._client.selecting(selection, forms=(None, None) if is_whole else _METADATA)

    async def _serve_watch(self, watch: _Watch) -> None:
        with watch.scope:
            await watch.reflector.serve()
        watch.view.close(gone=watch.gone)
        cache = watch.view.cache
        if cache is None:
            return
        if watch.gone:  # the kind or the namespace is gone, and all its objects with it
            cache.replace(())
        else:  # they may be there still, in another version perhaps, and are not ours any more
            cache.retire()
            for state in cache:
                self._daemons.stop(state, DaemonStoppingReason.FILTERS_MISMATCH)
        cache.listed.set()  # nobody need wait for it any more

    async def _wait_for_lists(self) -> None:
        """Wait until each watch has tried to list, but not for ever: a kind that hangs does not hold up the others."""
        with trio.move_on_after(_PATIENCE):
            for _, reflector in list(self.reflectors()):
                await reflector.tried.wait()


def _read_crd(obj: RawObject) -> tuple[tuple[str, str], frozenset[Resource]]:
    """Return the group and plural of a CRD, and the resource kinds that are served: none until it is established."""
    crd = obj.decode()
    return name_of_crd(crd), resources_of_crd(crd)
