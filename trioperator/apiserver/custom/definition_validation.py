"""Validation of custom resource definitions, with the messages of the real server. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ..model.client_config_validation import check_conversion
from ..model.metadata import dns_1035_problem, subdomain_problem
from ..model.status_causes import StatusCause, duplicate, invalid_value, required, unsupported
from .definitions import versions_of
from .schema_validation import check_schema, unrecognized_formats
from .validation_rules import normal_field_path

Object = Mapping[str, Any]
_encode: Final = msgspec.json.Encoder(order="sorted").encode

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SELECTABLE_LIMIT: Final = 8
_WARNING_LIMIT: Final = 256
_APPROVED: Final = "api-approved.kubernetes.io"
_APPROVAL_LINK: Final = "see https://github.com/kubernetes/enhancements/pull/1111"


def check_definition(new: Object, old: Object | None) -> Iterator[StatusCause]:
    """Yield the validation errors of the definition, new or as an update of *old*.

    Parts of versions that are unchanged are not checked again.
    """
    spec = new.get("spec") or {}
    if old is not None and spec == old["spec"]:
        yield from _check_approval(new, old)
        return
    names = spec.get("names") or {}
    yield from _check_name(new, spec, names) if old is None else _check_immutable(spec, old)
    yield from _check_group(spec)
    yield from _check_names(names)
    yield from _check_versions(spec, versions_of(old["spec"]) if old is not None else ())
    yield from check_conversion(spec.get("conversion") or {}, "spec.conversion")
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid_value("spec.preserveUnknownFields", True, text)
    yield from _check_stored_versions(new, spec)
    yield from _check_approval(new, old)


def format_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings of the formats that the server ignores, if they are new."""
    known = set(_formats(old)) if old is not None else set()
    return [f'unrecognized format "{name}"' for name in _formats(new) if name not in known]


def _formats(obj: Object) -> Iterator[str]:
    for version in versions_of(obj["spec"]):
        yield from unrecognized_formats((version.get("schema") or {}).get("openAPIV3Schema") or {})


def _check_immutable(spec: Object, old: Object) -> Iterator[StatusCause]:
    names, found = spec.get("names") or {}, old["spec"]
    conditions = (old.get("status") or {}).get("conditions") or ()
    if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
        if spec.get("scope") != found["scope"]:
            yield invalid_value("spec.scope", spec.get("scope"), "field is immutable")
        if names.get("kind") != found["names"]["kind"]:
            yield invalid_value("spec.names.kind", names.get("kind"), "field is immutable")
    if spec.get("group") != found["group"]:
        yield invalid_value("spec.group", spec.get("group"), "field is immutable")
    if names.get("plural") != found["names"]["plural"]:
        yield invalid_value("spec.names.plural", names.get("plural"), "field is immutable")


def _check_approval(new: Object, old: Object | None) -> Iterator[StatusCause]:
    """Yield the error of a definition in a protected group without an approval, unless the old one had none either."""
    group = str((new.get("spec") or {}).get("group") or "")
    approval = _approval(new)
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")) or (old is not None and _state(old) == _state(new)):
        return
    field, text = f"metadata.annotations[{_APPROVED}]", f'protected groups must have approval annotation "{_APPROVED}"'
    match _state(new):
        case "missing":
            yield required(field, f"{text}, {_APPROVAL_LINK}")
        case "invalid":
            text = f'{text} with either a URL or a reason starting with "unapproved", {_APPROVAL_LINK}'
            yield invalid_value(field, approval, text)


def _approval(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(_APPROVED) or "")


def _state(obj: Object) -> str:
    approval = _approval(obj)
    if not approval or approval.startswith("unapproved"):
        return "bypassed" if approval else "missing"
    url = urlsplit(approval)
    return "approved" if url.scheme and url.netloc else "invalid"


# -- names -----------------------------------------------------------------------------------------------------------


def _check_name(obj: Object, spec: Object, names: Object) -> Iterator[StatusCause]:
    name = obj["metadata"].get("name")
    if name and name != f"{names.get('plural') or ''}.{spec.get('group') or ''}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _check_group(spec: Object) -> Iterator[StatusCause]:
    group, scope = spec.get("group") or "", spec.get("scope")
    if not group:
        yield required("spec.group")
    elif problem := subdomain_problem(group):
        yield invalid_value("spec.group", group, problem)
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    if not scope:
        yield required("spec.scope")
    elif scope not in {"Cluster", "Namespaced"}:
        yield unsupported("spec.scope", scope, ("Cluster", "Namespaced"))


def _check_names(names: Object) -> Iterator[StatusCause]:
    for field in ("plural", "singular", "kind", "listKind"):
        name = names.get(field) or ""
        if not name:
            yield required(f"spec.names.{field}")
        elif problem := dns_1035_problem(name.lower() if field in {"kind", "listKind"} else name):
            prefix = "may have mixed case, but should otherwise match: " if field in {"kind", "listKind"} else ""
            yield invalid_value(f"spec.names.{field}", name, prefix + problem)
    for field in ("shortNames", "categories"):
        for at, name in enumerate(names.get(field) or ()):
            if problem := dns_1035_problem(name):
                yield invalid_value(f"spec.names.{field}[{at}]", name, problem)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid_value("spec.names.listKind", names["kind"], "kind and listKind may not be the same")


# -- versions --------------------------------------------------------------------------------------------------------


def _check_versions(spec: Object, old: Sequence[Object]) -> Iterator[StatusCause]:
    versions = versions_of(spec)
    for at, version in enumerate(versions):
        path, name = f"spec.versions[{at}]", version.get("name") or ""
        if problem := dns_1035_problem(name):
            yield invalid_value(f"{path}.name", name, problem)
            if at == 0 and name:
                yield invalid_value("spec.version", name, problem)
        yield from _check_deprecation(version, path)
        if not isinstance((version.get("schema") or {}).get("openAPIV3Schema"), Mapping):
            yield required(f"{path}.schema.openAPIV3Schema")
    names = [version.get("name") for version in versions]
    if len(set(names)) < len(names):
        yield invalid_value("spec.versions", versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", spec.get("versions"), text)
    for word, place in _PARTS.items():
        # The real server reports what is the same in all versions once, at the path of its internal version.
        is_shared = all(version.get(word) == versions[0].get(word) for version in versions)
        known = {_identity(version, word) for version in old}
        for at, version in enumerate(versions[:1] if is_shared else versions):
            if _identity(version, word) not in known:
                yield from _check_part(word, version, f"spec.{place}" if is_shared else f"spec.versions[{at}].{word}")


def _identity(version: Object, word: str) -> bytes:
    """Return the part of the version with its schema, which is valid with or without a status subresource."""
    return _encode([version.get(word), version.get("schema"), version.get("subresources")])


_PARTS: Final = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}


def _check_part(word: str, version: Object, path: str) -> Iterator[StatusCause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    match word:
        case "schema" if isinstance(schema, Mapping):
            has_status = "status" in (version.get("subresources") or {})
            yield from check_schema(schema, f"{path}.openAPIV3Schema", has_status=has_status)
        case "subresources":
            yield from _check_scale((version.get(word) or {}).get("scale"), f"{path}.scale")
        case "additionalPrinterColumns":
            for at, column in enumerate(version.get(word) or ()):
                yield from _check_column(column, f"{path}[{at}]")
        case "selectableFields" if isinstance(schema, Mapping):
            yield from _check_selectable(version.get(word) or (), schema, path)


def _check_deprecation(version: Object, path: str) -> Iterator[StatusCause]:
    warning, place = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if warning is None:
        return
    if not version.get("deprecated"):
        yield invalid_value(place, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > _WARNING_LIMIT:
        yield invalid_value(place, warning, f"must be <= {_WARNING_LIMIT} characters long")
    if not warning:
        yield invalid_value(place, warning, "must not be an empty string")
    strange = next((at for at, letter in enumerate(warning) if not letter.isprintable()), None)
    if strange is not None:
        index = len(warning[:strange].encode())
        text = f"must only contain printable UTF-8 characters; non-printable character found at index {index}"
        yield invalid_value(place, warning, text)


def _check_scale(scale: Object | None, path: str) -> Iterator[StatusCause]:
    if scale is None:
        return
    for field, parent in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        found = scale.get(field) or ""
        if not found:
            yield required(f"{path}.{field}")
        elif not found.startswith("."):
            yield invalid_value(f"{path}.{field}", found, "must be a simple json path starting with .")
        elif not found.startswith(f"{parent}."):
            yield invalid_value(f"{path}.{field}", found, f"should be a json path under {parent}")
    selector, place = scale.get("labelSelectorPath") or "", f"{path}.labelSelectorPath"
    if selector and not selector.startswith("."):
        yield invalid_value(place, selector, "must be a simple json path starting with .")
    elif selector and not selector.startswith((".spec.", ".status.")):
        yield invalid_value(place, selector, "should be a json path under either .spec or .status")


def _check_column(column: Object, path: str) -> Iterator[StatusCause]:
    kind, form, found = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
    if not column.get("name"):
        yield required(f"{path}.name")
    if kind not in _COLUMN_TYPES:
        text = f"must be one of {','.join(_COLUMN_TYPES)}"
        yield invalid_value(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
    if form and form not in _COLUMN_FORMATS:
        yield invalid_value(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not found:
        yield required(f"{path}.JSONPath")
    elif not found.startswith("."):
        yield invalid_value(f"{path}.JSONPath", found, "must be a simple json path starting with .")


def _check_selectable(fields: Any, schema: Object, path: str) -> Iterator[StatusCause]:
    seen = set[str]()
    for at, field in enumerate(fields):
        place, found = f"{path}[{at}].jsonPath", field.get("jsonPath") or ""
        if not found:
            yield required(place)
            continue
        node = _field_at(schema, found)
        if not found.startswith("."):
            text = f"is an invalid path: expected [ or . but got: {found.partition('.')[0]}"
            yield invalid_value(place, found, text)
        elif node is None:
            yield invalid_value(place, found, "is an invalid path: does not refer to a valid field")
        elif node.get("type") not in {"string", "boolean", "integer"}:
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with "
                "formats are allowed."
            )
            yield invalid_value(place, found, text)
        elif found in seen:
            yield duplicate(place, found)
        seen.add(found)
    if len(seen) > _SELECTABLE_LIMIT:
        text = f"Too many: {len(seen)}: must have at most {_SELECTABLE_LIMIT} items"
        yield StatusCause(path, text, "FieldValueTooMany")


def _field_at(schema: Object, path: str) -> Object | None:
    """Return the schema of the field, or None if it is not declared."""
    if normal_field_path(schema, path) is None:
        return None
    node: Any = schema
    for name in path.strip(".").split("."):
        node = (node.get("properties") or {}).get(name) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else None


def _check_stored_versions(obj: Object, spec: Object) -> Iterator[StatusCause]:
    stored = (obj.get("status") or {}).get("storedVersions") or []
    if not stored:
        yield invalid_value("status.storedVersions", None, "must have at least one stored version")
        return
    versions = {version.get("name"): bool(version.get("storage")) for version in versions_of(spec)}
    known = set(stored)
    for name, is_storage in versions.items():
        if is_storage and name not in known:
            yield invalid_value("status.storedVersions", stored, f"must have the storage version {name}")
    for at, name in enumerate(stored):
        if name not in versions:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid_value(f"status.storedVersions[{at}]", name, text)
