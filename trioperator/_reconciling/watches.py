"""Related kinds: those that reconcile handlers own, and those whose objects are mapped to others.

What is watched is shared with all others that read the same kind: see :mod:`trioperator._runtime.watching.targets`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from trioperator._handling import guard
from trioperator._handling.arguments.cause import ObjectCause
from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.declaring.registry import KindHandlers, declares_any
from trioperator._handling.handlers.children import Mapper, Owned
from trioperator._handling.handlers.filters import call_with
from trioperator._kube.error_response import describe_failure
from trioperator._kube.objects import RawObject
from trioperator._logs import get_logger, object_logger
from trioperator._model.resource import Resource, Selector, select_resources
from trioperator._reconciling.failures import reason_of
from trioperator._reconciling.related import RelatedCache, RelatedRecord, Target, Writer
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.watching.view import Reader
from trioperator.errors import UserCodeError
from trioperator.settings import OperatorSettings

_logger = get_logger("trioperator.runtime.reconcile")


class Triggers(Protocol):
    """Caller of reconcile handlers, which is notified of related objects. It must neither wait nor raise."""

    def trigger_owner(
        self, uid: str, handlers: Collection[ReconcileHandler], *, namespace: str, source: str
    ) -> None: ...
    def trigger_target(self, target: Target, handlers: Collection[ReconcileHandler], *, source: str) -> None: ...
    def trigger_all(self, handlers: Collection[ReconcileHandler], *, source: str) -> None: ...
    def trigger_blocked(self, record: RelatedRecord) -> None: ...
    def trigger_waiting(self) -> None: ...


class Selected(NamedTuple):
    """A resource, and the labels that its objects must have to be watched."""

    resource: Resource
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def in_any_version(self) -> tuple[str, ...]:
        """The same objects, whatever the version of their kind is."""
        return (self.resource.group, self.resource.plural, *itertools.chain(*self.labels))


class RelatedKind:
    """One related kind: its caches, by namespaces, and the handlers that own it or map its objects."""

    def __init__(self, watches: RelatedWatches, selected: Selected) -> None:
        self.resource = selected.resource
        self.labels = selected.labels
        self.owners: dict[ReconcileHandler, Owned] = {}
        self.mappers: tuple[tuple[ReconcileHandler, Mapper], ...] = ()
        self.whole = False
        self.caches: dict[str | None, RelatedCache] = {}
        self._refusals: dict[str | None, Exception] = {}  # by namespaces that cannot be listed, or could not be once
        self._selected = selected
        self._watches = watches
        self._lookers: frozenset[ReconcileHandler] = frozenset()

    @property
    def needs_bodies(self) -> bool:
        """Whether anybody looks at more than the metadata of the objects."""
        return self.whole or any(mapper.needs_bodies for _, mapper in self.mappers)

    def is_like(self, other: RelatedKind) -> bool:
        """Check whether another description of the same kind says the same."""
        return (self.owners, self.mappers, self.whole) == (other.owners, other.mappers, other.whole)

    def open(self, namespace: str | None, indices: frozenset[str]) -> RelatedCache:
        """Return a new cache of the objects in a namespace, which are in these *indices* before they come."""
        self._lookers = frozenset(
            handler for handler in self.owners if declares_any(KindHandlers(reconciles=(handler,)), indices)
        )
        cache = RelatedCache(
            self.resource,
            namespace,
            manager=self._watches.settings.persistence.field_manager,
            whole=self.whole,
            labels=dict(self.labels),
            observer=self,
        )
        former = self._watches.find_former(self._selected, namespace)
        if former is not None:
            cache.succeed(former)
        self._refusals.pop(namespace, None)
        self.caches[namespace] = cache
        return cache

    def close(self, namespace: str | None, reader: Reader) -> None:
        """Forget a cache that is no longer filled: nobody needs to wait for it."""
        if self.caches.get(namespace) is reader:
            del self.caches[namespace]
        self.completed()

    def refuse(self, namespace: str | None, error: Exception) -> None:
        """Note that the objects in a namespace cannot be listed."""
        is_news = namespace not in self._refusals
        self._refusals[namespace] = error
        if is_news:
            self.completed()

    def find_refusal(self, namespace: str) -> Exception | None:
        """Return why objects cannot be listed that an owner in a namespace can have; None if they can be."""
        places = {None, namespace} if namespace else self.caches.keys()
        waiting = (where for where in places & self.caches.keys() if not self.caches[where].listed.is_set())
        return next((self._refusals[where] for where in waiting if where in self._refusals), None)

    def is_listed(self, namespace: str) -> bool:
        """Check whether all objects are known that an owner in a namespace can have; without one, everywhere."""
        found = [self.find_cache(namespace)] if namespace else list(self.caches.values())
        return bool(found) and all(cache is not None and cache.listed.is_set() for cache in found)

    def find_cache(self, namespace: str) -> RelatedCache | None:
        """Return the cache of the objects in a namespace; None if that is not watched."""
        return self.caches[None] if None in self.caches else self.caches.get(namespace)

    def note_deletion(self, record: RelatedRecord) -> None:
        """Note that an object was deleted by an own request."""
        record.deleting = True
        if (cache := self.find_cache(record.namespace)) is not None:
            cache.note_deletion(record)

    def owned_by(self, owner: Mapping[str, Any]) -> Iterator[RelatedRecord]:
        """Yield the records of all objects of the kind that have an owner, by the owner's metadata.

        Objects in other namespaces that name an owner in a namespace are not its children: anybody may do that.
        """
        uid, namespace = str(owner.get("uid") or ""), owner.get("namespace")
        for cache in self.caches.values() if uid else ():
            yield from (each for each in cache.owned_by(uid) if not namespace or each.namespace == namespace)

    def changed(
        self, record: RelatedRecord, before: RelatedRecord | None, obj: RawObject, *, writer: Writer | None = None
    ) -> None:
        """See RelatedObserver. A writer that looks up an index of the kind has not seen its own write there."""
        targets = record.targets | (before.targets if before else frozenset())
        if self.mappers:
            record.targets = self._map(obj, self.mappers, record.targets)
        owners = {*record.owners, *(before.owners if before else ())}
        known = None if writer is None or writer.handler in self._lookers else writer
        self._trigger(record, owners, targets | record.targets, writer=known)

    def removed(self, record: RelatedRecord, obj: RawObject | None = None) -> None:
        """See RelatedObserver. Mappers may look up other values than when they were last called.

        If nobody knows what the object was, those that look something up by its body cannot be called: then all that
        they may name is reconciled.
        """
        known = obj or record.whole
        mappers = [each for each in self.mappers if known is not None or not each[1].needs_bodies]
        targets = self._map(known or record.identify(), mappers) if mappers else frozenset()
        self._trigger(record, record.owners, record.targets | targets)
        blind = [each for each in self.mappers if each not in mappers and each[1].looks_up(self._watches.indices)]
        for triggers in self._watches.triggers if blind else ():
            triggers.trigger_all({handler for handler, _ in blind}, source=self._name(record))
        if self.owners:
            for triggers in self._watches.triggers:
                triggers.trigger_blocked(record)

    def completed(self) -> None:
        """See RelatedObserver."""
        for triggers in self._watches.triggers:
            triggers.trigger_waiting()

    def _trigger(
        self,
        record: RelatedRecord,
        owners: Iterable[str],
        targets: frozenset[tuple[ReconcileHandler, Target]],
        *,
        writer: Writer | None = None,
    ) -> None:
        """Call all handlers that a change of an object concerns, but the one by which it was made."""
        namespace, source = record.namespace, self._name(record)
        others = [handler for handler in self.owners if writer is None or handler is not writer.handler]
        own = None if writer is None else (writer.handler, writer.target)
        for triggers in self._watches.triggers:
            for uid in owners if self.owners else ():
                is_own = writer is not None and uid == writer.uid
                triggers.trigger_owner(uid, others if is_own else self.owners, namespace=namespace, source=source)
            for handler, target in targets - {own}:
                triggers.trigger_target(target, (handler,), source=source)

    def _name(self, record: RelatedRecord) -> str:
        return f"{self.resource.plural} {record.name}"

    def _map(
        self,
        obj: RawObject,
        mappers: Iterable[tuple[ReconcileHandler, Mapper]],
        before: Collection[tuple[ReconcileHandler, Target]] = (),
    ) -> frozenset[tuple[ReconcileHandler, Target]]:
        """Call mappers for an object. One that fails is logged, and names what it has named *before*."""
        ref = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "name": obj.name, "uid": obj.uid}
        logger = object_logger({**ref, "namespace": obj.namespace}, local=True)
        targets: set[tuple[ReconcileHandler, Target]] = set()
        for handler, mapper in mappers:
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
                logger.error("%s. Nothing else is reconciled for this change.", error, exc_info=cause_of)
                targets |= {each for each in before if each[0] is handler}
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


class RelatedWatches:
    """The related kinds of all reconcile handlers, as the kinds of the cluster change."""

    def __init__(
        self, handlers: Iterable[ReconcileHandler], *, settings: OperatorSettings, indices: Indices, memo: Any
    ) -> None:
        self.triggers: list[Triggers] = []
        self.settings = settings
        self.indices = indices
        self.memo = memo
        self._handlers = tuple(handlers)
        self._kinds: dict[Selected, RelatedKind] = {}
        self._former: dict[tuple[str, ...], dict[str | None, RelatedCache]] = {}
        self._missing: dict[Selector, str] = {}
        self.selectors = tuple(dict.fromkeys(_selectors(self._handlers)))

    @property
    def problems(self) -> tuple[str, ...]:
        """The kinds that are not watched as they do not exist, in one sentence each."""
        return tuple(self._missing.values())

    def reindexed(self, state: ObjectState) -> None:
        """Call the reconcile handlers of an object that look up its own kind, as it is only now in the index."""
        handlers = state.cache.kind.handlers
        for triggers in self.triggers if handlers.looks_up_own else ():
            triggers.trigger_owner(state.uid, handlers.reconciles, namespace=state.namespace, source="its index")

    def kinds_of(self, handler: ReconcileHandler) -> Iterator[RelatedKind]:
        """Yield the kinds of children that a handler owns."""
        return (kind for kind in self._kinds.values() if handler in kind.owners)

    def is_complete(self, handler: ReconcileHandler, namespace: str) -> bool:
        """Check whether all children of an object in a namespace are known, so that a handler can be called for it.

        The children of an object without a namespace may be in all of them.
        """
        if any(owned.selector in self._missing for owned in handler.owns):
            return False
        return all(kind.is_listed(namespace) for kind in self.kinds_of(handler))

    def find_obstacle(self, handler: ReconcileHandler, namespace: str) -> tuple[str, str] | None:
        """Return why the children of an object in a namespace will not be known soon: a reason, and a message.

        Returns None if they may be.
        """
        for owned in handler.owns:
            if owned.selector in self._missing:
                return "Progressing", self._missing[owned.selector]
        for kind in self.kinds_of(handler):
            if (error := kind.find_refusal(namespace)) is not None:
                return reason_of(error), f"{kind.resource.plural} cannot be listed: {describe_failure(error)}"
        return None

    def match(self, resources: Collection[Resource]) -> Collection[RelatedKind]:
        """Match what the handlers own and watch with the kinds of the cluster.

        Handlers are called again that own kinds which are no longer there: their objects are not as desired.
        """
        known = set(self._missing)
        selections = {selector: self._select(selector, resources) for selector in self.selectors}
        gone = self._missing.keys() - known
        orphaned = [handler for handler in self._handlers if any(owned.selector in gone for owned in handler.owns)]
        for triggers in self.triggers if orphaned else ():
            triggers.trigger_all(orphaned, source="a kind that is gone")
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
        kept = {selected: kind for selected, kind in self._kinds.items() if selected in kinds}
        before, self._kinds = self._kinds, kinds | {s: kind for s, kind in kept.items() if kind.is_like(kinds[s])}
        self._keep_former(before)
        return self._kinds.values()

    def find_former(self, selected: Selected, namespace: str | None) -> RelatedCache | None:
        """Return the cache of the same objects before, in whatever version their kind was, if there was one."""
        return self._former.get(selected.in_any_version, {}).get(namespace)

    def _keep_former(self, before: Mapping[Selected, RelatedKind]) -> None:
        """Keep the caches of the kinds that are replaced, until there are others of these objects."""
        for selected in before:
            self._former.pop(selected.in_any_version, None)
        for selected, kind in before.items():
            if self._kinds.get(selected) is not kind:
                self._former.setdefault(selected.in_any_version, {}).update(kind.caches)

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


def _selectors(handlers: Iterable[ReconcileHandler]) -> Iterator[Selector]:
    for handler in handlers:
        yield from (owned.selector for owned in handler.owns)
        yield from (mapper.selector for mapper in handler.mappers)
