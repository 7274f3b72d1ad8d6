"""Users reach what they ask for: the log of requests, and what looks at writes."""

from __future__ import annotations

import pytest

from tests.apiserver.hooks import HOST, Hooks, allow, configuration, webhook
from trioperator.apiserver import Cluster, User
from trioperator.apiserver.model.user import ADMIN, ANONYMOUS

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ANNA = User(name="anna", uid="1", groups=("people",), extra={"floor": ("2", "3")})


@pytest.fixture
async def hooks() -> Hooks:
    """Make a webhook that lets everything pass."""
    hooks = Hooks()
    hooks.handlers["/hook"] = allow
    return hooks


@pytest.fixture
async def cluster(hooks: Hooks) -> Cluster:
    """Make a cluster that asks the webhook about all ConfigMaps."""
    cluster = Cluster(seed=0, webhooks={HOST: hooks})
    await cluster.apply(configuration("Validating", "hook", webhook(hooks, "/hook")))
    return cluster


async def test_admission_knows_the_user(cluster: Cluster, hooks: Hooks) -> None:
    client = cluster.client(user=ANNA)
    await client.post(CONFIG_MAPS, json={"metadata": {"name": "a"}})
    await client.put(f"{CONFIG_MAPS}/a", json={"metadata": {"name": "a"}, "data": {"x": "y"}})
    await client.delete(f"{CONFIG_MAPS}/a")
    asked = [(request["operation"], request["userInfo"]) for request in hooks.requests()]
    assert asked == [("CREATE", ANNA.describe()), ("UPDATE", ANNA.describe()), ("DELETE", ANNA.describe())]


async def test_the_helpers_act_as_an_administrator(cluster: Cluster, hooks: Hooks) -> None:
    await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert [request["userInfo"] for request in hooks.requests()] == [ADMIN.describe()]


async def test_the_log_of_requests_knows_the_user(cluster: Cluster) -> None:
    await cluster.client().get(CONFIG_MAPS)
    await cluster.client(user=ANNA).get(CONFIG_MAPS)
    await cluster.client(user=ANONYMOUS).get(CONFIG_MAPS)
    assert [record.user for record in cluster.requests] == ["kubernetes-admin", "anna", "system:anonymous"]
    assert cluster.requests.count(user="anna") == 1


def test_a_user_is_described_as_the_api_does() -> None:
    described = {"username": "anna", "uid": "1", "groups": ["people"], "extra": {"floor": ["2", "3"]}}
    assert ANNA.describe() == described
    assert User(name="").describe() == {}
