"""Options of deletions, from the body or else from the query, with the errors of the real server. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from ..model.errors import bad_request, invalid
from ..model.go_numbers import parse_int64
from ..model.json_text import decode_json
from ..model.kinds import kind_of
from ..model.messages import Request
from ..model.quoting import json_name, quote
from ..model.status_causes import StatusCause, invalid_value
from ..model.user import ADMIN, User

POLICIES: Final = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}  # and their finalizers
_HEAD: Final = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
# Types of the options in JSON and in Go.
_OPTIONS: Final[Mapping[str, tuple[type, str]]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}
_PRECONDITIONS: Final[Mapping[str, tuple[type, str]]] = {"uid": (str, "types.UID"), "resourceVersion": (str, "string")}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a deletion."""

    uid: str = ""
    version: str = ""
    grace: int | None = None
    policy: str = ""
    dry_run: bool = False
    user: User = ADMIN
    sent: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # as the client sent them
    warnings: list[str] = dataclasses.field(default_factory=list)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)


def parse_delete_options(request: Request) -> DeleteOptions:
    """Parse the options; the query only counts without a body. Raises ApiError if they are invalid."""
    return _parse(_read_body(request.body) if request.body else _read_query(request.query), request)


def parse_nested_options(eviction: Any, request: Request) -> DeleteOptions:
    """Parse the options of an eviction, which has them in its body. Raises ApiError if they are invalid."""
    nested = eviction.get("deleteOptions") if isinstance(eviction, dict) else None
    sent = _check_types(nested, _OPTIONS, "Eviction.deleteOptions") if isinstance(nested, dict) else {}
    if "preconditions" in sent:
        sent["preconditions"] = _check_types(sent["preconditions"], _PRECONDITIONS, "Preconditions.preconditions")
    if request.query.get("dryRun") and not sent.get("dryRun"):
        sent["dryRun"] = [request.query["dryRun"]]
    return _parse(sent, request)


def _parse(sent: dict[str, Any], request: Request) -> DeleteOptions:
    policy, orphan = sent.get("propagationPolicy", ""), sent.get("orphanDependents")
    if "propagationPolicy" in sent and policy not in {"Background", *POLICIES}:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        raise _unsupported("propagationPolicy", f"{quote(policy)}: supported values: {supported}")
    if policy and orphan is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        cause = invalid_value("propagationPolicy", policy, text)
        raise invalid("DeleteOptions", "meta.k8s.io", "", [cause])
    if not policy and orphan is not None:
        policy = "Orphan" if orphan else "Background"
    if any(value != "All" for value in sent.get("dryRun", ())):
        shown = ",".join(quote(value) for value in sent["dryRun"])
        raise _unsupported("dryRun", f'[{shown}]: supported values: "All"')
    preconditions = sent.get("preconditions", {})
    return DeleteOptions(
        uid=preconditions.get("uid", ""),
        version=preconditions.get("resourceVersion", ""),
        grace=sent.get("gracePeriodSeconds"),
        policy=policy,
        dry_run=bool(sent.get("dryRun")),
        user=request.user,
        sent=sent,
        warnings=request.warnings,
        annotations=request.annotations,
    )


def _read_body(body: bytes) -> dict[str, Any]:
    try:
        sent = decode_json(body, is_limited=True)
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if sent is None:
        return {}
    if not isinstance(sent, dict):
        found = json_name(sent)
        text = f"json: cannot unmarshal {found} into Go value of type {_HEAD}"
        raise bad_request(f"couldn't get version/kind; json parse error: {text}")
    api_version, kind = kind_of(sent)
    if kind not in {"", "DeleteOptions"}:
        text = f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(text)
    options = _check_types(sent, _OPTIONS, "DeleteOptions")
    if "preconditions" in options:
        options["preconditions"] = _check_types(options["preconditions"], _PRECONDITIONS, "Preconditions.preconditions")
    for value in options.get("dryRun", ()):
        if not isinstance(value, str):
            raise _mismatch(value, "DeleteOptions.dryRun", "string")
    return options


def _check_types(sent: Mapping[str, Any], fields: Mapping[str, tuple[type, str]], owner: str) -> dict[str, Any]:
    """Return the fields that are set. Raises ApiError if one has the wrong type."""
    found = {}
    for name, value in sent.items():
        if name in fields and value is not None:
            expected, shown = fields[name]
            if type(value) is not expected:
                raise _mismatch(value, f"{owner}.{name}", shown)
            found[name] = value
    return found


def _mismatch(value: Any, field: str, expected: str) -> Exception:
    found = json_name(value)
    if found == "number" and expected == "int64":
        found = f"number {value}"
    return bad_request(f"json: cannot unmarshal {found} into Go struct field {field} of type {expected}")


def _read_query(query: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if policy := query.get("propagationPolicy"):
        found["propagationPolicy"] = policy
    if "dryRun" in query:
        found["dryRun"] = [query["dryRun"]]
    if "orphanDependents" in query:
        found["orphanDependents"] = query["orphanDependents"].lower() not in {"false", "0"}
    if grace := query.get("gracePeriodSeconds"):
        try:
            found["gracePeriodSeconds"] = parse_int64(grace)
        except ValueError as error:
            raise bad_request(str(error)) from None
    return found


def _unsupported(field: str, text: str) -> Exception:
    cause = StatusCause(field, f"Unsupported value: {text}", "FieldValueNotSupported")
    return invalid("DeleteOptions", "meta.k8s.io", "", [cause])
