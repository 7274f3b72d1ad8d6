"""Tests for :mod:`trioperator._supervisor.app`.

Options of operators are checked before anything runs, and passed on.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._concurrency.clock import BootClock, make_clock
from trioperator._supervisor.app import operator
from trioperator._supervisor.plan import OperatorOptions
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError


def options(cluster: Cluster, **others: Any) -> dict[str, Any]:
    """Return the options of an operator on the cluster."""
    return {
        "registry": trioperator.OperatorRegistry(),
        "connection": trioperator.ConnectionInfo(server="http://embedded"),
        "transport": cluster.transport(),
        **others,
    }


class Uncopyable:
    """A memo that cannot be copied."""

    def __copy__(self) -> None:
        raise ValueError("only one")

    def __repr__(self) -> str:
        return "uncopyable"


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"clusterwide": True, "namespaces": ["a"]}, TypeError, "either clusterwide or restricted to namespaces"),
        ({"namespaces": "default"}, TypeError, "Pass namespaces as a list, such as ['default']."),
        ({"namespaces": re.compile("a.*")}, TypeError, "Pass namespaces as a list"),
        ({"namespaces": ["a", "Foo/.."]}, ConfigError, "There can be no namespace 'Foo/..'"),
        ({"liveness_endpoint": "nonsense"}, ConfigError, "nonsense"),
        ({"health_endpoint": "nonsense"}, ConfigError, "nonsense"),
        ({"metrics_endpoint": "nonsense"}, ConfigError, "nonsense"),
        ({"lifecycle": "asap"}, TypeError, "A lifecycle must be a sync function"),
        ({"memo": Uncopyable()}, ConfigError, "uncopyable cannot be copied: ValueError('only one')"),
    ],
)
async def test_wrong_options_are_rejected_before_any_request(
    wrong: dict[str, Any], error: type[Exception], message: str, cluster: Cluster
) -> None:
    cluster.requests.clear()
    with pytest.raises(error, match=re.escape(message)):
        await trioperator.operator(**options(cluster, **wrong))
    assert len(cluster.requests) == 0


async def test_each_object_has_a_copy_of_the_memo(cluster: Cluster, autojump_clock: object) -> None:
    await cluster.apply(CRD)
    memo = trioperator.Memo(shared=[], number=1)
    registry = trioperator.OperatorRegistry()

    @trioperator.on.create("widgets", registry=registry)
    async def create(name: str, memo: Any, **_: Any) -> None:
        memo.number += 1
        memo.shared.append((name, memo.number))

    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: trioperator.operator(**options(cluster, registry=registry, memo=memo, stop_flag=stop))
        )
        await cluster.create(widget("a"))
        await cluster.create(widget("b"))
        await settle(5)
        stop.set()
    assert sorted(memo.shared) == [("a", 2), ("b", 2)]
    assert memo.number == 1


@pytest.mark.parametrize("standalone", [True, False, None])
async def test_standalone_is_a_setting(standalone: bool | None, cluster: Cluster, autojump_clock: object) -> None:
    given, registry, stop = [], trioperator.OperatorRegistry(), trio.Event()

    @trioperator.on.startup(registry=registry)
    async def start(settings: trioperator.OperatorSettings, **_: Any) -> None:
        given.append(settings.peering.standalone)
        stop.set()

    await trioperator.operator(**options(cluster, registry=registry, standalone=standalone, stop_flag=stop))
    default = trioperator.OperatorSettings().peering.standalone
    assert given == [default if standalone is None else standalone]


def test_run_is_an_operator_in_a_run_of_its_own() -> None:
    ready, stop, registry = threading.Event(), threading.Event(), trioperator.OperatorRegistry()
    started: list[bool] = []

    @trioperator.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        started.append(isinstance(trio.lowlevel.current_clock(), BootClock))
        stop.set()

    cluster = Cluster()
    trioperator.run(**options(cluster, registry=registry, ready_flag=ready, stop_flag=stop))
    assert started == [make_clock() is not None]


def test_run_has_the_errors_of_operators() -> None:
    with pytest.raises(TypeError, match="either clusterwide or restricted"):
        trioperator.run(clusterwide=True, namespaces=["a"])


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


async def test_options_change_only_a_copy_of_the_settings(bench: Bench, autojump_clock: MockClock) -> None:
    storage = trioperator.StatusProgressStorage()
    bench.settings.persistence.progress_storage = storage
    given: list[trioperator.OperatorSettings] = []

    @trioperator.on.startup(registry=bench.registry)
    async def configure(settings: trioperator.OperatorSettings, **_: object) -> None:
        given.append(settings)

    before = bench.settings.copy()
    async with bench.running(standalone=True):
        await settle(1)
    assert bench.settings == before
    assert given[0].peering.standalone
    assert given[0].persistence.progress_storage is storage


async def test_startup_handlers_can_keep_the_default_storages_beside_others(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @trioperator.on.startup(registry=bench.registry)
    def configure(settings: trioperator.OperatorSettings, **_: object) -> None:
        stored = settings.persistence
        stored.diffbase_storage = trioperator.MultiDiffBaseStorage(
            [trioperator.StatusDiffBaseStorage(field="status.diff-base"), stored.diffbase_storage]
        )
        stored.progress_storage = trioperator.MultiProgressStorage(
            [trioperator.StatusProgressStorage(field="status.steps"), stored.progress_storage]
        )

    @trioperator.on.create("widgets", id="late", registry=bench.registry)
    def late(retry: int, **_: object) -> None:
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=10)

    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(1)
        waiting = await bench.cluster.get("widgets", "w")
        assert '"retries":1' in waiting["metadata"]["annotations"]["trioperator.dev/late"]
        assert waiting["status"]["steps"]["late"]["retries"] == 1
        await settle(10)
        handled = await bench.cluster.get("widgets", "w")
        text = handled["metadata"]["annotations"]["trioperator.dev/last-handled-configuration"]
        assert handled["status"]["diff-base"] == text.strip()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 5}, "name= takes an instance of str, not 5."),
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


@pytest.mark.parametrize(
    "run",
    [lambda: asyncio.run(trioperator.operator()), lambda: anyio.run(trioperator.operator)],
    ids=["asyncio", "anyio"],
)
def test_on_asyncio_the_error_says_what_to_write(run: Callable[[], None]) -> None:
    with pytest.raises(RuntimeError, match=r"Operators run on Trio.* Write trioperator\.run\(\.\.\.\), ") as caught:
        run()
    assert "anyio.run(trioperator.operator, backend='trio')" in str(caught.value)


async def test_operators_in_one_process_are_told_apart_by_their_names(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    registries = {name: trioperator.OperatorRegistry() for name in ("blue", "green")}
    for registry in registries.values():

        @trioperator.on.create("widgets", id="sync", registry=registry)
        def sync(logger: trioperator.Logger, **_: Any) -> None:
            logger.info("in a thread")

        @trioperator.daemon("widgets", id="daemon", registry=registry)
        async def daemon(logger: trioperator.Logger, **_: Any) -> None:
            logger.info("in a daemon")

    async with (
        bench.running(registry=registries["blue"], settings=bench.settings.copy(), name="blue"),
        bench.running(registry=registries["green"], settings=bench.settings.copy(), name="green"),
    ):
        await bench.cluster.create(widget())
        await settle(5)
    named = [record for record in caplog.records if record.name.startswith("trioperator.")]
    for message in ("The operator is ready.", "in a thread", "in a daemon", "Handler 'sync' succeeded."):
        found = sorted(record.getMessage() for record in named if record.getMessage().startswith(message))
        assert found == [f"{message} operator=blue", f"{message} operator=green"]
    assert [record.getMessage() for record in named if not hasattr(record, "event_fields")] == []


def test_an_unknown_option_is_an_error_for_type_checkers_and_when_called() -> None:
    with pytest.raises(TypeError, match="nmespaces"):
        trioperator.run(nmespaces=["default"])  # type: ignore[call-arg]  # it would be unused otherwise


def test_the_docstring_explains_each_option_and_no_other() -> None:
    explained = re.findall(r"^ *- \*(\w+)\*:", operator.__doc__ or "", flags=re.MULTILINE)
    assert sorted(explained) == sorted(OperatorOptions.__struct_fields__)
