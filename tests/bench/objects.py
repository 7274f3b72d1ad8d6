"""The custom resource that the operators handle, and the state of the API server around it."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any, Final

from tests.bench.api import MERGE_PATCH, ApiFailed, Connection, load_target

# The path of a program that is measured beside the frameworks, which brings its own kind: see the README.
PEER: Final = os.environ.get("BENCH_PEER")

GROUP, VERSION, PLURAL, KIND = (
    ("kopf.dev", "v1", "kopfexamples", "KopfExample")
    if PEER
    else ("bench.trioperator.dev", "v1", "workloads", "Workload")
)
#: Plurals of further kinds without objects, which the operators watch, too.
FURTHER: Final = [f"further{number}s" for number in range(1, int(os.environ.get("BENCH_KINDS") or 1))]
NAMESPACE = "trioperator-bench"
COLLECTION = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TIMED_OUT: Final = 504  # the server gives up a deletion of thousands, of which it has done a part
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _build_definition(plural: str, kind: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
                }
            ],
        },
    }


_CRDS_OF_ALL: Final = [
    _build_definition(PLURAL, KIND),
    *(_build_definition(plural, plural.removesuffix("s").title()) for plural in FURTHER),
]


def build_object(name: str) -> dict[str, Any]:
    """Build an object of a usual size: about 1 KiB as JSON, once the API server has filled it in."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": name,
            "labels": {"app": name, "tier": "backend"},
            "annotations": {"note": "for the benchmark"},
        },
        "spec": {
            "field": "value-0",
            "replicas": 3,
            "image": "registry.example.com/team/app:1.2.3",
            "env": [{"name": f"VARIABLE_{number}", "value": f"value of {number}"} for number in range(5)],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        },
    }


def prepare(kubeconfig: pathlib.Path, *, timeout: float = 60.0) -> None:
    """Create the namespace and the resource, and wait at most *timeout* seconds until objects can be listed."""
    connection = Connection(load_target(kubeconfig))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    _create(connection, "/api/v1/namespaces", namespace)
    for definition in _CRDS_OF_ALL:
        _create(connection, _CRDS, definition)
    deadline = time.monotonic() + timeout
    for collection in [COLLECTION, *(COLLECTION.replace(PLURAL, plural) for plural in FURTHER)]:
        while connection.request("GET", collection)[0] != 200:
            if time.monotonic() > deadline:
                raise ApiFailed(f"{collection} is not served after {timeout:.0f} s")
            time.sleep(0.1)
    connection.close()


def _create(connection: Connection, path: str, manifest: dict[str, Any]) -> None:
    try:
        connection.call("POST", path, manifest)
    except ApiFailed as error:
        if ": 409 " not in str(error):  # there already, from a run that was killed
            raise


def count_objects(connection: Connection) -> int:
    """Count the objects that exist."""
    answer = connection.call("GET", f"{COLLECTION}?limit=1")
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)


def clear_objects(kubeconfig: pathlib.Path) -> None:
    """Delete all objects at once, whatever finalizers they have. No operator must be running."""
    connection = Connection(load_target(kubeconfig))
    if count_objects(connection):
        while connection.request("DELETE", COLLECTION)[0] == _TIMED_OUT:
            pass
    for item in connection.call("GET", COLLECTION)["items"]:
        path = f"{COLLECTION}/{item['metadata']['name']}"
        connection.request("PATCH", path, body=b'{"metadata":{"finalizers":null}}', content_type=MERGE_PATCH)
    connection.close()


def remove_all_traces(kubeconfig: pathlib.Path) -> None:
    """Delete the objects, the resource and the namespace: for an API server that lives on."""
    clear_objects(kubeconfig)
    connection = Connection(load_target(kubeconfig))
    for definition in _CRDS_OF_ALL:
        connection.request("DELETE", f"{_CRDS}/{definition['metadata']['name']}")
    connection.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    connection.close()
