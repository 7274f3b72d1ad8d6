"""Validation of roles and bindings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ...model.kinds import Kind
from ...model.metadata import segment_problem, subdomain_problem
from ...model.status_causes import StatusCause, required, unsupported
from .common import check_label_selector

RBAC: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")

Object = dict[str, Any]


def check_grants(kind: Kind, obj: Mapping[str, Any]) -> Iterable[StatusCause]:
    """Yield the validation errors of a role or a binding."""
    if kind.plural in {"roles", "clusterroles"}:
        for at, rule in enumerate(obj.get("rules") or ()):
            yield from _check_rule(f"rules[{at}]", rule, namespaced=kind.namespaced)
        if (aggregation := obj.get("aggregationRule")) is not None:
            yield from _check_aggregation("aggregationRule.clusterRoleSelectors", aggregation)
        return
    yield from _check_reference(obj["roleRef"], ("Role", "ClusterRole") if kind.namespaced else ("ClusterRole",))
    for at, subject in enumerate(obj.get("subjects") or ()):
        yield from _check_subject(f"subjects[{at}]", subject, namespaced=kind.namespaced)


def check_grants_update(kind: Kind, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterable[StatusCause]:
    """Yield the validation errors of an update: the role of a binding is immutable."""
    if kind.group == RBAC and new.get("roleRef") != old.get("roleRef"):
        ref = new["roleRef"]
        shown = {"APIGroup": ref["apiGroup"], "Kind": ref["kind"], "Name": ref["name"]}
        yield StatusCause("roleRef", f"Invalid value: {_json(shown)}: cannot change roleRef")


def _check_aggregation(path: str, aggregation: Mapping[str, Any]) -> Iterable[StatusCause]:
    selectors = aggregation.get("clusterRoleSelectors")
    if not selectors:
        yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for at, selector in enumerate(selectors or ()):
        causes = list(check_label_selector(selector or {}, f"{path}[{at}]"))
        yield from causes
        if causes:
            yield StatusCause(f"{path}[{at}]", "Invalid value: null: invalid label selector.")


def _check_rule(path: str, rule: Mapping[str, Any], *, namespaced: bool) -> Iterable[StatusCause]:
    urls = rule.get("nonResourceURLs")
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if urls:
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
        elif rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
        else:
            return
        yield StatusCause(f"{path}.nonResourceURLs", f"Invalid value: {_json(urls)}: {text}")
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _check_reference(ref: Mapping[str, Any], kinds: tuple[str, ...]) -> Iterable[StatusCause]:
    if ref["apiGroup"] != RBAC:
        yield unsupported("roleRef.apiGroup", ref["apiGroup"], (RBAC,))
    if ref["kind"] not in kinds:
        yield unsupported("roleRef.kind", ref["kind"], kinds)
    if not ref["name"]:
        yield required("roleRef.name")
    elif problem := segment_problem(ref["name"]):
        yield StatusCause("roleRef.name", f"Invalid value: {_json(ref['name'])}: {problem}")


def _check_subject(path: str, subject: Mapping[str, Any], *, namespaced: bool) -> Iterable[StatusCause]:
    name, group = subject["name"], subject.get("apiGroup") or ""
    if not name:
        yield required(f"{path}.name")
    match subject["kind"]:
        case "ServiceAccount":
            if name and (problem := subdomain_problem(name)):
                yield StatusCause(f"{path}.name", f"Invalid value: {_json(name)}: {problem}")
            if group:
                yield unsupported(f"{path}.apiGroup", group, ("",))
            if not namespaced and not subject.get("namespace"):
                yield required(f"{path}.namespace")
        case "User" | "Group":
            if group != RBAC:
                yield unsupported(f"{path}.apiGroup", group, (RBAC,))
        case _:
            yield unsupported(f"{path}.kind", subject["kind"], _SUBJECTS)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
