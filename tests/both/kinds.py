"""The resource kinds that the tests of this folder handle, and manifests of their objects."""

from __future__ import annotations

from typing import Any, Final

from trioperator._model.resource import Resource

GROUP: Final = "both.example.com"
OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
STRICT: Final = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 100}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}

WIDGETS: Final = Resource(GROUP, "v1", "widgets", kind="Widget")
GADGETS: Final = Resource(GROUP, "v1", "gadgets", kind="Gadget")
STRICTS: Final = Resource(GROUP, "v1", "stricts", kind="Strict")
TOOLS: Final = Resource(GROUP, "v1", "tools", kind="Tool")
TOOLS_BETA: Final = Resource(GROUP, "v1beta1", "tools", kind="Tool")
PLANETS: Final = Resource(GROUP, "v1", "planets", kind="Planet", namespaced=False)
CONFIGMAPS: Final = Resource("", "v1", "configmaps", kind="ConfigMap")
PODS: Final = Resource("", "v1", "pods", kind="Pod")
NAMESPACES: Final = Resource("", "v1", "namespaces", kind="Namespace", namespaced=False)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", kind="CustomResourceDefinition", namespaced=False
)


def define(
    resource: Resource,
    *,
    schema: dict[str, Any] = OPEN,
    has_status: bool = True,
    older: tuple[str, ...] = (),
    names: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a CRD: *older* versions are served but not stored; *names* are additional ones."""
    assert resource.kind is not None
    subresources: dict[str, Any] = {"subresources": {"status": {}}} if has_status else {}
    versions = [
        {"name": name, "served": True, "storage": not index, "schema": {"openAPIV3Schema": schema}, **subresources}
        for index, name in enumerate((resource.version, *older))
    ]
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Cluster" if resource.namespaced is False else "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **(names or {}),
            },
            "versions": versions,
        },
    }


DEFINITIONS: Final = (
    define(WIDGETS),
    define(GADGETS, has_status=False),
    define(STRICTS, schema=STRICT),
    define(TOOLS, older=(TOOLS_BETA.version,), names={"shortNames": ["tl"], "categories": ["bothtools"]}),
    define(PLANETS),
)


def manifest(resource: Resource, name: str = "one", **spec: Any) -> dict[str, Any]:
    """Return an object of a custom kind."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec or {"size": 1},
    }


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap with a label that distinguishes it from those of the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"ours": "yes"}},
        "data": data,
    }
