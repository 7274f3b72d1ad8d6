"""Writes to the scale subresource: the ``Scale`` is changed, then its replicas are set on the object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator._model.patch import apply_merge
from trioperator.errors import ApiError

from ..bodies import patching
from ..bodies.decoding import WriteOptions, decode_body, decode_configuration, decode_object, decode_patch
from ..model.errors import conflict
from ..model.kinds import Kind
from ..model.messages import Request
from ..ownership.managed_fields import Entry
from ..ownership.scale_fields import SCALE_VERSION, entries_of_object, entries_of_scale, path_of_replicas
from ..store.storage import Stored
from . import scale_subresource
from .field_manager import as_stored, decoded, without_entries
from .validation import match_name, match_namespace
from .writer import Scaling, Writer, Written

_SCALE: Final = Kind(
    group="autoscaling",
    version="v1",
    plural="scales",
    kind="Scale",
    singular="scale",
    namespaced=True,
    list_kind="ScaleList",
)
assert _SCALE.api_version == SCALE_VERSION


class ScaleWriter:
    """Writes to scale subresources of one cluster."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def write(self, kind: Kind, place: tuple[str, str], request: Request, options: WriteOptions) -> Written:
        """Update, patch or apply the ``Scale`` of the object."""

        path = path_of_replicas(scale_subresource.replicas_path(kind))

        def show(stored: Stored) -> dict[str, Any]:
            scale = scale_subresource.read_scale(kind, stored)
            if own := entries_of_scale(decoded(stored.obj["metadata"].get("managedFields")), path):
                scale["metadata"]["managedFields"] = as_stored(own)
            return scale

        def change(old: Stored) -> dict[str, Any]:
            new, own = self._changed(kind, show(old), request, options)
            return {**new, "metadata": {**new["metadata"], **({"managedFields": as_stored(own)} if own else {})}}

        def apply(old: Stored, new: dict[str, Any]) -> dict[str, Any]:
            obj = scale_subresource.with_scale(kind, old, new)
            entries = decoded(old.obj["metadata"].get("managedFields"))
            own = decoded((new.get("metadata") or {}).get("managedFields"))
            entries = entries_of_object(entries, own, path, kind.api_version)
            obj["metadata"].pop("managedFields", None)
            if entries:
                obj["metadata"]["managedFields"] = as_stored(entries)
            return obj

        return await self._writer.scale(kind, place, Scaling(show, change, apply), options)

    def _changed(
        self, kind: Kind, scale: dict[str, Any], request: Request, options: WriteOptions
    ) -> tuple[dict[str, Any], list[Entry]]:
        """Return the new ``Scale`` and its entries."""
        field_manager = self._writer.field_manager
        if request.method == "PATCH":
            patching.check_type(kind, request.media_type)
        if request.method == "PATCH" and request.media_type == patching.APPLY:
            wanted = decode_configuration(request.body, options)
            new, entries = field_manager.applied(_SCALE, scale, wanted, options, subresource="scale")
            if kind.custom is not None and new["spec"] != scale["spec"]:
                raise _unconvertible(scale)
            return new, entries
        if request.method == "PUT":
            sent = decode_body(_SCALE, request, options)
        elif request.media_type == patching.JSON:
            patch = decode_patch(request.body, patching.JSON, options)
            sent = patching.apply_json_patch(msgspec.json.encode(scale), patch)
        else:
            sent = apply_merge(scale, decode_patch(request.body, request.media_type, options))
        new = decode_object(_SCALE, without_entries(sent, scale), options, patched=request.method == "PATCH")
        if request.method == "PATCH" and kind.custom is None:
            _match_uid(kind, new["metadata"], scale["metadata"])
        match_name(new["metadata"], scale["metadata"]["name"])
        match_namespace(kind, new["metadata"], scale["metadata"].get("namespace", ""))
        field_manager.updated(_SCALE, new, scale, options, subresource="scale")
        return new, decoded(new["metadata"].pop("managedFields", None))


def _match_uid(kind: Kind, new: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Raise ConflictError for the scale of another object. Custom resources take any uid, as on the real server."""
    if (uid := new.get("uid")) not in (None, old["uid"]):
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['uid']}"
        raise conflict(dataclasses.replace(kind, plural=f"{kind.plural}/scale"), old["name"], text)


def _unconvertible(scale: Mapping[str, Any]) -> ApiError:
    """Return the error for an apply to the scale of a custom object, at which the real server fails, too."""
    title = f"/{scale['metadata']['name']}; autoscaling/v1, Kind=Scale"
    text = "request to convert CR to an invalid group/version: autoscaling/v1"
    return ApiError.of(f"failed to convert new object ({title}) to proper version: {text}", status=500)
