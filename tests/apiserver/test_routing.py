"""Routing of paths and verbs as pure functions."""

from __future__ import annotations

import pytest

from trioperator.apiserver.model.kinds import Catalog
from trioperator.apiserver.model.messages import Request
from trioperator.apiserver.routing import PageNotFoundError, Router, verb_of
from trioperator.errors import NotFoundError

CORE = "/api/v1/namespaces"


@pytest.fixture
def router() -> Router:
    return Router(Catalog())


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (CORE, ("namespaces", "", "", "")),
        (f"{CORE}/a", ("namespaces", "", "a", "")),
        (f"{CORE}/a/status", ("namespaces", "", "a", "status")),
        (f"{CORE}/a/pods", ("pods", "a", "", "")),
        (f"{CORE}/a/pods/b%20c", ("pods", "a", "b c", "")),
        ("/apis/apps/v1/namespaces/a/deployments/b/scale", ("deployments.apps", "a", "b", "scale")),
        ("/apis/apps/v1/deployments", ("deployments.apps", "", "", "")),
    ],
)
def test_a_path_is_routed_to_a_kind_and_an_object(router: Router, path: str, target: tuple[str, ...]) -> None:
    found = router.resolve(path)
    assert found is not None
    assert (found.kind.qualified, found.namespace, found.name, found.subresource) == target


@pytest.mark.parametrize("path", ["/", "/api", "/apis/apps/v1", "/version", "/openapi/v2"])
def test_documents_have_no_target(router: Router, path: str) -> None:
    assert router.resolve(path) is None


@pytest.mark.parametrize("path", ["/api/v1/sheep", f"{CORE}/a/pods/b/exec", "/api/v1/pods/b"])
def test_unknown_resources_of_built_in_groups_are_404(router: Router, path: str) -> None:
    with pytest.raises(NotFoundError):
        router.resolve(path)


def test_unknown_groups_are_404_in_plain_text(router: Router) -> None:
    with pytest.raises(PageNotFoundError):
        router.resolve("/apis/example.com/v1/sheep")


@pytest.mark.parametrize(
    ("method", "path", "query", "verb"),
    [
        ("GET", f"{CORE}/a/pods", {}, "list"),
        ("GET", f"{CORE}/a/pods", {"watch": "true"}, "watch"),
        ("GET", f"{CORE}/a/pods/b", {}, "get"),
        ("POST", f"{CORE}/a/pods", {}, "create"),
        ("PUT", f"{CORE}/a/pods/b", {}, "update"),
        ("PATCH", f"{CORE}/a/pods/b", {}, "patch"),
        ("DELETE", f"{CORE}/a/pods/b", {}, "delete"),
        ("DELETE", f"{CORE}/a/pods", {}, "deletecollection"),
        ("POST", f"{CORE}/a/serviceaccounts/b/token", {}, "create"),
        ("DELETE", f"{CORE}/a/pods/b/status", {}, ""),
        ("GET", "/version", {}, ""),
    ],
)
def test_methods_map_to_verbs(router: Router, method: str, path: str, query: dict[str, str], verb: str) -> None:
    request = Request(method=method, path=path, query=query)
    assert verb_of(request, router.resolve(path)) == verb
