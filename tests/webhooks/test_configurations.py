"""Tests for :mod:`trioperator._webhooks.configurations`: what an operator writes, in memory."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD
from tests.webhooks.admission import (
    MANAGED,
    make_bundle,
    make_review,
    operate_for,
    operating,
    server_with,
    sleeping_server,
)
from tests.webhooks.hooks import ADDRESS
from trioperator._handling.reviews.admission import WebhookType
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator._kube.api_client import open_client
from trioperator._kube.objects import parse_object
from trioperator._model.resource import Resource
from trioperator._webhooks.configurations import WebhookConfigurations
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

KINDS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
GROUP = "admissionregistration.k8s.io"
WIDGETS = Resource("example.com", "v1", "widgets", kind="Widget")
GROUPS = {"kind": "APIGroupList", "groups": [{"name": "example.com", "versions": [{"version": "v1"}]}]}
EXEMPTING = {"matchExpressions": [{"key": "control-plane", "operator": "DoesNotExist"}]}


def make_registry(*names: str, **options: Any) -> trioperator.OperatorRegistry:
    """Return a registry with handlers such as ``"validate:fn"``."""
    registry = trioperator.OperatorRegistry()
    for name in names:
        decorator, _, id = name.partition(":")

        async def handle(**_: Any) -> None: ...

        getattr(trioperator.on, decorator)("widgets", id=id, registry=registry, **options)(handle)
    return registry


async def stored(cluster: Cluster) -> list[list[str] | None]:
    """Return the names of the webhooks in both configurations; None for one that does not exist."""
    found = [await cluster.find(kind, MANAGED) for kind in KINDS]
    return [
        None if each is None else [hook["name"].removesuffix(f".{MANAGED}") for hook in each.get("webhooks", [])]
        for each in found
    ]


def count_writes(cluster: Cluster) -> int:
    return len([r for r in cluster.requests if r.method in ("POST", "PATCH", "PUT") and GROUP in r.path])


async def test_only_persistent_webhooks_outlive_the_operator(cluster: Cluster, autojump_clock: object) -> None:
    registry = make_registry("validate:one")
    trioperator.on.validate("widgets", id="two", persistent=True, registry=registry)(print)
    async with operating(cluster, registry, server=sleeping_server([])):
        assert await stored(cluster) == [["one", "two"], None]
    assert await stored(cluster) == [["two"], None]


@pytest.mark.parametrize("in_order", [True, False])
async def test_an_operator_that_stops_while_it_writes_its_webhooks_leaves_none(
    cluster: Cluster, in_order: bool, autojump_clock: object
) -> None:
    plan = FaultPlan()
    plan.add(Fault.delay(before=0.3, after=0.3), path=GROUP)
    registry = make_registry("validate:one", "mutate:two")
    options = {"server": sleeping_server([]), "transport": FaultyTransport(cluster.transport(), plan)}
    for number in range(1, 30):
        await operate_for(number / 10 + 0.05, cluster, registry, in_order=in_order, **options)
        await trio.sleep(1)
        assert not any(await stored(cluster)), number
        for kind in KINDS:  # so that they are created each time
            if await cluster.find(kind, MANAGED):
                await cluster.delete(kind, MANAGED)


async def test_the_removal_of_webhooks_is_logged(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    registry = make_registry("validate:one")
    trioperator.on.validate("widgets", id="two", persistent=True, registry=registry)(print)
    async with operating(cluster, registry, server=sleeping_server([])):
        pass
    [line] = [text for text in caplog.messages if text.startswith("Removed")]
    assert line.startswith(
        f"Removed 1 of 2 webhooks from the ValidatingWebhookConfiguration '{MANAGED}', as the operator"
    )


@pytest.mark.parametrize("shards", [1, 3])
async def test_replicas_that_stop_leave_the_webhooks_to_the_others(
    cluster: Cluster, shards: int, autojump_clock: object
) -> None:
    def settings() -> trioperator.OperatorSettings:
        made = trioperator.OperatorSettings()
        made.leadership.enabled, made.leadership.shards = shards == 1, shards
        made.leadership.namespace = "default"
        return made

    registry = make_registry("validate:one", "mutate:two")
    trioperator.on.validate("widgets", id="own", persistent=False, registry=registry)(print)
    async with operating(cluster, registry, server=sleeping_server([]), settings=settings(), identity="a"):
        async with operating(cluster, registry, server=sleeping_server([]), settings=settings(), identity="b"):
            assert await stored(cluster) == [["one", "own"], ["two"]]
        await trio.sleep(2)
        assert await stored(cluster) == [["one", "own"], ["two"]]  # the other replica has written it again
    assert await stored(cluster) == [["one"], ["two"]]


async def test_replicas_are_warned_of_webhooks_that_each_of_them_removes(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    settings = trioperator.OperatorSettings()
    settings.leadership.enabled, settings.leadership.namespace = True, "default"
    registry = make_registry("validate:one", persistent=False)
    async with operating(cluster, registry, server=sleeping_server([]), settings=settings):
        pass
    assert "Webhook 'one' has persistent=False: each replica that stops removes it for all of them" in caplog.text


async def test_stray_persistent_webhooks_are_removed_by_the_next_operator(
    cluster: Cluster, autojump_clock: object
) -> None:
    before = make_registry("validate:gone", "mutate:gone-too", persistent=True)
    async with operating(cluster, before, server=sleeping_server([])):
        pass
    assert await stored(cluster) == [["gone"], ["gone-too"]]
    async with operating(cluster, make_registry("validate:new"), server=sleeping_server([])):
        assert await stored(cluster) == [["new"], []]
    assert await stored(cluster) == [[], []]


async def test_configurations_are_written_only_when_they_differ(cluster: Cluster, autojump_clock: object) -> None:
    registry = make_registry("validate:one", "mutate:two", persistent=True, labels={"a": "b"}, timeout=5)
    async with operating(cluster, registry, server=sleeping_server([])):
        assert count_writes(cluster) == 2
    async with operating(cluster, registry, server=sleeping_server([])):
        await trio.sleep(1000)
    assert count_writes(cluster) == 2


async def test_a_new_address_of_the_server_is_written(cluster: Cluster, autojump_clock: object) -> None:
    async def serve(fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        for number in (1, 2):
            yield {"url": f"https://host{number}.test"}
            await trio.sleep(10)
        await trio.sleep_forever()

    async with operating(cluster, make_registry("validate:one"), server=serve):
        await trio.sleep(5)
        (hook,) = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        assert hook["clientConfig"]["url"] == "https://host1.test/one"
        await trio.sleep(10)
        (hook,) = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        assert hook["clientConfig"]["url"] == "https://host2.test/one"


async def test_a_kind_that_is_created_later_gets_its_webhook_then(cluster: Cluster, autojump_clock: object) -> None:
    registry = trioperator.OperatorRegistry()
    trioperator.on.validate("example.com", "gadgets", id="check", registry=registry)(print)
    async with operating(cluster, registry, server=sleeping_server([])):
        assert await stored(cluster) == [None, None]
        from tests.runtime.conftest import PLAIN_CRD

        await cluster.apply(PLAIN_CRD)
        await trio.sleep(10)
        assert await stored(cluster) == [["check"], None]


async def test_what_others_have_written_meanwhile_is_left_to_them(cluster: Cluster, autojump_clock: object) -> None:
    async with operating(cluster, make_registry("validate:one"), server=sleeping_server([])) as operator:
        (hook,) = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        theirs = {**hook, "clientConfig": {"url": "https://other.test/one"}}
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": [theirs]})
        operator.stop.set()
    assert await stored(cluster) == [["one"], None]


async def test_without_a_managed_name_nothing_is_written(cluster: Cluster, autojump_clock: object) -> None:
    async with operating(cluster, make_registry("validate:one"), server=sleeping_server([]), managed=None):
        await trio.sleep(10)
    assert count_writes(cluster) == 0


async def test_what_cannot_be_written_is_tried_again_and_a_problem_of_a_ready_operator(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    plan = FaultPlan()
    plan.add(Fault.answer(403, b'{"kind":"Status","code":403,"message":"no"}'), method="POST", times=3)
    transport = FaultyTransport(cluster.transport(), plan)
    registry = make_registry("validate:one")
    async with operating(cluster, registry, server=sleeping_server([]), transport=transport):
        assert await stored(cluster) == [None, None]
        await trio.sleep(100)
        assert await stored(cluster) == [["one"], None]
    assert "It does not handle everything: The webhook configurations are not up to date." in caplog.text
    assert caplog.text.count("The webhook configurations cannot be written; retrying in ") == 3


async def test_an_operator_that_may_not_read_configurations_writes_them(
    cluster: Cluster, autojump_clock: object
) -> None:
    plan = FaultPlan()
    plan.add(Fault.answer(403, b'{"kind":"Status","code":403,"message":"no"}'), method="GET", path=GROUP + "/v1/")
    transport = FaultyTransport(cluster.transport(), plan)
    for names in (["validate:one"], ["validate:two"]):
        async with operating(cluster, make_registry(*names), server=sleeping_server([]), transport=transport):
            assert await stored(cluster) == [[names[0].partition(":")[2]], None]
        assert await stored(cluster) == [[], None]


async def test_what_others_change_or_delete_is_repaired_within_seconds(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with operating(cluster, make_registry("validate:one", "mutate:two"), server=sleeping_server([])):
        wanted = [await cluster.get(kind, MANAGED) for kind in KINDS]
        for kind, before in zip(KINDS, wanted, strict=True):
            await cluster.patch(kind, MANAGED, {"webhooks": [{**before["webhooks"][0], "failurePolicy": "Ignore"}]})
            await trio.sleep(2)
            assert (await cluster.get(kind, MANAGED))["webhooks"] == before["webhooks"]
            await trio.sleep(700)
            await cluster.delete(kind, MANAGED)
            await trio.sleep(2)
            assert (await cluster.get(kind, MANAGED))["webhooks"] == before["webhooks"]
            await trio.sleep(700)
    assert caplog.text.count("was changed by others: writing it again.") == 4


async def test_another_replica_that_stops_does_not_switch_webhooks_off(
    cluster: Cluster, autojump_clock: object
) -> None:
    registry = make_registry("validate:one")
    async with operating(cluster, registry, server=sleeping_server([])):
        async with operating(cluster, registry, server=sleeping_server([])):
            await trio.sleep(1)
        await trio.sleep(2)
        assert await stored(cluster) == [["one"], None]
        await trio.sleep(10_000)
        assert count_writes(cluster) == 3  # created, cleared, repaired
    assert await stored(cluster) == [[], None]


async def test_operators_that_want_different_webhooks_do_not_flood_the_api_server(
    cluster: Cluster, autojump_clock: object
) -> None:
    async with operating(cluster, make_registry("validate:one"), server=sleeping_server([])):
        async with operating(cluster, make_registry("validate:two"), server=sleeping_server([])):
            await trio.sleep(3600)
            assert count_writes(cluster) < 2 * 3600 / 20
        await trio.sleep(60)
        assert await stored(cluster) == [["one"], None]  # who stays gets what it wants


async def trusted(cluster: Cluster) -> list[str]:
    """Return the CAs in the validating configuration."""
    [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
    lines = base64.b64decode(hook["clientConfig"]["caBundle"]).decode().splitlines()
    return sorted(line for line in lines if "-----" not in line)


async def test_replicas_with_different_cas_are_both_trusted_while_they_replace_each_other(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    registry, replaced = make_registry("validate:one"), trio.Event()

    async def serve_old(*, task_status: trio.TaskStatus[None]) -> None:
        async with operating(cluster, registry, server=server_with("old"), identity="a"):
            task_status.started()
            await replaced.wait()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve_old)
        async with operating(cluster, registry, server=server_with("new"), identity="b"):
            assert await trusted(cluster) == ["new", "old"]
            before = count_writes(cluster)
            await trio.sleep(30)
            assert count_writes(cluster) == before  # they do not contend
            replaced.set()
            await trio.sleep(30)
            assert await trusted(cluster) == ["new", "old"]  # whoever stops leaves it to the other
            await trio.sleep(600)
            assert await trusted(cluster) == ["new"]
    assert "changed by others" not in caplog.text
    assert await stored(cluster) == [[], None]


async def test_replicas_that_differ_in_their_cas_for_long_are_told_what_to_do_and_served(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    registry = make_registry("validate:one", persistent=True)
    async with (
        operating(cluster, registry, server=server_with("a"), identity="a"),
        operating(cluster, registry, server=server_with("b"), identity="b"),
    ):
        await trio.sleep(3600)
        assert await trusted(cluster) == ["a", "b"]
    assert "need one CA: pass WebhookServer(ca_secret=...)" in caplog.text
    assert len([r for r in caplog.records if "trusts CAs of other replicas" in r.message]) <= 18


async def test_replicas_that_start_at_the_same_time_lose_no_ca(cluster: Cluster, autojump_clock: object) -> None:
    await cluster.apply(CRD)
    registry = make_registry("validate:one", "mutate:two", persistent=True)
    async with trio.open_nursery() as nursery:
        done = trio.Event()

        async def replicate(name: str, *, task_status: trio.TaskStatus[None]) -> None:
            async with operating(cluster, registry, server=server_with(name), identity=name):
                task_status.started()
                await done.wait()

        async with trio.open_nursery() as starting:
            for name in "abc":
                starting.start_soon(nursery.start, replicate, name)
        assert await trusted(cluster) == ["a", "b", "c"]
        done.set()


async def test_a_ca_that_was_added_to_the_configuration_does_not_stay(cluster: Cluster, autojump_clock: object) -> None:
    registry = make_registry("validate:one", persistent=True)
    async with operating(cluster, registry, server=server_with("own")):
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        hook["clientConfig"]["caBundle"] = make_bundle("own", "evil")
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": [hook]})
        await trio.sleep(605)
        assert await trusted(cluster) == ["own"]


async def test_a_configuration_without_the_own_ca_is_repaired_at_once(cluster: Cluster, autojump_clock: object) -> None:
    registry = make_registry("validate:one", persistent=True)
    async with operating(cluster, registry, server=server_with("own")):
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        hook["clientConfig"]["caBundle"] = make_bundle("evil")
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": [hook]})
        await trio.sleep(2)
        assert "own" in await trusted(cluster)


class Amending(httpx.AsyncBaseTransport):
    """A transport to an API server that has a mind of its own about webhook configurations."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if GROUP in request.url.path and request.method in ("POST", "PATCH"):
            body = json.loads(await request.aread())
            for hook in body.get("webhooks", []):
                hook["namespaceSelector"] = EXEMPTING
            headers = {key: value for key, value in request.headers.items() if key != "content-length"}
            request = httpx.Request(
                request.method, request.url, headers=headers, json=body, extensions=request.extensions
            )
        return await self._inner.handle_async_request(request)


async def test_the_server_s_own_form_of_a_configuration_is_left_so_and_tampering_with_it_is_not(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    registry = make_registry("validate:one")
    async with operating(cluster, registry, server=sleeping_server([]), transport=Amending(cluster.transport())):
        await trio.sleep(3600)
        assert count_writes(cluster) == 1
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        assert hook["namespaceSelector"] == EXEMPTING
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": [{**hook, "failurePolicy": "Ignore"}]})
        await trio.sleep(2)
        assert (await cluster.get(KINDS[0], MANAGED))["webhooks"] == [hook]
    assert caplog.text.count("in another form than the one that was sent, which differs in namespaceSelector") == 1


async def amend(cluster: Cluster, change: dict[str, Any]) -> None:
    """Change the webhooks whenever somebody has put them back, as a controller does."""
    while True:
        hooks = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        if any(hook | change != hook for hook in hooks):
            await cluster.patch(KINDS[0], MANAGED, {"webhooks": [hook | change for hook in hooks]})
        await trio.sleep(0.5)


async def test_a_controller_that_amends_webhooks_is_not_fought_for_ever(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    registry = make_registry("validate:one")
    async with (
        operating(cluster, registry, server=sleeping_server([])),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(amend, cluster, {"namespaceSelector": EXEMPTING})
        await trio.sleep(60)
        before = len(own_writes(cluster))
        await trio.sleep(3600)
        assert 5 <= len(own_writes(cluster)) - before <= 7  # it has not given up, either
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": [{**hook, "failurePolicy": "Ignore"}]})
        await trio.sleep(2)
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        assert hook["failurePolicy"] == "Fail"  # what is not the controller's is repaired
        await trio.sleep(300)
        assert len(own_writes(cluster)) - before <= 9
        nursery.cancel_scope.cancel()
    assert caplog.text.count("is changed again and again by unknown, in namespaceSelector") == 1
    assert caplog.text.count("was changed by others: writing it again.") <= 5


async def test_what_switches_webhooks_off_is_repaired_however_often_it_comes_back(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    registry = make_registry("validate:one")
    async with (
        operating(cluster, registry, server=sleeping_server([])),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(amend, cluster, {"failurePolicy": "Ignore"})
        await trio.sleep(3600)
        assert 3600 / 40 < len(own_writes(cluster)) < 3600 / 20
        nursery.cancel_scope.cancel()
    assert caplog.text.count("is changed again and again by unknown, in failurePolicy") == 1


def own_writes(cluster: Cluster) -> list[Any]:
    """Return the writes of configurations by operators, which say who they are."""
    return [r for r in cluster.requests if r.method in ("POST", "PATCH") and GROUP in r.path and r.user_agent]


@pytest.mark.parametrize("annotated", [True, False])
async def test_the_ca_that_a_controller_was_asked_to_inject_stays(
    cluster: Cluster, autojump_clock: object, annotated: bool
) -> None:
    registry = make_registry("validate:one", persistent=True)
    async with operating(cluster, registry, server=sleeping_server([])):
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        hook["clientConfig"]["caBundle"] = make_bundle("theirs")
        annotations = {"cert-manager.io/inject-ca-from": "default/hooks"} if annotated else {}
        await cluster.patch(KINDS[0], MANAGED, {"metadata": {"annotations": annotations}, "webhooks": [hook]})
        await trio.sleep(5)
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        assert ("caBundle" in hook["clientConfig"]) is annotated
    async with operating(cluster, make_registry("validate:one", "validate:two"), server=sleeping_server([])):
        hooks = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        assert ["caBundle" in hook["clientConfig"] for hook in hooks] == [annotated, False]


# Releases that rename handlers.


@contextlib.asynccontextmanager
async def releasing(
    cluster: Cluster, name: str, *handlers: str, leader: bool = True, **options: Any
) -> AsyncIterator[list[WebhookFn]]:
    """Run a replica of a release behind the Service, and yield the function that answers reviews."""
    settings, fns = trioperator.OperatorSettings(), list[WebhookFn]()
    settings.leadership.enabled, settings.leadership.namespace = leader, "default"

    async def serve(fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        fns.append(fn)
        async for address in server_with("shared")(fn):
            yield address

    registry = make_registry(*handlers, **options)
    async with operating(cluster, registry, server=serve, settings=settings, identity=name):
        yield fns


async def test_a_release_that_renames_handlers_and_the_one_before_it_leave_each_other_s_webhooks(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    replaced = trio.Event()

    async def run_old(*, task_status: trio.TaskStatus[None]) -> None:
        async with releasing(cluster, "old", "validate:old", "mutate:old-too"):
            task_status.started()
            await replaced.wait()

    async with trio.open_nursery() as nursery:
        await nursery.start(run_old)
        async with releasing(cluster, "new", "validate:new", "mutate:new-too"):
            assert await stored(cluster) == [["old", "new"], ["old-too", "new-too"]]
            before = count_writes(cluster)
            await trio.sleep(60)
            assert count_writes(cluster) == before
            replaced.set()
            await trio.sleep(60)
            assert await stored(cluster) == [["old", "new"], ["old-too", "new-too"]]
            await trio.sleep(600)
            assert await stored(cluster) == [["new"], ["new-too"]]
    assert "changed by others" not in caplog.text
    assert "has webhooks of an older version of this operator: they are removed now." in caplog.text


async def test_webhooks_of_a_new_release_review_nothing_before_older_replicas_know_them(
    cluster: Cluster, autojump_clock: object
) -> None:
    async with releasing(cluster, "old", "validate:old"), trio.open_nursery() as nursery:
        for name in ("new", "newer"):
            nursery.start_soon(run_for, 30, releasing(cluster, name, "validate:new"))
        seen = dict[str, float]()
        for _ in range(1000):
            hooks = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
            assert hooks[0]["rules"]
            seen.setdefault(f"{len(hooks)} {all(hook.get('rules') for hook in hooks)}", trio.current_time())
            await trio.sleep(0.01)
        assert list(seen) == ["1 True", "2 False", "2 True"]
        assert seen["2 True"] - seen["2 False"] >= 1.9


async def run_for(seconds: float, manager: Any) -> None:
    async with manager:
        await trio.sleep(seconds)


async def test_reviews_for_the_webhooks_of_another_release_are_answered_by_the_handlers_of_their_type(
    cluster: Cluster, autojump_clock: object
) -> None:
    async def ask(fns: list[WebhookFn], webhook: str) -> bool | None:
        assert fns[0].handles(webhook)  # type: ignore[attr-defined]
        try:
            response = await fns[0](make_review(), webhook=webhook)
        except trioperator.ReviewError as error:
            return None if error.status == 404 else False
        allowed: bool = response["response"]["allowed"]
        return allowed

    denying: dict[str, Any] = {"when": deny_all}
    async with releasing(cluster, "old", "validate:old", "mutate:lost", **denying) as old:
        async with releasing(cluster, "new", "validate:new", **denying) as new:
            assert await ask(old, "new") is await ask(new, "old") is False
            assert await ask(new, "lost") is True  # nobody mutates any more
            assert not new[0].handles("other")  # type: ignore[attr-defined]
        async with releasing(cluster, "newer", "validate:new", "mutate:set", **denying):
            assert await ask(old, "set") is False  # "lost"
    async with releasing(cluster, "plain", "mutate:only") as plain, releasing(cluster, "newest", "validate:check"):
        assert await ask(plain, "check") is None  # what an older version cannot review is not accepted


def deny_all(**_: Any) -> bool:
    raise RuntimeError("denied")


async def test_older_replicas_that_are_still_at_work_keep_their_webhooks(
    cluster: Cluster, autojump_clock: object
) -> None:
    async with releasing(cluster, "old", "validate:old"), releasing(cluster, "new", "validate:new"):
        await trio.sleep(3600)
        assert sorted((await stored(cluster))[0] or []) == ["new", "old"]
        hours = count_writes(cluster)
        await trio.sleep(7200)
        assert count_writes(cluster) == hours  # they have come to terms


async def test_a_release_that_is_rolled_back_leaves_the_webhooks_of_the_other_one(
    cluster: Cluster, autojump_clock: object
) -> None:
    async with releasing(cluster, "old", "validate:old", leader=False):
        async with releasing(cluster, "new", "validate:new", leader=False):
            assert await stored(cluster) == [["old", "new"], None]
        assert await stored(cluster) == [["old"], None]
        await trio.sleep(60)
        assert await stored(cluster) == [["old"], None]


async def test_a_webhook_at_another_address_is_no_other_release(cluster: Cluster, autojump_clock: object) -> None:
    async with releasing(cluster, "old", "validate:old"):
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        service = {**hook["clientConfig"]["service"], "name": "evil", "path": "/evil"}
        evil = {**hook, "name": f"evil.{MANAGED}", "clientConfig": {"service": service}}
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": [hook, evil]})
        await trio.sleep(2)
        assert await stored(cluster) == [["old"], None]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_what_others_change_before_the_response_to_a_write_is_repaired(
    is_deleted: bool, cluster: Cluster, autojump_clock: object
) -> None:
    plan, registry = FaultPlan(), make_registry("validate:one", persistent=True)
    transport = FaultyTransport(cluster.transport(), plan)
    async with operating(cluster, registry, server=server_with("own"), transport=transport):
        plan.add(Fault.delay(after=1), method="PATCH", resource=KINDS[0], times=1)
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": []})
        await cluster.wait_for(KINDS[0], MANAGED, lambda found: found.get("webhooks"))
        if is_deleted:
            await cluster.delete(KINDS[0], MANAGED)
        else:
            await cluster.patch(KINDS[0], MANAGED, {"webhooks": []})
        await trio.sleep(10)
        assert await trusted(cluster) == ["own"]


@pytest.mark.parametrize("pause", [0, 0.5])
async def test_configurations_that_another_replica_has_repaired_are_up_to_date(
    pause: float, cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The replica waits before it repairs anything, as it has done so a moment ago."""
    handlers = {handler: [WIDGETS] for handler in make_registry("validate:one").admission_handlers()}
    info, settings = trioperator.ConnectionInfo(server="http://embedded"), trioperator.OperatorSettings()
    async with (
        open_client(lambda: info, settings=settings, transport=cluster.transport()) as client,
        trio.open_nursery() as nursery,
    ):
        managed = WebhookConfigurations(client, MANAGED, stopping=trio.Event())
        nursery.start_soon(managed.serve)
        managed.update(handlers=handlers, address=ADDRESS)
        await trio.sleep(1)
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": []})
        await trio.sleep(5)
        assert managed.problem is None
        caplog.clear()
        good = await cluster.get(KINDS[0], MANAGED)
        for state in ({**good, "webhooks": []}, good):
            managed._known[WebhookType.VALIDATING].stored.observe("MODIFIED", parse_object(json.dumps(state).encode()))
            assert managed.problem is not None
            await trio.sleep(pause)
        await trio.sleep(60)
        assert managed.problem is None
        assert "changed by others" not in caplog.text
        nursery.cancel_scope.cancel()


def make_outage(cluster: Cluster, *, until: float) -> FaultyTransport:
    """Return a network on which the group of the widgets cannot be discovered until then, as an aggregated API."""
    plan = FaultPlan()
    plan.add(Fault.answer(200, msgspec.json.encode(GROUPS)), path="^/apis$")
    plan.add(Fault.status(503), path="^/apis/example.com/v1$", until=until)
    return FaultyTransport(cluster.transport(), plan)


def make_unscanned() -> trioperator.OperatorSettings:
    settings = trioperator.OperatorSettings()
    settings.scanning.disabled = True
    return settings


@pytest.mark.parametrize("persistent", [True, False])
async def test_webhooks_stay_for_kinds_of_an_api_that_is_not_available_at_the_start(
    persistent: bool, cluster: Cluster, autojump_clock: MockClock
) -> None:
    registry = make_registry("validate:one", persistent=persistent)
    trioperator.on.validate("configmaps", id="two", persistent=True, registry=registry)(print)
    async with operating(cluster, registry, server=sleeping_server([])):
        [before] = await cluster.list(KINDS[0])
    before = {"apiVersion": f"{GROUP}/v1", "kind": "ValidatingWebhookConfiguration", **before}
    await cluster.apply({**before, "metadata": {"name": MANAGED}})  # as after a crash
    transport = make_outage(cluster, until=trio.current_time() + 100)
    fns: list[WebhookFn] = []
    options = {"server": sleeping_server(fns), "transport": transport, "settings": make_unscanned()}
    async with operating(cluster, registry, **options):
        assert await read_rules(cluster) == {"one": ["widgets"], "two": ["configmaps"]}
        assert (await fns[0](make_review(), webhook="one"))["response"]["allowed"]
        await trio.sleep(600)
        assert await read_rules(cluster) == {"one": ["widgets"], "two": ["configmaps"]}
    assert await read_rules(cluster) == ({"one": ["widgets"]} if persistent else {}) | {"two": ["configmaps"]}


async def read_rules(cluster: Cluster) -> dict[str, list[str]]:
    """Return the resources that validating webhooks are called for, by their ids."""
    hooks = (await cluster.get(KINDS[0], MANAGED)).get("webhooks", [])
    return {
        hook["name"].removesuffix(f".{MANAGED}"): [name for rule in hook.get("rules", []) for name in rule["resources"]]
        for hook in hooks
    }


async def test_webhooks_stay_for_kinds_of_an_api_that_is_not_available_after_a_pause(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    registry = make_registry("validate:one")
    settings = make_unscanned()
    settings.leadership.enabled, settings.leadership.namespace = True, "default"
    plan = FaultPlan()
    options = {"server": sleeping_server([]), "settings": settings}
    async with operating(cluster, registry, transport=FaultyTransport(cluster.transport(), plan), **options):
        plan.add(Fault.status(503), path="^/apis/example.com/v1$")
        plan.add(Fault.answer(200, msgspec.json.encode(GROUPS)), path="^/apis$")
        plan.add(Fault.refuse(), resource="leases", until=trio.current_time() + 20)
        await trio.sleep(100)
        assert await read_rules(cluster) == {"one": ["widgets"]}


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_webhook_of_a_kind_stays_while_its_definition_is_gone(
    restarted: bool, cluster: Cluster, autojump_clock: MockClock
) -> None:
    registry = make_registry("validate:one", "mutate:two", persistent=True)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(operating(cluster, registry, server=sleeping_server([])))
        if restarted:
            await stack.aclose()
        await cluster.delete("customresourcedefinitions", CRD["metadata"]["name"])
        await trio.sleep(60)
        if restarted:
            options = {"server": sleeping_server([]), "is_defined": False}
            await stack.enter_async_context(operating(cluster, registry, **options))
        assert await stored(cluster) == [["one"], ["two"]]
        assert await read_rules(cluster) == {"one": ["widgets"]}
        writes = count_writes(cluster)
        await cluster.create(CRD)
        assert await read_rules(cluster) == {"one": ["widgets"]}, "its objects are reviewed from the first one on"
        await trio.sleep(60)
        assert await stored(cluster) == [["one"], ["two"]]
        assert count_writes(cluster) == writes


async def test_what_is_left_of_a_kind_that_is_gone_ends_when_it_is_served_as_another_one(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with operating(cluster, make_registry("validate:one", persistent=True), server=sleeping_server([])):
        pass
    await cluster.delete("customresourcedefinitions", CRD["metadata"]["name"])
    registry = trioperator.OperatorRegistry()
    trioperator.on.validate("configmaps", id="one", persistent=True, registry=registry)(print)
    async with operating(cluster, registry, server=sleeping_server([]), is_defined=False):
        assert await read_rules(cluster) == {"one": ["configmaps", "widgets"]}
        await cluster.create(CRD)
        await trio.sleep(60)
        assert await read_rules(cluster) == {"one": ["configmaps"]}


async def test_a_webhook_of_a_kind_that_was_never_served_is_not_written(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    options = {"server": sleeping_server([]), "is_defined": False}
    async with operating(cluster, make_registry("validate:one"), **options):
        assert await stored(cluster) == [None, None]
        await cluster.create(CRD)
        await trio.sleep(5)
        assert await read_rules(cluster) == {"one": ["widgets"]}
    assert await stored(cluster) == [[], None]


async def test_a_rule_for_everything_that_others_have_added_is_removed(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with operating(cluster, make_registry("validate:one"), server=sleeping_server([])):
        [hook] = (await cluster.get(KINDS[0], MANAGED))["webhooks"]
        wild = {**hook["rules"][0], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
        await cluster.patch(KINDS[0], MANAGED, {"webhooks": [{**hook, "rules": [*hook["rules"], wild]}]})
        await trio.sleep(10)
        assert await read_rules(cluster) == {"one": ["widgets"]}
