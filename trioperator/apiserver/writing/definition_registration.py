"""Custom resource definitions take effect: their kinds are served, their conditions set, their objects cleaned up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from ..bodies.delete_options import DeleteOptions
from ..custom.definition_status import is_established, updated_status
from ..custom.definitions import CLEANUP_FINALIZER, kinds_of
from ..store.state import State
from ..store.storage import Change, Table
from .deleter import Deleter
from .followups import FollowUps
from .garbage_collection import remove_finalizer

_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


class DefinitionRegistration:
    """The definitions that are in effect."""

    def __init__(self, state: State, followups: FollowUps, deleter: Deleter) -> None:
        self._state = state
        self._followups = followups
        self._deleter = deleter
        self._served: dict[tuple[str, str], tuple[Mapping[str, Any], bool]] = {}  # definitions, by what they define

    def observe(self, table: Table, change: Change) -> None:
        """Queue the next step for a definition that has changed, or that is being deleted and has lost an object."""
        if table.resource == _DEFINITIONS:
            self._followups.add(partial(self._follow, change))
        if change.new is None and change.old is not None:
            kind = self._state.catalog.by_resource(table.resource)
            if kind is not None and kind.custom is not None and kind.custom.terminating:
                self._followups.add(partial(self._clean_up, f"{kind.plural}.{kind.group}"))

    def _follow(self, change: Change) -> None:
        """Update the status of the definition, and serve its kinds or withdraw them."""
        table = self._state.store.table(_DEFINITIONS)
        stored = table.objects.get(change.key)
        if stored is None:
            if change.old is not None and change.new is None:
                self._withdraw(_resource_of(change.old.obj))
            return
        if change.new is not stored:
            return  # a newer change of it is queued
        status = updated_status(stored.obj, self._state.catalog, now=self._state.timestamp())
        if status != stored.obj.get("status"):
            stored = self._state.store.put(table, stored.key, {**stored.obj, "status": status})
        if is_established(status):
            self._serve(stored.obj)
        if "deletionTimestamp" in stored.obj["metadata"]:
            self._clean_up(stored.key)

    def _withdraw(self, resource: tuple[str, str]) -> None:
        self._served.pop(resource, None)
        self._state.catalog.discard(resource)
        self._state.store.table(resource).close()

    def _serve(self, definition: Mapping[str, Any]) -> None:
        """Serve the kinds of the definition; watches of its earlier kinds end."""
        resource = _resource_of(definition)
        content = (definition["spec"], "deletionTimestamp" in definition["metadata"])
        if self._served.get(resource) == content:
            return
        table = self._state.store.table(resource)
        if resource not in self._served:
            table.forget(self._state.store.revision)
        self._served[resource] = content
        self._state.catalog.discard(resource)
        for kind in kinds_of(definition, revision=self._state.store.revision):
            self._state.catalog.add(kind)
        table.closed = False
        table.changed.unpark_all()

    def _clean_up(self, name: str) -> None:
        """Delete the objects of the definition; when none is left, remove its finalizer."""
        definition_table = self._state.store.table(_DEFINITIONS)
        stored = definition_table.objects.get(name)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return
        resource = _resource_of(stored.obj)
        kind = self._state.catalog.by_resource(resource)
        table = self._state.store.table(resource)
        if kind is not None:
            for key in tuple(table.keys()):
                if "deletionTimestamp" not in table.objects[key].obj["metadata"]:
                    self._deleter.mark_or_remove(kind, table.objects[key], DeleteOptions(policy="Background"))
        if not table.objects:
            remove_finalizer(self._state.store, definition_table, stored, CLEANUP_FINALIZER)


def _resource_of(definition: Mapping[str, Any]) -> tuple[str, str]:
    """Return the group and the plural name of the resource that the definition defines."""
    return (definition["spec"]["group"], definition["spec"]["names"]["plural"])
