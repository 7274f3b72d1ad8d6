"""Tests for :mod:`trioperator.testing.exploring.scenarios`, as docs/exploring.md has them."""

from __future__ import annotations

from uuid import uuid4

import pytest
import trio

import trioperator
from tests.testing.exploring.operators import CRD
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError
from trioperator.testing import OperatorRunner, effects, explore

WEB_APP = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "a"}, "spec": {"size": 1}}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}}


async def play(cluster: Cluster, operator: OperatorRunner) -> None:
    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(WEB_APP)
    await trio.sleep(10)


async def create_named(cluster: Cluster, operator: OperatorRunner) -> None:
    @trioperator.on.create("webapps")
    async def create_fn(name: str, client: trioperator.Client) -> None:
        await client.apply({**CONFIG_MAP, "metadata": {"name": name}})

    await play(cluster, operator)


def test_an_operator_that_withstands_it_passes() -> None:
    assert explore(create_named) > 10


def test_what_is_created_twice_is_found_with_what_happened() -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        @trioperator.on.create("webapps")
        async def create_fn(name: str, client: trioperator.Client) -> None:
            await client.create({**CONFIG_MAP, "metadata": {"generateName": f"{name}-"}})

        await play(cluster, operator)

    with pytest.raises(AssertionError, match="ConfigMap #2 should not be there") as caught:
        explore(scenario, faults=["crash"])
    assert caught.value.__notes__ == ["The operator crashes after write 1."]


def test_what_is_never_the_same_is_not_compared() -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        @trioperator.on.create("webapps")
        async def create_fn(patch: trioperator.Patch) -> None:
            patch.status["token"] = uuid4().hex

        await play(cluster, operator)

    assert explore(scenario, faults=["crash", "order"]) > 2


def test_effects_that_are_repeated_are_found() -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        @trioperator.on.create("webapps")
        async def create_fn(name: str, patch: trioperator.Patch) -> None:
            effects.record("mail", name)
            patch.status["sent"] = True

        await play(cluster, operator)

    with pytest.raises(AssertionError, match="mail a happens 2 times instead of 1"):
        explore(scenario, faults=["crash"])


def test_bad_input_is_an_error() -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None: ...

    with pytest.raises(ConfigError, match="does not start the operator"):
        explore(scenario)
    with pytest.raises(ConfigError, match="no fault drift: choose from crash, late, order"):
        explore(scenario, faults=["drift"])
