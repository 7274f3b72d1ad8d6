"""Authorization attributes of requests, from their paths."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.access.attributes import Attributes, read_attributes
from trioperator.apiserver.model.messages import Request
from trioperator.errors import ApiError


def resource(verb: str, resource: str, namespace: str = "", name: str = "", **rest: str) -> Attributes:
    path = rest.pop("path", "")
    return Attributes(
        verb=verb,
        resource=resource,
        namespace=namespace,
        name=name,
        path=path,
        **{"version": "v1", **rest},  # type: ignore[arg-type]
    )


def path(verb: str, path: str) -> Attributes:
    return Attributes(verb=verb, path=path, is_resource=False)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("GET /", path("get", "/")),
        ("GET /version", path("get", "/version")),
        ("GET /api", path("get", "/api")),
        ("GET /api/v1", path("get", "/api/v1")),
        ("GET /apis/apps/v1", path("get", "/apis/apps/v1")),
        ("POST /metrics/a/b/c", path("post", "/metrics/a/b/c")),
        ("GET /api/v1/pods", resource("list", "pods")),
        ("HEAD /api/v1/pods", resource("list", "pods")),
        ("GET /api/v1/pods?watch=1", resource("watch", "pods")),
        ("GET /api/v1/pods?watch=false", resource("list", "pods")),
        ("GET /api/v1/watch/pods", resource("watch", "pods")),
        ("GET /api/v1/namespaces/a/pods", resource("list", "pods", "a")),
        ("GET /api/v1/namespaces/a/pods/x", resource("get", "pods", "a", "x")),
        ("GET /api/v1/namespaces/a/pods/x?watch=1", resource("get", "pods", "a", "x")),
        ("GET /api/v1/namespaces/a/pods/x/log", resource("get", "pods", "a", "x", subresource="log")),
        ("POST /api/v1/namespaces/a/pods", resource("create", "pods", "a")),
        ("PUT /api/v1/namespaces/a/pods/x", resource("update", "pods", "a", "x")),
        ("PATCH /api/v1/namespaces/a/pods/x/status", resource("patch", "pods", "a", "x", subresource="status")),
        ("DELETE /api/v1/namespaces/a/pods/x", resource("delete", "pods", "a", "x")),
        ("DELETE /api/v1/namespaces/a/pods", resource("deletecollection", "pods", "a")),
        ("OPTIONS /api/v1/namespaces/a/pods/x", resource("", "pods", "a", "x")),
        ("GET /api/v1/namespaces", resource("list", "namespaces")),
        ("GET /api/v1/namespaces/a", resource("get", "namespaces", "a", "a")),
        ("PUT /api/v1/namespaces/a/finalize", resource("update", "namespaces", "a", "a", subresource="finalize")),
        ("GET /apis/apps/v1/namespaces/a/deployments", resource("list", "deployments", "a", group="apps")),
        ("GET /apis/a.dev/v2/things/%78", resource("get", "things", "", "x", group="a.dev", version="v2")),
        ("GET /api/v1/pods?fieldSelector=metadata.name=x", resource("list", "pods", "", "x")),
        ("GET /api/v1/pods?watch=1&fieldSelector=a=b,metadata.name==x", resource("watch", "pods", "", "x")),
        ("GET /api/v1/pods?fieldSelector=metadata.name!=x", resource("list", "pods")),
        ("GET /api/v1/pods?fieldSelector=metadata.name=a/b", resource("list", "pods")),
        ("GET /api/v1/pods?fieldSelector=metadata.name", resource("list", "pods")),
    ],
)
def test_a_path_determines_the_attributes(line: str, wanted: Attributes) -> None:
    method, _, url = line.partition(" ")
    place, _, query = url.partition("?")
    pairs = dict(item.split("=", 1) for item in query.split("&") if item)
    found = read_attributes(Request(method=method, path=place, query=pairs))
    assert found == (dataclasses.replace(wanted, path=found.path) if wanted.is_resource else wanted)


def test_a_legacy_watch_path_without_a_resource_is_rejected() -> None:
    with pytest.raises(ApiError, match="unable to determine kind and namespace"):
        read_attributes(Request(method="GET", path="/api/v1/watch"))


@given(st.text(), st.sampled_from(("GET", "POST", "X")), st.text())
def test_any_path_has_attributes(rest: str, method: str, selector: str) -> None:
    request = Request(method=method, path=f"/api/v1/{rest}", query={"fieldSelector": selector})
    try:
        read_attributes(request)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - most strings are accepted
