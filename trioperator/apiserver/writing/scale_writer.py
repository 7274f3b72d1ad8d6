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
from ..custom.jsonpath import put_at
from ..model.errors import conflict
from ..model.kinds import Kind, subresource_kind
from ..model.messages import Request
from ..ownership.apply import check_configuration
from ..ownership.managed_fields import Entry
from ..store.storage import Stored
from . import scale_subresource
from .field_manager import as_stored
from .validation import match_name, match_namespace
from .writer import Scaling, Writer, Written

Object = dict[str, Any]

_SCALE: Final = subresource_kind("autoscaling", "v1", "Scale")


class ScaleWriter:
    """Writes to scale subresources of one cluster."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def write(self, kind: Kind, place: tuple[str, str], request: Request, options: WriteOptions) -> Written:
        """Update, patch or apply the ``Scale`` of the object."""

        applied: list[Entry] | None = None

        def show(stored: Stored) -> Object:
            return scale_subresource.read_scale(kind, stored)

        def change(old: Stored) -> Object:
            nonlocal applied
            if request.method == "PATCH" and request.media_type == patching.APPLY:
                new, applied = self._applied(kind, old, request, options)
                return new
            return self._changed(kind, show(old), request, options)

        def apply(old: Stored, new: Object) -> Object:
            obj = scale_subresource.with_scale(kind, old, new)
            if applied is None:
                self._writer.field_manager.updated(kind, obj, old.obj, options, subresource="scale")
            else:
                obj["metadata"]["managedFields"] = as_stored(applied)
            return obj

        return await self._writer.scale(kind, place, Scaling(show, change, apply), options)

    def _applied(self, kind: Kind, old: Stored, request: Request, options: WriteOptions) -> tuple[Object, list[Entry]]:
        """Return the ``Scale`` with a configuration applied, and the entries of the object."""
        field_manager = self._writer.field_manager
        wanted = decode_configuration(request.body, options)
        check_configuration(_SCALE, field_manager.root(_SCALE), wanted)
        scale = scale_subresource.read_scale(kind, old)
        new = {**scale, **{name: {**scale[name], **(wanted.get(name) or {})} for name in ("metadata", "spec")}}
        if kind.custom is not None and new["spec"] != scale["spec"]:
            raise _unconvertible(scale)
        configuration: Object = {"apiVersion": kind.api_version, "kind": kind.kind}
        if (replicas := (wanted.get("spec") or {}).get("replicas")) is not None:
            configuration = put_at(configuration, scale_subresource.replicas_path(kind), replicas)
        _, entries = field_manager.applied(kind, old.obj, configuration, options, subresource="scale")
        return decode_object(_SCALE, new, options, patched=True), entries

    def _changed(self, kind: Kind, scale: Object, request: Request, options: WriteOptions) -> Object:
        if request.method == "PATCH":
            patching.check_type(kind, request.media_type)
        if request.method == "PUT":
            sent = decode_body(_SCALE, request, options)
        elif request.media_type == patching.JSON:
            patch = decode_patch(request.body, patching.JSON, options)
            sent = patching.apply_json_patch(msgspec.json.encode(scale), patch)
        else:
            sent = apply_merge(scale, decode_patch(request.body, request.media_type, options))
        new = decode_object(_SCALE, sent, options, patched=request.method == "PATCH")
        if request.method == "PATCH" and kind.custom is None:
            _match_uid(kind, new["metadata"], scale["metadata"])
        match_name(new["metadata"], scale["metadata"]["name"])
        match_namespace(kind, new["metadata"], scale["metadata"].get("namespace", ""))
        new["metadata"].pop("managedFields", None)
        return new


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
