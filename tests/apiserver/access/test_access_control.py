"""Access to the embedded cluster: static tokens, kubeconfigs, restarts, and robustness."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apiserver.access.accounts import ACCOUNT, ACCOUNTS, request_token, who_is
from trioperator.apiserver import Cluster, User, open_cluster
from trioperator.apiserver.model.user import ANONYMOUS
from trioperator.errors import ConfigError

PODS = "/api/v1/namespaces/default/pods"


async def test_static_tokens_authenticate_users() -> None:
    cluster = Cluster(tokens={"secret": User(name="anna", groups=("people",))})
    client = cluster.client(user=ANONYMOUS)
    assert await who_is(client, "secret") == "anna"
    assert await who_is(client, "other") == "Unauthorized"
    assert [record.user for record in cluster.requests] == ["anna", "system:anonymous"]


async def test_keys_are_stored_with_the_objects(tmp_path: pathlib.Path) -> None:
    async with open_cluster(tmp_path / "data", authorization="rbac") as cluster:
        await cluster.create(ACCOUNT)
        config = cluster.kubeconfig("http://x")
        token = await request_token(cluster.client())
        certificate = cluster.ca.certificate
        roles = await cluster.list("clusterroles")
    async with open_cluster(tmp_path / "data", authorization="rbac") as again:
        client = again.client(user=ANONYMOUS)
        assert await who_is(client, token) == "system:serviceaccount:default:robot"
        assert again.kubeconfig("http://x") == config
        assert await who_is(client, config["users"][0]["user"]["token"]) == "kubernetes-admin"
        assert again.kubeconfig("http://x") == config
        assert again.ca.certificate == certificate
        assert await again.list("clusterroles") == roles


async def test_a_kubeconfig_is_for_a_user() -> None:
    cluster = Cluster(authorization="rbac")
    client = cluster.client(user=ANONYMOUS)
    anna = User(name="anna", groups=("people",))
    tokens = [
        cluster.kubeconfig("http://x", user=user)["users"][0]["user"]["token"]
        for user in (anna, User(name="anna"), anna)
    ]
    assert tokens[0] == tokens[2] != tokens[1]
    assert await who_is(client, tokens[0]) == "anna"


def test_an_unknown_authorization_mode_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no authorization 'abac'"):
        Cluster(authorization="abac")


async def test_everything_is_allowed_by_default(cluster: Cluster) -> None:
    client = cluster.client(user=ANONYMOUS)
    assert (await client.get(PODS)).status_code == 200
    assert (await client.get(PODS, headers={"Impersonate-User": "anna"})).status_code == 200
    assert cluster.requests[-1].user == "anna"
    assert await cluster.list("clusterroles") == []


WORDS = st.sampled_from(("", "a", "*", "/a", "get", "In", "Exists", "Role", "ClusterRole", "User", "ServiceAccount"))
TEXTS = st.none() | st.lists(WORDS, max_size=2)
STRANGE = st.none() | st.integers(-1, 2**40) | WORDS | TEXTS


def objects(*fields: str, **others: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of objects with some of the fields, with words as default values."""
    return st.fixed_dictionaries({}, optional={**dict.fromkeys(fields, WORDS), **others})


LISTS = dict.fromkeys(("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), TEXTS)
SELECTORS = objects(
    matchLabels=st.dictionaries(WORDS, WORDS, max_size=1),
    matchExpressions=st.lists(objects("key", "operator", values=TEXTS), max_size=1),
)
QUESTIONS = objects(
    "user",
    "namespace",
    "token",
    groups=TEXTS,
    audiences=TEXTS,
    expirationSeconds=st.integers(-1, 2**40),
    extra=st.dictionaries(WORDS, TEXTS, max_size=1),
    resourceAttributes=st.none() | objects("verb", "group", "resource", "namespace", "name"),
    nonResourceAttributes=st.none() | objects("verb", "path"),
    boundObjectRef=objects(
        "name", "uid", kind=st.sampled_from(("Pod", "Secret", "Node", "a")), apiVersion=st.just("v1")
    ),
)
BODIES = objects(
    rules=STRANGE | st.lists(objects(**LISTS), max_size=2),
    aggregationRule=STRANGE | objects(clusterRoleSelectors=st.lists(SELECTORS, max_size=2)),
    roleRef=STRANGE | objects("apiGroup", "kind", "name"),
    subjects=STRANGE | st.lists(objects("apiGroup", "kind", "name", "namespace"), max_size=2),
    spec=STRANGE | QUESTIONS,
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = st.sampled_from(
    (
        f"{RBAC}/clusterroles",
        f"{RBAC}/clusterrolebindings",
        f"{RBAC}/namespaces/default/roles",
        f"{RBAC}/namespaces/default/rolebindings",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        f"{ACCOUNTS}/robot/token",
    )
)


@settings(max_examples=40)
@given(st.lists(st.tuples(PATHS, BODIES), min_size=1, max_size=5))
def test_any_request_gets_a_decision(requests: list[tuple[str, dict[str, Any]]]) -> None:
    async def ask() -> None:
        cluster = Cluster(authorization="rbac")
        await cluster.create(ACCOUNT)
        client, anna = cluster.client(), cluster.client(user=User(name="a", groups=("system:authenticated",)))
        for number, (path, body) in enumerate(requests):
            for user in (client, anna):
                response = await user.post(path, json={"metadata": {"name": f"n{number}"}, **body})
                assert response.status_code in {201, 400, 403, 404, 409, 422}, response.text

    trio.run(ask)
