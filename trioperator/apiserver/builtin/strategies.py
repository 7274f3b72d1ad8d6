"""Create and update strategies of kinds: fields that clients cannot set, and fields of subresources. Pure.

They are the same for updates and all kinds of patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..custom import schema
from ..custom.definition_validation import check_definition, format_warnings
from ..custom.definitions import fill_definition
from ..custom.embedded import coerce_embedded
from ..custom.patterns import unchecked_patterns
from ..custom.rule_validation import unevaluated_rules
from ..custom.validation import check as check_custom
from ..model.finalizers import finalizer_warnings
from ..model.kinds import Kind
from ..model.metadata import META_FIELDS, clean_metadata
from ..model.status_causes import StatusCause, first_causes
from . import autoscaling, events
from .certificate_requests import CERTIFICATE_REQUESTS, only_decided, prepare_status
from .preparation import encode_secret, prepare_changed, prepare_new
from .validity import check_builtin
from .validity.roles import RBAC, check_grants, check_grants_update
from .validity.webhook_configurations import CONFIGURATIONS, check_configuration

EPHEMERAL: Final = "ephemeralcontainers"
INTERNAL: Final = "internal"  # in the place of a subresource: writes of the control plane


def shape(kind: Kind, obj: Mapping[str, Any], unknown: list[str]) -> dict[str, Any]:
    """Return an object from a client in the stored form: converted, pruned and with defaults.

    Built-in objects are in the stored version, custom ones in the version of the kind. The paths of dropped unknown
    fields are added to *unknown*. Raises EmbeddedError.
    """
    if (kind.api_version, kind.kind) == autoscaling.V1:
        obj = autoscaling.from_v1(obj)
    meta = obj.get("metadata") or {}
    if kind.custom is not None:
        unknown.extend(f"metadata.{field}" for field in meta if field not in META_FIELDS)
    body = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
    if kind.is_event_alias:
        body = events.to_core(body)
    structure = kind.custom.structure if kind.custom else None
    if structure is not None:
        found: list[str] = []
        body = coerce_embedded(structure, schema.prune(structure, body, found), found)
        unknown.extend(sorted(found))
        body = schema.default(structure, body)
    if kind.resource == ("", "secrets"):
        encode_secret(body)
    elif kind.resource == ("apiextensions.k8s.io", "customresourcedefinitions"):
        fill_definition(body)
    meta = clean_metadata(meta)
    if kind.resource == ("", "namespaces") and meta.get("name"):
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    return {**kind.type_meta, "apiVersion": kind.stored_api_version, "metadata": meta, **body}


def prepare_create(kind: Kind, obj: dict[str, Any]) -> None:
    """Set the server-set fields of a new object, in place; it is in the stored form and has a uid."""
    meta = obj["metadata"]
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        meta.pop(field, None)
    if kind.has_generation:
        meta["generation"] = 1
    if kind.custom is None:
        prepare_new(kind, obj)
    elif "status" in kind.subresources:
        obj.pop("status", None)


def prepare_update(kind: Kind, new: dict[str, Any], old: Mapping[str, Any], *, subresource: str) -> dict[str, Any]:
    """Return *new* with only the changes that the subresource ("" for the main resource) allows, and its generation."""
    if subresource == "status":
        new = _status_only(kind, new, old)
        if kind.resource == CERTIFICATE_REQUESTS:
            prepare_status(new, old)
    elif subresource == EPHEMERAL:
        ephemeral = {key: value for key, value in new["spec"].items() if key == "ephemeralContainers"}
        spec = {key: value for key, value in old["spec"].items() if key != "ephemeralContainers"} | ephemeral
        new = {**old, "metadata": _meta_of_writer(new, old), "spec": spec}
    elif subresource == "approval":
        new = only_decided(new, old)
    elif "status" in kind.subresources and subresource != INTERNAL:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if kind.resource == CERTIFICATE_REQUESTS or (kind.resource == ("", "namespaces") and subresource != "finalize"):
        new["spec"] = old.get("spec", {})
    if kind.custom is None and subresource in {"", "finalize"}:
        prepare_changed(kind, new, old)
    if kind.has_generation and subresource != "status" and _is_new_generation(kind, new, old):
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1
    return new


def _status_only(kind: Kind, new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    result = {key: value for key, value in old.items() if key != "status"}
    if "status" in new:
        result["status"] = new["status"]
    # Most built-in kinds accept metadata through the status subresource, custom ones never.
    if kind.custom is not None or kind.group == "apiextensions.k8s.io":
        meta = _meta_of_writer(new, old)
    else:
        meta = dict(new["metadata"])
        kept = {"deployments": "labels", "pods": "ownerReferences"}.get(kind.plural)
        if kept:
            meta.pop(kept, None)
            if kept in old["metadata"]:
                meta[kept] = old["metadata"][kept]
    result["metadata"] = meta
    return result


def _meta_of_writer(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the old metadata with what tells who wrote, and when."""
    meta = {field: value for field, value in old["metadata"].items() if field != "managedFields"}
    written = ("managedFields", "resourceVersion")
    return meta | {field: new["metadata"][field] for field in written if field in new["metadata"]}


def _is_new_generation(kind: Kind, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    ignored = {"apiVersion", "kind", "metadata"}
    if "status" in kind.subresources:
        ignored.add("status")
    if any(new.get(key) != old.get(key) for key in {*new, *old} - ignored):
        return True
    if kind.resource == ("apps", "deployments"):
        return bool(new["metadata"].get("annotations") != old["metadata"].get("annotations"))
    return False


def check_object(
    kind: Kind, obj: dict[str, Any], old: Mapping[str, Any] | None, warnings: list[str]
) -> Iterator[StatusCause]:
    """Yield the validation errors of the object or its update, without its metadata.

    Warnings are added to *warnings*.
    """
    if kind.custom is not None:
        warnings.extend(finalizer_warnings(obj["metadata"], old and old["metadata"]))
        if kind.custom.structure is not None:
            yield from check_custom(kind.custom.structure, obj, old, warnings)
    elif kind.group == "apiextensions.k8s.io":
        yield from _check_definition(obj, old, warnings)
    elif kind.group == RBAC:
        yield from check_grants(kind, obj)
        if old is not None:
            yield from check_grants_update(kind, obj, old)
    elif kind.resource in CONFIGURATIONS:
        yield from check_configuration(obj)
    else:
        if kind.resource == ("", "events"):
            yield from events.check_event(kind, obj, old)
        yield from check_builtin(kind, obj, old)


def _check_definition(obj: dict[str, Any], old: Mapping[str, Any] | None, warnings: list[str]) -> Iterator[StatusCause]:
    causes = first_causes(check_definition(obj, old))
    yield from causes
    if not causes and (old is None or obj["spec"] != old["spec"]):
        warnings += [*format_warnings(obj, old), *unevaluated_rules(obj), *unchecked_patterns(obj)]
