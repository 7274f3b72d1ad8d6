"""Targets: what is to be watched, by what handlers ask for and what the cluster has.

Whoever reads the objects of a kind in a namespace shares one list and one watch of them: handlers, indices, owners of
children and mappers. Only kinds that are read for some labels, and for nothing else, have a watch for these labels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from trioperator._handling import guard
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._handling.handlers.handler import ChangeHandler, ResourceHandler, SpawningHandler
from trioperator._logs import get_logger
from trioperator._model.fields import parse_field
from trioperator._model.resource import Resource, Selection, Selector, select_resources
from trioperator._runtime.kind import Kind
from trioperator._runtime.watching.view import RelatedKind
from trioperator.errors import UserCodeError
from trioperator.settings import OperatorSettings

__all__ = ["Key", "Matcher", "Target", "find_selection", "find_targets", "name_of"]

_logger = get_logger("trioperator.runtime.watching")


class Key(NamedTuple):
    """What is watched: the objects of a kind, in a namespace or everywhere, with some labels or all of them.

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
        """What does not work while it cannot be listed."""
        whose = "Its handlers" if self.handled else "Reconcile handlers that own or watch it"
        return f"{whose} are not called until then."


class Target(msgspec.Struct, frozen=True, eq=False):
    """For whom something is watched: the kind with its handlers, if it has any, and what it is to those of others."""

    kind: Kind | None = None
    related: tuple[RelatedKind, ...] = ()


class Matcher:
    """Matches the selectors of handlers with the resource kinds of the cluster. ``problems`` are those that fail."""

    def __init__(self, handlers: Collection[ResourceHandler], settings: OperatorSettings) -> None:
        self._handlers = handlers
        self._settings = settings
        self.selectors = tuple(dict.fromkeys(h.selector for h in handlers))
        self.problems: dict[Selector, str] = {}

    def match(self, resources: Collection[Resource]) -> list[Kind]:
        """Return the kinds that are handled, and report once what cannot be served."""
        by_resource: dict[Resource, list[ResourceHandler]] = {}
        problems: dict[Selector, str] = {}
        selections = {selector: _select(selector, resources) for selector in self.selectors}
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
            if self.problems.get(selector) != problem:
                _logger.warning("%s", problem)
        self.problems = problems
        return [self._make_kind(resource, handlers) for resource, handlers in by_resource.items()]

    def _make_kind(self, resource: Resource, handlers: Iterable[ResourceHandler]) -> Kind:
        fields = self._settings.persistence.digested_fields.get(name_of(resource), ())
        selected = bool(find_selection(self._settings, resource))
        return Kind(resource, KindHandlers.of(handlers), tuple(map(parse_field, fields)), selected)


def find_targets(
    kinds: Iterable[Kind], related: Iterable[RelatedKind], places: Callable[[Resource], Iterable[str | None]]
) -> dict[Key, Target]:
    """Return what is to be watched for kinds that are handled or related, in the *places* of their objects."""
    handled = {kind.resource: kind for kind in kinds}
    by_resource: dict[Resource, list[RelatedKind]] = {resource: [] for resource in handled}
    for each in related:
        by_resource.setdefault(each.resource, []).append(each)
    targets: dict[Key, Target] = {}
    for resource, readers in by_resource.items():
        kind = handled.get(resource)
        for labels, target in _share(kind, readers):
            targets |= {Key(resource, place, labels, kind is not None): target for place in places(resource)}
    return targets


def _share(kind: Kind | None, readers: Collection[RelatedKind]) -> Iterator[tuple[tuple[tuple[str, str], ...], Target]]:
    """Yield the labels that the objects of a resource are watched with, and for whom."""
    if kind is not None or any(not reader.labels for reader in readers):
        yield (), Target(kind, tuple(readers))
    else:
        yield from ((reader.labels, Target(related=(reader,))) for reader in readers)


def find_selection(
    settings: OperatorSettings, resource: Resource, labels: Iterable[tuple[str, str]] = ()
) -> dict[str, str]:
    """Return the parameters of lists and watches of a kind: what the settings select, among objects with *labels*."""
    watching = settings.watching
    wanted = {
        "labelSelector": [f"{name}={value}" for name, value in labels] + watching.label_selectors.collect(resource),
        "fieldSelector": watching.field_selectors.collect(resource),
    }
    return {name: ",".join(selectors) for name, selectors in wanted.items() if selectors}


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
