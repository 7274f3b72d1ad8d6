"""Custom resource definitions: their defaults, and the kinds that they define. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model.client_config import Conversion
from ..model.kinds import Column, CustomTraits, Kind
from ..model.structure import Structure
from .schema import compile_schema

__all__ = ["CLEANUP_FINALIZER", "fill_definition", "kinds_of", "versions_of"]

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


def kinds_of(obj: Mapping[str, Any]) -> list[Kind]:
    """Return the served kinds of the definition."""
    spec = obj["spec"]
    stored = next((_kind_of(obj, version, None) for version in versions_of(spec) if version.get("storage")), None)
    return [
        stored if stored is not None and version["name"] == stored.version else _kind_of(obj, version, stored)
        for version in versions_of(spec)
        if version.get("served")
    ]


def _kind_of(obj: Mapping[str, Any], version: Mapping[str, Any], stored: Kind | None) -> Kind:
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
        custom=_traits(obj, version, stored),
    )


def _traits(obj: Mapping[str, Any], version: Mapping[str, Any], stored: Kind | None) -> CustomTraits:
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
    )
