"""Resource kinds that a CustomResourceDefinition defines. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trioperator._model.resource import Resource

_VERBS = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key for an API version: stable versions first, then beta, then alpha, and newer before older ones.

    The lowest key is the preferred version.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    major, stage, minor = match.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), "")


def is_established(crd: Mapping[str, Any]) -> bool:
    """Return whether the API server serves the resource."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def name_of_crd(crd: Mapping[str, Any]) -> tuple[str, str]:
    """Return the group and the plural of a CRD. Raises KeyError or TypeError for a malformed one."""
    return str(crd["spec"]["group"]), str(crd["spec"]["names"]["plural"])


def find_conversion_webhook(crd: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the webhook that converts objects; without one, the API server only changes their ``apiVersion``."""
    conversion = crd["spec"].get("conversion") or {}
    return conversion.get("webhook") or {} if conversion.get("strategy") == "Webhook" else None


def resources_of_crd(crd: Mapping[str, Any]) -> frozenset[Resource]:
    """Return the resource kinds of a CRD, one for each served version; none until it is established.

    The preferred version is the one of the highest priority. Raises KeyError or TypeError for a malformed CRD.
    """
    if not is_established(crd):
        return frozenset()
    spec = crd["spec"]
    names = spec["names"]
    served = [version for version in spec["versions"] if version.get("served")]
    best = min((version["name"] for version in served), key=version_rank, default=None)
    return frozenset(
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names.get("singular") or names["kind"].lower(),
            shortcuts=frozenset(names.get("shortNames") or ()),
            categories=frozenset(names.get("categories") or ()),
            subresources=frozenset(version.get("subresources") or ()),
            namespaced=spec["scope"] == "Namespaced",
            preferred=version["name"] == best,
            verbs=_VERBS,
            selectable_fields=frozenset(
                field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()
            ),
        )
        for version in served
    )
