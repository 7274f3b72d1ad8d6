"""The watch set: all watches of an operator, which it starts, stops and describes.

There is one watch, which is a reflector with its view, for each target: a kind, or a kind in a namespace where the
operator is restricted to some. Whoever reads these objects, for handlers, for indices or for reconcile handlers of
others, reads this one watch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
import trio

from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._model.resource import Resource
from trioperator._model.shard_ranges import ShardRanges
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind, Memory
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.watching.callbacks import Callbacks, write_nothing
from trioperator._runtime.watching.deletion_checker import METADATA, DeletionChecker
from trioperator._runtime.watching.division import Division
from trioperator._runtime.watching.index_gate import IndexGate
from trioperator._runtime.watching.reflector import Reflector
from trioperator._runtime.watching.scope import ObservedItems
from trioperator._runtime.watching.streams import Streams
from trioperator._runtime.watching.targets import Key, Target, name_of
from trioperator._runtime.watching.view import RelatedKind, Stage, View
from trioperator._runtime.watching.watch import Watch
from trioperator.errors import ApiError, ConfigError

# Seconds that one kind may take with its first list before the others go on without it.
PATIENCE: Final = 5.0

# Status codes for invalid selectors; for shard selectors, there is no specific code.
_INVALID: Final = frozenset({400, 422, 500})

_logger = get_logger("trioperator.runtime.watching")


class StopsDaemons(Protocol):
    """The daemon manager, as the watch set uses it."""

    def stop(self, state: ObjectState, reason: DaemonStoppingReason) -> None: ...


class Shards(Protocol):
    """The shards of objects that are handled here."""

    @property
    def daemons(self) -> StopsDaemons: ...
    @property
    def ranges(self) -> ShardRanges: ...


class WatchSet:
    """The watches of an operator: of objects, and of what decides on them (CRDs and namespaces).

    *make_cache* makes the caches of kinds that are handled. ``gate`` keeps objects from being handled until all that
    must be indexed before is. *announce* is called when the state of a watch has changed.
    """

    def __init__(
        self,
        client: ApiClient,
        stage: Stage,
        *,
        make_cache: Callable[[Kind], ObjectCache],
        shards: Shards,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._stage = stage
        self._make_cache = make_cache
        self._shards = shards
        self._announce = announce
        self.gate = IndexGate(stage.missing)
        self._watches: dict[Key, Watch] = {}
        self._retired: dict[Key, ObjectCache] = {}  # by their keys in whatever version
        self._seen: dict[Key, str] = {}  # the newest resource versions of watches that have ended, likewise
        self._observers: dict[str, Reflector] = {}

    # -- describing

    def reflectors(self) -> Iterator[tuple[str, Reflector]]:
        """Yield the reflectors, with the names of what they watch."""
        for path, reflector in self._observers.items():
            yield path.rpartition("/")[2], reflector
        for key, watch in self._watches.items():
            yield from ((str(key), reflector) for reflector in watch.reflectors)

    def caches(self) -> Iterator[tuple[ObjectCache, Reflector]]:
        """Yield the caches of objects, with the reflectors that fill them."""
        for watch in self._watches.values():
            if watch.view.cache is not None:
                yield watch.view.cache, watch.reflector

    def watched(self) -> Iterator[tuple[str, str, int, Reflector]]:
        """Yield what is watched, what for, how many objects of it are known, and the reflector, of all watches."""
        for path, reflector in self._observers.items():
            yield path.rpartition("/")[2], "what there is", 0, reflector
        for key, watch in self._watches.items():
            cache, related = watch.view.cache, [len(reader) for reader in watch.view.related.values()]
            purpose, count = ("related objects", max(related, default=0)) if cache is None else ("handlers", len(cache))
            yield from ((name_of(key.resource), purpose, count, reflector) for reflector in watch.reflectors)

    def caches_by_path(self) -> list[tuple[ObjectCache, str]]:
        """Return the caches of objects, with the paths of what they watch."""
        return [(cache, reflector.path) for cache, reflector in self.caches()]

    def find(self, uid: str) -> ObjectState | None:
        """Return the cached state of an object, if it is watched."""
        found = (cache.objects.get(uid) for cache, _ in self.caches())
        return next((state for state in found if state is not None), None)

    def remember(self, unseen: Mapping[str, Memory]) -> dict[str, Memory]:
        """Return what is remembered of the objects while the operator is paused, by their keys in the caches.

        *unseen* is what was remembered of objects that have not been seen since.
        """
        caches = [cache for cache, _ in self.caches()]
        remembered = {} if caches and all(cache.listed.is_set() for cache in caches) else dict(unseen)
        for cache in (*self._retired.values(), *caches):
            for state in cache:
                cache.predecessors.hand_over(state)
                remembered[state.uid] = state.remember()
            remembered |= {**cache.leaving.remember(), **cache.predecessors.remember()}
        return remembered

    # -- starting and stopping

    async def observe(self, intake: trio.Nursery, path: str, observer: ObservedItems[Any], *, consequence: str) -> None:
        """Start to watch what decides on other watches, and wait for its first list, but not forever."""
        observer.report_restores(self.distrust)
        reflector = Reflector(
            self._client,
            path,
            observer,
            consequence=consequence,
            can_do_without=True,
            callbacks=Callbacks(observer.rewind, functools.partial(self._distrust, path)),
        )
        self._observers[path] = reflector
        intake.start_soon(reflector.serve, name=f"observe {path}")
        with trio.move_on_after(PATIENCE):
            await reflector.status.tried.wait()

    async def wait_tried(self) -> None:
        """Wait until each watch has tried to list, but not forever: a kind that hangs does not hold up the others."""
        with trio.move_on_after(PATIENCE):
            for _, reflector in list(self.reflectors()):
                await reflector.status.tried.wait()

    def check_selectors(self) -> None:
        """Raise ConfigError if the API server rejects selectors of the settings."""
        for watch in self._watches.values():
            trouble, configured = watch.reflector.status.trouble, watch.target.configured
            if configured and isinstance(trouble, ApiError) and trouble.status in _INVALID:
                wanted = " and ".join(f"{name} {value!r}" for name, value in configured.parameters.items())
                raise ConfigError(
                    f"The API server rejects the selectors of settings.watching for {watch.reflector.path}, {wanted}:"
                    f" {trouble.message}"
                )

    def adjust(
        self,
        intake: trio.Nursery,
        targets: Mapping[Key, Target[RelatedKind]],
        *,
        served: Collection[Resource],
        exists: Callable[[Key], bool],
    ) -> None:
        """Stop the watches that are no longer targets, and start those that are missing.

        *served* are the kinds of the cluster; *exists* whether there may be objects that are no longer watched.
        """
        for key in set(self._watches) - set(targets):
            self._stop(key, gone=not exists(key))
        self._retired = {key: cache for key, cache in self._retired.items() if exists(key)}
        self._seen = {key: version for key, version in self._seen.items() if exists(key)}
        started: list[Watch] = []
        for key, target in targets.items():
            if key in self._watches:
                self._watches[key].update(target, self._restart)
            else:
                watch = self._watches[key] = self._make_watch(key, target, served)
                started.append(watch)
        held = [(watch.view.cache, watch.reflector) for watch in started if watch.view.cache is not None]
        self.gate.hold(intake, held)
        for watch in started:
            intake.start_soon(self._serve_watch, watch, name=f"watch {watch.reflector.path}")

    def select_shards(self) -> None:
        """Receive the objects of the shards that are handled now, where the API server divides them."""
        ranges = self._shards.ranges
        for watch in self._watches.values():
            watch.reflector.select(ranges)
            if watch.checker is not None:
                watch.checker.select(ranges)

    def _stop(self, key: Key, *, gone: bool) -> None:
        _logger.debug("Watching %s ends.", key)
        watch = self._watches.pop(key)
        self._seen[key.in_any_version] = watch.reflector.newest
        watch.stop(gone=gone)
        if watch.view.cache is not None:
            self._retired[key.in_any_version] = watch.view.cache

    def _restart(self, watch: Watch) -> None:
        """List everything again, by what is selected now."""
        if watch.streams is not None:
            watch.streams.expect_lists()
        for reflector, client in zip(watch.reflectors, self._select_clients(watch), strict=True):
            reflector.restart(client)

    async def _serve_watch(self, watch: Watch) -> None:
        with watch.scope:
            await watch.serve(self._client.selecting(watch.target.configured.parameters, forms=METADATA), self._restart)
        watch.view.close(gone=watch.gone)
        cache = watch.view.cache
        if cache is None:
            return
        cache.unlink()
        if watch.gone:  # the kind or the namespace is gone, and all its objects with it
            cache.replace(())
        else:  # they may be there still, in another version perhaps, and are no longer ours
            cache.retire()
            for state in cache:
                self._shards.daemons.stop(state, DaemonStoppingReason.FILTERS_MISMATCH)
        cache.listed.set()  # nobody needs to wait for it now

    def _observe_again(self) -> None:
        """List again what decides on watches: one is of what is not served, perhaps since etcd was restored."""
        for reflector in self._observers.values():
            reflector.restart(self._client)

    def distrust(self) -> None:
        """List everything again: the response to a write has shown that etcd was restored, and watches may not."""
        _logger.warning("Versions have gone back in a response, as if etcd was restored. All objects are listed again.")
        self._distrust("")

    def _distrust(self, path: str, stream: int = 0) -> None:
        """List all kinds again, as one was restored: the versions of others may have grown since beyond those known."""
        for cache in (*self._retired.values(), *(cache for cache, _ in self.caches())):
            cache.forget_versions()
        self._seen.clear()
        observers = ((reflector,) for reflector in self._observers.values())
        for reflectors in (*observers, *(watch.reflectors for watch in self._watches.values())):
            for number, reflector in enumerate(reflectors):
                if (reflector.path, number) != (path, stream):
                    reflector.distrust()

    # -- making

    def _make_watch(self, key: Key, target: Target[RelatedKind], served: Collection[Resource]) -> Watch:
        cache = None if target.kind is None else self._make_object_cache(key, target.kind, served)
        view = View(key.namespace, self._stage, cache=cache)
        view.adjust(target.related)
        division = self._make_division(target, cache)
        checker = self._make_checker(view, target, division)
        streams = None if checker is None or not target.parts else Streams(checker)
        watch = Watch(view, target, checker, streams)
        observers = (checker or view,) if streams is None else (streams.first, streams.second)
        path = key.resource.get_path(namespace=key.namespace)
        watch.follow(
            Reflector(
                client if checker is None else client.noting_headers(checker.note_headers),
                path,
                observer,
                consequence=key.consequence,
                callbacks=Callbacks(
                    observer.rewind,
                    functools.partial(self._distrust, path, number),
                    self._announce,
                    self._observe_again,
                    write_nothing if cache is None else cache.versions.newest_written,
                    view.refuse,
                ),
                division=division,
                seen=self._seen.get(key.in_any_version, ""),
            )
            for number, (observer, client) in enumerate(zip(observers, self._select_clients(watch), strict=True))
        )
        return watch

    def _make_checker(
        self, view: View, target: Target[RelatedKind], division: Division | None
    ) -> DeletionChecker | None:
        """Return what tells gone objects from those that have left, if anything is inferred."""
        if not target.required:
            return None
        return DeletionChecker(self._client, view, target, ranges=self._shards.ranges, division=division)

    def _select_clients(self, watch: Watch) -> Iterator[ApiClient]:
        yield from (self._select_client(watch.target, parameters) for parameters in watch.parameters)

    def _select_client(self, target: Target[RelatedKind], parameters: Mapping[str, str]) -> ApiClient:
        """Return a client whose lists and watches are of what is read: only the metadata, if nobody reads more."""
        if target.needs_bodies and not parameters:
            return self._client
        return self._client.selecting(parameters, forms=(None, None) if target.needs_bodies else METADATA)

    def _make_division(self, target: Target[RelatedKind], cache: ObjectCache | None) -> Division | None:
        if cache is None or not target.is_divisible:
            return None
        cache.be_partial()
        return Division(self._shards.ranges, cache.be_whole)

    def _make_object_cache(self, key: Key, kind: Kind, served: Collection[Resource]) -> ObjectCache:
        cache = self._make_cache(kind)
        cache.versions.report_restores(self.distrust)
        before = self._retired.pop(key.in_any_version, None)
        if before is not None:
            cache.succeed(before)
        elif (before := self._find_version(key)) is not None:
            cache.link(before)
        if before is not None and before.kind.resource not in served:  # so nothing more can be stored there
            before.update_kind(msgspec.structs.replace(before.kind, resource=kind.resource))
        return cache

    def _find_version(self, key: Key) -> ObjectCache | None:
        """Return the cache of the same objects in another version, if handlers have asked for several of them."""
        wanted, namespace = key.in_any_version, key.namespace
        for other, watch in self._watches.items():  # of thousands of namespaces, perhaps, with one kind each
            if other.namespace == namespace and watch.view.cache is not None and other.in_any_version == wanted:
                return watch.view.cache
        return None
