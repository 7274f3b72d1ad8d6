"""The watch manager: which resource kinds in which namespaces are watched, as CRDs and namespaces come and go.

There is one watch, which is a reflector with its cache, for each kind, or for each kind and namespace where the
operator is restricted to some. Kinds that cannot be listed do not hold up the others. While the operator is on standby,
watches are kept warm: objects are listed, watched and indexed, but not handled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, Protocol

import trio

from trioperator.backoff import Backoff
from trioperator.errors import ForbiddenError, TrioperatorError, UserCodeError
from trioperator.handling import guard
from trioperator.handling.handler import ChangeHandler, ResourceHandler, SpawningHandler
from trioperator.handling.registry import KindHandlers, OperatorRegistry
from trioperator.handling.stopping import DaemonStoppingReason
from trioperator.kube.client import Client
from trioperator.kube.discovery import discover
from trioperator.kube.watch import RawObject
from trioperator.logs import get_logger
from trioperator.model.crd import name_of_crd, resources_of_crd
from trioperator.model.fields import FieldPath, parse_field
from trioperator.model.resource import Resource, Selection, Selector, select_resources
from trioperator.pulse import Pulse
from trioperator.runtime.cache import Kind, Memory, ObjectCache, ObjectState, Queue
from trioperator.runtime.index_gate import IndexGate
from trioperator.runtime.indexing import Indexing
from trioperator.runtime.readiness import NO_HANDLERS, describe_pattern, describe_unmatched, describe_unwatched
from trioperator.runtime.reflector import Observer, Reflector
from trioperator.runtime.scope import ObservedItems, Scope
from trioperator.settings import OperatorSettings

__all__ = ["Related", "StopsDaemons", "WatchManager", "Webhooks"]

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES = "/api/v1/namespaces"
# Seconds that one kind may take with its first list before the others go on without it.
_PATIENCE = 5.0
# Between discoveries of API groups whose servers are not available.
_BACKOFF: Final = Backoff(initial=5.0, maximum=300.0)


class Webhooks(Protocol):
    """What serves the webhooks of the operator, as far as watches are concerned."""

    def update_resources(self, resources: Collection[Resource], /) -> None:
        """Take the resource kinds of the cluster."""

    async def wait_configured(self) -> None:
        """Wait until the webhooks are configured in the cluster, or cannot be."""


class Related(Protocol):
    """The watches of kinds that reconcile handlers own, or whose objects they map to others."""

    @property
    def selectors(self) -> Collection[Selector]: ...
    @property
    def problems(self) -> Collection[str]: ...
    def reflectors(self) -> Iterator[tuple[str, Reflector]]: ...
    def adjust(
        self, nursery: trio.Nursery, resources: Collection[Resource], namespaces: Collection[str] | None, /
    ) -> None: ...


class _Watch:
    """One watch: a reflector, and the cache of the objects that it has brought."""

    __slots__ = ("cache", "gone", "reflector", "scope")

    def __init__(self, cache: ObjectCache, reflector: Reflector) -> None:
        self.cache = cache
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
        client: Client,
        queue: Queue,
        *,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        scope: Scope,
        memo: Any,
        indexing: Indexing,
        related: Related,
        daemons: StopsDaemons,
        make_cache: Callable[..., ObjectCache] = ObjectCache,
        memories: dict[str, Memory] | None = None,
        webhooks: Webhooks | None = None,
        observe: Callable[[ObjectCache], Observer] | None = None,
    ) -> None:
        self._client = client
        self._queue = queue
        self._settings = settings
        self._scope = scope
        self._memo = memo
        self._indexing = indexing
        self._related = related
        self._daemons = daemons
        self._make_cache = make_cache
        self._memories = {} if memories is None else memories
        self._gate = IndexGate(indexing)
        self._handlers = registry.resource_handlers()
        self._selectors = tuple(dict.fromkeys(h.selector for h in self._handlers))
        self._reviewed = tuple(dict.fromkeys(h.selector for h in registry.webhook_handlers()))
        self._webhooks = webhooks
        self._observe = observe  # what is between reflectors and caches, if anything
        self._logger = get_logger("trioperator.runtime.watches")
        self._discovered: frozenset[Resource] = frozenset()
        self._defined: set[tuple[str, str]] = set()
        self._watches: dict[tuple[Resource, str | None], _Watch] = {}
        self._problems: dict[Selector, str] = {}
        self._observers: dict[str, Reflector] = {}
        self._changed = Pulse()
        self._crds = ObservedItems(_read_crd, self._changed.set)
        self._namespaces = ObservedItems(lambda obj: obj.name, self._changed.set)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. It has started when every kind is listed, or cannot be for now."""
        if not self._selectors and not self._reviewed:
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
        found = (watch.cache.objects.get(uid) for watch in self._watches.values())
        return next((state for state in found if state is not None), None)

    def remember(self) -> dict[str, Memory]:
        """Return what is remembered of the objects while the operator is paused, by their keys in the caches."""
        caches = [watch.cache for watch in self._watches.values()]
        unseen = {} if caches and all(cache.listed.is_set() for cache in caches) else self._memories
        return unseen | {uid: state.remember() for cache in caches for uid, state in cache.objects.items()}

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
            if discovery.resources - self._discovered:
                self._discovered |= discovery.resources
                self._changed.set()
            if not groups:
                return

    @property
    def _groups(self) -> frozenset[str] | None:
        """The API groups that must be known: all of them if any selector names none."""
        groups = [selector.group for selector in (*self._selectors, *self._reviewed, *self._related.selectors)]
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
                self._client, path, collected, settings=self._settings, consequence=hint, can_do_without=True
            )
            self._observers[path] = reflector
            intake.start_soon(reflector.serve, name=f"observe {path}")
            with trio.move_on_after(_PATIENCE):
                await reflector.tried.wait()

    async def _may_list_namespaces(self) -> bool:
        """Check whether namespaces can be listed, if the operator can do without that: if it knows all their names."""
        if not self._scope.is_exact:
            return True
        try:
            with trio.move_on_after(_PATIENCE):
                await self._client.list_page(_NAMESPACES, limit=1, backoffs=())
        except ForbiddenError as error:
            self._logger.info("Namespaces are not watched, which is not needed for exact names: %s", error)
            return False
        except TrioperatorError:
            pass  # it is reported when they are observed
        return True

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
        return ((watch.cache, watch.reflector) for watch in self._watches.values())

    def unserved_problems(self) -> Iterator[str]:
        """Yield the problems with handlers and namespaces for which nothing is watched."""
        if not self._selectors and not self._reviewed:
            yield NO_HANDLERS
            return
        yield from (f"Not all handlers of {selector} are called." for selector in self._problems)
        yield from self._related.problems
        yield from self._unmatched()

    def reflectors(self) -> Iterator[tuple[str, Reflector]]:
        """Yield the reflectors, with the names of what they watch."""
        for path, reflector in self._observers.items():
            yield path.rpartition("/")[2], reflector
        for (resource, namespace), watch in self._watches.items():
            where = "" if namespace is None else f" in the namespace {namespace}"
            yield f"{resource}{where}", watch.reflector
        yield from self._related.reflectors()

    def _resources(self) -> frozenset[Resource]:
        """Return the resources of the cluster: those of CRDs as these define them, all others as discovered."""
        custom = frozenset(resource for _, resources in self._crds for resource in resources)
        self._defined |= {name for name, _ in self._crds}
        builtin = {r for r in self._discovered if (r.group, r.plural) not in self._defined}
        return custom | builtin

    def _wanted(self) -> dict[Resource, KindHandlers]:
        """Match selectors with resources, and report once what cannot be served."""
        by_resource: dict[Resource, list[ResourceHandler]] = {}
        problems: dict[Selector, str] = {}
        resources = self._resources()
        selections = {selector: _select(selector, resources) for selector in self._selectors}
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
        kinds = [
            Kind(resource, handlers, self._digested_fields(resource)) for resource, handlers in self._wanted().items()
        ]
        targets: dict[tuple[Resource, str | None], Kind] = {}
        for kind in kinds:
            if self._scope.clusterwide or kind.resource.namespaced is False:
                targets[kind.resource, None] = kind
            else:
                targets |= {(kind.resource, namespace): kind for namespace in self._served_namespaces()}
        return targets

    def _digested_fields(self, resource: Resource) -> tuple[FieldPath, ...]:
        fields = self._settings.persistence.digested_fields.get(_name(resource), ())
        return tuple(parse_field(field) for field in fields)

    def _warn_of_digested_fields(self) -> None:
        """Warn of names in the settings that stand for no kind: the values of their fields would be stored."""
        known = {_name(resource) for resource in self._resources()} | {"secrets"}
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
        if self._webhooks is not None:
            self._webhooks.update_resources(self._resources())
        namespaces = None if self._scope.clusterwide else tuple(self._served_namespaces())
        self._related.adjust(intake, self._resources(), namespaces)
        targets = self._targets()
        for key in set(self._watches) - set(targets):
            self._logger.debug("Watching %s ends.", key)
            watch = self._watches.pop(key)
            watch.gone = not self._exists(*key)
            watch.scope.cancel(reason="out of scope")
        started: list[_Watch] = []
        for key, kind in targets.items():
            if key in self._watches:
                self._watches[key].cache.update_kind(kind)  # a CRD that has changed may have other subresources
            else:
                watch = self._watches[key] = self._make_watch(key, kind)
                started.append(watch)
        self._gate.hold(intake, [(watch.cache, watch.reflector) for watch in started])
        for watch in started:
            intake.start_soon(self._serve_watch, watch, name=f"watch {watch.reflector.path}")

    def _exists(self, resource: Resource, namespace: str | None) -> bool:
        """Check whether objects of the kind may still exist, in any version, though they are not watched."""
        kinds = {(r.group, r.plural) for r in self._resources()} | {name for name, _ in self._crds}
        if (resource.group, resource.plural) not in kinds:
            return False
        return namespace is None or not self._namespaces.complete or namespace in self._namespaces

    def _make_watch(self, key: tuple[Resource, str | None], kind: Kind) -> _Watch:
        resource, namespace = key
        cache = self._make_cache(
            kind,
            self._queue,
            memo=self._memo,
            consistency_timeout=self._settings.persistence.consistency_timeout,
            backlog_limit=self._settings.queueing.backlog_limit,
            indices=self._indexing.indices,
            memories=self._memories,
        )
        path = resource.get_path(namespace=namespace)
        hint = "Its handlers are not called until then."
        observer = cache if self._observe is None else self._observe(cache)
        return _Watch(cache, Reflector(self._client, path, observer, settings=self._settings, consequence=hint))

    async def _serve_watch(self, watch: _Watch) -> None:
        with watch.scope:
            await watch.reflector.serve()
        if watch.gone:  # the kind or the namespace is gone, and all its objects with it
            watch.cache.replace(())
        else:  # they may be there still, in another version perhaps, and are not ours any more
            watch.cache.retire()
            for state in watch.cache:
                self._daemons.stop(state, DaemonStoppingReason.FILTERS_MISMATCH)
        watch.cache.listed.set()  # nobody need wait for it any more
        self._indexing.drop(watch.cache)

    async def _wait_for_lists(self) -> None:
        """Wait until each watch has tried to list, but not for ever: a kind that hangs does not hold up the others."""
        with trio.move_on_after(_PATIENCE):
            for _, reflector in list(self.reflectors()):
                await reflector.tried.wait()


def _name(resource: Resource) -> str:
    """Return the name of a kind, as of its CRD; of the core group it is the plural."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _read_crd(obj: RawObject) -> tuple[tuple[str, str], frozenset[Resource]]:
    """Return the group and plural of a CRD, and the resource kinds that are served: none until it is established."""
    crd = obj.decode()
    return name_of_crd(crd), resources_of_crd(crd)


def _stores(handler: ResourceHandler) -> bool:
    """Check whether the objects must be patched for a handler, whatever it does."""
    return isinstance(handler, ChangeHandler) or (isinstance(handler, SpawningHandler) and handler.finalizer)


def _select(selector: Selector, resources: Collection[Resource]) -> Selection:
    """Select the resource kinds of a selector. A function of the user's that fails selects none."""
    try:
        return guard.call("The selector {}", selector, select_resources, selector, resources)
    except UserCodeError as error:
        return Selection(problem=f"{error}. Its handlers are not called.")
