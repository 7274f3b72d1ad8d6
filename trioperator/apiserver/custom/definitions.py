"""Custom resource definitions: defaults, validation, and the kinds that they define. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..model.client_config import Conversion
from ..model.client_config_validation import check_conversion
from ..model.kinds import Column, CustomTraits, Kind
from ..model.status_causes import StatusCause, invalid_value
from ..model.structure import Structure
from .patterns import check_patterns
from .rule_validation import check_rules_of
from .schema import compile_schema

__all__ = [
    "CLEANUP_FINALIZER",
    "check_changed_definition",
    "check_definition",
    "fill_definition",
    "kinds_of",
    "versions_of",
]

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_AGE: Final = Column(name="Age", type="date", path=".metadata.creationTimestamp")


def fill_definition(obj: dict[str, Any]) -> None:
    """Set the defaults of a definition in place; nested values are replaced, not changed."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    names = spec.get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        kind = names["kind"]
        names = {**names, "singular": names.get("singular") or kind.lower()}
        names["listKind"] = names.get("listKind") or f"{kind}List"
    obj["spec"] = {"conversion": {"strategy": "None"}, **spec, "names": names}


def versions_of(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    versions = spec.get("versions")
    return [item for item in versions if isinstance(item, dict)] if isinstance(versions, list) else []


def check_definition(obj: Mapping[str, Any]) -> list[StatusCause]:
    """Return the validation errors of the definition."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [StatusCause("spec", "Required value", "FieldValueRequired")]
    names = spec.get("names") if isinstance(spec.get("names"), dict) else {}
    assert isinstance(names, dict)
    causes = [*_check_names(obj, spec, names), *_check_versions(spec)]
    causes.extend(check_conversion(spec.get("conversion") or {}, "spec.conversion"))
    if sum(bool(version.get("storage")) for version in versions_of(spec)) != 1:
        text = "must have exactly one version marked as storage version"
        causes.append(invalid_value("spec.versions", spec.get("versions"), text))
    if not (obj.get("status") or {}).get("storedVersions"):
        causes.append(invalid_value("status.storedVersions", None, "must have at least one stored version"))
    return causes


def _check_versions(spec: Mapping[str, Any]) -> Iterable[StatusCause]:
    seen = set[str]()
    # The real server reports spec.validation if all versions have the same schema.
    schemas = [version.get("schema") for version in versions_of(spec)]
    is_shared = all(schema == schemas[0] for schema in schemas)
    for at, version in enumerate(versions_of(spec)):
        name = version.get("name") or ""
        if not _LABEL_1035.fullmatch(str(name)):
            yield invalid_value(f"spec.versions[{at}].name", name, "must be a DNS-1035 label")
        if name in seen:
            text = f'Invalid value: "{name}": must contain unique version names'
            yield StatusCause(f"spec.versions[{at}].name", text)
        seen.add(name)
        path = f"spec.versions[{at}].schema.openAPIV3Schema"
        yield from _check_schema(version, "spec.validation.openAPIV3Schema" if is_shared else path, path)


def check_changed_definition(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterable[StatusCause]:
    """Return the validation errors of an update: immutable fields, and versions that may have stored objects."""
    wanted, found = new.get("spec") or {}, old["spec"]
    names = {version.get("name") for version in versions_of(wanted)}
    for at, name in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if name not in names:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid_value(f"status.storedVersions[{at}]", name, text)
    conditions = (old.get("status") or {}).get("conditions") or ()
    if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
        if wanted.get("scope") != found["scope"]:
            yield invalid_value("spec.scope", wanted.get("scope"), "field is immutable")
        kind = (wanted.get("names") or {}).get("kind")
        if kind != found["names"]["kind"]:
            yield invalid_value("spec.names.kind", kind, "field is immutable")


def _check_names(obj: Mapping[str, Any], spec: Mapping[str, Any], names: Mapping[str, Any]) -> Iterable[StatusCause]:
    group, plural = spec.get("group") or "", names.get("plural") or ""
    name = obj["metadata"].get("name")
    if name and name != f"{plural}.{group}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield StatusCause("spec.group", "Required value", "FieldValueRequired")
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope")
    if not scope:
        yield StatusCause("spec.scope", "Required value", "FieldValueRequired")
    elif scope not in {"Cluster", "Namespaced"}:
        text = f'Unsupported value: "{scope}": supported values: "Cluster", "Namespaced"'
        yield StatusCause("spec.scope", text, "FieldValueNotSupported")
    for field in ("plural", "kind"):
        if not names.get(field):
            yield StatusCause(f"spec.names.{field}", "Required value", "FieldValueRequired")
    if plural and not _LABEL_1035.fullmatch(plural):
        yield invalid_value("spec.names.plural", plural, "must be a DNS-1035 label")


def _check_schema(version: Mapping[str, Any], path: str, own_path: str) -> Iterable[StatusCause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        yield StatusCause(own_path, "Required value", "FieldValueRequired")
        return
    if schema.get("type") != "object":
        if schema.get("type"):
            yield invalid_value(f"{path}.type", schema["type"], "must be object at the root")
        else:
            yield StatusCause(f"{path}.type", "Required value: must not be empty at the root", "FieldValueRequired")
        return
    causes = [*_check_structural(schema, path), *check_patterns(schema, path)]
    yield from causes or _check_rules(schema, path, "")


def _check_rules(schema: Mapping[str, Any], path: str, uncorrelatable: str) -> Iterable[StatusCause]:
    """Check the CEL rules of an otherwise valid schema."""
    yield from check_rules_of(schema, path, uncorrelatable=uncorrelatable)
    for name, sub in (schema.get("properties") or {}).items():
        yield from _check_rules(sub, f"{path}.properties[{name}]", uncorrelatable)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            has_keys = word != "items" or schema.get("x-kubernetes-list-type") == "map"
            yield from _check_rules(schema[word], f"{path}.{word}", uncorrelatable if has_keys else path)


def _check_structural(schema: Mapping[str, Any], path: str) -> Iterable[StatusCause]:
    loose = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not schema.get("type") and not loose:
        yield StatusCause(
            f"{path}.type", "Required value: must not be empty for specified object fields", "FieldValueRequired"
        )
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        supported = ", ".join(f'"{name}"' for name in _TYPES)
        text = f'Unsupported value: "{kind}": supported values: {supported}'
        yield StatusCause(f"{path}.type", text, "FieldValueNotSupported")
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield StatusCause(f"{path}.items", "Required value: must be specified", "FieldValueRequired")
    properties = schema.get("properties")
    if isinstance(properties, dict):
        if isinstance(schema.get("additionalProperties"), dict):
            text = "Forbidden: additionalProperties and properties are mutual exclusive"
            yield StatusCause(f"{path}.additionalProperties", text, "FieldValueForbidden")
        for name, sub in properties.items():
            if isinstance(sub, dict) and not (path.endswith("openAPIV3Schema") and name == "metadata"):
                yield from _check_structural(sub, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _check_structural(schema[word], f"{path}.{word}")


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
