"""Access to the embedded cluster: expiry and restarts of tokens, kubeconfigs, caching of decisions."""

from __future__ import annotations

import pathlib
from typing import Any

import httpx
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioperator.apiserver import Cluster, User, open_cluster
from trioperator.apiserver.model.user import ANONYMOUS
from trioperator.clock import wall_now
from trioperator.errors import ConfigError

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def who_is(client: httpx.AsyncClient, token: str) -> str:
    """Return the name of the token's user, or the error message of the server."""
    response = await client.post(REVIEWS, json={}, headers={"Authorization": f"Bearer {token}"})
    content = response.json()
    return str(content["status"]["userInfo"]["username"] if response.status_code == 201 else content["message"])


async def request_token(client: httpx.AsyncClient, **spec: Any) -> str:
    response = await client.post(f"{ACCOUNTS}/robot/token", json={"spec": spec})
    assert response.status_code == 201, response.text
    return str(response.json()["status"]["token"])


async def test_static_tokens_authenticate_users() -> None:
    cluster = Cluster(tokens={"secret": User(name="anna", groups=("people",))})
    client = cluster.client(user=ANONYMOUS)
    assert await who_is(client, "secret") == "anna"
    assert await who_is(client, "other") == "Unauthorized"
    assert [record.user for record in cluster.requests] == ["anna", "system:anonymous"]


async def test_a_token_expires_in_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster(clock=wall_now)
    await cluster.create(ACCOUNT)
    client = cluster.client()
    short, long = await request_token(client, expirationSeconds=600), await request_token(client)
    await trio.sleep(590)
    assert await who_is(client, short) == "system:serviceaccount:default:robot"
    await trio.sleep(80)  # a minute longer than its time
    assert await who_is(client, short) == "Unauthorized"
    assert await who_is(client, long) == "system:serviceaccount:default:robot"


async def test_a_token_is_revoked_with_its_service_account(cluster: Cluster) -> None:
    client = cluster.client()
    await cluster.create(ACCOUNT)
    token = await request_token(client)
    await cluster.delete("sa", "robot")
    assert await who_is(client, token) == "Unauthorized"
    await cluster.create(ACCOUNT)
    assert await who_is(client, token) == "Unauthorized"  # the new one is another account


async def test_a_token_is_revoked_with_its_bound_object(cluster: Cluster) -> None:
    client = cluster.client()
    await cluster.create(ACCOUNT)
    container = {"name": "a", "image": "b"}
    spec = {"serviceAccountName": "robot", "nodeName": "one", "containers": [container]}
    await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = await request_token(client, boundObjectRef=reference)
    review = await client.post(REVIEWS, json={}, headers={"Authorization": f"Bearer {token}"})
    extra = review.json()["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/node-name"] == ["one"]
    await client.request("DELETE", f"{PODS}/p", json={"gracePeriodSeconds": 0})
    assert await who_is(client, token) == "Unauthorized"


async def test_a_forged_token_is_unauthorized(cluster: Cluster) -> None:
    await cluster.create(ACCOUNT)
    token = await request_token(cluster.client())
    head, claims, signature = token.split(".")
    client = cluster.client()
    other = await request_token(client)
    for forged in (
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}.{other.split('.')[1]}.{signature}",
        f"{head}.{claims}.{signature[:-1]}",
        f"{head}.{claims}.{signature}\u00fc",
    ):
        response = await client.get(PODS, headers={b"Authorization": f"Bearer {forged}".encode()})
        assert response.status_code == 401


async def test_a_token_of_another_cluster_is_unauthorized(cluster: Cluster) -> None:
    await cluster.create(ACCOUNT)
    token = await request_token(cluster.client())
    assert await who_is(Cluster().client(), token) == "Unauthorized"


async def test_the_token_secret_of_an_account_is_filled_and_deleted_with_it(cluster: Cluster) -> None:
    await cluster.create(ACCOUNT)
    annotations = {"kubernetes.io/service-account.name": "robot"}
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
    await cluster.create({**secret, "metadata": {"name": "s", "annotations": annotations}})
    assert "token" in (await cluster.get("secrets", "s"))["data"]
    await cluster.delete("sa", "robot")
    assert await cluster.find("secrets", "s") is None


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
