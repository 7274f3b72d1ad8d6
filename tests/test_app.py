"""Operators as users start them: their options, and what is left of these afterwards."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle
from trioperator.apiserver import Cluster
from trioperator.app import OperatorOptions, operator


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


async def test_an_operator_changes_only_a_copy_of_the_settings(bench: Bench, autojump_clock: MockClock) -> None:
    storage = trioperator.StatusProgressStorage()
    bench.settings.persistence.progress_storage = storage
    given: list[trioperator.OperatorSettings] = []

    @trioperator.on.startup(registry=bench.registry)
    async def configure(settings: trioperator.OperatorSettings, **_: object) -> None:
        settings.queueing.worker_limit = 1
        given.append(settings)

    before = bench.settings.copy()
    async with bench.running(standalone=True):
        await settle(1)
    assert bench.settings == before
    assert given[0].queueing.worker_limit == 1
    assert given[0].peering.standalone
    assert given[0].persistence.progress_storage is storage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": 5}, "settings= takes an instance of OperatorSettings, not 5."),
        ({"registry": []}, "registry= takes an instance of OperatorRegistry, not \\[\\]."),
        ({"connection": "http://"}, "connection= takes an instance of ConnectionInfo, not 'http://'."),
        ({"namespaces": "default"}, "Pass namespaces as a list, such as \\['default'\\]."),
        ({"namespaces": ["default"], "clusterwide": True}, "either clusterwide or restricted to namespaces"),
    ],
)
async def test_options_of_wrong_types_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        await operator(**options)


def test_an_unknown_option_is_an_error_for_type_checkers_and_when_called() -> None:
    with pytest.raises(TypeError, match="nmespaces"):
        trioperator.run(nmespaces=["default"])  # type: ignore[call-arg]  # it would be unused otherwise


def test_the_options_of_run_are_those_of_operator() -> None:
    parameters = inspect.signature(operator).parameters
    assert OperatorOptions.__annotations__.keys() == parameters.keys() - {"task_status"}
