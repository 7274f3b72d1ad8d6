"""Targets: what is to be watched, by what handlers ask for and what the cluster has. Pure.

Whoever reads the objects of a kind in a namespace shares one list and one watch of them: handlers, indices, owners of
children and mappers. Only kinds that are read for some labels, and for nothing else, have a watch for these labels. Of
kinds that are handled, the server sends what all of them together require.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from trioperator._handling import guard
from trioperator._handling.declaring.registry import KindHandlers, OperatorRegistry
from trioperator._handling.handlers.filters import callbacks
from trioperator._handling.handlers.handler import ChangeHandler, ResourceHandler, SpawningHandler
from trioperator._handling.handlers.keywords import may_use
from trioperator._model.fields import parse_field
from trioperator._model.resource import Resource, Selection, Selector, select_resources
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.watching.object_selector import (
    EVERYTHING,
    ObjectSelector,
    Requirement,
    divide,
    require,
    require_labels,
    unite,
)
from trioperator.errors import UserCodeError
from trioperator.settings import OperatorSettings


class Read(Protocol):
    """A kind that is read for reconcile handlers of others: which of its objects, and how much of them."""

    @property
    def resource(self) -> Resource: ...
    @property
    def labels(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def needs_bodies(self) -> bool: ...


R = TypeVar("R", bound=Read)


class Key(NamedTuple):
    """Target of a watch: the objects of a kind, in a namespace or everywhere, with some labels or all of them.

    They are either ``handled``, which includes that they are only indexed, or read for reconcile handlers of others.
    """

    resource: Resource
    namespace: str | None
    labels: tuple[tuple[str, str], ...] = ()
    handled: bool = True

    def __str__(self) -> str:
        where = "" if self.namespace is None else f" in the namespace {self.namespace}"
        return f"{self.resource}{where}{'' if self.handled else ' (for reconcile handlers)'}"

    @property
    def in_any_version(self) -> Key:
        """The same objects, whatever the version and the definition of their kind are."""
        return Key(Resource(self.resource.group, "", self.resource.plural), self.namespace, handled=self.handled)

    @property
    def consequence(self) -> str:
        """The consequence while it cannot be listed."""
        whose = "Its handlers" if self.handled else "Reconcile handlers that own or watch it"
        return f"{whose} are not called until then."


class Target(msgspec.Struct, Generic[R], frozen=True, eq=False):
    """For whom something is watched: the kind with its handlers, if it has any, and what it is to others' handlers.

    The server selects the objects by the settings and the labels of its key (``configured``) and, of these, by what
    all of them require (``inferred``). If their requirements do not combine, two ``parts`` of it, each with a stream of
    its own, may be less than it. Where replicas divide the objects, a target that ``is_divisible`` need not be received
    as a whole by each of them.
    """

    kind: Kind | None = None
    related: tuple[R, ...] = ()
    configured: ObjectSelector = ObjectSelector()
    inferred: Requirement = EVERYTHING
    parts: tuple[Requirement, ...] = ()
    is_divisible: bool = False

    @property
    def required(self) -> tuple[Requirement, ...]:
        """The selectors of each stream; empty if there are none."""
        return self.parts or ((self.inferred,) if self.inferred.selector else ())

    @property
    def summary(self) -> str:
        """The inferred selectors, for people to read; empty if all objects are received."""
        return " or ".join(str(each.selector) for each in self.required)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of lists and watches of all objects that are required."""
        return self.select(self.inferred)

    def select(self, required: Requirement) -> dict[str, str]:
        """Return the parameters of lists and watches of the objects that meet a requirement."""
        return self.configured.join(required.selector).parameters

    @property
    def needs_bodies(self) -> bool:
        """Whether anybody reads more than the metadata of the objects."""
        return self.kind is not None or any(kind.needs_bodies for kind in self.related)


class Targets(NamedTuple, Generic[R]):
    """All targets by their keys, and the selectors of handlers that are not called for all they select, with why."""

    by_key: Mapping[Key, Target[R]]
    problems: Mapping[Selector, str]


class Requirements(msgspec.Struct, frozen=True, eq=False):
    """Requirements of an operator's handlers for its watches. The objects that *webhooks* review need no watch."""

    handlers: tuple[ResourceHandler, ...]
    webhooks: tuple[ResourceHandler, ...]
    settings: OperatorSettings

    @classmethod
    def of(cls, registry: OperatorRegistry, settings: OperatorSettings) -> Requirements:
        """Return what the handlers of a registry need."""
        handlers = registry.resource_handlers()
        if settings.persistence.finalizer is None:
            handlers = tuple(handler.without_finalizer() for handler in handlers)
        return cls(handlers, registry.webhook_handlers(), settings)

    def __bool__(self) -> bool:
        return bool(self.handlers or self.webhooks)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """The selectors of handlers whose objects are watched."""
        return tuple(dict.fromkeys(handler.selector for handler in self.handlers))

    def find_groups(self, related: Iterable[Selector]) -> frozenset[str] | None:
        """Return the API groups that must be known, also for *related* kinds: all (None) if a selector names none."""
        reviewed = [handler.selector for handler in self.webhooks]
        groups = [selector.group for selector in (*self.selectors, *reviewed, *related)]
        if any(group is None for group in groups):
            return None
        return frozenset(group for group in groups if group is not None) | {"", "apiextensions.k8s.io"}


def select_targets(
    requirements: Requirements,
    resources: Collection[Resource],
    related: Collection[R],
    places: Callable[[Resource], Iterable[str | None]],
) -> Targets[R]:
    """Return what is to be watched for kinds that are handled or *related*, in the *places* of their objects.

    *resources* are the kinds of the cluster. A selector that is a function, and fails, selects none.
    """
    settings = requirements.settings
    by_resource, problems = _match(requirements, resources)
    configured, failed = _configure(settings, {*by_resource, *(each.resource for each in related)})
    problems |= failed
    kinds = {
        resource: _make_kind(settings, resource, handlers, configured[resource])
        for resource, handlers in by_resource.items()
        if resource in configured
    }
    readers: dict[Resource, list[R]] = {resource: [] for resource in kinds}
    for each in related:
        if each.resource not in configured:
            continue
        readers.setdefault(each.resource, []).append(each)
    targets: dict[Key, Target[R]] = {}
    for resource, found in readers.items():
        kind = kinds.get(resource)
        for labels, shared in _share(kind, found):
            required = () if kind is None else _infer(requirements, kind, by_resource[resource], shared)
            wanted = ObjectSelector(tuple(f"{name}={value}" for name, value in labels))
            divisible = kind is not None and _is_divisible(requirements, kind, shared)
            parts = () if divisible else divide(required)
            target = Target(kind, shared, wanted.join(configured[resource]), unite(required), parts, divisible)
            targets |= {Key(resource, place, labels, kind is not None): target for place in places(resource)}
    return Targets(targets, problems)


def _infer(
    requirements: Requirements, kind: Kind, handlers: Iterable[ResourceHandler], readers: Iterable[Read]
) -> tuple[Requirement, ...]:
    """Return what those who read a kind require of its objects: its handlers, others' handlers, and webhooks."""
    watching = requirements.settings.watching
    if not watching.infer_selectors or (kind.handlers.events and not watching.INFERS_FOR_EVENTS):
        return ()
    fields = kind.resource.selectable_fields
    return (
        *(require(handler, fields) for handler in handlers),
        *(require_labels(reader.labels) for reader in readers),
        *(require(handler, fields) for handler in requirements.webhooks if _shares_memo(handler, kind.resource)),
    )


def _is_divisible(requirements: Requirements, kind: Kind, readers: Collection[Read]) -> bool:
    """Check whether all who read a kind read only the objects that they handle: no indices, no others."""
    return (
        requirements.settings.leadership.shards > 1
        and not kind.handlers.indices
        and not readers
        and not any(_shares_memo(handler, kind.resource) for handler in requirements.webhooks)
    )


def _shares_memo(webhook: ResourceHandler, resource: Resource) -> bool:
    """Check whether a webhook may look up the memo of objects of a kind, in whatever version it gets them."""
    if not any(may_use("memo", fn) for fn in (webhook.fn, *(fn for _, fn in callbacks(webhook)))):
        return False
    selector = msgspec.structs.replace(webhook.selector, version=None)
    return selector.test is not None or selector.matches(dataclasses.replace(resource, preferred=True))


def _match(
    requirements: Requirements, resources: Collection[Resource]
) -> tuple[dict[Resource, list[ResourceHandler]], dict[Selector, str]]:
    """Return the handlers of each kind, and the selectors that cannot be served, with why."""
    found: dict[Resource, list[ResourceHandler]] = {}
    problems: dict[Selector, str] = {}
    selections = {selector: _select(selector, resources) for selector in requirements.selectors}
    for handler in requirements.handlers:
        selection = selections[handler.selector]
        if selection.problem:
            problems[handler.selector] = selection.problem
        for resource in selection.resources:
            if _stores(handler) and "patch" not in resource.verbs:
                problems[handler.selector] = f"{resource} cannot be patched: {handler} is not called for it."
            else:
                found.setdefault(resource, []).append(handler)
    return found, _find_divided(found) | problems


def _find_divided(handlers: Mapping[Resource, Collection[ResourceHandler]]) -> dict[Selector, str]:
    """Return a selector of each kind whose handlers of changes are for several versions, with what that means."""
    by_name: dict[str, dict[str, Selector]] = {}
    for resource, found in handlers.items():
        for handler in found:
            if isinstance(handler, ChangeHandler):
                by_name.setdefault(name_of(resource), {})[resource.version] = handler.selector
    return {
        max(selectors.values(), key=lambda selector: selector.version or ""): (
            f"Handlers of changes of {name} are for several versions: {', '.join(sorted(selectors))}. What those of one"
            " version have handled counts as handled for the others, too, which may not be called. Select the same"
            " version for all of them."
        )
        for name, selectors in by_name.items()
        if len(selectors) > 1
    }


def _make_kind(
    settings: OperatorSettings, resource: Resource, handlers: Iterable[ResourceHandler], configured: ObjectSelector
) -> Kind:
    fields = settings.persistence.digested_fields.get(name_of(resource), ())
    return Kind(resource, KindHandlers.of(handlers), tuple(map(parse_field, fields)), configured.can_be_left)


def _share(kind: Kind | None, readers: Collection[R]) -> Iterator[tuple[tuple[tuple[str, str], ...], tuple[R, ...]]]:
    """Yield the labels that the objects of a resource are watched with, and who of the readers shares that."""
    if kind is not None or any(not reader.labels for reader in readers):
        yield (), tuple(readers)
    else:
        yield from ((reader.labels, (reader,)) for reader in readers)


def _configure(
    settings: OperatorSettings, resources: Iterable[Resource]
) -> tuple[dict[Resource, ObjectSelector], dict[Selector, str]]:
    """Return what the settings select of each kind, and the kinds for which a function in them has failed, with why."""
    found: dict[Resource, ObjectSelector] = {}
    problems: dict[Selector, str] = {}
    for resource in resources:
        try:
            found[resource] = guard.call("A selector of {}", "settings.watching", find_selector, settings, resource)
        except UserCodeError as error:
            selector = Selector.parse(resource.group, resource.version, resource.plural)
            problems[selector] = f"{error}. Nothing of {resource} is watched."
    return found, problems


def find_selector(settings: OperatorSettings, resource: Resource) -> ObjectSelector:
    """Return what the settings select of a kind."""
    watching = settings.watching
    labels, fields, shards = (
        tuple(selectors.collect(resource))
        for selectors in (watching.label_selectors, watching.field_selectors, watching.shard_selectors)
    )
    return ObjectSelector(labels, fields, shards[0] if shards else "")


def name_of(resource: Resource) -> str:
    """Return the name of a kind, as of its CRD; of the core group it is the plural."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _stores(handler: ResourceHandler) -> bool:
    """Check whether the objects must be patched for a handler, whatever it does."""
    return isinstance(handler, ChangeHandler) or (isinstance(handler, SpawningHandler) and handler.finalizer)


def _select(selector: Selector, resources: Collection[Resource]) -> Selection:
    """Select the resource kinds of a selector. A function of the user's that fails selects none."""
    try:
        return guard.call("The selector {}", selector, select_resources, selector, resources)
    except UserCodeError as error:
        return Selection(problem=f"{error}. Its handlers are not called.")
