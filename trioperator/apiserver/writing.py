"""Writing: create, update, patch; with everything that the API promises of a write.

The order of what happens is that of the real server: decode, names, locks, the kind's own rules, admission, validity,
the no-op test, the commit. Between reading the stored object and the commit there is no checkpoint but admission's,
after which the write begins anew if somebody else was quicker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from trioperator.errors import ApiError, ConflictError
from trioperator.model.patch import apply_merge

from . import metadata, patching
from .builtin_rules import assign_addresses
from .decoding import WriteOptions, decode_object, decode_patch, decode_wanted
from .kind_schemas import schema_of
from .kinds import Kind
from .refusals import (
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from .state import State
from .storage import Stored
from .strategies import check_change, check_object, prepare_create, prepare_update
from .tracking import Tracker, as_stored, reuse_times, without_entries
from .users import User
from .views import as_served

__all__ = ["Admission", "Writer", "Written"]

_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """What a write has led to: the newest content, and whether the object is new."""

    obj: dict[str, Any]
    raw: bytes
    created: bool = False


Guard = Callable[[Kind, Mapping[str, Any], Mapping[str, Any] | None, User], None]  # refuses who may not write that


class Admission(Protocol):
    """What may change or refuse an object before it is stored."""

    async def admit(
        self,
        operation: str,
        kind: Kind,
        new: dict[str, Any] | None,
        *,
        old: Mapping[str, Any] | None,
        options: WriteOptions,
    ) -> dict[str, Any] | None:
        """Return the object to store (None for deletions), or raise the refusal."""


class Writer:
    """The writes of one cluster."""

    def __init__(self, state: State, *, settle: Callable[[], None]) -> None:
        self._state = state
        self.tracker = Tracker(state)
        self._settle = settle
        self.admission: Admission | None = None
        self.guard: Guard | None = None

    # -- create ---------------------------------------------------------------------------------------------------

    async def create(self, kind: Kind, namespace: str, sent: Any, options: WriteOptions) -> Written:
        """Store a new object."""
        obj = decode_object(kind, sent, options)
        self._match_namespace(kind, obj["metadata"], namespace)
        self._check_place(kind, namespace, obj["metadata"])
        if "resourceVersion" in obj["metadata"]:
            raise ApiError.of("resourceVersion should not be set on objects to be created", status=500)
        self.tracker.created(kind, obj, options)
        return await self._store_new(kind, namespace, obj, options)

    async def _store_new(self, kind: Kind, namespace: str, obj: dict[str, Any], options: WriteOptions) -> Written:
        meta = obj["metadata"]
        prefix = "" if meta.get("name") else str(meta.get("generateName") or "")
        if prefix:
            meta["name"] = metadata.generated_name(prefix, self._state.choose)
        meta["uid"] = self._state.uid()
        meta["creationTimestamp"] = self._state.timestamp()
        prepare_create(kind, obj)
        self._assign(kind, obj)
        if self.admission is not None:
            admitted = await self.admission.admit("CREATE", kind, obj, old=None, options=options)
            obj = admitted if admitted is not None else obj
        if self.guard is not None:
            self.guard(kind, obj, None, options.user)
        self._validate(kind, obj, [])
        key = kind.key(namespace, obj["metadata"]["name"])
        table = self._state.table(kind)
        if key in table.objects:
            raise already_exists(kind, obj["metadata"]["name"])
        if options.dry_run:
            return Written(obj, msgspec.json.encode(obj), created=True)
        stored = self._state.store.put(table, key, obj)
        self._settle()
        return Written(stored.obj, stored.raw, created=True)

    def _check_place(self, kind: Kind, namespace: str, meta: Mapping[str, Any]) -> None:
        name = str(meta.get("name") or meta.get("generateName") or "")
        if kind.custom is not None and kind.custom.terminating:
            text = "create not allowed while custom resource definition is terminating"
            raise forbidden(kind, name, text)
        if not kind.namespaced:
            return
        namespaces = self._state.store.table(("", "namespaces")).objects
        found = namespaces.get(namespace)
        if found is None:
            namespace_kind = self._state.catalog.get("", "v1", "namespaces")
            assert namespace_kind is not None
            raise not_found(namespace_kind, namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            raise forbidden(kind, name, text, causes=[cause])

    # -- update and patch -----------------------------------------------------------------------------------------

    async def replace(
        self, kind: Kind, namespace: str, name: str, sent: Any, options: WriteOptions, *, subresource: str = ""
    ) -> Written:
        """Store other content for the object (PUT)."""
        new = decode_object(kind, sent, options)
        self._match_name(new["metadata"], name)
        self._match_namespace(kind, new["metadata"], namespace)

        def change(old: Stored) -> dict[str, Any]:
            uid = new["metadata"].get("uid")
            if uid and uid != old.uid:
                raise conflict(kind, name, _uid_text(kind, old, uid))
            result = {**new, "metadata": dict(new["metadata"])}
            self.tracker.updated(kind, result, old.obj, options, subresource=subresource)
            return result

        return await self._update(kind, (namespace, name), change, options, subresource=subresource)

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        body: bytes,
        patch_type: str,
        options: WriteOptions,
        subresource: str = "",
    ) -> Written:
        """Change the object by a patch."""
        patching.check_type(kind, patch_type)
        if patch_type == patching.APPLY:
            return await self._apply(kind, (namespace, name), body, options, subresource=subresource)
        self._state.require(kind, namespace, name)
        patch = decode_patch(body, patch_type)

        def change(old: Stored) -> dict[str, Any]:
            base = as_served(kind, old.obj)
            merged: Any = None
            if patch_type == patching.JSON:
                sent = patching.apply_json_patch(old.raw if base is old.obj else msgspec.json.encode(base), patch)
            elif patch_type == patching.MERGE:
                sent = apply_merge(base, patch)
            else:
                merged = patch
                sent = patching.apply_strategic_patch(base, patch, schema_of(kind))
            sent = without_entries(sent, old.obj)
            new = decode_object(kind, sent, options, patched=True, merged=merged)
            self._match_name(new["metadata"], name)
            self._match_namespace(kind, new["metadata"], namespace)
            self.tracker.updated(kind, new, old.obj, options, subresource=subresource)
            return new

        return await self._update(kind, (namespace, name), change, options, subresource=subresource)

    async def _apply(
        self, kind: Kind, place: tuple[str, str], body: bytes, options: WriteOptions, *, subresource: str
    ) -> Written:
        """Apply what is wanted to the object, which is created if it is not there."""
        namespace, name = place
        wanted = decode_wanted(body, options)

        def decode(live: dict[str, Any] | None) -> dict[str, Any]:
            sent, entries = self.tracker.applied(kind, live, wanted, options, subresource=subresource)
            new = decode_object(kind, sent, options, patched=True)
            if entries:
                new["metadata"]["managedFields"] = as_stored(entries)
            self._match_namespace(kind, new["metadata"], namespace)
            self._match_name(new["metadata"], name)
            return new

        if not subresource and kind.key(*place) not in self._state.table(kind).objects:
            new = decode(None)
            if uid := new["metadata"].get("uid"):
                text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise conflict(kind, name, text)
            self._check_place(kind, namespace, new["metadata"])
            try:
                return await self._store_new(kind, namespace, new, options)
            except ConflictError:
                if kind.key(*place) not in self._state.table(kind).objects:
                    raise
                # Somebody else was quicker: what is wanted is applied to that.
        return await self._update(kind, place, lambda old: decode(old.obj), options, subresource=subresource)

    async def mutate(
        self, kind: Kind, place: tuple[str, str], change: Callable[[Stored], dict[str, Any]], options: WriteOptions
    ) -> Written:
        """Change the object by a function of its stored form: for subresources that are views of it."""
        return await self._update(kind, place, change, options, subresource="scale")

    async def _update(
        self,
        kind: Kind,
        place: tuple[str, str],
        change: Callable[[Stored], dict[str, Any]],
        options: WriteOptions,
        *,
        subresource: str,
    ) -> Written:
        table = self._state.table(kind)
        key = kind.key(*place)
        while True:
            old = self._state.require(kind, *place)
            new = change(old)
            self._check_lock(kind, new, old)
            old_meta = old.obj["metadata"]
            metadata.carry_over(new["metadata"], old_meta)
            new = prepare_update(kind, new, old.obj, subresource=subresource)
            self._assign(kind, new)
            if self.admission is not None:
                admitted = await self.admission.admit("UPDATE", kind, new, old=old.obj, options=options)
                if table.objects.get(key) is not old:
                    continue
                new = admitted if admitted is not None else new
            break
        if self.guard is not None:
            self.guard(kind, new, old.obj, options.user)
        causes = [*metadata.check_metadata_update(new["metadata"], old_meta), *check_change(kind, new, old.obj)]
        self._validate(kind, new, causes)
        new["metadata"]["resourceVersion"] = old_meta["resourceVersion"]
        reuse_times(new, old.obj)
        if new == old.obj and _encode(new) == _encode(old.obj):
            return Written(old.obj, old.raw)
        if options.dry_run:
            return Written(new, msgspec.json.encode(new))
        if _is_ready_to_go(kind, new):
            # The answer shows the object as it was asked for; those who watch see what was stored last.
            written = Written(new, msgspec.json.encode(new))
            self._state.store.remove(table, key)
        else:
            stored = self._state.store.put(table, key, new)
            written = Written(stored.obj, stored.raw)
        self._settle()
        return written

    def _check_lock(self, kind: Kind, new: Mapping[str, Any], old: Stored) -> None:
        version = new["metadata"].get("resourceVersion")
        name = str(old.obj["metadata"]["name"])
        if version is None or version == "0":
            if kind.needs_version:
                cause = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
                raise invalid(kind.plural, kind.group, name, [cause])
        elif version != old.obj["metadata"]["resourceVersion"]:
            if not version.isdigit():
                text = f'Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
                raise invalid(kind.plural, kind.group, name, [Cause("metadata.resourceVersion", text)])
            raise conflict(kind, name)

    # -- what all have in common ----------------------------------------------------------------------------------

    def _assign(self, kind: Kind, obj: dict[str, Any]) -> None:
        if kind.resource == ("", "services"):
            assign_addresses(obj, [stored.obj for stored in self._state.table(kind).objects.values()])

    @staticmethod
    def _match_name(meta: Mapping[str, Any], name: str) -> None:
        own = meta.get("name")
        if not own:
            raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
        if own != name:
            raise bad_request(f"the name of the object ({own}) does not match the name on the URL ({name})")

    @staticmethod
    def _match_namespace(kind: Kind, meta: dict[str, Any], namespace: str) -> None:
        own = meta.get("namespace") or ""
        if not kind.namespaced:
            meta.pop("namespace", None)
        elif own and own != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        else:
            meta["namespace"] = namespace

    @staticmethod
    def _validate(kind: Kind, obj: dict[str, Any], causes: list[Cause]) -> None:
        causes = [*causes, *metadata.check_metadata(kind, obj["metadata"]), *check_object(kind, obj)]
        if causes:
            raise invalid(kind.kind, kind.group, str(obj["metadata"].get("name") or ""), causes)


def _is_ready_to_go(kind: Kind, obj: Mapping[str, Any]) -> bool:
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.resource == ("", "namespaces") and (obj.get("spec") or {}).get("finalizers"))


def _uid_text(kind: Kind, old: Stored, uid: str) -> str:
    group = f"{kind.group}/" if kind.custom else ""
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{group}{kind.plural}/{old.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
    )
