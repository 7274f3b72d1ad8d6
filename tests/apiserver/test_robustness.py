"""Whatever clients send, they get a response, and the server keeps running."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver.conftest import SHAPE, definition
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.messages import Request
from trioperator.apiserver.model.user import ADMIN
from trioperator.apiserver.reading.watch import Watch
from trioperator.apiserver.serving.http import serve_stream

texts = st.text(max_size=6)
scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 3) | texts | st.just("2024-01-01T00:00:00Z")
)
FIELDS = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "spec",
    "generateName",
    "resourceVersion",
    "uid",
    "status",
    "data",
    "replicas",
    "selector",
    "containers",
    "template",
    "op",
    "path",
    "value",
    "managedFields",
    "size",
    "names",
    "versions",
    "rules",
    "from",
    "$patch",
    "preconditions",
    "items",
]
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
)
objects = st.builds(
    lambda obj, meta: {**obj, "metadata": meta},
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=5),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=4) | st.just({"name": "a"}) | values,
)
bodies = st.one_of(
    objects.map(msgspec.json.encode), values.map(msgspec.json.encode), st.binary(max_size=20), st.just(b"")
)
KINDS = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/conformance.dev/v1/namespaces/default/shapes",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/api/v1/namespaces/default/serviceaccounts",
]
paths = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(KINDS),
        st.sampled_from(["", "", "/a", "/b", "/default", "/shapes.conformance.dev"]),
        st.sampled_from(["", "", "", "/status", "/scale", "/token", "/eviction", "/none"]),
    ),
    st.sampled_from(
        ["/", "/api", "/apis", "/version", "/openapi/v3", "/openapi/v2", "//", "/apis/apps/v1", "/%", "/%ff"]
    ),
    texts.map("/{}".format),
)
queries = st.dictionaries(
    st.sampled_from(
        [
            "labelSelector",
            "fieldSelector",
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
            "dryRun",
            "watch",
            "timeoutSeconds",
            "fieldManager",
            "force",
            "fieldValidation",
            "propagationPolicy",
            "gracePeriodSeconds",
            "pretty",
            "sendInitialEvents",
            "allowWatchBookmarks",
            "orphanDependents",
        ]
    ),
    texts
    | st.sampled_from(["1", "0", "true", "-1", "All", "a=b", "a in (b", "metadata.name=a", "Exact", "Foreground", "m"]),
    max_size=3,
)
types = st.sampled_from(
    [
        "",
        "application/json",
        "application/json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
        "application/yaml",
        "text/x; charset=",
        "application/vnd.kubernetes.protobuf",
    ]
)
accepts = st.sampled_from(
    [
        "",
        "",
        "application/json",
        "application/yaml",
        "text/html",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ";;,=",
    ]
)
requests = st.builds(
    Request,
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    path=paths,
    query=queries,
    accept=accepts,
    content_type=types,
    body=bodies,
    user=st.just(ADMIN),
)


async def make_cluster(authorization: str) -> Cluster:
    cluster = Cluster(seed=0, authorization=authorization)
    await cluster.apply(definition("shapes", "Shape", schema={"openAPIV3Schema": SHAPE}, subresources={"status": {}}))
    for kind in ("ConfigMap", "ServiceAccount"):
        await cluster.apply({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}})
    await cluster.apply({"apiVersion": "conformance.dev/v1", "kind": "Shape", "metadata": {"name": "a"}})
    return cluster


@pytest.mark.parametrize("authorization", ["always-allow", "rbac"])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sent=st.lists(requests, min_size=1, max_size=6))
def test_no_request_crashes_the_server(authorization: str, sent: list[Request]) -> None:
    async def main() -> None:
        cluster = await make_cluster(authorization)
        for request in sent:
            response = await cluster.api.handle(request)
            if not isinstance(response.body, bytes):
                assert isinstance(response.body, Watch)
                with trio.move_on_after(1):
                    await response.body.receive()
                continue
            assert response.status < 500 or b"InternalError" not in response.body, request
            if response.status >= 400 and response.content_type == "application/json":
                assert msgspec.json.decode(response.body)["kind"] == "Status"

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.binary(max_size=40)
        | st.builds(
            lambda request, length: (
                b"%b %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b"
                % (request.method.encode(), request.path.encode(), length or len(request.body), request.body)
            ),
            requests,
            st.sampled_from([0, 0, 0, 5, 10**9, 10**30]),
        ),
        max_size=5,
    )
)
def test_no_bytes_on_a_connection_crash_the_server(pieces: list[bytes]) -> None:
    async def main() -> None:
        cluster = await make_cluster("always-allow")
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_stream, cluster.api, theirs)
            for piece in pieces:
                await ours.send_all(piece)
            await ours.send_eof()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
