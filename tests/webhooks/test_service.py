"""Tests for :mod:`trioperator._webhooks.service`: operators with admission handlers, over real TLS."""

from __future__ import annotations

import base64
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trustme

import trioperator
from tests.runtime.conftest import CRD
from tests.webhooks.admission import MANAGED, deny, make_review, operating, sleeping_server, widget
from tests.webhooks.conversions import add_handlers, definition
from tests.webhooks.serving import until, write_pair
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator._webhooks.app import MAX_BODY, MAX_CONVERSION, AdmissionApp
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError
from trioperator.testing import Fault, FaultPlan, FaultyTransport


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    return trioperator.OperatorRegistry()


async def test_writes_are_denied_changed_and_warned_about_by_the_api_server(
    cluster: Cluster, registry: trioperator.OperatorRegistry
) -> None:
    @trioperator.on.validate("widgets", id="check_size", registry=registry)
    async def check_size(spec: Any, warnings: list[str]) -> None:
        if spec["size"] > 10:
            raise trioperator.AdmissionError("The size must be 10 at most.", code=400)
        warnings.append("Sizes will be limited to 5.")

    @trioperator.on.mutate("widgets", registry=registry)
    def set_color(spec: Any, patch: trioperator.Patch) -> None:
        patch.spec["color"] = "red"
        patch.spec["junk"] = None

    async with operating(cluster, registry):
        error = await deny(cluster, size=11)
        assert error is not None
        assert error.status == 400
        expected = f'admission webhook "check-size.{MANAGED}" denied the request: The size must be 10 at most.'
        assert error.message.endswith(expected)
        async with cluster.client() as client:
            url = "/apis/example.com/v1/namespaces/default/widgets"
            response = await client.post(url, json=widget("w", size=10, junk=1))
        assert response.headers["warning"] == '299 - "Sizes will be limited to 5."'
        assert (await cluster.get("widgets", "w"))["spec"] == {"size": 10, "color": "red"}
    assert await deny(cluster, size=11) is not None  # it exists
    await cluster.create(widget("other", size=11))
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        assert (await cluster.get(kind, MANAGED)).get("webhooks", []) == []


@pytest.mark.parametrize("converts", [False, True])
async def test_conversions_are_received_only_where_there_are_handlers_of_them(
    converts: bool, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(**_: Any) -> None: ...

    if converts:
        await cluster.apply(definition("v1", "v2", "v3"))
        add_handlers(registry)
    fns: list[WebhookFn] = []
    async with operating(cluster, registry, server=sleeping_server(fns), managed=None):
        app = AdmissionApp(fns[0], "")
        assert app.limit_body("/check") == MAX_BODY
        assert app.limit_body("/convert") == (MAX_CONVERSION if converts else None)


async def test_admission_handlers_need_a_server(cluster: Cluster, registry: trioperator.OperatorRegistry) -> None:
    @trioperator.on.validate("widgets", registry=registry)
    def check(**_: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"^Admission handlers exist, but no admission server/tunnel is configured"):
        await trioperator.operator(registry=registry, transport=cluster.transport(), handle_signals=False)


async def test_the_managed_name_must_be_a_domain(cluster: Cluster, registry: trioperator.OperatorRegistry) -> None:
    @trioperator.on.validate("widgets", registry=registry)
    def check(**_: Any) -> None: ...

    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="must be a domain name with a dot")):
        async with operating(cluster, registry, managed="hooks"):
            pass


@pytest.mark.parametrize("managed", [None, MANAGED])
async def test_a_server_that_ends_ends_the_operator(
    managed: str | None, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", registry=registry)
    def check(**_: Any) -> None: ...

    async def serve(fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        yield {"url": "https://nowhere.test"}
        await trio.sleep(10)

    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="^The admission server has ended")):
        async with operating(cluster, registry, server=serve, managed=managed):
            await trio.sleep(20)


async def test_what_is_no_async_generator_function_is_explained(
    cluster: Cluster, registry: trioperator.OperatorRegistry
) -> None:
    @trioperator.on.validate("widgets", registry=registry)
    def check(**_: Any) -> None: ...

    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="must be an async generator function")):
        async with operating(cluster, registry, server=lambda fn: 5):
            pass


async def test_a_server_may_be_a_context_manager(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    class Server:
        def __init__(self) -> None:
            self.steps: list[str] = []

        async def __aenter__(self) -> None:
            self.steps.append("enter")

        async def __aexit__(self, *_: object) -> None:
            self.steps.append("exit")

        async def __call__(self, fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
            self.steps.append("serve")
            yield {"url": "https://nowhere.test"}
            await trio.sleep_forever()

    @trioperator.on.validate("widgets", registry=registry)
    def check(**_: Any) -> None: ...

    server = Server()
    async with operating(cluster, registry, server=server):
        assert server.steps == ["enter", "serve"]
    assert server.steps == ["enter", "serve", "exit"]


async def test_what_a_context_manager_returns_is_the_server(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    served: list[WebhookFn] = []

    async def serve(fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        served.append(fn)
        yield {"url": "https://nowhere.test"}
        await trio.sleep_forever()

    @contextlib.asynccontextmanager
    async def make_server() -> AsyncIterator[object]:
        yield serve

    @trioperator.on.validate("widgets", registry=registry)
    def check(**_: Any) -> None: ...

    async with operating(cluster, registry, server=make_server()):
        assert len(served) == 1


@pytest.mark.parametrize(
    ("metadata", "host"),
    [
        ({"name": "minikube", "labels": {"minikube.k8s.io/name": "minikube"}}, "host.minikube.internal"),
        ({"name": "docker-desktop"}, "host.docker.internal"),
        ({"name": "other"}, "localhost"),
    ],
)
async def test_the_automatic_server_recognizes_the_cluster(
    metadata: dict[str, Any], host: str, cluster: Cluster, registry: trioperator.OperatorRegistry
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    def check(**_: Any) -> None: ...

    await cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    async with operating(cluster, registry, server=trioperator.WebhookAutoServer()):
        (hook,) = (await cluster.get("validatingwebhookconfigurations", MANAGED))["webhooks"]
        assert hook["clientConfig"]["url"].startswith(f"https://{host}:")


async def test_a_standby_answers_reviews(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    from tests.webhooks.admission import make_review

    @trioperator.on.validate("widgets", registry=registry)
    async def check(**_: Any) -> None:
        raise trioperator.AdmissionError("no", code=418)

    settings = trioperator.OperatorSettings()
    settings.leadership.enabled = True
    settings.leadership.name, settings.leadership.namespace = "lease", "default"
    other = trioperator.OperatorSettings()
    other.leadership.enabled = True
    other.leadership.name, other.leadership.namespace = "lease", "default"
    fns: list[WebhookFn] = []
    async with (
        operating(cluster, registry, server=sleeping_server(fns), settings=settings),
        operating(cluster, registry, server=sleeping_server(fns), settings=other),
    ):
        for fn in fns:
            response = (await fn(make_review(), webhook=next(iter(registry)).id))["response"]
            assert response["status"] == {"message": "no", "code": 418}


async def test_the_ca_is_rotated_under_load_without_a_failed_call(
    cluster: Cluster, registry: trioperator.OperatorRegistry, tmp_path: pathlib.Path
) -> None:
    calls: list[None] = []
    denied: list[object] = []

    @trioperator.on.validate("example.com", "v1", "widgets", id="check", registry=registry)
    async def check(**_: Any) -> None:
        calls.append(None)

    @trioperator.on.convert("widgets", from_="v1", to="v2", registry=registry)
    @trioperator.on.convert("widgets", from_="v2", to="v1", registry=registry)
    async def convert(body: trioperator.Body, **_: Any) -> Any:
        calls.append(None)
        return body

    def write(authority: trustme.CA) -> dict[str, Any]:
        """Replace the files as the kubelet does: all at once, by a link."""
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        files = write_pair(folder, authority)
        (tmp_path / "next").symlink_to(folder.name)
        (tmp_path / "next").replace(tmp_path / "data")
        return {name: str(tmp_path / "data" / pathlib.Path(path).name) for name, path in files.items()}

    async def load() -> None:
        while True:
            denied.append(await deny(cluster, size=1))
            await cluster.get("widgets.v2.example.com", "w")
            await cluster.delete("widgets", "w")

    async def trusts(authority: trustme.CA) -> bool:
        hooks = (await cluster.get("validatingwebhookconfigurations", MANAGED))["webhooks"]
        definition = await cluster.get("crd", "widgets.example.com")
        configs = [hooks[0]["clientConfig"], definition["spec"]["conversion"]["webhook"]["clientConfig"]]
        return all(base64.b64decode(config["caBundle"]) == authority.cert_pem.bytes() for config in configs)

    await cluster.apply(definition("v1", "v2"))
    server = trioperator.WebhookServer(**write(trustme.CA()), file_check_interval=0.1)
    settings = trioperator.OperatorSettings()
    settings.admission.managed_conversions = True
    async with operating(cluster, registry, server=server, settings=settings), trio.open_nursery() as nursery:
        nursery.start_soon(load)
        with trio.fail_after(60):
            for _ in range(2):
                authority = trustme.CA()
                write(authority)
                while not await trusts(authority):  # noqa: ASYNC110 -- of configurations there are no events here
                    await trio.sleep(0.02)
                before = len(denied)
                await until(lambda: len(denied) >= before + 5)  # noqa: B023 -- it is called in this pass only
        nursery.cancel_scope.cancel()
    assert set(denied) == {None}
    assert len(calls) >= 2 * len(denied)


def serving_at(fns: list[WebhookFn], **address: Any) -> Any:
    """Return a webhook server at an address, which only takes the function into the list."""

    async def serve(fn: WebhookFn) -> AsyncIterator[Any]:
        fns.append(fn)
        yield address
        await trio.sleep_forever()

    return serve


SERVICE = {"namespace": "default", "name": "hooks", "port": 443}


@pytest.mark.parametrize(
    ("delay", "address", "elected", "expected"),
    [
        (None, {"url": "https://me.test"}, False, 0),
        (None, {"url": "https://me.test"}, True, 5),
        (None, {"service": SERVICE}, False, 5),
        (0, {"service": SERVICE}, True, 0),
        (3, {"url": "https://me.test"}, False, 3),
        (100, {"url": "https://me.test"}, False, 12.5),  # half of the grace
    ],
)
async def test_a_stopping_operator_serves_webhooks_for_a_while_where_others_take_over(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    *,
    delay: float | None,
    address: Any,
    elected: bool,
    expected: float,
    autojump_clock: object,
) -> None:
    trioperator.on.validate("widgets", id="check", registry=registry)(print)
    settings = trioperator.OperatorSettings()
    settings.admission.shutdown_delay = delay
    settings.leadership.enabled, settings.leadership.namespace = elected, "default"
    async with operating(cluster, registry, server=serving_at([], **address), settings=settings, identity="a"):
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize("elected", [False, True])
async def test_an_operator_that_stops_without_a_network_cleans_up_within_the_grace(
    cluster: Cluster, registry: trioperator.OperatorRegistry, elected: bool, autojump_clock: object
) -> None:
    trioperator.on.validate("configmaps", id="check", registry=registry)(print)
    cleaned_up = trio.Event()

    @trioperator.on.create("widgets", registry=registry)
    async def create(body: trioperator.Body, **_: Any) -> None:
        await trio.sleep(2)
        trioperator.event(body, type="Normal", reason="Created", message="It is there.")

    @trioperator.on.cleanup(registry=registry)
    async def clean_up(**_: Any) -> None:
        await trio.sleep(0.5)
        cleaned_up.set()

    plan, settings = FaultPlan(), trioperator.OperatorSettings()
    settings.leadership.enabled, settings.leadership.namespace = elected, "default"
    transport = FaultyTransport(cluster.transport(), plan)
    async with operating(cluster, registry, server=sleeping_server([]), settings=settings, transport=transport):
        await cluster.create(widget("w"))
        await trio.sleep(1)
        plan.add(Fault.stall())
        await trio.sleep(2)
        began = trio.current_time()
    assert trio.current_time() - began <= settings.process.grace
    assert cleaned_up.is_set()


async def test_webhooks_are_served_on_as_long_as_reviews_come(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(**_: Any) -> None: ...

    fns: list[WebhookFn] = []
    async with operating(cluster, registry, server=serving_at(fns, service=SERVICE)) as operator:
        began = trio.current_time()
        operator.stop.set()
        for _ in range(16):
            await trio.sleep(0.5)
            assert (await fns[0](make_review(), webhook="check"))["response"]["allowed"]
    assert trio.current_time() - began == pytest.approx(9, abs=0.5)  # a second after the last one


async def test_a_stopping_leader_lets_others_take_over_while_it_serves_webhooks_with_its_indices(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.index("widgets", registry=registry)
    async def sizes(name: str, spec: Any, **_: Any) -> dict[str, int]:
        return {name: spec["size"]}

    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(sizes: Any, warnings: list[str], **_: Any) -> None:
        warnings += [f"{name}={size}" for name, (size,) in sizes.items()]

    settings, fns = trioperator.OperatorSettings(), list[WebhookFn]()
    settings.leadership.enabled, settings.leadership.namespace = True, "default"
    await cluster.apply(CRD)
    await cluster.create(widget("big", size=7))
    server = serving_at(fns, url="https://me.test")
    async with operating(cluster, registry, server=server, settings=settings, identity="a") as operator:
        operator.stop.set()
        await trio.sleep(4)
        assert (await fns[0](make_review(), webhook="check"))["response"]["warnings"] == ["big=7"]
        lease = await cluster.get("leases", settings.leadership.name)
        assert lease["spec"]["holderIdentity"] == ""


async def test_events_of_reviews_are_posted_while_webhooks_are_served_on(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(body: Any, **_: Any) -> None:
        trioperator.event(body, type="Normal", reason="Reviewed", message="late")

    asked = trio.Event()

    async def serve(fn: WebhookFn) -> AsyncIterator[Any]:
        yield {"service": SERVICE}
        await asked.wait()
        await fn(make_review(), webhook="check")
        await trio.sleep_forever()

    async with operating(cluster, registry, server=serve) as operator:
        operator.stop.set()
        await trio.sleep(4)
        asked.set()
    assert [event["reason"] for event in await cluster.list("events")] == ["Reviewed"]
