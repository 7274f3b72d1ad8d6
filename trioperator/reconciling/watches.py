"""Watches of related kinds: those that reconcile handlers own, and those whose objects are mapped to others.

They are independent of the watches of handled kinds, also where a kind is both: each has what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import trio

from trioperator.errors import UserCodeError
from trioperator.handling import guard
from trioperator.handling.cause import ObjectCause
from trioperator.handling.children import Mapper, Owned
from trioperator.handling.filters import call_with
from trioperator.handling.indexing import Indices
from trioperator.handling.reconciling import ReconcileHandler
from trioperator.kube.client import Client, Forms
from trioperator.kube.objects import RawObject
from trioperator.logs import get_logger, object_logger
from trioperator.model.resource import Resource, Selector, select_resources
from trioperator.reconciling.related import RelatedCache, RelatedRecord, Target
from trioperator.runtime.reflector import Reflector

__all__ = ["RelatedKind", "RelatedWatches", "Triggers", "read_targets"]

_logger = get_logger("trioperator.runtime.reconcile")
# What is enough for the records of children, and for mappers that look at nothing else.
_METADATA: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
)
_CONSEQUENCE: Final = "Reconcile handlers that own or watch it are not called until then."


class Triggers(Protocol):
    """What calls reconcile handlers, as it is notified of related objects. It must neither wait nor raise."""

    def trigger_owner(self, uid: str, handlers: Collection[ReconcileHandler]) -> None: ...
    def trigger_target(self, target: Target, handlers: Collection[ReconcileHandler]) -> None: ...
    def trigger_blocked(self, record: RelatedRecord) -> None: ...
    def trigger_waiting(self) -> None: ...


class Selected(NamedTuple):
    """A resource, and the labels that its objects must have to be watched."""

    resource: Resource
    labels: tuple[tuple[str, str], ...] = ()


class RelatedKind:
    """One related kind: its caches, by namespaces, and the handlers that own it or map its objects."""

    def __init__(self, watches: RelatedWatches, selected: Selected) -> None:
        self.resource = selected.resource
        self.labels = selected.labels
        self.owners: dict[ReconcileHandler, Owned] = {}
        self.mappers: tuple[tuple[ReconcileHandler, Mapper], ...] = ()
        self.whole = False
        self.caches: dict[str | None, RelatedCache] = {}
        self._watches = watches

    @property
    def forms(self) -> Forms:
        """What lists and watches accept: metadata only, unless anybody looks at more."""
        is_enough = not self.whole and not any(mapper.needs_bodies for _, mapper in self.mappers)
        return _METADATA if is_enough else (None, None)

    @property
    def is_listed(self) -> bool:
        """Whether all objects are known."""
        return bool(self.caches) and all(cache.listed.is_set() for cache in self.caches.values())

    def renewed(self, kind: RelatedKind) -> RelatedKind:
        """Take over the handlers of another description of the same kind."""
        self.owners, self.mappers = kind.owners, kind.mappers
        return self

    def find_cache(self, namespace: str) -> RelatedCache | None:
        """Return the cache of the objects in a namespace; None if that is not watched."""
        return self.caches[None] if None in self.caches else self.caches.get(namespace)

    def owned_by(self, uid: str) -> Iterator[RelatedRecord]:
        """Yield the records of all objects of the kind with an owner of this uid."""
        for cache in self.caches.values():
            yield from cache.owned_by(uid)

    def changed(self, record: RelatedRecord, before: RelatedRecord | None, obj: RawObject) -> None:
        """See RelatedObserver."""
        if self.mappers:
            record.targets = self._map(obj)
        self._trigger({*record.owners, *(before.owners if before else ())}, record, before)

    def removed(self, record: RelatedRecord) -> None:
        """See RelatedObserver."""
        self._trigger(record.owners, record, None)
        if self.owners:
            for triggers in self._watches.triggers:
                triggers.trigger_blocked(record)

    def completed(self) -> None:
        """See RelatedObserver."""
        for triggers in self._watches.triggers:
            triggers.trigger_waiting()

    def _trigger(self, owners: Iterable[str], record: RelatedRecord, before: RelatedRecord | None) -> None:
        for triggers in self._watches.triggers:
            if self.owners:
                for uid in owners:
                    triggers.trigger_owner(uid, self.owners)
            for handler, target in record.targets | (before.targets if before else frozenset()):
                triggers.trigger_target(target, (handler,))

    def _map(self, obj: RawObject) -> frozenset[tuple[ReconcileHandler, Target]]:
        """Call the mappers for an object. One that fails is logged, and names nothing."""
        ref = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "name": obj.name, "uid": obj.uid}
        logger = object_logger({**ref, "namespace": obj.namespace}, local=True)
        targets: set[tuple[ReconcileHandler, Target]] = set()
        for handler, mapper in self.mappers:
            try:
                cause = ObjectCause(
                    resource=self.resource,
                    raw=obj.decode(),
                    get_memo=lambda: self._watches.memo,
                    logger=logger,
                    indices=self._watches.indices,
                )
                found = guard.call("The function watches= of {}", handler, _call_mapper, mapper.fn, cause)
                targets |= {(handler, target) for target in read_targets(found, namespace=obj.namespace)}
            except (UserCodeError, TypeError, msgspec.MsgspecError, ValueError) as error:
                cause_of = error.__cause__ if isinstance(error, UserCodeError) else None
                logger.error("%s. Nothing is reconciled for this change.", error, exc_info=cause_of)
        return frozenset(targets)


def _call_mapper(fn: Callable[..., Any], cause: ObjectCause) -> Any:
    found = call_with(fn, cause.kwargs)
    return list(found) if isinstance(found, Iterator) else found  # a generator is the user's code, too


def read_targets(found: Any, *, namespace: str) -> Iterator[Target]:
    """Yield the objects that a mapper has named. Raises TypeError for what names none."""
    if found is None:
        return
    if isinstance(found, str):
        yield Target(namespace, found)
    elif isinstance(found, Mapping):
        metadata = found.get("metadata") or {}
        if not metadata.get("name"):
            raise TypeError("A mapper has returned an object without metadata.name")
        yield Target(metadata.get("namespace") or "", metadata["name"])
    elif isinstance(found, tuple):
        if len(found) != 2 or not isinstance(found[0], str | None) or not isinstance(found[1], str):
            raise TypeError(f"A mapper has returned {found!r}: a tuple is a namespace and a name")
        yield Target(found[0] or "", found[1])
    elif isinstance(found, Iterable):
        for item in found:
            yield from read_targets(item, namespace=namespace)
    else:
        raise TypeError(f"A mapper has returned {found!r}: return names, pairs of namespace and name, or objects")


class _Watch(msgspec.Struct, frozen=True, eq=False):
    """A watch of a related kind, in one namespace or in all."""

    reflector: Reflector
    scope: trio.CancelScope


class RelatedWatches:
    """Starts and stops the watches of related kinds, as the kinds of the cluster and the namespaces change."""

    def __init__(self, client: Client, handlers: Iterable[ReconcileHandler], *, indices: Indices, memo: Any) -> None:
        self.triggers: list[Triggers] = []
        self.indices = indices
        self.memo = memo
        self._client = client
        self._handlers = tuple(handlers)
        self._kinds: dict[Selected, RelatedKind] = {}
        self._watches: dict[tuple[Selected, str | None], _Watch] = {}
        self._missing: dict[Selector, str] = {}
        self.selectors = tuple(dict.fromkeys(_selectors(self._handlers)))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not watched as there is no such kind, in one sentence each."""
        return tuple(self._missing.values())

    def reflectors(self) -> Iterator[tuple[str, Reflector]]:
        """Yield the reflectors, with the names of what they watch."""
        for (selected, namespace), watch in self._watches.items():
            where = "" if namespace is None else f" in the namespace {namespace}"
            yield f"{selected.resource}{where} (for reconcile handlers)", watch.reflector

    def kinds_of(self, handler: ReconcileHandler) -> Iterator[RelatedKind]:
        """Yield the kinds of children that a handler owns."""
        return (kind for kind in self._kinds.values() if handler in kind.owners)

    def is_complete(self, handler: ReconcileHandler) -> bool:
        """Check whether all children of a handler's objects are known, so that it can be called."""
        if any(owned.selector in self._missing for owned in handler.owns):
            return False
        return all(kind.is_listed for kind in self.kinds_of(handler))

    def adjust(
        self, nursery: trio.Nursery, resources: Collection[Resource], namespaces: Collection[str] | None
    ) -> None:
        """Start the watches that are missing, and stop those of kinds and namespaces that are gone."""
        if not self._handlers:
            return
        self._match(resources)
        wanted: dict[tuple[Selected, str | None], RelatedKind] = {}
        for selected, kind in self._kinds.items():
            places = (None,) if namespaces is None or kind.resource.namespaced is False else namespaces
            wanted |= {(selected, place): kind for place in places}
        for key in set(self._watches) - set(wanted):
            self._watches.pop(key).scope.cancel(reason="out of scope")
            if key[0] in self._kinds:
                self._kinds[key[0]].caches.pop(key[1], None)
        for key, kind in wanted.items():
            if key not in self._watches:
                self._watches[key] = watch = self._make_watch(kind, key[1])
                nursery.start_soon(_serve, watch, name=f"watch {watch.reflector.path} for reconcile handlers")

    def _match(self, resources: Collection[Resource]) -> None:
        """Match what the handlers own and watch with the kinds of the cluster."""
        selections = {selector: self._select(selector, resources) for selector in self.selectors}
        kinds: dict[Selected, RelatedKind] = {}
        for handler in self._handlers:
            for owned in handler.owns:
                for resource in selections[owned.selector]:
                    selected = Selected(resource, tuple(sorted(owned.labels.items())))
                    kind = kinds.setdefault(selected, RelatedKind(self, selected))
                    kind.owners.setdefault(handler, owned)
                    kind.whole = kind.whole or owned.bodies
            for mapper in handler.mappers:
                for resource in selections[mapper.selector]:
                    selected = Selected(resource)
                    kind = kinds.setdefault(selected, RelatedKind(self, selected))
                    kind.mappers += ((handler, mapper),)
        for selected in kinds.keys() & self._kinds.keys():
            kinds[selected] = self._kinds[selected].renewed(kinds[selected])
        self._kinds = kinds

    def _select(self, selector: Selector, resources: Collection[Resource]) -> Collection[Resource]:
        selection = select_resources(selector, resources)
        problem = selection.problem or ("" if selection.resources else f"There is no resource {selector}.")
        if problem and selector not in self._missing:
            _logger.warning("%s Reconcile handlers that own such objects are not called until then.", problem)
        if problem:
            self._missing[selector] = problem
        else:
            self._missing.pop(selector, None)
        return selection.resources

    def _make_watch(self, kind: RelatedKind, namespace: str | None) -> _Watch:
        settings = self._client.settings
        manager = settings.persistence.field_manager
        cache = RelatedCache(kind.resource, namespace, manager=manager, whole=kind.whole, observer=kind)
        kind.caches[namespace] = cache
        path = kind.resource.get_path(namespace)
        labels = ",".join(f"{name}={value}" for name, value in kind.labels)
        client = self._client.selecting({"labelSelector": labels} if labels else {}, forms=kind.forms)
        reflector = Reflector(client, path, cache, settings=settings, consequence=_CONSEQUENCE)
        return _Watch(reflector, trio.CancelScope())


async def _serve(watch: _Watch) -> None:
    with watch.scope:
        await watch.reflector.serve()


def _selectors(handlers: Iterable[ReconcileHandler]) -> Iterator[Selector]:
    for handler in handlers:
        yield from (owned.selector for owned in handler.owns)
        yield from (mapper.selector for mapper in handler.mappers)
