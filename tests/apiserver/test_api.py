"""Tests for :mod:`trioperator.apiserver.api`: every request gets a response, and is logged."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
import yaml

from trioperator.apiserver import Cluster, User
from trioperator.apiserver.model.messages import Request, Response
from trioperator.apiserver.model.user import ADMIN

MAPS: Final = "/api/v1/namespaces/default/configmaps"
OBJECT: Final = {"metadata": {"name": "a"}, "data": {"a": "1"}}


def request(method: str, path: str, body: Any = None, **fields: Any) -> Request:
    content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    return Request(method=method, path=path, body=content, user=ADMIN, **fields)


def content_of(response: Response) -> Any:
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", f"{MAPS}/missing", 404, "NotFound"),
        ("PUT", MAPS, 405, "MethodNotAllowed"),
        ("GET", "/api/v1/nothings", 404, "NotFound"),
        ("POST", "/api/v1/configmaps", 405, "MethodNotAllowed"),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews/a", 404, "NotFound"),
        ("POST", MAPS, 400, "BadRequest"),
    ],
)
async def test_errors_are_statuses(method: str, path: str, status: int, reason: str) -> None:
    response = await Cluster().api.handle(request(method, path))
    content = content_of(response)
    assert (response.status, content["code"]) == (status, status)
    assert (content["kind"], content["status"], content["reason"]) == ("Status", "Failure", reason)


async def test_an_unknown_page_is_a_plain_404() -> None:
    response = await Cluster().api.handle(request("GET", "/nowhere"))
    assert (response.status, response.body) == (404, b"404 page not found\n")
    assert response.content_type.startswith("text/plain")


async def test_bodies_are_limited() -> None:
    cluster = Cluster()
    cluster.api.body_limit = 1000
    response = await cluster.api.handle(request("POST", MAPS, {**OBJECT, "data": {"a": "x" * 1000}}))
    assert (response.status, content_of(response)["reason"]) == (413, "RequestEntityTooLarge")
    assert (await cluster.api.handle(request("POST", MAPS, OBJECT))).status == 201


async def test_an_update_creates_no_config_map() -> None:
    response = await Cluster().api.handle(request("PUT", f"{MAPS}/a", OBJECT))
    assert response.status == 404


async def test_a_response_is_yaml_on_request() -> None:
    cluster = Cluster()
    await cluster.api.handle(request("POST", MAPS, OBJECT))
    response = await cluster.api.handle(request("GET", f"{MAPS}/a", accept="application/yaml"))
    assert (response.status, response.content_type) == (200, "application/yaml")
    assert isinstance(response.body, bytes)
    assert yaml.safe_load(response.body)["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("user_agent", "query", "is_pretty"),
    [
        ("curl/8.5.0", {}, True),
        ("Mozilla/5.0 (X11)", {}, True),
        ("kubectl/v1.36.3", {}, False),
        ("kubectl/v1.36.3", {"pretty": "true"}, True),
        ("curl/8.5.0", {"pretty": "0"}, False),
    ],
)
async def test_responses_are_indented_for_people(user_agent: str, query: dict[str, str], is_pretty: bool) -> None:
    asked = request("GET", "/api/v1/namespaces/default", user_agent=user_agent, query=query)
    response = await Cluster().api.handle(asked)
    assert isinstance(response.body, bytes)
    assert (b'\n  "kind": "Namespace"' in response.body) is is_pretty
    assert content_of(response)["metadata"]["name"] == "default"


async def test_a_large_response_is_json_where_yaml_is_requested() -> None:
    cluster = Cluster(seed=0)
    for name in "ab":
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
        await cluster.create({**manifest, "data": {"text": "x" * 200_000}})
    response = await cluster.api.handle(request("GET", MAPS, accept="application/yaml"))
    assert (response.status, response.content_type) == (200, "application/yaml")
    assert [item["metadata"]["name"] for item in content_of(response)["items"]] == ["a", "b"]


async def test_warnings_are_headers() -> None:
    response = await Cluster().api.handle(request("POST", MAPS, {**OBJECT, "nonsense": 1}))
    assert response.status == 201
    assert ("Warning", '299 - "unknown field \\"nonsense\\""') in response.headers


async def test_an_unreadable_protobuf_body_is_a_bad_request() -> None:
    sent = request("POST", MAPS, b"k8s\x00\xff", content_type="application/vnd.kubernetes.protobuf")
    response = await Cluster().api.handle(sent)
    assert response.status == 400
    assert "the body of the request cannot be read" in content_of(response)["message"]


async def test_the_log_names_what_was_asked_for() -> None:
    cluster = Cluster()
    await cluster.api.handle(request("PATCH", "/apis/apps/v1/namespaces/x/deployments/a/scale", {}, user_agent="me"))
    record = cluster.requests[-1]
    assert (record.verb, record.resource, record.subresource) == ("patch", "deployments.apps", "scale")
    assert (record.namespace, record.name, record.user_agent) == ("x", "a", "me")
    assert (record.size, record.user) == (2, "kubernetes-admin")


async def test_the_log_names_what_was_forbidden() -> None:
    cluster = Cluster(authorization="rbac")
    sent = request("GET", f"{MAPS}/a")
    sent.user = User(name="anna")
    assert (await cluster.api.handle(sent)).status == 403
    record = cluster.requests[-1]
    assert (record.status, record.verb, record.resource, record.name) == (403, "get", "configmaps", "a")
    assert record.user == "anna"
