"""Users reach what they ask for: the log of requests, and what looks at writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trioperator.apiserver import Cluster, User
from trioperator.apiserver.decoding import WriteOptions
from trioperator.apiserver.kinds import Kind
from trioperator.apiserver.users import ADMIN, ANONYMOUS

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ANNA = User(name="anna", uid="1", groups=("people",), extra={"floor": ("2", "3")})


class Noting:
    """Let everything pass, and note who it comes from."""

    def __init__(self) -> None:
        self.users: list[tuple[str, User]] = []

    async def admit(
        self,
        operation: str,
        kind: Kind,
        new: dict[str, Any] | None,
        *,
        old: Mapping[str, Any] | None,
        options: WriteOptions,
    ) -> dict[str, Any] | None:
        self.users.append((operation, options.user))
        return new


@pytest.fixture
def noting(cluster: Cluster) -> Noting:
    noting = Noting()
    cluster.api.writer.admission = cluster.api.deleter.admission = noting
    return noting


async def test_admission_knows_the_user(cluster: Cluster, noting: Noting) -> None:
    client = cluster.client(user=ANNA)
    await client.post(CONFIG_MAPS, json={"metadata": {"name": "a"}})
    await client.put(f"{CONFIG_MAPS}/a", json={"metadata": {"name": "a"}, "data": {"x": "y"}})
    await client.delete(f"{CONFIG_MAPS}/a")
    assert noting.users == [("CREATE", ANNA), ("UPDATE", ANNA), ("DELETE", ANNA)]


async def test_the_helpers_act_as_an_administrator(cluster: Cluster, noting: Noting) -> None:
    await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert noting.users == [("CREATE", ADMIN)]


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
