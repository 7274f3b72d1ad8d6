"""What the control plane does by itself after a write: garbage, ends of namespaces, custom resource definitions.

The real controllers do the same, some time later. Here it is done before the answer to the write leaves, which makes
tests deterministic: nothing is left to be waited for. No task and no time is involved. Who wants to see what is there
in between lets garbage and ends of namespaces wait until they are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..bodies.delete_options import DeleteOptions
from ..custom import definitions
from ..model.kinds import Kind
from ..model.user import User, system_account
from ..store.state import State
from ..store.storage import Change, Stored, Table
from .deleter import Deleter

__all__ = ["Janitor"]

_NAMESPACES = ("", "namespaces")
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_FOREGROUND = "foregroundDeletion"
_COLLECTOR = system_account("generic-garbage-collector")
_NAMESPACER = system_account("namespace-controller")


class Janitor:
    """Notes what has changed, and settles it when asked to."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._deleter: Deleter | None = None
        self._delete_asking: Callable[[Kind, Stored, DeleteOptions], None] | None = None
        self._places: dict[str, tuple[Table, str]] = {}  # objects by uid
        self._dependents: dict[str, dict[str, None]] = {}  # uids of dependents by the owner's uid, in order
        self.is_prompt = True  # garbage is collected, and namespaces end, with the writes that cause it
        self._agenda: deque[Callable[[], None]] = deque()
        self._chores: deque[Callable[[], None]] = deque()  # what waits to be asked for
        self._ending: set[str] = set()  # names of namespaces that are being deleted
        self._busy = False
        self._served: dict[tuple[str, str], tuple[Mapping[str, Any], bool]] = {}  # definitions, by what they define
        state.store.on_change.append(self._note)

    def connect(self, deleter: Deleter, delete: Callable[[Kind, Stored, DeleteOptions], None]) -> None:
        """Take the ways to delete, which themselves need the janitor; *delete* asks webhooks, too."""
        self._deleter = deleter
        self._delete_asking = delete

    def schedule(self, task: Callable[[], None]) -> None:
        """Do the task, too, when the changes so far are settled."""
        self._agenda.append(task)

    def settle(self) -> None:
        """Do everything that follows from the changes so far."""
        if self._busy:
            return
        self._busy = True
        try:
            while self._agenda:
                self._agenda.popleft()()
        finally:
            self._busy = False

    def tidy(self) -> None:
        """Do what was left until now because it need not be prompt."""
        while self._chores:
            self._agenda.extend(self._chores)
            self._chores.clear()
            self.settle()

    @property
    def _later(self) -> deque[Callable[[], None]]:
        """Where garbage and ends of namespaces go."""
        return self._agenda if self.is_prompt else self._chores

    # -- taking notes ---------------------------------------------------------------------------------------------

    def _note(self, table: Table, change: Change) -> None:
        old, new = change.old, change.new
        old_meta: Mapping[str, Any] = old.obj["metadata"] if old else {}
        new_meta: Mapping[str, Any] = new.obj["metadata"] if new else {}
        if old is None:
            self._places[new_meta["uid"]] = (table, change.key)
        elif new is None:
            uid = old_meta["uid"]
            self._places.pop(uid, None)
            if dependents := self._dependents.get(uid):
                self._later.extend(self._collection_of(dependent) for dependent in tuple(dependents))
        self._note_owners(old_meta, new_meta)
        resource = table.resource
        if resource == _NAMESPACES:
            if new is not None and "deletionTimestamp" in new_meta:
                self._ending.add(change.key)
                self._later.append(lambda: self._end_namespace(change.key))
            elif new is None:
                self._ending.discard(change.key)
        elif resource == _DEFINITIONS:
            self._agenda.append(lambda: self._follow_definition(change))
        if new is None and old is not None:
            self._note_removal(resource, old_meta)
        elif "deletionTimestamp" in new_meta and _waits_for_collector(new_meta):
            self._later.append(lambda: self._propagate(new_meta["uid"]))

    def _note_owners(self, old_meta: Mapping[str, Any], new_meta: Mapping[str, Any]) -> None:
        before, after = old_meta.get("ownerReferences"), new_meta.get("ownerReferences")
        if not before and not after:
            return
        uid = new_meta.get("uid") or old_meta["uid"]
        for owner in before or ():
            dependents = self._dependents.get(owner["uid"])
            if dependents is not None:
                dependents.pop(uid, None)
                if not dependents:
                    del self._dependents[owner["uid"]]
                place = self._places.get(owner["uid"])
                if place is not None and _waits_for_collector(place[0].objects[place[1]].obj["metadata"]):
                    self._later.append(lambda owner_uid=owner["uid"]: self._propagate(owner_uid))  # type: ignore[misc]
        for owner in after or ():
            self._dependents.setdefault(owner["uid"], {})[uid] = None
        if after:
            self._later.append(self._collection_of(uid))

    def _note_removal(self, resource: tuple[str, str], meta: Mapping[str, Any]) -> None:
        namespace = meta.get("namespace")
        if namespace and namespace in self._ending:
            self._later.append(lambda: self._end_namespace(namespace))
        kind = self._state.catalog.by_resource(resource)
        if kind is not None and kind.custom is not None and kind.custom.terminating:
            self._agenda.append(lambda: self._end_definition(f"{kind.plural}.{kind.group}"))

    # -- garbage collection ---------------------------------------------------------------------------------------

    def _find(self, uid: str) -> tuple[Kind, Table, Stored] | None:
        place = self._places.get(uid)
        if place is None:
            return None
        table, key = place
        kind = self._state.catalog.by_resource(table.resource)
        return None if kind is None else (kind, table, table.objects[key])

    def _collection_of(self, uid: str) -> Callable[[], None]:
        return lambda: self._collect(uid)

    def _collect(self, uid: str) -> None:
        """Delete the object if all its owners are gone; else take the references to those that are gone out of it."""
        found = self._find(uid)
        if found is None:
            return
        kind, table, stored = found
        owners = stored.obj["metadata"].get("ownerReferences") or []
        solid = [owner for owner in owners if self._is_there(owner, stored)]
        if len(solid) == len(owners):
            return
        if not solid:
            self._delete(kind, stored, "Background")
        else:
            meta = {**stored.obj["metadata"], "ownerReferences": solid}
            self._state.store.put(table, stored.key, {**stored.obj, "metadata": meta})

    def _is_there(self, owner: Mapping[str, Any], dependent: Stored) -> bool:
        """Tell whether the owner exists; an owner of a kind that nobody knows counts as existing."""
        kind = self._state.catalog.by_object(owner["apiVersion"], owner["kind"])
        if kind is None:
            return True
        place = self._places.get(owner["uid"])
        namespace = dependent.obj["metadata"].get("namespace")
        if kind.namespaced and not namespace:
            return True  # a cluster-wide object cannot have such an owner: the collector leaves it alone
        return place is not None and place == (
            self._state.table(kind),
            kind.key(namespace or "", owner["name"]),
        )

    def _propagate(self, uid: str) -> None:
        """Serve the finalizers ``orphan`` and ``foregroundDeletion`` of the object."""
        found = self._find(uid)
        if found is None:
            return
        _, _, stored = found
        finalizers = stored.obj["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in stored.obj["metadata"]:
            return
        dependents = [item for item in map(self._find, tuple(self._dependents.get(uid, ()))) if item is not None]
        if "orphan" in finalizers:
            for _, table, dependent in dependents:
                owners = [ref for ref in dependent.obj["metadata"]["ownerReferences"] if ref["uid"] != uid]
                meta = {key: value for key, value in dependent.obj["metadata"].items() if key != "ownerReferences"}
                if owners:
                    meta["ownerReferences"] = owners
                self._state.store.put(table, dependent.key, {**dependent.obj, "metadata": meta})
            self._release(uid, "orphan")
        elif _FOREGROUND in finalizers:
            for dependent_kind, _, dependent in dependents:
                self._delete(
                    dependent_kind, dependent, "Foreground" if self._dependents.get(dependent.uid) else "Background"
                )
            left = [item for item in map(self._find, tuple(self._dependents.get(uid, ()))) if item is not None]
            if not any(_blocks(dependent, uid) for _, _, dependent in left):
                self._release(uid, _FOREGROUND)

    def _release(self, uid: str, finalizer: str) -> None:
        """Take the finalizer away; the object goes if it was the last one."""
        found = self._find(uid)
        if found is None:
            return
        _, table, stored = found
        meta = dict(stored.obj["metadata"])
        meta["finalizers"] = [item for item in meta.get("finalizers") or () if item != finalizer]
        if not meta["finalizers"]:
            del meta["finalizers"]
            if "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds"):
                self._state.store.remove(table, stored.key)
                return
        self._state.store.put(table, stored.key, {**stored.obj, "metadata": meta})

    def _delete(self, kind: Kind, stored: Stored, policy: str = "Background", *, user: User = _COLLECTOR) -> None:
        assert self._delete_asking is not None
        if "deletionTimestamp" not in stored.obj["metadata"]:
            self._delete_asking(kind, stored, DeleteOptions(policy=policy, user=user))

    # -- namespaces -----------------------------------------------------------------------------------------------

    def _end_namespace(self, name: str) -> None:
        """Delete what is in the namespace; when nothing is left, the namespace itself."""
        namespaces = self._state.store.table(_NAMESPACES)
        stored = namespaces.objects.get(name)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return
        left = 0
        for kind in self._namespaced_kinds():
            table = self._state.table(kind)
            for key in tuple(table.keys(f"{name}/")):
                self._delete(kind, table.objects[key], user=_NAMESPACER)
            left += len(table.keys(f"{name}/"))
        if left or stored.obj["metadata"].get("finalizers"):
            return
        self._state.store.remove(namespaces, name)

    def _namespaced_kinds(self) -> Iterable[Kind]:
        for resource in tuple(self._state.store.tables):
            kind = self._state.catalog.by_resource(resource)
            if kind is not None and kind.namespaced:
                yield kind

    # -- custom resource definitions ------------------------------------------------------------------------------

    def _follow_definition(self, change: Change) -> None:
        """Serve what the definition says, and tell its conditions."""
        table = self._state.store.table(_DEFINITIONS)
        stored = table.objects.get(change.key)
        if stored is None:
            if change.old is not None and change.new is None:
                self._served.pop(kinds_resource(change.old.obj), None)
                self._state.catalog.discard(
                    (change.old.obj["spec"]["group"], change.old.obj["spec"]["names"]["plural"])
                )
                self._state.store.table(kinds_resource(change.old.obj)).close()
            return
        if change.new is not stored:
            return  # a newer change of it is on the agenda
        status = self._definition_status(stored)
        if status != stored.obj.get("status"):
            stored = self._state.store.put(table, stored.key, {**stored.obj, "status": status})
        if any(item["type"] == "Established" and item["status"] == "True" for item in status["conditions"] or ()):
            self._serve(stored.obj)
        if "deletionTimestamp" in stored.obj["metadata"]:
            self._end_definition(stored.key)

    def _serve(self, definition: Mapping[str, Any]) -> None:
        """Serve what the definition says; watches of what was served otherwise end."""
        resource = kinds_resource(definition)
        content = (definition["spec"], "deletionTimestamp" in definition["metadata"])
        if self._served.get(resource) == content:
            return
        self._served[resource] = content
        self._state.catalog.discard(resource)
        for kind in definitions.kinds_of(definition):
            self._state.catalog.add(kind)
        table = self._state.store.table(resource)
        table.closed = False
        table.changed.unpark_all()

    def _definition_status(self, stored: Stored) -> dict[str, Any]:
        obj, now = stored.obj, self._state.timestamp()
        status: dict[str, Any] = dict(obj.get("status") or {})
        versions = [item["name"] for item in obj["spec"]["versions"] if item.get("storage")]
        old_versions = status.get("storedVersions") or []
        status["storedVersions"] = [*old_versions, *(name for name in versions if name not in old_versions)]
        conflict = definitions.naming_conflict(obj, self._state.catalog)
        if conflict is not None:
            refused = {"status": "False", "reason": "NotAccepted", "message": "not all names are accepted"}
            found = {"type": "NamesAccepted", "status": "False", "reason": "NamesConflict", "message": conflict}
            status = definitions.set_condition(status, found, now=now)
            if not any(item["type"] == "Established" and item["status"] == "True" for item in status["conditions"]):
                status = definitions.set_condition(status, {"type": "Established", **refused}, now=now)
        else:
            names = "the initial names have been accepted"
            for condition in (
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": names},
            ):
                status = definitions.set_condition(status, condition, now=now)
            status["acceptedNames"] = obj["spec"]["names"]
        if "deletionTimestamp" in obj["metadata"]:
            text = "CustomResource deletion is in progress"
            ending = {"type": "Terminating", "status": "True", "reason": "InstanceDeletionInProgress", "message": text}
            status = definitions.set_condition(status, ending, now=now)
        return status

    def _end_definition(self, name: str) -> None:
        """Delete the objects of the definition; when none is left, release the definition."""
        stored = self._state.store.table(_DEFINITIONS).objects.get(name)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return
        resource = kinds_resource(stored.obj)
        kind = self._state.catalog.by_resource(resource)
        table = self._state.store.table(resource)
        assert self._deleter is not None
        if kind is not None:
            for key in tuple(table.keys()):
                if "deletionTimestamp" not in table.objects[key].obj["metadata"]:
                    self._deleter.mark_or_remove(kind, table.objects[key], DeleteOptions(policy="Background"))
        if not table.objects:
            self._release(stored.uid, definitions.CLEANUP_FINALIZER)


def kinds_resource(definition: Mapping[str, Any]) -> tuple[str, str]:
    """Return the group and the plural name that the definition defines."""
    return (definition["spec"]["group"], definition["spec"]["names"]["plural"])


def _waits_for_collector(meta: Mapping[str, Any]) -> bool:
    return bool({"orphan", _FOREGROUND}.intersection(meta.get("finalizers") or ()))


def _blocks(dependent: Stored, uid: str) -> bool:
    owners = dependent.obj["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)
