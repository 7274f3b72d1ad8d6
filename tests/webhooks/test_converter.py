"""Tests for :mod:`trioperator._webhooks.converter`: conversions by the handlers of an operator, in virtual time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import trio

import trioperator
from tests.webhooks.admission import make_review, operating, sleeping_server
from tests.webhooks.conversions import Hooks, add_handlers, converting, definition, make_conversion, widget
from trioperator import crds
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator.apiserver import Cluster
from trioperator.errors import ReviewError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

Ask = Callable[..., Any]
PATH = "/apis/example.com/{}/namespaces/default/widgets"


UNUSED = trioperator.OperatorRegistry()


class Old(msgspec.Struct):
    size: str


class New(msgspec.Struct):
    width: int
    height: int


@crds.kind("example.com/v1", kind="Widget", registry=UNUSED)
class OldWidget(msgspec.Struct):
    spec: Old


@crds.kind("example.com/v2", kind="Widget", storage=True, registry=UNUSED)
class Widget(msgspec.Struct):
    spec: New
    metadata: crds.ObjectMeta = crds.ObjectMeta()


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    return trioperator.OperatorRegistry()


@contextlib.asynccontextmanager
async def asking(
    cluster: Cluster, registry: trioperator.OperatorRegistry, *versions: str, **options: Any
) -> AsyncIterator[Ask]:
    """Run an operator, and yield a function that returns the responses to reviews."""
    fns: list[WebhookFn] = []
    await cluster.apply(definition(*versions or ("v1", "v2", "v3")))
    async with operating(cluster, registry, server=sleeping_server(fns), managed=None, **options):

        async def ask(review: Any, **hints: Any) -> Any:
            return (await fns[0](review, **hints))["response"]

        yield ask


async def test_an_operator_that_only_converts_reviews_nothing(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    add_handlers(registry)
    async with asking(cluster, registry) as ask:
        for webhook in (None, "check"):
            with pytest.raises(ReviewError, match="no handler for this webhook") as caught:
                await ask(make_review(), webhook=webhook)
            assert caught.value.status == 404


def sized(name: str, version: str = "v1", **spec: Any) -> dict[str, Any]:
    return {**widget(name, **spec), "apiVersion": f"example.com/{version}"}


async def test_objects_of_all_versions_are_converted_in_both_directions_and_in_their_order(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    add_handlers(registry)
    specs: dict[str, dict[str, Any]] = {
        "v1": {"size": "3x4"},
        "v2": {"width": 3, "height": 4},
        "v3": {"dimensions": [3, 4]},
    }
    objects = [sized(f"w{number}", version, **specs[version]) for number, version in enumerate(("v3", "v1", "v2"))]
    async with asking(cluster, registry) as ask:
        for to, spec in specs.items():
            response = await ask(make_conversion(*objects, to=to))
            assert response["result"] == {"status": "Success"}
            assert response["convertedObjects"] == [sized(f"w{number}", to, **spec) for number in range(3)]


async def test_typed_handlers_get_and_return_objects_of_the_classes_of_both_versions(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    def up(body: OldWidget) -> Widget:
        width, _, height = body.spec.size.partition("x")
        return Widget(New(int(width), int(height)), crds.ObjectMeta(labels={"up": "yes"}))

    async def down(spec: New, to: str) -> OldWidget:
        assert to == "v1"
        return OldWidget(Old(f"{spec.width}x{spec.height}"))

    registry.add_kind(OldWidget)
    trioperator.on.convert(Widget, from_="v1", to="v2", registry=registry)(up)
    trioperator.on.convert(Widget, from_="v2", to="v1", registry=registry)(down)
    async with asking(cluster, registry, "v1", "v2") as ask:
        new = sized("a", "v2", width=3, height=4)
        labels = {"labels": {"up": "yes"}}
        response = await ask(make_conversion(sized("a", size="3x4")))
        assert response["convertedObjects"] == [{**new, "metadata": {**new["metadata"], **labels}}]
        response = await ask(make_conversion(new, to="v1"))
        assert response["convertedObjects"] == [sized("a", size="3x4")]
        response = await ask(make_conversion(sized("bad", "v2", width="3", height=4), to="v1"))
        assert "It is not a valid Widget.spec.width: Expected `int`, got `str`." in response["result"]["message"]


async def test_a_step_gets_all_arguments(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    seen: list[dict[str, Any]] = []

    @trioperator.index("widgets", registry=registry)
    def sizes(name: str, spec: Any) -> Any:
        return {name: spec.get("size")}

    @trioperator.on.convert("widgets", from_="v1", to="v2", param="p", registry=registry)
    async def convert(**kwargs: Any) -> None:
        seen.append(kwargs)

    async with asking(cluster, registry) as ask:
        await ask(make_conversion(widget("w", size=1)), headers={"User-Agent": "x"}, sslpeer={"version": 3})
    (kwargs,) = seen
    plain = {key: kwargs[key] for key in ("from_", "to", "headers", "sslpeer", "param", "name", "namespace", "retry")}
    assert plain == {
        "from_": "v1",
        "to": "v2",
        "headers": {"User-Agent": "x"},
        "sslpeer": {"version": 3},
        "param": "p",
        "name": "w",
        "namespace": "default",
        "retry": 0,
    }
    assert str(kwargs["resource"]) == "widgets.v1.example.com"
    assert (kwargs["spec"], kwargs["body"]["apiVersion"], dict(kwargs["sizes"])) == ({"size": 1}, "example.com/v1", {})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (trioperator.PermanentError("It has no size."), "It has no size."),
        (trioperator.TemporaryError("later"), "later"),
        (KeyError("size"), "The webhook has failed: see the log of the operator."),
    ],
)
async def test_an_error_fails_the_whole_review_with_a_status(
    error: Exception,
    message: str,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @trioperator.on.convert("widgets", id="convert", from_="v1", to="v2", registry=registry)
    async def convert(name: str) -> None:
        if name == "bad":
            raise error

    async with asking(cluster, registry, "v1", "v2") as ask:
        response = await ask(make_conversion(widget("good"), widget("bad")))
    text = f"Widget default/bad cannot be converted from v1 to v2: {message}"
    assert response == {"uid": "u1", "convertedObjects": [], "result": {"status": "Failure", "message": text}}
    assert "Conversion 'convert' failed" in caplog.text


@pytest.mark.parametrize("result", [5, {"spec": {"x": object()}}])
async def test_a_result_that_is_no_object_fails(
    result: Any,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @trioperator.on.convert("widgets", id="convert", from_="v1", to="v2", registry=registry)
    async def convert(**_: Any) -> Any:
        return result

    async with asking(cluster, registry) as ask:
        response = await ask(make_conversion(widget("w")))
    assert response["result"]["status"] == "Failure"
    assert "The result of Conversion 'convert'" in response["result"]["message"]
    assert "The result of Conversion 'convert'" in caplog.text


async def test_changes_of_other_metadata_are_dropped_with_a_warning(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @trioperator.on.convert("widgets", from_="v1", to="v2", registry=registry)
    async def convert(patch: trioperator.Patch) -> None:
        patch.meta["name"] = "other"
        patch.meta.annotations["size"] = "1"

    async with asking(cluster, registry) as ask:
        (converted,) = (await ask(make_conversion(widget("w"))))["convertedObjects"]
    assert converted["metadata"] == {"name": "w", "namespace": "default", "annotations": {"size": "1"}}
    assert "has changed metadata, which conversions must not: name." in caplog.text


@pytest.mark.parametrize(
    ("obj", "to"),
    [
        (widget("w"), "v3"),
        (widget("w"), "v9"),
        ({**widget("w"), "kind": "Gadget"}, "v2"),
        ({**widget("w"), "apiVersion": "other.com/v1"}, "v2"),
    ],
)
async def test_without_a_chain_the_conversion_fails(
    obj: dict[str, Any], to: str, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    add_handlers(registry, "v1_to_v2", "v2_to_v1")
    async with asking(cluster, registry) as ask:
        result = (await ask(make_conversion(obj, to=to)))["result"]
        assert (await ask(make_conversion(widget("w"), to="v1")))["convertedObjects"] == [widget("w")]
    assert result["status"] == "Failure"
    assert result["message"].endswith(f"from v1 to {to}: there is no chain of on.convert handlers.")


async def test_missing_chains_between_served_versions_are_reported(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    add_handlers(registry, "v1_to_v2", "v2_to_v3", "v3_to_v2")
    async with asking(cluster, registry):
        pass
    text = "Objects of widgets.example.com cannot be converted from {} to {}: there is no chain of on.convert handlers."
    for versions in (("v2", "v1"), ("v3", "v1")):
        assert caplog.text.count("WARNING  trioperator.webhooks.conversion") == 2
        assert text.format(*versions) in caplog.text
    assert "It does not handle everything" in caplog.text


async def test_a_handler_that_hangs_fails_before_the_api_server_gives_up(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.convert("widgets", from_="v1", to="v2", registry=registry)
    async def convert(**_: Any) -> None:
        await trio.sleep_forever()

    async with asking(cluster, registry) as ask:
        began = trio.current_time()
        result = (await ask(make_conversion(widget("w"))))["result"]
        assert trio.current_time() - began < 30
    assert result == {"status": "Failure", "message": "1 objects are not converted after 27.9 seconds."}


async def test_an_invalid_review_is_rejected(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    add_handlers(registry)
    async with asking(cluster, registry) as ask:
        with pytest.raises(ReviewError, match="The ConversionReview is invalid"):
            await ask(make_conversion({"kind": "Widget"}))


async def test_a_selector_that_fails_converts_nothing(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def select(resource: trioperator.Resource) -> bool:
        raise ValueError("oops")

    @trioperator.on.convert(select, from_="v1", to="v2", registry=registry)
    async def convert(**_: Any) -> None: ...

    async with asking(cluster, registry) as ask:
        assert (await ask(make_conversion(widget("w"))))["result"]["status"] == "Failure"
    assert "The selector" in caplog.text


# ------------------------------------------------------------------------------------- with the embedded API server


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


@pytest.fixture
def cluster_with_hooks(hooks: Hooks) -> Cluster:
    return Cluster(webhooks={"hooks.test": hooks})


async def request(cluster: Cluster, method: str, version: str, name: str = "", body: Any = None) -> Any:
    path = PATH.format(version) + (f"/{name}" if name else "")
    async with cluster.client() as client:
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else msgspec.json.encode(body)
        response = await client.request(method, path, content=content, headers={"Content-Type": media})
    return response.json()


async def test_the_api_server_serves_objects_in_all_versions(
    cluster_with_hooks: Cluster,
    hooks: Hooks,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
) -> None:
    cluster = cluster_with_hooks
    add_handlers(registry)
    await cluster.apply(definition("v1", "v2", "v3"))
    async with converting(cluster, registry, hooks):
        created = await request(cluster, "POST", "v3", body=sized("w", "v3", dimensions=[3, 4]))
        assert created["spec"] == {"dimensions": [3, 4]}
        assert (await request(cluster, "GET", "v1", "w"))["spec"] == {"size": "3x4"}
        changed = await request(cluster, "PATCH", "v2", "w", {"spec": {"width": 5}})
        assert changed["spec"] == {"width": 5, "height": 4}
        (listed,) = (await request(cluster, "GET", "v3"))["items"]
        assert (listed["spec"], listed["metadata"]["uid"]) == ({"dimensions": [5, 4]}, created["metadata"]["uid"])
        bad = await request(cluster, "POST", "v3", body=sized("bad", "v3", dimensions=[3]))
    assert bad["code"] == 500
    head, _, why = bad["message"].partition(" failed: ")
    assert head == "conversion webhook for example.com/v3, Kind=Widget"
    assert why.startswith("Widget default/bad cannot be converted from v3 to v2: The webhook has failed")


async def test_objects_are_converted_while_the_operator_starts_and_lists_them(
    cluster_with_hooks: Cluster,
    hooks: Hooks,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
) -> None:
    cluster = cluster_with_hooks
    await cluster.apply(definition("v1"))
    await cluster.create(widget("w", size="3x4"))
    stale = {"clientConfig": {"url": "https://hooks.test/stale"}, "conversionReviewVersions": ["v1"]}
    await cluster.apply(definition("v1", "v2", conversion={"strategy": "Webhook", "webhook": stale}, storage="v2"))
    add_handlers(registry, "v1_to_v2", "v2_to_v1")
    seen: list[Any] = []

    @trioperator.on.event("example.com", "v2", "widgets", registry=registry)
    async def see(spec: Any, **_: Any) -> None:
        seen.append(dict(spec))

    plan = FaultPlan()
    plan.add(Fault.delay(before=2.0), method="PATCH", path="widgets.example.com")
    async with converting(cluster, registry, hooks, transport=FaultyTransport(cluster.transport(), plan)):
        assert seen == [{"width": 3, "height": 4}]
    assert set(hooks.paths) == {"/hooks/convert"}  # the address was written before anything was listed


async def test_many_mixed_objects_are_converted_at_once(
    cluster_with_hooks: Cluster, hooks: Hooks, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    cluster = cluster_with_hooks
    add_handlers(registry, "v2_to_v3", "v3_to_v2")
    await cluster.apply(definition("v2", "v3", storage="v2"))
    async with converting(cluster, registry, hooks):
        for number in range(100):
            await request(cluster, "POST", "v2", body=sized(f"a{number:03}", "v2", width=number, height=1))
        await cluster.apply(definition("v2", "v3", storage="v3"))
        for number in range(100):
            await request(cluster, "POST", "v3", body=sized(f"b{number:03}", "v3", dimensions=[number, 1]))
        items = (await request(cluster, "GET", "v3"))["items"]
    expected = [(f"{letter}{number:03}", [number, 1]) for letter in "ab" for number in range(100)]
    assert [(item["metadata"]["name"], item["spec"]["dimensions"]) for item in items] == expected


async def test_without_a_server_conversions_are_not_possible(
    cluster: Cluster, registry: trioperator.OperatorRegistry
) -> None:
    add_handlers(registry)
    with pytest.raises(trioperator.ConfigError, match=r"^Conversion handlers exist, but no admission server/tunnel is"):
        await trioperator.operator(registry=registry, transport=cluster.transport(), handle_signals=False)
