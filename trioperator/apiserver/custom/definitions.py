"""Custom resource definitions: their defaults, and the kinds that they define. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model.client_config import Conversion
from ..model.kinds import Column, CustomTraits, Kind, version_priority
from ..model.structure import Structure
from .schema import compile_schema

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_AGE: Final = Column(name="Age", type="date", path=".metadata.creationTimestamp")


def fill_definition(obj: dict[str, Any]) -> None:
    """Set the defaults of a definition in place; nested values are replaced, not changed."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    names = spec.get("names")
    if isinstance(names, dict) and names.get("kind"):
        kind = names["kind"]
        names = {**names, "singular": names.get("singular") or kind.lower()}
        names["listKind"] = names.get("listKind") or f"{kind}List"
    obj["spec"] = {"conversion": {"strategy": "None"}, **spec, "names": names}


def versions_of(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    versions = spec.get("versions")
    return [item for item in versions if isinstance(item, dict)] if isinstance(versions, list) else []


def kinds_of(obj: Mapping[str, Any], *, revision: int = 0) -> list[Kind]:
    """Return the served kinds of the definition, which is in effect since the revision."""
    versions = versions_of(obj["spec"])
    # An object that was written in another version may lack defaults: then all objects have to be checked.
    since = revision if len(versions) == 1 else math.inf
    stored = next((_kind_of(obj, version, None, since) for version in versions if version.get("storage")), None)
    return [
        stored if stored is not None and version["name"] == stored.version else _kind_of(obj, version, stored, since)
        for version in versions
        if version.get("served")
    ]


def _kind_of(obj: Mapping[str, Any], version: Mapping[str, Any], stored: Kind | None, since: float) -> Kind:
    spec, names = obj["spec"], obj["spec"]["names"]
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        list_kind=names.get("listKind") or f"{names['kind']}List",
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(version.get("subresources") or ()) & {"status", "scale"},
        has_generation=True,
        needs_version=True,
        custom=_traits(obj, version, stored, since),
    )


def _traits(obj: Mapping[str, Any], version: Mapping[str, Any], stored: Kind | None, since: float) -> CustomTraits:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    structure: Structure | None = compile_schema(schema, is_root=True) if schema else None
    columns = tuple(
        Column(
            name=str(column.get("name") or ""),
            type=str(column.get("type") or "string"),
            path=str(column.get("jsonPath") or ""),
            format=str(column.get("format") or ""),
            description=str(column.get("description") or ""),
            priority=int(column.get("priority") or 0),
        )
        for column in version.get("additionalPrinterColumns") or ()
    )
    selectable = tuple(str(item.get("jsonPath", "")).lstrip(".") for item in version.get("selectableFields") or ())
    return CustomTraits(
        schema=schema,
        structure=structure,
        columns=columns or (_AGE,),
        scale=(version.get("subresources") or {}).get("scale"),
        selectable=selectable,
        terminating="deletionTimestamp" in obj["metadata"],
        conversion=Conversion.of(obj["spec"].get("conversion") or {}),
        storage=stored,
        schema_revision=since,
        deprecation=_deprecation(obj["spec"], version),
    )


def _deprecation(spec: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    """Return the warning for requests of a deprecated version, or an empty string."""
    if not version.get("deprecated"):
        return ""
    if warning := version.get("deprecationWarning"):
        return str(warning)
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    others = [item["name"] for item in versions_of(spec) if item.get("served") and not item.get("deprecated")]
    newer = sorted(
        (other for other in others if version_priority(other) < version_priority(name)), key=version_priority
    )
    return f"{group}/{name} {kind} is deprecated" + (f"; use {group}/{newer[0]} {kind}" if newer else "")
