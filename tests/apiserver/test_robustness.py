"""Whatever clients send, they get a response, and the server keeps running."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver.conftest import SHAPE, definition
from tests.apiserver.kinds import FIELDS, KINDS
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.messages import Request
from trioperator.apiserver.model.nesting import DEPTH_LIMIT
from trioperator.apiserver.model.user import ADMIN
from trioperator.apiserver.reading.watch import Watch
from trioperator.apiserver.serving.http import serve_stream

texts = st.text(max_size=6)
HUGE = ["9" * 5000, str(2**31), str(2**63), str(2**64), "1e400", "-1e400", "1e999999999999", "1e300", "\0", "a\0b"]
scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | texts
    | st.sampled_from(["2024-01-01T00:00:00Z", "99 * * * *", 2**31, 2**63, -(2**63), 1e300, 0.1, *HUGE])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
)
objects = st.builds(
    lambda obj, meta: {**obj, "metadata": meta},
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=5),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=4) | st.just({"name": "a"}) | values,
)


def nest(start: bytes, end: bytes, count: int, inner: bytes) -> bytes:
    """Return an object with a field that is nested this often."""
    return b'{"apiVersion":"v1","metadata":{"name":"a"},"data":%b%b%b}' % (start * count, inner, end * count)


def yaml_bomb(levels: int) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 8)}]" for at in range(1, levels)]
    return "\n".join(lines).encode()


def envelope(parts: list[tuple[int, bytes]]) -> bytes:
    """Return a protobuf body with length-delimited fields of a ConfigMap."""
    raw = b"".join(bytes([number << 3 | 2, len(part)]) + part for number, part in parts)
    head = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12" + (bytes([len(raw)]) if len(raw) < 128 else b"\xff\x01")
    return b"k8s\0" + head + raw


nested = st.builds(
    nest,
    st.sampled_from([b"[", b'{"a":', b'[{"":']),
    st.sampled_from([b"]", b"}", b"}]", b""]),
    st.sampled_from([3, 150, 199, 300, 1000, 20_000, 200_000]),
    st.sampled_from([b"1", b"1e400", b"9" * 5000, b"null", b'"\\u0000"']),
)
yamls = st.one_of(
    st.sampled_from([b"- ", b"[", b"a: [", b"? "]).map(lambda text: text * 20_000),
    st.integers(2, 40).map(yaml_bomb),
    st.sampled_from(
        [
            b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {1: a, null: b, 2001-01-01: c}}",
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {a: !!binary /w==, b: 2001-01-01}",
            b"a: &a [*a]",
            b"a: .nan\nb: .inf\nc: 1e400",
            b"{<<: {metadata: {name: a}}, kind: !!set {x}}",
        ]
    ),
)
protobufs = st.lists(
    st.tuples(st.integers(1, 5), st.binary(max_size=30) | st.just(b"\x0a\x01a\x1a\x07default")), max_size=4
).map(envelope)
bodies = st.one_of(
    objects.map(msgspec.json.encode),
    values.map(msgspec.json.encode),
    st.binary(max_size=20),
    st.just(b""),
    nested,
    yamls,
    protobufs,
)
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
    | st.sampled_from(["1", "0", "true", "-1", "All", "a=b", "a in (b", "metadata.name=a", "Exact", "Foreground", "m"])
    | st.sampled_from([*HUGE, "a>" + "9" * 5000, "W1tbW1tb" * 500]),
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
    """Nor does any take long, or fail after it has been answered."""

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
                b"%b %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
                % (request.method.encode(), request.path.encode(), length or len(request.body), request.body)
            ),
            requests,
            st.sampled_from([0, 0, 0, 5, 10**9, 10**30]),
        )
        | st.builds(
            lambda request, trailer: (
                b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n%b\r\n\r\n"
                % (request.path.encode(), len(request.body), request.body, trailer)
            ),
            requests.filter(lambda request: bool(request.body)),
            st.sampled_from([b"", b"Impersonate-User: a", b"A: \0", b"Authorization: Bearer x\r\nB: " + b"x" * 70_000]),
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


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FREES = "/apis/conformance.dev/v1/namespaces/default/frees"
FREE = {"apiVersion": "conformance.dev/v1", "kind": "Free", "metadata": {"name": "a"}}
MANY = "9" * 5000
LONG = "k" * 100_000
CASES: list[tuple[str, str, str, Any, dict[str, str], int]] = [
    ("GET", CONFIG_MAPS, "", b"", {"resourceVersion": MANY}, 400),
    ("GET", CONFIG_MAPS, "", b"", {"limit": MANY}, 400),
    ("GET", CONFIG_MAPS, "", b"", {"timeoutSeconds": "1e400", "watch": "1"}, 400),
    ("GET", CONFIG_MAPS, "", b"", {"timeoutSeconds": MANY, "watch": "1"}, 400),
    ("GET", CONFIG_MAPS, "", b"", {"continue": "W1tb" * 2000}, 400),
    ("GET", CONFIG_MAPS, "", b"", {"labelSelector": f"a>{MANY}"}, 400),
    ("DELETE", f"{CONFIG_MAPS}/a", "", b'{"x":' + b"[" * 20_000, {}, 400),
    ("DELETE", f"{CONFIG_MAPS}/a", "", b"", {"gracePeriodSeconds": MANY}, 400),
    ("POST", FREES, "", {**FREE, "metadata": {"name": "b", "finalizers": [None]}}, {}, 422),
    ("POST", FREES, "", {**FREE, "metadata": {"name": "b", "ownerReferences": [None]}}, {}, 422),
    ("POST", FREES, "", {**FREE, "metadata": {"name": "b", "ownerReferences": [{"uid": {}}]}}, {}, 400),
    ("POST", FREES, "", {**FREE, "metadata": {"name": "b", "managedFields": [{"operation": []}]}}, {}, 400),
    ("POST", FREES, "", b'{"spec":1e400,' + msgspec.json.encode(FREE)[1:], {}, 400),
    ("POST", CONFIG_MAPS, "application/yaml", b"metadata: {name: b}\ndata: {null: a}", {}, 400),
    ("POST", CONFIG_MAPS, "application/yaml", b"metadata: {name: b}\ndata: {1: 2001-01-01, b: !!binary YQ==}", {}, 201),
    ("POST", CONFIG_MAPS, "", {"metadata": {"name": "c"}, "a\0b": 1}, {}, 201),
    ("PATCH", f"{FREES}/a", "application/merge-patch+json", b'{"a":' * 20_000, {}, 400),
    ("PATCH", f"{FREES}/a", "application/apply-patch+yaml", b"[" * 100_000, {"fieldManager": "m"}, 400),
    ("PATCH", f"{CONFIG_MAPS}/a", "application/apply-patch+yaml", yaml_bomb(30), {"fieldManager": "m"}, 400),
    (
        "PATCH",
        f"{FREES}/a",
        "application/json-patch+json",
        [{"op": "add", "path": "/spec", "value": {"a": "x" * 1000}}]
        + [{"op": "copy", "from": "/spec", "path": f"/spec/k{at}"} for at in range(40)],
        {},
        422,
    ),
    (
        "PATCH",
        f"{FREES}/a",
        "application/json-patch+json",
        [{"op": "add", "path": "/spec", "value": {"a": {}}}]
        + [{"op": "copy", "from": "/spec", "path": "/spec/a" + "/a" * at} for at in range(60)],
        {},
        422,
    ),
    ("PATCH", f"{FREES}/a", "application/json-patch+json", [{"op": "test", "path": "/kind"}] * 10_001, {}, 413),
    ("POST", CONFIG_MAPS, "", {"metadata": {"name": "d"}, LONG: dict.fromkeys(map(str, range(1000)), 1)}, {}, 400),
    (
        "PATCH",
        f"{FREES}/a",
        "application/apply-patch+yaml",
        {**FREE, "spec": {LONG: [0] * 1000}},
        {"fieldManager": "m"},
        400,
    ),
    (
        "POST",
        CONFIG_MAPS,
        "",
        b'{"metadata":{"name":"e"},"%b":{%b},"data":{}}' % (LONG.encode(), b",".join([b'"a":1'] * 10_000)),
        {},
        201,
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "content_type", "body", "query", "status"), CASES, ids=[str(at) for at in range(len(CASES))]
)
async def test_inputs_beyond_the_limits_are_answered_as_by_the_real_server(
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    content_type: str,
    body: Any,
    query: dict[str, str],
    status: int,
) -> None:
    cluster = Cluster(seed=0)
    await cluster.apply(definition("frees", "Free"))
    await cluster.apply([FREE, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}])
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    request = Request(method=method, path=path, content_type=content_type, body=content, query=query, user=ADMIN)
    response = await cluster.api.handle(request)
    assert response.status == status, response.body
    assert all("\0" not in value for _, value in response.headers)
    assert not caplog.records


@pytest.mark.parametrize("patch_type", ["merge-patch+json", "json-patch+json", "apply-patch+yaml"])
async def test_objects_of_the_greatest_depth_are_handled_in_every_way(patch_type: str) -> None:
    spec: Any = 1
    for _ in range(DEPTH_LIMIT - 2):
        spec = {"a": spec}
    cluster = Cluster(seed=0)
    await cluster.apply(definition("frees", "Free"))
    await cluster.apply({**FREE, "spec": {"b": 1}})
    patch: Any = {**FREE, "spec": {"c": spec}}
    if patch_type == "json-patch+json":
        patch = [{"op": "add", "path": "/spec/c", "value": spec}, {"op": "copy", "from": "/spec/c", "path": "/spec/d"}]
    async with cluster.client() as client:
        headers = {"Content-Type": f"application/{patch_type}", "Accept": "application/yaml"}
        query = {"fieldManager": "m"} if patch_type == "apply-patch+yaml" else {}
        response = await client.patch(f"{FREES}/a", content=msgspec.json.encode(patch), headers=headers, params=query)
        assert response.status_code == 200, response.text
        stored = await cluster.get("frees", "a")
        assert stored["spec"]["c"] == spec
        changed = {**stored, "spec": {"c": spec, "e": 1}}
        response = await client.put(f"{FREES}/a", json=changed)
        assert response.status_code == 200, response.text
        stored = await cluster.get("frees", "a")
        response = await client.put(f"{FREES}/a", json={**stored, "spec": {"c": {"a": spec}}})
        assert (response.status_code, "exceeded max depth" in response.text) == (400, True)
        assert (await client.delete(f"{FREES}/a")).status_code == 200


@pytest.mark.parametrize(
    "nonsense", [{"pattern": 5}, {"required": 5}, {"allOf": 5}, {"allOf": [5]}, {"properties": {"a": 5}}]
)
@pytest.mark.parametrize("where", ["items", "additionalProperties", "not"])
async def test_nonsense_in_schemas_is_rejected_before_it_is_stored(nonsense: dict[str, Any], where: str) -> None:
    schema = {"type": "array" if where == "items" else "object", where: {"type": "string", **nonsense}}
    root = {"type": "object", "properties": {"spec": schema}}
    body = msgspec.json.encode(definition("bads", "Bad", schema={"openAPIV3Schema": root}))
    cluster = Cluster(seed=0)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    response = await cluster.api.handle(Request(method="POST", path=path, body=body, user=ADMIN))
    assert response.status in {400, 422}, response.body
    assert await cluster.list("crd") == []
