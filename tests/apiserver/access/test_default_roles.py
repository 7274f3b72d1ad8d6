"""Tests for :mod:`trioperator.apiserver.access.default_roles`: every cluster has the roles of a real one."""

from __future__ import annotations

import pytest

from tests.apiserver.conftest import RBAC_PATH, Guarded
from trioperator.apiserver import Cluster


@pytest.mark.parametrize(
    ("role", "allowed", "rejected"),
    [
        ("view", ["GET pods", "GET services", "GET deployments"], ["GET secrets", "DELETE pods/a", "GET {r}/roles"]),
        ("edit", ["GET secrets", "DELETE pods/a", "DELETE deployments/a"], ["GET {r}/roles", "GET {r}/rolebindings"]),
        ("admin", ["GET secrets", "DELETE pods/a", "GET {r}/roles", "DELETE {r}/roles/a"], ["DELETE {s}"]),
        ("cluster-admin", ["GET secrets", "GET {r}/roles", "DELETE events/x"], ["GET /api/v1/nodes"]),
    ],
)
async def test_the_user_facing_roles_exist(
    guarded: Guarded, role: str, allowed: list[str], rejected: list[str]
) -> None:
    await guarded.bind(role, {"kind": "User", "name": guarded.named("anna")}, kind="ClusterRole")
    user = guarded.acting("anna")
    await user.eventually(lambda: user.get(guarded.path("pods")), lambda answer: answer.code == 200)
    for line in (*allowed, *rejected):
        method, _, place = line.partition(" ")
        grants = f"{RBAC_PATH}/namespaces/{guarded.namespace}"
        place = place.replace("{r}", grants).replace("{s}", f"/api/v1/namespaces/{guarded.namespace}/status")
        path = place if place.startswith("/") else guarded.path(*place.split("/"))
        answer = await user.request(method, path)
        assert (answer.code == 403) is (line in rejected), (line, answer.content)


async def test_the_default_roles_are_those_of_the_real_server(guarded: Guarded) -> None:
    names = ["cluster-admin", "admin", "edit", "view", "system:aggregate-to-admin", "system:aggregate-to-edit"]
    names += ["system:aggregate-to-view", "system:basic-user", "system:discovery", "system:public-info-viewer"]
    names += ["system:auth-delegator", "system:monitoring"]
    own = Cluster(seed=0, authorization="rbac")
    for name in names:
        role = (await guarded.get(guarded.grants("clusterroles", name))).content
        mine = await own.get("clusterroles", name)
        assert list(role)[:2] == list(mine)[:2] == ["kind", "apiVersion"]
        for obj in (role, mine):
            assert obj.pop("metadata")["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert role == mine
    for binding in await own.list("clusterrolebindings"):
        path = guarded.grants("clusterrolebindings", binding["metadata"]["name"])
        real = (await guarded.get(path)).content
        assert (real["subjects"], real["roleRef"]) == (binding["subjects"], binding["roleRef"])
