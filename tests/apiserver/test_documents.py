"""Tests for :mod:`trioperator.apiserver.documents`: versions, health, discovery and OpenAPI have their paths."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec
import pytest

from tests.apiserver.conftest import GROUP, Target, definition, ensure_definition
from trioperator.apiserver.documents import read_document
from trioperator.apiserver.model.kinds import Catalog, Kind
from trioperator.apiserver.model.messages import Request, Response
from trioperator.apiserver.routing import PageNotFoundError, Router
from trioperator.errors import ApiError, NotFoundError

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SHEEP = Kind(
    group="farm.dev",
    version="v1",
    plural="sheep",
    kind="Sheep",
    singular="sheep",
    list_kind="SheepList",
    namespaced=True,
)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


def read(catalog: Catalog, path: str, method: str = "GET", accept: str = "") -> Response:
    """Return the document at the path."""
    return read_document(catalog, Router(catalog), Request(method=method, path=path, accept=accept))


def content(response: Response) -> Any:
    """Return the decoded body."""
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("/api", "kind", "APIVersions"),
        ("/api/", "versions", ["v1"]),
        ("/apis", "kind", "APIGroupList"),
        ("/apis/apps", "name", "apps"),
        ("/api/v1", "groupVersion", "v1"),
        ("/apis/apps/v1", "groupVersion", "apps/v1"),
        ("/version", "major", "1"),
        ("/openapi/v2", "swagger", "2.0"),
        ("/openapi/v3/api/v1", "openapi", "3.0.0"),
        ("/openapi/v3/apis/apps/v1", "openapi", "3.0.0"),
    ],
)
def test_a_document_is_served_at_its_path(catalog: Catalog, path: str, key: str, value: Any) -> None:
    response = read(catalog, path)
    assert (response.status, response.content_type) == (200, "application/json")
    assert content(response)[key] == value


def test_the_root_lists_the_paths(catalog: Catalog) -> None:
    assert {"/api", "/api/v1", "/apis", "/apis/apps/v1", "/version"} <= set(content(read(catalog, "/"))["paths"])


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
def test_the_server_is_healthy(catalog: Catalog, path: str) -> None:
    response = read(catalog, path)
    assert (response.status, response.body) == (200, b"ok")
    assert response.content_type.startswith("text/plain")


@pytest.mark.parametrize(("path", "is_core"), [("/api", True), ("/apis", False)])
def test_discovery_is_aggregated_on_request(catalog: Catalog, path: str, is_core: bool) -> None:
    response = read(catalog, path, accept=f"{AGGREGATED},application/json")
    assert response.content_type == AGGREGATED
    found = content(response)
    assert found["kind"] == "APIGroupDiscoveryList"
    groups = [item["metadata"].get("name", "") for item in found["items"]]
    assert (groups == [""]) is is_core
    assert ("apps" in groups) is not is_core


def test_an_unknown_version_of_aggregated_discovery_is_not_served(catalog: Catalog) -> None:
    response = read(catalog, "/apis", accept=AGGREGATED.replace("v=v2", "v=v2beta1"))
    assert (response.content_type, content(response)["kind"]) == ("application/json", "APIGroupList")


def test_the_documents_follow_the_kinds_that_are_served(catalog: Catalog) -> None:
    with pytest.raises(PageNotFoundError):
        read(catalog, "/apis/farm.dev")
    catalog.add(SHEEP)
    assert content(read(catalog, "/apis/farm.dev"))["preferredVersion"]["version"] == "v1"
    assert [item["name"] for item in content(read(catalog, "/apis/farm.dev/v1"))["resources"]] == ["sheep"]
    assert "apis/farm.dev/v1" in content(read(catalog, "/openapi/v3"))["paths"]


@pytest.mark.parametrize("path", ["/nothing", "/apis/cows.dev", "/apis/cows.dev/v1", "/openapi", "/openapi/v4"])
def test_unknown_paths_are_not_found_in_plain_text(catalog: Catalog, path: str) -> None:
    with pytest.raises(PageNotFoundError):
        read(catalog, path)


@pytest.mark.parametrize("path", ["/api/v2", "/apis/apps/v2"])
def test_unknown_versions_of_built_in_groups_are_404(catalog: Catalog, path: str) -> None:
    with pytest.raises(NotFoundError):
        read(catalog, path)


@pytest.mark.parametrize(("method", "is_allowed"), [("GET", True), ("HEAD", True), ("POST", False), ("DELETE", False)])
def test_documents_are_read_only(catalog: Catalog, method: str, is_allowed: bool) -> None:
    if is_allowed:
        assert read(catalog, "/version", method).status == 200
        return
    with pytest.raises(ApiError) as caught:
        read(catalog, "/version", method)
    assert caught.value.status == 405


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery_has_an_etag(target: Target, path: str) -> None:
    answer = await target.get(path, accept=AGGREGATED)
    etag = answer.headers["ETag"]
    assert (etag[0], etag[-1], len(etag)) == ('"', '"', 130)
    assert (answer.headers["Vary"], answer.headers["Cache-Control"]) == ("Accept", "public")
    answer = await target.sending(("If-None-Match", etag)).get(path, accept=AGGREGATED)
    assert (answer.code, answer.content, answer.headers["ETag"]) == (304, "", etag)
    assert (await target.sending(("If-None-Match", '"other"')).get(path, accept=AGGREGATED)).code == 200


async def test_the_etag_changes_with_the_kinds(target: Target, unique: str) -> None:
    etag = (await target.get("/apis", accept=AGGREGATED)).headers["ETag"]
    await ensure_definition(target, definition(f"{unique}s", unique.capitalize()))
    await target.eventually(
        lambda: target.get("/apis", accept=AGGREGATED), lambda answer: answer.headers["ETag"] != etag
    )
    await target.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{unique}s.{GROUP}")


async def test_discovery_has_the_hashes_of_stored_versions(target: Target) -> None:
    resources = {item["name"]: item for item in (await target.get("/api/v1")).content["resources"]}
    assert resources["configmaps"]["storageVersionHash"] == "qFsyl6wFWjQ="
    resources = {item["name"]: item for item in (await target.get(f"/apis/{GROUP}/v1")).content["resources"]}
    digest = hashlib.sha256(f"{GROUP}/v1/Shape".encode()).digest()[:8]
    assert resources["shapes"]["storageVersionHash"] == base64.b64encode(digest).decode()


async def test_metrics_are_text_for_prometheus(target: Target) -> None:
    response = await target.client.get("/metrics")
    assert (response.status_code, response.headers["content-type"][:10]) == (200, "text/plain")
    assert target.is_real or response.text == 'kubernetes_build_info{git_version="v1.36.3"} 1\n'
