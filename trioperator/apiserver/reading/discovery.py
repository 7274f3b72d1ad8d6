"""Discovery documents: groups, versions and resources (plain and aggregated), the server version, paths. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any, Final

from ..model.kinds import Catalog, Kind

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_SUBRESOURCE_VERBS: Final = ("get", "patch", "update")
_SPECIAL_VERBS: Final = {
    "binding": ("create",),
    "eviction": ("create",),
    "finalize": ("update",),
    "log": ("get",),
    "token": ("create",),
}
_SPECIAL_KINDS: Final = {
    "binding": {"group": "", "version": "v1", "kind": "Binding"},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "token": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"},
}


def api_versions(address: str) -> dict[str, Any]:
    """Return ``/api``."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def api_groups(catalog: Catalog) -> dict[str, Any]:
    """Return ``/apis``."""
    groups = [_group(catalog, group) for group in catalog.groups() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(catalog: Catalog, group: str) -> dict[str, Any]:
    """Return ``/apis/<group>``."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(catalog, group)}


def _group(catalog: Catalog, group: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in catalog.versions(group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def api_resources(catalog: Catalog, group: str, version: str) -> dict[str, Any]:
    """Return ``/apis/<group>/<version>`` (or ``/api/v1``)."""
    resources = [item for kind in catalog.kinds(group, version) for item in _resources(kind)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _resources(kind: Kind) -> Iterable[dict[str, Any]]:
    item: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        item["shortNames"] = list(kind.short_names)
    if kind.categories:
        item["categories"] = list(kind.categories)
    if not kind.is_virtual:
        item["storageVersionHash"] = _storage_version_hash((kind.custom and kind.custom.storage) or kind)
    yield item
    for name in sorted(kind.subresources):
        sub: dict[str, Any] = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        sub |= _SPECIAL_KINDS.get(name, {"kind": kind.kind})
        yield {**sub, "verbs": list(_SPECIAL_VERBS.get(name, _SUBRESOURCE_VERBS))}


def _storage_version_hash(kind: Kind) -> str:
    version = kind.stored_api_version
    group_version = version if "/" in version else f"/{version}"
    return base64.b64encode(hashlib.sha256(f"{group_version}/{kind.kind}".encode()).digest()[:8]).decode()


def aggregated(catalog: Catalog, *, core: bool) -> dict[str, Any]:
    """Return the aggregated discovery of ``/api`` (core) or ``/apis``."""
    items = []
    for group in catalog.groups():
        if bool(group) is core:
            continue
        versions = [
            {
                "version": version,
                "resources": [_aggregated(kind) for kind in catalog.kinds(group, version)],
                "freshness": "Current",
            }
            for version in catalog.versions(group)
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated(kind: Kind) -> dict[str, Any]:
    response = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    item: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": response,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        item["shortNames"] = list(kind.short_names)
    if kind.categories:
        item["categories"] = list(kind.categories)
    subresources = [
        {
            "subresource": name,
            "responseKind": _SPECIAL_KINDS.get(name, response),
            "verbs": list(_SPECIAL_VERBS.get(name, _SUBRESOURCE_VERBS)),
        }
        for name in sorted(kind.subresources)
    ]
    if subresources:
        item["subresources"] = subresources
    return item


def root_paths(catalog: Catalog) -> dict[str, Any]:
    """Return ``/``."""
    paths = ["/api", "/api/v1", "/apis"]
    for group in catalog.groups():
        if group:
            paths.append(f"/apis/{group}")
            paths.extend(f"/apis/{group}/{version}" for version in catalog.versions(group))
    return {"paths": sorted([*paths, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"])}
