"""Calls of webhooks: in memory with virtual time, through services, and what is left of connections."""

from __future__ import annotations

import functools
import gc

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.apiserver.hooks import AUTHORITY, BUNDLE, HOST, Hooks, allow, configuration, deny, serve_hooks, webhook
from tests.cancelling import cancel_at_each_step
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.client_config import ClientConfig
from trioperator.apiserver.webhooks.client import WebhookClient
from trioperator.errors import ApiError

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


def test_the_ca_of_the_tests_is_valid() -> None:
    assert AUTHORITY.cert_pem.bytes().startswith(b"-----BEGIN CERTIFICATE-----")


async def test_a_webhook_in_memory_fails_in_virtual_time(autojump_clock: MockClock) -> None:
    hooks = Hooks()

    async def sleep(review: object) -> object:
        await trio.sleep(3600)
        return None

    hooks.handlers["/slow"] = sleep
    cluster = Cluster(seed=0, webhooks={HOST: hooks})
    await cluster.apply(configuration("Validating", "slow", webhook(hooks, "/slow", timeoutSeconds=30)))
    began = trio.current_time()
    with pytest.raises(ApiError, match="context deadline exceeded"):
        await cluster.create(CONFIG_MAP)
    assert trio.current_time() - began == 30


async def test_a_service_can_be_in_memory() -> None:
    hooks = Hooks()
    hooks.handlers["/x"] = allow
    cluster = Cluster(seed=0, webhooks={"hooks.default.svc": hooks})
    service = {"service": {"namespace": "default", "name": "hooks", "path": "/x"}}
    await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x", clientConfig=service)))
    await cluster.create(CONFIG_MAP)
    assert len(hooks.asked) == 1


async def test_a_service_is_mapped_to_a_url(nursery: trio.Nursery) -> None:
    hooks = Hooks()
    hooks.handlers["/x"] = allow
    await nursery.start(serve_hooks, hooks, "hooks.default.svc")
    cluster = Cluster(seed=0, services={"default/hooks": hooks.url})
    service = {"service": {"namespace": "default", "name": "hooks", "path": "/x"}, "caBundle": BUNDLE}
    async with cluster.client():
        await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x", clientConfig=service)))
        await cluster.create(CONFIG_MAP)
    assert [target for target, _ in hooks.asked] == ["/x?timeout=10s"]


async def test_a_service_needs_a_certificate_for_its_own_name(nursery: trio.Nursery) -> None:
    hooks = Hooks()
    await nursery.start(serve_hooks, hooks, "other.default.svc")
    cluster = Cluster(seed=0, services={"default/hooks": hooks.url})
    service = {"service": {"namespace": "default", "name": "hooks"}, "caBundle": BUNDLE}
    async with cluster.client():
        await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x", clientConfig=service)))
        with pytest.raises(ApiError, match="certificate is not valid for the name"):
            await cluster.create(CONFIG_MAP)


async def test_no_connection_is_left_to_a_cluster_that_is_not_closed(nursery: trio.Nursery) -> None:
    hooks = Hooks()
    hooks.handlers["/x"] = allow
    await nursery.start(serve_hooks, hooks)
    cluster = Cluster(seed=0)
    await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x")))
    await cluster.create(CONFIG_MAP)
    del cluster
    gc.collect()  # an open socket would be an error


async def test_connections_in_use_are_not_closed() -> None:
    hooks = Hooks()
    asked, goes_on = trio.Event(), trio.Event()

    async def wait(review: object) -> object:
        asked.set()
        await goes_on.wait()
        return {"answer": 1}

    hooks.handlers["/x"] = wait
    webhook_client = WebhookClient(transports={HOST: hooks})
    answers: list[object] = []

    async def call() -> None:
        answers.append(await webhook_client.post(ClientConfig(url=f"{hooks.url}/x"), b"{}", timeout=5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await asked.wait()
        await webhook_client.aclose()
        goes_on.set()
    assert answers == [{"answer": 1}]
    await webhook_client.aclose()


async def test_audit_annotations_of_webhooks_are_in_the_request_log() -> None:
    hooks = Hooks()
    hooks.handlers["/x"] = lambda review: deny(review, auditAnnotations={"why": "because"})
    cluster = Cluster(seed=0, webhooks={HOST: hooks})
    await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x")))
    await cluster.client().post("/api/v1/namespaces/default/configmaps", json=CONFIG_MAP)
    assert cluster.requests[0].annotations == {"x.conformance.dev/why": "because"}


async def test_denied_garbage_is_collected_after_the_webhook_is_removed(autojump_clock: MockClock) -> None:
    hooks = Hooks()
    hooks.handlers["/x"] = deny
    cluster = Cluster(seed=0, webhooks={HOST: hooks})
    owner = await cluster.create({**CONFIG_MAP, "kind": "Secret"})
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": owner["metadata"]["uid"]}
    await cluster.create({**CONFIG_MAP, "metadata": {"name": "a", "ownerReferences": [reference]}})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["DELETE"]}
    await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x", rules=[rule])))
    await cluster.delete("secrets", "a")
    assert await cluster.find("configmaps", "a") is not None
    await trio.sleep(2)
    await cluster.delete("validatingwebhookconfigurations", "x")
    assert await cluster.find("configmaps", "a") is None


async def test_a_webhook_may_write_during_a_review(autojump_clock: MockClock) -> None:
    hooks = Hooks()
    cluster = Cluster(seed=0, webhooks={HOST: hooks})

    async def write(review: dict[str, dict[str, str]]) -> object:
        await cluster.create({**CONFIG_MAP, "kind": "Secret", "metadata": {"generateName": "b-"}})
        return allow(review)

    hooks.handlers["/x"] = write
    await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x")))
    await cluster.create(CONFIG_MAP)
    await cluster.delete("configmaps", "a")
    assert len(await cluster.list("secrets")) == 2


async def test_a_write_starts_over_after_a_concurrent_change(autojump_clock: MockClock) -> None:
    hooks = Hooks()
    cluster = Cluster(seed=0, webhooks={HOST: hooks})
    await cluster.create(CONFIG_MAP)

    async def overtake(review: dict[str, dict[str, str]]) -> object:
        if len(hooks.asked) == 1:
            await cluster.patch("configmaps", "a", {"data": {"quick": "one"}})
        return allow(review)

    hooks.handlers["/x"] = overtake
    await cluster.apply(configuration("Validating", "x", webhook(hooks, "/x")))
    changed = await cluster.patch("configmaps", "a", {"data": {"slow": "one"}})
    assert changed["data"] == {"quick": "one", "slow": "one"}


async def test_a_call_that_is_cancelled_during_its_handshake_leaves_no_socket(nursery: trio.Nursery) -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    accepted = trio.Event()
    ended = trio.Event()

    async def accept(stream: trio.SocketStream) -> None:
        accepted.set()
        while await stream.receive_some():  # the handshake is not answered
            pass
        ended.set()

    nursery.start_soon(trio.serve_listeners, accept, [listener])
    config = ClientConfig(url=f"https://127.0.0.1:{listener.socket.getsockname()[1]}", ca_bundle=BUNDLE)
    client = WebhookClient()
    async with trio.open_nursery() as callers:
        callers.start_soon(functools.partial(client.post, config, b"{}", timeout=60))
        await accepted.wait()
        await trio.testing.wait_all_tasks_blocked(0.1)
        callers.cancel_scope.cancel()
    with trio.fail_after(60):
        await ended.wait()
    nursery.cancel_scope.cancel()


async def test_a_call_that_is_cancelled_at_any_step_leaves_no_socket(nursery: trio.Nursery) -> None:
    hooks = Hooks()
    hooks.handlers["/x"] = allow
    await nursery.start(serve_hooks, hooks)
    config = ClientConfig(url=f"{hooks.url}/x", ca_bundle=BUNDLE)
    client = WebhookClient()
    steps = 0
    async for _ in cancel_at_each_step(lambda: client.post(config, b'{"request": {"uid": "u"}}', timeout=60)):
        steps += 1
        with trio.fail_after(10):
            while hooks.open:
                await hooks.closed.wait()
    assert steps > 10
    nursery.cancel_scope.cancel()
