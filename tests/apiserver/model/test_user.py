"""Users in the request log and in admission reviews."""

from __future__ import annotations

import pytest

from tests.apiserver.hooks import HOST, Hooks, allow, configuration, webhook
from trioperator.apiserver import Cluster, User
from trioperator.apiserver.model.user import ADMIN, ANONYMOUS

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ANNA = User(name="anna", uid="1", groups=("people",), extra={"floor": ("2", "3")})


@pytest.fixture
async def hooks() -> Hooks:
    """Return a webhook that allows everything."""
    hooks = Hooks()
    hooks.handlers["/hook"] = allow
    return hooks


@pytest.fixture
async def cluster(hooks: Hooks) -> Cluster:
    """Return a cluster that calls the webhook for all ConfigMaps."""
    cluster = Cluster(seed=0, webhooks={HOST: hooks})
    await cluster.apply(configuration("Validating", "hook", webhook(hooks, "/hook")))
    return cluster


async def test_admission_reviews_name_the_user(cluster: Cluster, hooks: Hooks) -> None:
    client = cluster.client(user=ANNA)
    await client.post(CONFIG_MAPS, json={"metadata": {"name": "a"}})
    await client.put(f"{CONFIG_MAPS}/a", json={"metadata": {"name": "a"}, "data": {"x": "y"}})
    await client.delete(f"{CONFIG_MAPS}/a")
    asked = [(request["operation"], request["userInfo"]) for request in hooks.requests()]
    assert asked == [("CREATE", ANNA.describe()), ("UPDATE", ANNA.describe()), ("DELETE", ANNA.describe())]


async def test_the_helpers_have_admin_permissions(cluster: Cluster, hooks: Hooks) -> None:
    await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert [request["userInfo"] for request in hooks.requests()] == [ADMIN.describe()]


async def test_the_request_log_names_the_user(cluster: Cluster) -> None:
    await cluster.client().get(CONFIG_MAPS)
    await cluster.client(user=ANNA).get(CONFIG_MAPS)
    await cluster.client(user=ANONYMOUS).get(CONFIG_MAPS)
    assert [record.user for record in cluster.requests] == ["kubernetes-admin", "anna", "system:anonymous"]
    assert cluster.requests.count(user="anna") == 1


def test_a_user_has_the_fields_of_the_api() -> None:
    described = {"username": "anna", "uid": "1", "groups": ["people"], "extra": {"floor": ["2", "3"]}}
    assert ANNA.describe() == described
    assert User(name="").describe() == {}
