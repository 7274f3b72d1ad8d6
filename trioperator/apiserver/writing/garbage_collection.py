"""Garbage collection: dependents go with their last owner, or block or survive its deletion, as its finalizers say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ..bodies.delete_options import DeleteOptions
from ..model.kinds import Kind
from ..model.user import system_account
from ..store.state import State
from ..store.storage import Change, Store, Stored, Table
from .followups import FollowUps

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"
_USER: Final = system_account("generic-garbage-collector")
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


class GarbageCollection:
    """The graph of owners and dependents, and the deletions that follow from its changes."""

    def __init__(
        self, state: State, followups: FollowUps, *, delete: Callable[[Kind, Stored, DeleteOptions], None]
    ) -> None:
        self._state = state
        self._followups = followups
        self._delete_object = delete
        self._places: dict[str, tuple[Table, str]] = {}  # objects by uid
        self._dependents: dict[str, dict[str, None]] = {}  # uids of dependents by the owner's uid, in order

    # -- changes --------------------------------------------------------------------------------------------------

    def observe(self, table: Table, change: Change) -> None:
        """Update the graph, and queue the collection of what may have become garbage."""
        old_meta: Mapping[str, Any] = change.old.obj["metadata"] if change.old else {}
        new_meta: Mapping[str, Any] = change.new.obj["metadata"] if change.new else {}
        if change.old is None:
            self._places[new_meta["uid"]] = (table, change.key)
        elif change.new is None:
            uid = old_meta["uid"]
            self._places.pop(uid, None)
            for dependent in tuple(self._dependents.get(uid, ())):
                self._followups.defer(partial(self._collect, dependent, uid))
        if table.resource == _DEFINITIONS:
            self._followups.defer(self._collect_left)
        self._note_owners(old_meta, new_meta)

    def _note_owners(self, old_meta: Mapping[str, Any], new_meta: Mapping[str, Any]) -> None:
        before, after = old_meta.get("ownerReferences"), new_meta.get("ownerReferences")
        if not before and not after:
            return
        uid = new_meta.get("uid") or old_meta["uid"]
        for owner in before or ():
            self._remove_dependent(owner["uid"], uid)
        for owner in after or ():
            self._dependents.setdefault(owner["uid"], {})[uid] = None
        if after:
            self._followups.defer(partial(self._collect, uid))

    def _remove_dependent(self, owner: str, uid: str) -> None:
        dependents = self._dependents.get(owner)
        if dependents is None:
            return
        dependents.pop(uid, None)
        if not dependents:
            del self._dependents[owner]
        place = self._places.get(owner)
        if place is not None and _waits_for_collector(place[0].objects[place[1]].obj["metadata"]):
            self._followups.defer(partial(self._propagate, owner))

    def observe_finalizers(self, table: Table, change: Change) -> None:
        """Queue what the finalizers ``orphan`` and ``foregroundDeletion`` of an object being deleted ask for."""
        meta: Mapping[str, Any] = change.new.obj["metadata"] if change.new else {}
        if "deletionTimestamp" in meta and _waits_for_collector(meta):
            self._followups.defer(partial(self._propagate, meta["uid"]))

    # -- follow-ups -----------------------------------------------------------------------------------------------

    def _find(self, uid: str) -> tuple[Kind, Table, Stored] | None:
        place = self._places.get(uid)
        if place is None:
            return None
        table, key = place
        kind = self._state.catalog.by_resource(table.resource)
        return None if kind is None else (kind, table, table.objects[key])

    def _collect_left(self) -> None:
        """Collect dependents of owners that are gone, as their kinds may be known only now."""
        for owner in [owner for owner in self._dependents if owner not in self._places]:
            for dependent in tuple(self._dependents.get(owner, ())):
                self._collect(dependent)

    def _collect(self, uid: str, gone: str = "") -> None:
        """Delete the object if all its owners are gone; otherwise remove the references to owners that are gone.

        An owner that is known to be *gone* may be of a kind that is gone, too.
        """
        found = self._find(uid)
        if found is None:
            return
        kind, table, stored = found
        owners = stored.obj["metadata"].get("ownerReferences") or []
        present = [owner for owner in owners if owner["uid"] != gone and self._is_there(owner, stored)]
        if len(present) == len(owners):
            return
        if not present:
            self._delete(kind, stored)
        else:
            meta = {**stored.obj["metadata"], "ownerReferences": present}
            self._state.store.put(table, stored.key, {**stored.obj, "metadata": meta})

    def _is_there(self, owner: Mapping[str, Any], dependent: Stored) -> bool:
        """Return whether the owner exists; owners of unknown kinds count as existing."""
        kind = self._state.catalog.by_object(owner["apiVersion"], owner["kind"])
        if kind is None:
            return True
        place = self._places.get(owner["uid"])
        namespace = dependent.obj["metadata"].get("namespace")
        if kind.namespaced and not namespace:
            return True  # a cluster-scoped object cannot have a namespaced owner: it is left alone
        return place is not None and place == (
            self._state.table(kind),
            kind.key(namespace or "", owner["name"]),
        )

    def _propagate(self, uid: str) -> None:
        """Do what the finalizers ``orphan`` and ``foregroundDeletion`` of the object ask for."""
        found = self._find(uid)
        if found is None:
            return
        _, _, stored = found
        finalizers = stored.obj["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in stored.obj["metadata"]:
            return
        if _ORPHAN in finalizers:
            for _, dependent_table, dependent in self._dependents_of(uid):
                self._orphan(dependent_table, dependent, uid)
            self._release(uid, _ORPHAN)
        elif _FOREGROUND in finalizers:
            for kind, table, dependent in self._dependents_of(uid):
                self._propagate_to(kind, table, dependent, uid)
            if not any(_blocks(dependent, uid) for _, _, dependent in self._dependents_of(uid)):
                self._release(uid, _FOREGROUND)

    def _propagate_to(self, kind: Kind, table: Table, dependent: Stored, owner: str) -> None:
        """Delete a dependent of an owner that waits for it, unless it has another owner that stays."""
        owners = dependent.obj["metadata"]["ownerReferences"]
        if any(self._is_there(ref, dependent) and not self._waits(ref["uid"]) for ref in owners):
            self._orphan(table, dependent, owner)
            return
        below = self._dependents.get(dependent.uid, {})
        if any(map(self._waits, below)) and _blocks(dependent, owner):  # a circle: each would wait for the other
            unblocked = [{**ref, "blockOwnerDeletion": False} for ref in owners]
            meta = {**dependent.obj["metadata"], "ownerReferences": unblocked}
            dependent = self._state.store.put(table, dependent.key, {**dependent.obj, "metadata": meta})
        self._delete(kind, dependent, "Foreground" if below else "Background")

    def _waits(self, uid: str) -> bool:
        """Return whether the object is being deleted in the foreground."""
        found = self._find(uid)
        meta = found[2].obj["metadata"] if found else {}
        return "deletionTimestamp" in meta and _FOREGROUND in (meta.get("finalizers") or ())

    def _dependents_of(self, uid: str) -> list[tuple[Kind, Table, Stored]]:
        return [item for item in map(self._find, tuple(self._dependents.get(uid, ()))) if item is not None]

    def _orphan(self, table: Table, dependent: Stored, owner: str) -> None:
        owners = [ref for ref in dependent.obj["metadata"]["ownerReferences"] if ref["uid"] != owner]
        meta = {key: value for key, value in dependent.obj["metadata"].items() if key != "ownerReferences"}
        if owners:
            meta["ownerReferences"] = owners
        self._state.store.put(table, dependent.key, {**dependent.obj, "metadata": meta})

    def _release(self, uid: str, finalizer: str) -> None:
        if (found := self._find(uid)) is not None:
            remove_finalizer(self._state.store, found[1], found[2], finalizer)

    def _delete(self, kind: Kind, stored: Stored, policy: str = "Background") -> None:
        if "deletionTimestamp" not in stored.obj["metadata"]:
            self._delete_object(kind, stored, DeleteOptions(policy=policy, user=_USER))


def remove_finalizer(store: Store, table: Table, stored: Stored, finalizer: str) -> None:
    """Remove the finalizer; an object that is being deleted goes with its last one."""
    meta = dict(stored.obj["metadata"])
    meta["finalizers"] = [item for item in meta.get("finalizers") or () if item != finalizer]
    if not meta["finalizers"]:
        del meta["finalizers"]
        if "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds"):
            store.remove(table, stored.key)
            return
    store.put(table, stored.key, {**stored.obj, "metadata": meta})


def _waits_for_collector(meta: Mapping[str, Any]) -> bool:
    return bool({_ORPHAN, _FOREGROUND}.intersection(meta.get("finalizers") or ()))


def _blocks(dependent: Stored, uid: str) -> bool:
    owners = dependent.obj["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)
