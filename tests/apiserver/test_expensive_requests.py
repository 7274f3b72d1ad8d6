"""Requests of 3 MiB with as many repetitions as fit: they cost little time, and their responses are small."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from tests.apiserver.conftest import definition
from tests.fuzz import crafted
from tests.fuzz.crafted import Scenario
from trioperator.apiserver import Cluster

SECONDS: Final = 5.0  # of CPU time for one request; it is a tenth of that, and was a minute for most of these
RESPONSE: Final = 2 * 1024 * 1024  # bytes
SCENARIOS: Final = dict(crafted.scenarios())
LIMITED: Final = "exceeded max number of 40000 fields and items"
TITLES: Final = [
    "_config_map finalizers 0 update few",
    "_config_map ownerReferences 0 create",
    "_config_map managedFields 1 few",
    "_free labels upper few",
    "JSON patch {} move 9990",
    "JSON patch 0 add first 9990",
    "strategic env 0",
    "strategic again env $setElementOrder",
    "query manager create",
]


@pytest.mark.parametrize("title", TITLES)
async def test_repetitions_take_little_time(title: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(seed=0)
    await cluster.apply(definition("frees", "Free"))
    async with cluster.client() as client:
        for sent in SCENARIOS[title]():
            headers = {"Content-Type": sent.type, **dict(line.split(": ", 1) for line in sent.head.splitlines())}
            start = time.process_time()
            response = await client.request(sent.method, sent.path, content=sent.body, headers=headers)
            assert time.process_time() - start < SECONDS, sent.method
            assert "Internal error" not in response.text[:1000]
            assert response.is_success or len(response.content) < RESPONSE, sent.method
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def some(title: str, at: int) -> Any:
    """Return one request of the scenario."""
    scenario: Scenario = SCENARIOS[title]
    return scenario()[at]


async def test_the_number_of_fields_and_items_in_a_body_is_limited() -> None:
    cluster = Cluster(seed=0)
    await cluster.apply(definition("frees", "Free"))
    for title, kind in (("Free list zeros create", "json"), ("Free list zeros create", "yaml")):
        sent = some(title, 0)
        async with cluster.client() as client:
            headers = {"Content-Type": f"application/{kind}"}
            response = await client.post(sent.path, content=sent.body, headers=headers)
        assert (response.status_code, LIMITED in response.text) == (400, True)


async def test_the_first_of_many_errors_are_reported() -> None:
    cluster = Cluster(seed=0)
    labels = {f"{at} a": "b" for at in range(5000)}
    async with cluster.client() as client:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels}}
        response = await client.post("/api/v1/namespaces/default/configmaps", json=body)
    causes = response.json()["details"]["causes"]
    assert response.status_code == 422
    assert 500 < len(causes) <= 1000
    assert [cause["message"].split('"')[1] for cause in causes[:3]] == ["0 a", "1 a", "2 a"]
    assert all(cause["message"] in response.json()["message"] for cause in causes[:5])
