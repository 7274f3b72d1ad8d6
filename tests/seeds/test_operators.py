"""Scopes, startup, shutdown, configuration and continuity of operators."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import change, example, operating, rest
from trioperator.apiserver import Cluster

# --------------------------------------------------------------------------------------------------------------- Scopes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"clusterwide": True}, {"default", "myapp-live", "myapp-pr-123", "myapp-pr-456", "late"}),
        ({}, {"default", "myapp-live", "myapp-pr-123", "myapp-pr-456", "late"}),
        ({"namespaces": ["default"]}, {"default"}),
        ({"namespaces": ["default", "late"]}, {"default", "late"}),
        ({"namespaces": ["*-pr-123*"]}, {"myapp-pr-123"}),
        ({"namespaces": ["!*-pr-*"]}, {"default", "myapp-live", "late"}),
        ({"namespaces": ["myapp-*,!*-pr-*,*-pr-123"]}, {"myapp-live", "myapp-pr-123"}),
        ({"namespaces": ["l*"]}, {"late"}),
    ],
)
async def test_an_operator_stays_within_its_namespaces(
    kex: Cluster, autojump_clock: MockClock, options: dict[str, Any], expected: set[str]
) -> None:
    seen: set[str] = set()

    @kopf.on.create("kopfexamples")
    async def created(namespace: str, **_: Any) -> None:
        seen.add(namespace)

    async def add(namespace: str) -> None:
        if namespace != "default":
            await kex.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await kex.create(example(namespace=namespace), namespace)

    for namespace in ("default", "myapp-live", "myapp-pr-123"):
        await add(namespace)
    async with operating(kex, **options):
        await rest()
        for namespace in ("myapp-pr-456", "late"):
            await add(namespace)
        await rest(10)
    assert seen == expected


# ---------------------------------------------------------------------------------------------------- Startup, Shutdown


async def test_an_operator_starts_when_all_its_startup_handlers_have_succeeded(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []
    kex.requests.clear()

    @kopf.on.startup()
    async def first(logger: Any, settings: kopf.OperatorSettings, retry: int, memo: Any, **kwargs: Any) -> None:
        logger.info("Starting.")
        memo.lock = trio.Lock()
        calls.append(("first", retry, len(kex.requests)))
        if not retry:
            raise kopf.TemporaryError("not yet", delay=100)

    @kopf.on.startup()
    async def second(activity: str, **kwargs: Any) -> None:
        calls.append(("second", activity, len(kex.requests)))

    began = trio.current_time()
    async with operating(kex):
        assert trio.current_time() - began >= 100
    assert calls == [("first", 0, 0), ("first", 1, 0), ("second", "startup", 0)]


@pytest.mark.parametrize("error", [kopf.PermanentError("no way"), Exception("no way")])
async def test_an_operator_does_not_start_when_a_startup_handler_fails(
    kex: Cluster, autojump_clock: MockClock, error: Exception
) -> None:
    kex.requests.clear()

    @kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
    async def startup_fn(**_: Any) -> None:
        raise error

    with pytest.RaisesGroup(pytest.RaisesExc(kopf.ActivityError, match="no way"), flatten_subgroups=True):
        async with operating(kex):
            raise AssertionError
    assert not kex.requests


@pytest.mark.parametrize("way", ["flag", "cancel"])
async def test_cleanup_handlers_are_called_last(kex: Cluster, autojump_clock: MockClock, way: str) -> None:
    calls: list[str] = []

    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        calls.append("create")

    @kopf.on.cleanup()
    async def cleanup_fn(logger: Any, retry: int, **kwargs: Any) -> None:
        await trio.sleep(1)
        calls.append(f"cleanup {retry}")
        if not retry:
            raise kopf.TemporaryError("once more", delay=2)

    async with operating(kex) as scope:
        await kex.create(example())
        await rest()
        if way == "cancel":
            scope.cancel()
    assert calls == ["create", "cleanup 0", "cleanup 1"]


# -------------------------------------------------------------------------------------------------------- Configuration


async def handled(cluster: Cluster, *, retries: int = 0) -> dict[str, Any]:
    """Create an object whose handler fails once, and return the object after that."""

    @kopf.on.delete("kopfexamples")
    async def delete_fn(**_: Any) -> None: ...

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(retry: int, **_: Any) -> None:
        if retry < retries:
            raise kopf.TemporaryError("not yet", delay=1000)

    async with operating(cluster):
        await cluster.create(example(field=1))
        await rest()
        return await cluster.get("kopfexamples", "kex-1")


async def test_the_finalizer_is_configurable(kex: Cluster, autojump_clock: MockClock) -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.persistence.finalizer = "my-operator.example.com/kopf-finalizer"

    body = await handled(kex)
    assert body["metadata"]["finalizers"] == ["my-operator.example.com/kopf-finalizer"]


def to_annotations(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="my-op.example.com")


def to_the_status(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.my-operator")


def to_both(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.MultiProgressStorage(
        [
            kopf.AnnotationsProgressStorage(prefix="my-op.example.com"),
            kopf.StatusProgressStorage(field="status.my-operator"),
        ]
    )


@pytest.mark.parametrize(
    ("setting", "annotated", "in_status"),
    [(to_annotations, True, False), (to_the_status, False, True), (to_both, True, True)],
)
async def test_the_storage_of_progress_is_configurable(
    kex: Cluster,
    autojump_clock: MockClock,
    setting: Callable[[kopf.OperatorSettings], None],
    annotated: bool,
    in_status: bool,
) -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        setting(settings)

    body = await handled(kex, retries=1)
    annotations = body["metadata"].get("annotations", {})
    assert ("my-op.example.com/create_fn" in annotations) is annotated
    assert ("create_fn" in body.get("status", {}).get("my-operator", {})) is in_status
    assert "trioperator.dev/create_fn" not in annotations
    if annotated:
        assert json.loads(annotations["my-op.example.com/create_fn"])["message"] == "not yet"


async def test_the_storage_of_the_last_handled_configuration_is_configurable(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage(
            [
                kopf.StatusDiffBaseStorage(field="status.diff-base"),
                kopf.AnnotationsDiffBaseStorage(prefix="kopf.zalando.org", key="last-handled-configuration"),
            ]
        )

    body = await handled(kex)
    stored = body["metadata"]["annotations"]["kopf.zalando.org/last-handled-configuration"]
    assert json.loads(stored) == json.loads(body["status"]["diff-base"]) == {"spec": {"field": 1}}


async def test_the_default_backoff_is_configurable(kex: Cluster, autojump_clock: MockClock) -> None:
    times: list[float] = []

    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.execution.default_backoff = 5

    @kopf.on.create("kopfexamples", retries=3)
    async def create_fn(**_: Any) -> None:
        times.append(trio.current_time())
        raise ValueError("oops")

    async with operating(kex):
        await kex.create(example())
        await rest(100)
    assert [round(b - a) for a, b in itertools.pairwise(times)] == [5, 5]


async def test_the_initializer_of_an_executor_prepares_the_threads(kex: Cluster, autojump_clock: MockClock) -> None:
    local = threading.local()
    seen: dict[str, str] = {}

    def initialize(value: str) -> None:
        local.value = value

    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.execution.executor = concurrent.futures.ThreadPoolExecutor(
            2, initializer=initialize, initargs=("prepared",)
        )

    @kopf.on.create("kopfexamples")
    def create_fn(**_: Any) -> None:
        seen["handler"] = local.value

    @kopf.daemon("kopfexamples")
    def monitor(**_: Any) -> None:
        seen["daemon"] = local.value

    @kopf.timer("kopfexamples", interval=1)
    def ping(**_: Any) -> None:
        seen["timer"] = local.value

    @kopf.on.cleanup()
    def clean(**_: Any) -> None:
        seen["cleanup"] = local.value

    async with operating(kex):
        await kex.create(example())
        await rest()
    assert seen == dict.fromkeys(("handler", "daemon", "timer", "cleanup"), "prepared")


async def test_the_settings_of_an_operator_are_its_own(kex: Cluster, autojump_clock: MockClock) -> None:
    given = kopf.OperatorSettings()

    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        assert settings is given
        settings.networking.error_backoffs = [10, 20, 30]
        settings.scanning.disabled = True

    async with operating(kex, settings=given):
        pass
    assert given.networking.error_backoffs == [10, 20, 30]
    assert kopf.OperatorSettings().scanning.disabled is False


# ----------------------------------------------------------------------------------------------------------- Continuity


@pytest.mark.parametrize("killed", [True, False])
async def test_handlers_continue_after_a_restart(kex: Cluster, autojump_clock: MockClock, killed: bool) -> None:
    calls: list[Any] = []

    @kopf.on.create("kopfexamples")
    async def good(retry: int, **_: Any) -> None:
        calls.append(("good", retry))

    @kopf.on.create("kopfexamples")
    async def slow(retry: int, **_: Any) -> None:
        calls.append(("slow", retry))
        if retry < 2:
            raise kopf.TemporaryError("not yet", delay=100)

    async with operating(kex) as scope:
        await kex.create(example())
        await rest(150)
        if killed:
            scope.cancel()
    assert calls == [("good", 0), ("slow", 0), ("slow", 1)]
    async with operating(kex):
        await rest(200)
    assert calls == [("good", 0), ("slow", 0), ("slow", 1), ("slow", 2)]


async def test_changes_during_downtime_are_handled_as_one_change(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    async def my_handler(reason: str, name: str, diff: Any, **_: Any) -> None:
        calls.append((reason, name, tuple(diff)))

    async with operating(kex):
        await kex.create(example(field=1))
        await rest()
    calls.clear()
    await change(kex, field=2)
    await change(kex, field=3, other=1)
    await kex.create(example("kex-2"))
    await kex.patch("kopfexamples", "kex-2", {"spec": {"field": 9}})
    async with operating(kex):
        await rest()
    assert sorted(calls) == [
        ("create", "kex-2", (("add", (), None, {"spec": {"field": 9}}),)),
        ("update", "kex-1", (("change", ("spec", "field"), 1, 3), ("add", ("spec", "other"), None, 1))),
    ]


async def test_deletion_waits_for_the_operator_to_be_restarted(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @kopf.on.delete("kopfexamples")
    async def delete_fn(name: str, **_: Any) -> None:
        calls.append(name)

    async with operating(kex):
        await kex.create(example())
        await rest()
    await kex.delete("kopfexamples", "kex-1")
    assert len(await kex.list("kopfexamples")) == 1
    async with operating(kex):
        await rest()
    assert calls == ["kex-1"]
    assert await kex.list("kopfexamples") == []
