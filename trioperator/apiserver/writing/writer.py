"""Create, update, patch and apply.

The steps are in the order of the real server: decode, change, mutating admission, optimistic locking, the strategy of
the kind, validation, validating admission, the no-op check, the commit. Between reading the stored object and the
commit the only checkpoints are webhook calls (for admission and conversion); if the object has changed meanwhile, the
write starts over.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from trioperator._model.patch import apply_merge
from trioperator.errors import ApiError, ConflictError

from ..bodies import patching
from ..bodies.decoding import WriteOptions, decode_configuration, decode_object, decode_patch
from ..builtin.certificate_requests import CERTIFICATE_REQUESTS, stamp
from ..builtin.events import as_served
from ..builtin.preparation import assign_addresses
from ..builtin.quotas import QUOTAS, problem_of, used_of
from ..builtin.strategies import EPHEMERAL, INTERNAL, prepare_create, prepare_update
from ..model import metadata
from ..model.errors import already_exists, conflict, forbidden, not_found
from ..model.kind_schemas import schema_of
from ..model.kinds import Kind
from ..model.user import User
from ..store.state import State
from ..store.storage import OBJECT_LIMIT, Stored
from ..webhooks.conversion import Converter
from ..webhooks.matching import AdmissionAttributes
from .field_manager import FieldManager, as_stored, decode_applied, reuse_times, settle_entries, without_entries
from .validation import check_lock, check_nulls, is_removable, match_name, match_namespace, uid_mismatch_text, validate

Object = dict[str, Any]
_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """Result of a write: the newest content, and whether the object was created."""

    obj: dict[str, Any]
    raw: bytes
    created: bool = False


Guard = Callable[[Kind, Mapping[str, Any], Mapping[str, Any] | None, User], None]  # raises for forbidden writes


CreationCheck = Callable[[Kind, str, str, User], None]  # raises if the user may not create


class Admission(Protocol):
    """Whatever may modify or reject a write."""

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any] | None:
        """Return the object to store (None for deletions). Raises ApiError to reject the write."""

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Raise ApiError to reject a write that is complete and valid."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scaling:
    """A change through the scale subresource: functions to show, change and apply the ``Scale`` of an object."""

    show: Callable[[Stored], Object]
    change: Callable[[Stored], Object]
    apply: Callable[[Stored, Object], Object]

    def __call__(self, old: Stored) -> Object:
        """Return the new ``Scale``."""
        return self.change(old)


class Writer:
    """Writes of one cluster. *settle* runs the follow-ups of a write."""

    def __init__(
        self,
        state: State,
        *,
        settle: Callable[[], Awaitable[None]],
        admission: Admission,
        converter: Converter,
    ) -> None:
        self._state = state
        self._admission = admission
        self._converter = converter
        self.field_manager = FieldManager(state)
        self._settle = settle
        self.guard: Guard | None = None
        self.check_creation: CreationCheck | None = None

    # -- create ---------------------------------------------------------------------------------------------------

    async def create(self, kind: Kind, namespace: str, sent: Any, options: WriteOptions) -> Written:
        """Create an object."""
        obj = decode_object(kind, sent, options)
        match_namespace(kind, obj["metadata"], namespace)
        self._check_namespace(kind, namespace, obj["metadata"])
        self.field_manager.created(kind, obj, options)
        return await self._store_new(kind, namespace, obj, options)

    async def _store_new(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions) -> Written:
        attributes = _admission_attributes("CREATE", kind, (namespace, str(obj["metadata"].get("name") or "")), options)
        attributes = dataclasses.replace(attributes, new=obj)
        entries = obj["metadata"].get("managedFields")
        obj = _required(await self._admission.mutate(attributes))
        settle_entries(obj, entries, options)
        meta = obj["metadata"]
        match_namespace(kind, meta, namespace)
        prefix = "" if meta.get("name") else str(meta.get("generateName") or "")
        if prefix:
            meta["name"] = metadata.generated_name(prefix, self._state.choose)
        meta["uid"] = self._state.uid()
        meta["creationTimestamp"] = self._state.timestamp()
        prepare_create(kind, obj)
        self._assign(kind, obj)
        if self.guard is not None:
            self.guard(kind, obj, None, options.user)
        self._validate(kind, obj, None, options)
        name = str(meta["name"])
        self._check_quotas(kind, namespace, obj)
        await self._admission.validate(dataclasses.replace(attributes, new=obj, name=attributes.name or name))
        to_store = await self._converter.store(kind, obj)
        self._check_namespace(kind, namespace, meta)  # the namespace may be gone after webhook calls
        key = kind.key(namespace, name)
        if meta.get("resourceVersion", "").isdigit() and not options.dry_run:  # noticed when it is stored
            raise ApiError.of("resourceVersion should not be set on objects to be created", status=500)
        if (found := self._state.table(kind).objects.get(key)) is not None:
            raise already_exists(kind, name, is_terminating="deletionTimestamp" in found.obj["metadata"])
        if options.dry_run:
            return Written(obj, msgspec.json.encode(obj), created=True)
        return await self._commit(kind, key, to_store, created=True)

    async def _commit(self, kind: Kind, key: str, obj: Object, *, created: bool = False) -> Written:
        """Store the object, run the follow-ups, and return its newest content."""
        stored = self._state.store.put(self._state.table(kind), key, obj, limit=OBJECT_LIMIT)
        await self._settle()
        shown = await self._converter.show(kind, stored)
        return Written(shown.obj, shown.raw, created=created)

    def _check_namespace(self, kind: Kind, namespace: str, meta: Mapping[str, Any]) -> None:
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

    def _check_quotas(self, kind: Kind, namespace: str, obj: Object) -> None:
        """Raise 403 if a quota has no room for the object. One that no controller has counted has no effect."""
        table = self._state.store.table(QUOTAS)
        for key in table.keys(f"{namespace}/") if kind.namespaced else ():
            quota = table.objects[key].obj
            used = used_of(quota, self._state.contents(namespace))
            if problem := problem_of(quota, kind, obj, used):
                raise forbidden(kind, str(obj["metadata"]["name"]), problem)

    # -- update and patch -----------------------------------------------------------------------------------------

    async def replace(
        self, kind: Kind, place: tuple[str, str], sent: Any, options: WriteOptions, *, subresource: str = ""
    ) -> Written:
        """Replace the object (PUT)."""
        namespace, name = place
        new = decode_object(kind, sent, options)
        match_name(new["metadata"], name)
        match_namespace(kind, new["metadata"], namespace)
        key = kind.key(*place)
        if kind.creates_on_update and not subresource and key not in self._state.table(kind).objects:
            if uid := new["metadata"].get("uid"):
                raise conflict(kind, name, uid_mismatch_text(kind, Stored(key, {"metadata": {"uid": ""}}, 0), uid))
            obj = {**new, "metadata": dict(new["metadata"])}
            self.field_manager.created(kind, obj, options)
            created = await self._create_instead(kind, place, obj, options)
            if created is not None:
                return created

        def change(old: Stored) -> dict[str, Any]:
            uid = new["metadata"].get("uid")
            if uid and uid != old.uid:
                raise conflict(kind, name, uid_mismatch_text(kind, old, uid))
            result = {**new, "metadata": dict(new["metadata"])}
            self.field_manager.updated(kind, result, old.obj, options, subresource=subresource)
            return result

        return await self._update(kind, place, change, options, subresource=subresource)

    async def patch(
        self,
        kind: Kind,
        place: tuple[str, str],
        patch: patching.SentPatch,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Written:
        """Patch or apply."""
        patching.check_type(kind, patch.type)
        if patch.type == patching.APPLY:
            return await self._apply(kind, place, patch.body, options, subresource=subresource)
        namespace, name = place
        self._state.require(kind, namespace, name)
        content = decode_patch(patch.body, patch.type, options)

        def change(old: Stored) -> dict[str, Any]:
            sent = without_entries(_apply_patch(kind, old, content, patch.type), old.obj)
            merged = content if patch.type == patching.STRATEGIC else None
            new = decode_object(kind, sent, options, patched=True, merged=merged)
            match_name(new["metadata"], name)
            match_namespace(kind, new["metadata"], namespace)
            self.field_manager.updated(kind, new, old.obj, options, subresource=subresource)
            return new

        return await self._update(kind, place, change, options, subresource=subresource)

    async def _apply(
        self, kind: Kind, place: tuple[str, str], body: bytes, options: WriteOptions, *, subresource: str
    ) -> Written:
        """Apply a configuration to the object, which is created if it does not exist."""
        namespace, name = place
        wanted = decode_configuration(body, options)

        def decode(live: dict[str, Any] | None) -> dict[str, Any]:
            sent, entries = self.field_manager.applied(kind, live, wanted, options, subresource=subresource)
            check_nulls(kind, sent)
            new = decode_applied(kind, sent, wanted, options)
            if entries:
                new["metadata"]["managedFields"] = as_stored(entries)
            match_namespace(kind, new["metadata"], namespace)
            match_name(new["metadata"], name)
            return new

        if not subresource and kind.key(*place) not in self._state.table(kind).objects:
            new = decode(None)
            if uid := new["metadata"].get("uid"):
                text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise conflict(kind, name, text)
            created = await self._create_instead(kind, place, new, options)
            if created is not None:
                return created
        return await self._update(kind, place, lambda old: decode(old.obj), options, subresource=subresource)

    async def _create_instead(
        self, kind: Kind, place: tuple[str, str], new: Object, options: WriteOptions
    ) -> Written | None:
        """Create an object that was to be updated; return None if it has been created meanwhile."""
        self._check_namespace(kind, place[0], new["metadata"])
        if self.check_creation is not None:
            self.check_creation(kind, *place, options.user)
        meta = {name: value for name, value in new["metadata"].items() if name != "resourceVersion"}
        try:
            return await self._store_new(kind, place[0], {**new, "metadata": meta}, options)
        except ConflictError:
            if kind.key(*place) not in self._state.table(kind).objects:
                raise
            return None

    async def mutate(
        self, kind: Kind, place: tuple[str, str], change: Callable[[Stored], Object], options: WriteOptions
    ) -> Written:
        """Change the object by a function of its stored form, without admission: for the control plane."""
        return await self._update(kind, place, change, options, subresource=INTERNAL)

    async def scale(self, kind: Kind, place: tuple[str, str], scaling: Scaling, options: WriteOptions) -> Written:
        """Change the object through its ``Scale``, which is what webhooks see."""
        return await self._update(kind, place, scaling, options, subresource="scale")

    async def _update(
        self,
        kind: Kind,
        place: tuple[str, str],
        change: Callable[[Stored], Object],
        options: WriteOptions,
        *,
        subresource: str,
    ) -> Written:
        table = self._state.table(kind)
        key = kind.key(*place)
        attributes = _admission_attributes("UPDATE", kind, place, options, subresource=subresource)
        while True:
            stored = self._state.require(kind, *place)
            old = await self._converter.show(kind, stored)
            new = await self._changed(attributes, change, old)
            to_store = await self._converter.store(kind, new)
            if table.objects.get(key) is stored:
                break
        if to_store == stored.obj and _encode(to_store) == _encode(stored.obj):
            return Written(old.obj, old.raw)
        if options.dry_run:
            return Written(new, msgspec.json.encode(new))
        if is_removable(kind, new):
            # The response shows the requested object; watches show the one that was stored last.
            written = Written(new, msgspec.json.encode(new))
            self._state.store.remove(table, key)
            await self._settle()
            return written
        return await self._commit(kind, key, to_store)

    async def _changed(
        self, attributes: AdmissionAttributes, change: Callable[[Stored], Object], old: Stored
    ) -> Object:
        """Return the changed object after admission and validation."""
        kind, subresource = attributes.kind, attributes.subresource
        scaling = change if isinstance(change, Scaling) else None
        new = change(old)
        if subresource != INTERNAL:
            attributes = dataclasses.replace(attributes, new=new, old=scaling.show(old) if scaling else old.obj)
            entries = new["metadata"].get("managedFields")
            new = _required(await self._admission.mutate(attributes))
            settle_entries(new, entries, attributes.options)
        if scaling is not None:
            new = scaling.apply(old, new)
        match_namespace(kind, new["metadata"], str(old.obj["metadata"].get("namespace") or ""))
        check_lock(kind, new, old)
        old_meta = old.obj["metadata"]
        metadata.carry_over(new["metadata"], old_meta)
        new = prepare_update(kind, new, old.obj, subresource=subresource)
        self._assign(kind, new)
        if kind.resource == CERTIFICATE_REQUESTS:
            stamp(new, old.obj, self._state.timestamp())
        if self.guard is not None:
            self.guard(kind, new, old.obj, attributes.options.user)
        is_unrestricted = subresource in {INTERNAL, EPHEMERAL} and kind.custom is None  # even immutable fields change
        self._validate(kind, new, None if is_unrestricted else old.obj, attributes.options)
        new["metadata"]["resourceVersion"] = old_meta["resourceVersion"]
        reuse_times(new, old.obj)
        if subresource != INTERNAL:
            seen = scaling.show(Stored(old.key, new, 0)) if scaling else new
            await self._admission.validate(dataclasses.replace(attributes, new=seen))
        return new

    # -- helpers --------------------------------------------------------------------------------------------------

    def _validate(self, kind: Kind, obj: Object, old: Object | None, options: WriteOptions) -> None:
        found: list[str] = []
        validate(kind, obj, old, found)
        warnings = dict.fromkeys(found)  # large definitions repeat the same one hundreds of times
        known = set(options.warnings)
        options.warnings.extend(warning for warning in warnings if warning not in known)
        if kind.group == "apiextensions.k8s.io":
            for warning in warnings:
                _log.warning("Definition %s: %s", obj["metadata"]["name"], warning)

    def _assign(self, kind: Kind, obj: dict[str, Any]) -> None:
        if kind.resource == ("", "services"):
            assign_addresses(obj, [stored.obj for stored in self._state.table(kind).objects.values()])


def _apply_patch(kind: Kind, old: Stored, patch: Any, patch_type: str) -> Any:
    """Return the object in the version of the kind, changed by the patch."""
    base = as_served(kind, old.obj)
    if patch_type == patching.JSON:
        return patching.apply_json_patch(old.raw if base is old.obj else msgspec.json.encode(base), patch)
    if patch_type == patching.MERGE:
        return apply_merge(base, patching.without_nulls_in_lists(patch))
    return patching.apply_strategic_patch(base, patch, schema_of(kind))


def _admission_attributes(
    operation: str, kind: Kind, place: tuple[str, str], options: WriteOptions, *, subresource: str = ""
) -> AdmissionAttributes:
    namespace, name = place
    return AdmissionAttributes(
        operation=operation,
        kind=kind,
        namespace=name if kind.resource == ("", "namespaces") else namespace,
        name=name,
        subresource=subresource,
        options=options,
    )


def _required(obj: Object | None) -> Object:
    assert obj is not None, "only deletions have no object"
    return obj
