"""Validation of ``metadata``: names, labels, finalizers, owners; and what updates carry over. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from .finalizers import is_standard_finalizer
from .kinds import Kind
from .status_causes import StatusCause, invalid_value

ANNOTATIONS_LIMIT: Final = 256 * 1024  # bytes of all keys and values together

# The fields of ObjectMeta and their JSON types, as error messages name them.
META_FIELDS: Final[Mapping[str, type[Any]]] = {
    "annotations": dict,
    "creationTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "deletionTimestamp": str,
    "finalizers": list,
    "generateName": str,
    "generation": int,
    "labels": dict,
    "managedFields": list,
    "name": str,
    "namespace": str,
    "ownerReferences": list,
    "resourceVersion": str,
    "selfLink": str,
    "uid": str,
}
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")

SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PART: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_PART_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def clean_metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of the metadata, without nulls and empty collections."""
    clean = {
        key: value
        for key, value in meta.items()
        if key in META_FIELDS and value is not None and value not in ({}, [], "")
    }
    for field in ("annotations", "labels"):
        if isinstance(clean.get(field), dict) and None in clean[field].values():
            clean[field] = {key: "" if value is None else value for key, value in clean[field].items()}
    if "ownerReferences" in clean:
        clean["ownerReferences"] = [
            {key: owner[key] for key in _OWNER_FIELDS if owner.get(key) is not None}
            if isinstance(owner, Mapping)
            else owner
            for owner in clean["ownerReferences"]
        ]
    clean.pop("selfLink", None)
    return clean


def check_metadata(kind: Kind, meta: Mapping[str, Any]) -> Iterator[StatusCause]:
    """Yield the validation errors of the metadata."""
    yield from _check_name(kind, meta)
    if kind.namespaced and not meta.get("namespace"):
        yield StatusCause("metadata.namespace", "Required value", "FieldValueRequired")
    yield from check_common(meta)
    for at, finalizer in enumerate(meta.get("finalizers") or () if kind.custom is None else ()):
        if not is_standard_finalizer(finalizer):
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(f"metadata.finalizers[{at}]", finalizer, text)


def check_common(meta: Mapping[str, Any]) -> Iterator[StatusCause]:
    """Yield the validation errors of what all metadata has in common, also in embedded objects."""
    for key, value in (meta.get("labels") or {}).items():
        yield from check_key("metadata.labels", key)
        yield from check_label_value("metadata.labels", value)
    yield from _check_annotations(meta.get("annotations") or {})
    for finalizer in meta.get("finalizers") or ():
        yield from check_key("metadata.finalizers", finalizer)
    if {"orphan", "foregroundDeletion"} <= set(meta.get("finalizers") or ()):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        yield invalid_value("metadata.finalizers", meta["finalizers"], text)
    yield from _check_owners(meta.get("ownerReferences") or ())


def _check_name(kind: Kind, meta: Mapping[str, Any]) -> Iterable[StatusCause]:
    name = meta.get("name") or ""
    if not name:
        yield StatusCause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")
        return
    if kind.plural == "namespaces" and "." in name:
        yield invalid_value("metadata.name", name, "must not contain dots")
        return
    limit, pattern, text = _name_rule(kind)
    if len(name) > limit:
        yield invalid_value("metadata.name", name, f"must be no more than {limit} bytes")
    if pattern is None:
        if problem := segment_problem(name):
            yield invalid_value("metadata.name", name, problem)
    elif not pattern.fullmatch(name):
        yield invalid_value("metadata.name", name, text)


def _name_rule(kind: Kind) -> tuple[int, re.Pattern[str] | None, str]:
    if kind.group == "rbac.authorization.k8s.io":
        return 1024, None, ""
    if kind.resource in {("", "namespaces"), ("", "services")}:
        return 63, _LABEL, _LABEL_TEXT
    return 253, SUBDOMAIN, SUBDOMAIN_TEXT


def segment_problem(name: str) -> str:
    """Return why the name is no valid path segment, or an empty string."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    found = [sign for sign in "/%" if sign in name]
    return f"may not contain '{found[0]}'" if found else ""


def subdomain_problem(name: str) -> str:
    """Return why the name is no DNS subdomain, or an empty string."""
    return "" if SUBDOMAIN.fullmatch(name) else SUBDOMAIN_TEXT


def label_problem(name: str) -> str:
    """Return why the name is no DNS label, or an empty string."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL.fullmatch(name) else _LABEL_TEXT


def dns_1035_problem(name: str) -> str:
    """Return why the name is no DNS label that begins with a letter, or an empty string."""
    problems = ["must be no more than 63 characters"] if len(name) > 63 else []
    if not _LABEL_1035.fullmatch(name):
        problems.append(_LABEL_1035_TEXT)
    return ",".join(problems)


def check_key(field: str, key: str) -> Iterable[StatusCause]:
    """Yield the validation errors of the key of a label or an annotation."""
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield invalid_value(field, key, "prefix part must be non-empty")
    elif slash and not SUBDOMAIN.fullmatch(prefix):
        yield invalid_value(field, key, f"prefix part {SUBDOMAIN_TEXT}")
    if len(prefix) > 253:
        yield invalid_value(field, key, "prefix part must be no more than 253 bytes")
    if not name:
        yield invalid_value(field, key, "name part must be non-empty")
    elif len(name) > 63:
        yield invalid_value(field, key, "name part must be no more than 63 bytes")
    if not _PART.fullmatch(name):
        yield invalid_value(field, key, _PART_TEXT)


def check_label_value(field: str, value: str) -> Iterable[StatusCause]:
    """Yield the validation errors of the value of a label."""
    if len(value) > 63:
        yield invalid_value(field, value, "must be no more than 63 bytes")
    if value and not _PART.fullmatch(value):
        yield invalid_value(field, value, _VALUE_TEXT)


def _check_annotations(annotations: Mapping[str, str]) -> Iterable[StatusCause]:
    size = 0
    for key, value in annotations.items():
        yield from check_key("metadata.annotations", key.lower())
        size += len(key) + len(value)
        if not (key.isascii() and value.isascii()):
            size += len(key.encode()) + len(value.encode()) - len(key) - len(value)
    if size > ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        yield StatusCause("metadata.annotations", text, "FieldValueTooLong")


def _check_owners(owners: Iterable[Mapping[str, Any]]) -> Iterable[StatusCause]:
    controllers = []
    for owner in owners:
        if not owner.get("apiVersion"):
            yield invalid_value("metadata.ownerReferences.apiVersion", "", "version must not be empty")
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                yield invalid_value(f"metadata.ownerReferences.{field}", "", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        found = " and ".join(controllers[:2])
        text = f'Only one reference can have Controller set to true. Found "true" in references for {found}'
        yield invalid_value("metadata.ownerReferences", list(owners), text)


def check_metadata_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[StatusCause]:
    """Return the validation errors of the change of the metadata; both are clean."""
    causes = []
    if "deletionTimestamp" in old:
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            found = ", ".join(f'"{name}"' for name in added)
            text = (
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{found}}}"
            )
            causes.append(StatusCause("metadata.finalizers", text, "FieldValueForbidden"))
    fixed = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
    changed = [field for field in fixed if new.get(field) != old.get(field)]
    causes.extend(invalid_value(f"metadata.{field}", new.get(field), "field is immutable") for field in changed)
    return causes


def carry_over(new: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Carry over the fields that clients cannot change, or may omit."""
    for field in ("creationTimestamp", "generation"):
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)
    new.setdefault("uid", old["uid"])
    if "deletionTimestamp" in old:
        new["deletionTimestamp"] = old["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in old:
            new["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def generated_name(prefix: str, choose: Callable[[str], str]) -> str:
    """Return a name of the prefix and five random letters."""
    return prefix[:58] + "".join(choose("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
