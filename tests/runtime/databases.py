"""A kind of databases, and their objects."""

from typing import Any

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "databases.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Database", "plural": "databases", "singular": "database"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def database(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Database", "metadata": metadata, "spec": spec}
