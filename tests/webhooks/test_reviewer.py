"""Tests for :mod:`trioperator._webhooks.reviewer`: reviews by the handlers of an operator, in virtual time."""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import trio

import trioperator
from tests.coordination.peers import peering, peering_crd
from tests.http.serving import ANYWHERE, talk
from tests.runtime.conftest import CRD
from tests.webhooks.admission import make_review, operate_for, operating, sleeping_server, widget
from tests.webhooks.conversions import definition
from tests.webhooks.serving import until
from trioperator import crds
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator._http.asgi import LIMIT, Message, Receive, Send
from trioperator._http.server import serve_app
from trioperator._http.server_connection import Limits
from trioperator._webhooks.app import AdmissionApp
from trioperator.apiserver import Cluster
from trioperator.errors import ReviewError
from trioperator.kopf.settings import OperatorSettings as KopfSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport

Ask = Callable[..., Any]


class Spec(msgspec.Struct):
    size: int


@crds.kind("example.com/v1", registry=trioperator.OperatorRegistry())
class Widget(msgspec.Struct):
    spec: Spec
    metadata: crds.ObjectMeta = crds.ObjectMeta()


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    return trioperator.OperatorRegistry()


@contextlib.asynccontextmanager
async def asking(cluster: Cluster, registry: trioperator.OperatorRegistry, **options: Any) -> AsyncIterator[Ask]:
    """Run an operator, and yield a function that returns the responses to reviews."""
    fns: list[WebhookFn] = []
    async with operating(cluster, registry, server=sleeping_server(fns), managed=None, **options):

        async def ask(review: Any = None, **hints: Any) -> Any:
            return (await fns[0](make_review() if review is None else review, **hints))["response"]

        yield ask


@contextlib.asynccontextmanager
async def asking_over_http(
    cluster: Cluster, registry: trioperator.OperatorRegistry, *, is_limited: bool
) -> AsyncIterator[Ask]:
    """As :func:`asking`, by requests with a query to a server that limits the time of responses, or does not.

    The function returns the status of other responses than HTTP 200.
    """
    fns: list[WebhookFn] = []
    body = msgspec.json.encode(make_review())
    head = "POST /hooks?{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n"
    async with operating(cluster, registry, server=sleeping_server(fns), managed=None):
        admission = AdmissionApp(fns[0], "hooks")

        async def app(scope: Message, receive: Receive, send: Send) -> None:
            if not is_limited:
                del scope["extensions"][LIMIT]
            await admission(scope, receive, send)

        async def ask(query: str) -> Any:
            received = await talk(endpoint, head.format(query, len(body)).encode() + body)
            head_received, _, content = received.partition(b"\r\n\r\n")
            status = int(head_received.split()[1])
            return msgspec.json.decode(content)["response"] if status == 200 else status

        async with trio.open_nursery() as nursery:
            limits = Limits(answering=math.inf)
            endpoint = await nursery.start(functools.partial(serve_app, app, ANYWHERE, limits=limits))
            yield ask
            nursery.cancel_scope.cancel(reason="the test")


async def test_a_handler_gets_all_arguments(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    seen: list[dict[str, Any]] = []

    @trioperator.index("widgets", registry=registry)
    def sizes(name: str, spec: Any) -> Any:
        return {name: spec.get("size")}

    @trioperator.on.validate("widgets", param="p", registry=registry)
    async def check(**kwargs: Any) -> None:
        seen.append(kwargs)

    review = make_review("UPDATE", old=widget("w", size=1), new=widget("w", size=2), dryRun=True)
    async with asking(cluster, registry) as ask:
        response = await ask(review, headers={"User-Agent": "x"}, sslpeer={"version": 3})
    assert response == {"uid": "u1", "allowed": True}
    (kwargs,) = seen
    plain = {
        key: kwargs[key] for key in ("operation", "subresource", "dryrun", "headers", "sslpeer", "warnings", "param")
    }
    assert plain == {
        "operation": "UPDATE",
        "subresource": None,
        "dryrun": True,
        "headers": {"User-Agent": "x"},
        "sslpeer": {"version": 3},
        "warnings": [],
        "param": "p",
    }
    assert kwargs["userinfo"]["username"] == "alice"
    assert (kwargs["old"]["spec"], kwargs["new"]["spec"], kwargs["spec"]) == ({"size": 1}, {"size": 2}, {"size": 2})
    assert tuple(kwargs["diff"]) == (("change", ("spec", "size"), 1, 2),)
    assert (kwargs["name"], kwargs["namespace"], kwargs["resource"].plural) == ("w", "default", "widgets")
    assert (kwargs["retry"], dict(kwargs["sizes"])) == (0, {})


async def test_typed_handlers_get_objects_and_deny_what_does_not_fit(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    seen: list[Any] = []

    @trioperator.on.validate(Widget, registry=registry)
    async def check(body: Widget, spec: Spec) -> None:
        seen.append((body.metadata.name, body.spec, spec.size))

    async with asking(cluster, registry) as ask:
        assert (await ask(make_review(new=widget("w", size=1))))["allowed"]
        assert (await ask(make_review("DELETE", old=widget("gone", size=2))))["allowed"]
        denied = await ask(make_review(new=widget("w", size="big")))
    assert seen == [("w", Spec(1), 1), ("gone", Spec(2), 2)]
    assert (denied["allowed"], denied["status"]["code"]) == (False, 422)
    assert "It is not a valid Widget.spec.size: Expected `int`, got `str`." in denied["status"]["message"]


async def test_without_a_client_certificate_its_argument_is_an_empty_mapping(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    seen: list[Any] = []

    @trioperator.on.validate("widgets", registry=registry)
    async def check(sslpeer: Any, headers: Any) -> None:
        seen.append((sslpeer, headers))

    async with asking(cluster, registry) as ask:
        assert (await ask())["allowed"]
    assert seen == [({}, {})]


async def test_the_old_and_the_new_object_are_none_where_there_is_none(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", registry=registry)
    async def check(operation: str, old: Any, new: Any, spec: Any, warnings: list[str]) -> None:
        warnings.append(f"{operation} {old is None} {new is None} {spec['size']}")

    async with asking(cluster, registry) as ask:
        assert (await ask(make_review("CREATE")))["warnings"] == ["CREATE True False 1"]
        assert (await ask(make_review("DELETE")))["warnings"] == ["DELETE False True 1"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (trioperator.AdmissionError("no", code=418), {"message": "no", "code": 418}),
        (trioperator.PermanentError("no"), {"message": "no", "code": 500}),
        (trioperator.TemporaryError("later"), {"message": "later", "code": 500}),
        (KeyError("x"), {"message": "The webhook has failed: see the log of the operator.", "code": 500}),
    ],
)
@pytest.mark.parametrize("decorator", ["validate", "mutate"])
async def test_any_error_denies_and_nothing_is_retried(
    error: Exception,
    status: Any,
    decorator: str,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
) -> None:
    calls: list[None] = []

    @getattr(trioperator.on, decorator)("widgets", registry=registry)  # type: ignore[untyped-decorator]
    async def check(patch: trioperator.Patch, **_: Any) -> None:
        calls.append(None)
        patch.spec["x"] = 1
        raise error

    async with asking(cluster, registry) as ask:
        assert await ask() == {"uid": "u1", "allowed": False, "status": status}
        await trio.sleep(100)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("error", "level", "text", "posted"),
    [
        (trioperator.AdmissionError("too big"), "INFO", "Webhook 'check' has denied the write: too big", False),
        (trioperator.PermanentError("too big"), "INFO", "Webhook 'check' has denied the write: too big", False),
        (LookupError("no such zone"), "ERROR", "Webhook 'check' failed with an exception", True),
    ],
)
async def test_a_denial_is_no_error_and_no_event_of_the_object(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    level: str,
    text: str,
    posted: bool,
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check() -> None:
        raise error

    caplog.set_level(logging.INFO)
    async with asking(cluster, registry) as ask:
        assert not (await ask())["allowed"]
        await trio.sleep(60)
    (record,) = (record for record in caplog.records if text in record.getMessage())
    assert (record.levelname, not getattr(record, "k8s_skip", False)) == (level, posted)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (trioperator.AdmissionError("too big"), "too big"),
        (ValueError("password of the database"), "The webhook has failed: see the log of the operator."),
    ],
)
async def test_with_ignore_failures_an_error_is_a_warning_and_what_is_unexpected_stays_in_the_log(
    error: Exception, text: str, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="check", ignore_failures=True, registry=registry)
    async def check(**_: Any) -> None:
        raise error

    async with asking(cluster, registry) as ask:
        expected = [f"Webhook 'check' has failed, which is ignored: {text}"]
        assert await ask() == {"uid": "u1", "allowed": True, "warnings": expected}


GADGETS = {"resource": {"group": "example.com", "version": "v1", "resource": "gadgets"}}


@pytest.mark.parametrize(
    ("review", "what"),
    [
        (GADGETS, "CREATE on gadgets"),
        ({"operation": "UPDATE"}, "UPDATE on widgets"),
        ({"subResource": "scale"}, "CREATE on widgets/scale"),
    ],
)
async def test_a_webhook_allows_nothing_that_its_handlers_do_not_review(
    review: dict[str, Any],
    what: str,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
) -> None:
    @trioperator.on.validate("widgets", id="check", operation="CREATE", registry=registry)
    async def check(**_: Any) -> None: ...

    settings = trioperator.OperatorSettings()
    await cluster.apply(define_kind("gadgets", "example.com"))
    async with asking(cluster, registry, settings=settings) as ask:
        with pytest.raises(ReviewError, match=f"do not review the operation {what}") as caught:
            await ask(make_review(**review), webhook="check")
        assert (await ask(make_review(**review)))["allowed"]  # all handlers were asked
        settings.admission.allow_unknown = True
        assert (await ask(make_review(**review), webhook="check"))["allowed"]
    assert caught.value.status == 404


async def test_a_mutating_webhook_may_leave_deletions_alone(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.mutate("widgets", id="change", registry=registry)
    async def change(**_: Any) -> None:
        raise trioperator.AdmissionError("no")

    async with asking(cluster, registry) as ask:
        assert (await ask(make_review("DELETE"), webhook="change"))["allowed"]


async def test_a_handler_without_a_version_reviews_all_of_them(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(resource: trioperator.Resource) -> None:
        raise trioperator.AdmissionError(f"no {resource.version}")

    await cluster.apply(definition("v1", "v2"))
    review = make_review(resource={"group": "example.com", "version": "v1", "resource": "widgets"})
    async with asking(cluster, registry) as ask:
        assert (await ask(review, webhook="check"))["status"]["message"] == "no v1"


async def test_a_new_kind_of_the_same_name_does_not_end_reviews(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(**_: Any) -> None:
        raise trioperator.AdmissionError("no")

    async with asking(cluster, registry) as ask:
        await cluster.apply(define_kind("widgets", "other.example.com"))
        await trio.sleep(60)
        assert not (await ask(webhook="check"))["allowed"]
        assert not (await ask())["allowed"]
    assert "The resource widgets is ambiguous" in caplog.text


def define_kind(plural: str, group: str) -> dict[str, Any]:
    """Return the definition of another kind."""
    body = copy.deepcopy(CRD)
    body["metadata"]["name"] = f"{plural}.{group}"
    kind = plural.removesuffix("s")
    body["spec"] |= {"group": group, "names": {"plural": plural, "singular": kind, "kind": kind.title()}}
    return body


async def test_only_the_handler_of_the_webhook_is_called_or_all_without_one(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    for name in ("One_x", "two"):

        @trioperator.on.validate("widgets", id=name, registry=registry)
        async def check(warnings: list[str], name: str = name, **_: Any) -> None:
            warnings.append("called")

    async with asking(cluster, registry) as ask:
        assert (await ask(webhook="One_x"))["warnings"] == ["called"]
        assert (await ask(webhook="one-x"))["warnings"] == ["called"]  # the path of a service
        assert (await ask())["warnings"] == ["called", "called"]


async def test_a_webhook_without_a_handler_is_warned_of_once(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(**_: Any) -> None: ...

    async with asking(cluster, registry) as ask:
        for webhook in ("three", "three", *["x" * 10_000] * 2):
            with pytest.raises(ReviewError, match="no handler for this webhook") as caught:
                await ask(webhook=webhook)
            assert caught.value.status == 404
        reported = find_reported(caplog)
        assert reported[0] == "There is no handler for the webhook 'three': its reviews are answered with HTTP 404."
        assert len(reported) == 2
        assert len(reported[1]) < 250
        for number in range(200):  # anybody may ask for as many as they like
            with pytest.raises(ReviewError):
                await ask(webhook=f"other-{number}")
    assert len(find_reported(caplog)) == 100


def find_reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of webhooks without a handler."""
    return [text for text in caplog.messages if text.startswith("There is no handler for the webhook")]


async def test_reviews_that_nobody_handles_are_allowed_on_request(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    settings = trioperator.OperatorSettings()
    settings.admission.allow_unknown = True

    @trioperator.on.validate("widgets", registry=registry)
    async def check(**_: Any) -> None: ...

    async with asking(cluster, registry, settings=settings) as ask:
        assert await ask(webhook="three") == {"uid": "u1", "allowed": True}
    assert "There is no handler for the webhook 'three': its reviews are allowed." in caplog.messages
    assert KopfSettings().admission.allow_unknown


async def test_filters_decide_in_the_operator_too(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    options: dict[str, Any] = {"registry": registry, "when": lambda operation, **_: operation == "UPDATE"}

    @trioperator.on.validate("widgets", field="spec.size", value=lambda value, **_: value > 5, **options)
    async def check(old: Any, new: Any, warnings: list[str]) -> None:
        warnings.append(f"{old} {new}")

    async with asking(cluster, registry) as ask:
        assert "warnings" not in await ask(make_review("CREATE", new=widget("w", size=9)))
        assert "warnings" not in await ask(make_review("UPDATE", new=widget("w", size=2)))
        assert (await ask(make_review("UPDATE", new=widget("w", size=9))))["warnings"] == ["1 9"]


FILTERS: list[dict[str, Any]] = [
    {"labels": {"protected": "yes"}},
    {"annotations": {"protected": trioperator.PRESENT}},
    {"field": "spec.protected", "value": True},
    {"labels": {"protected": "yes"}, "when": lambda operation, **_: operation != "CREATE"},
]


@pytest.mark.parametrize("options", FILTERS)
async def test_an_update_cannot_escape_a_filter_by_what_it_removes(
    options: dict[str, Any], cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", registry=registry, **options)
    async def guard(**_: Any) -> None:
        raise trioperator.AdmissionError("protected", code=403)

    @trioperator.on.mutate("widgets", registry=registry, **options)
    async def change(warnings: list[str], **_: Any) -> None:
        warnings.append("changed")

    plain, protected = widget("w", size=1), widget("w", size=1, protected=True)
    protected["metadata"] |= {"labels": {"protected": "yes"}, "annotations": {"protected": ""}}
    async with asking(cluster, registry) as ask:
        for old, new in ((protected, plain), (plain, protected), (protected, protected)):
            assert not (await ask(make_review("UPDATE", old=old, new=new)))["allowed"]
        assert (await ask(make_review("UPDATE", old=plain, new=plain)))["allowed"]
        assert (await ask(make_review("CREATE", new=plain)))["allowed"]
        assert not (await ask(make_review("DELETE", old=protected)))["allowed"]
        # What is changed depends on the new object only.
        assert "warnings" not in await ask(make_review("UPDATE", old=protected, new=plain))


async def test_a_filter_that_fails_denies(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="check", when=lambda spec, **_: spec["nothing"], registry=registry)
    async def check(**_: Any) -> None: ...

    async with asking(cluster, registry) as ask:
        response = await ask()
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert "A filter of Webhook 'check' has failed" in response["status"]["message"]


async def test_patches_of_mutating_handlers_are_returned_as_one(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.mutate("widgets", id="one", registry=registry)
    def one(patch: trioperator.Patch) -> None:
        patch.spec["size"] = 5
        patch.meta.labels["a"] = "b"

    @trioperator.on.mutate("widgets", id="two", registry=registry)
    async def two(patch: trioperator.Patch) -> None:
        patch.spec["color"] = "red"
        patch.fns.append(lambda body: body["spec"].update(size=body["spec"]["size"] + 1))

    async with asking(cluster, registry) as ask:
        response = await ask()
    assert response["patchType"] == "JSONPatch"
    operations = msgspec.json.decode(base64.b64decode(response["patch"]))
    assert sorted(operations, key=lambda operation: operation["path"]) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "add", "path": "/spec/color", "value": "red"},
        {"op": "replace", "path": "/spec/size", "value": 6},
    ]


@pytest.mark.parametrize(("decorator", "operation"), [("validate", "CREATE"), ("mutate", "DELETE")])
async def test_changes_that_cannot_be_made_are_dropped_with_a_warning(
    decorator: str,
    operation: str,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @getattr(trioperator.on, decorator)("widgets", operation=operation, registry=registry)  # type: ignore[untyped-decorator]
    async def check(patch: trioperator.Patch) -> None:
        patch.spec["x"] = 1

    async with asking(cluster, registry) as ask:
        assert await ask(make_review(operation)) == {"uid": "u1", "allowed": True}
    assert "are dropped" in caplog.text


async def test_a_list_of_the_object_can_be_extended_in_place(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.mutate("widgets", registry=registry)
    def extend(spec: Any, new: Any, patch: Any, **_: Any) -> None:
        items = spec["items"]
        items.append("added")
        patch.spec["items"] = items
        new["spec"]["size"] = 2
        patch.spec["size"] = new["spec"]["size"]

    async with asking(cluster, registry) as ask:
        response = await ask(make_review(new=widget("w", size=1, items=["first"])))
    assert sorted(msgspec.json.decode(base64.b64decode(response["patch"])), key=lambda op: op["path"]) == [
        {"op": "replace", "path": "/spec/items", "value": ["first", "added"]},
        {"op": "replace", "path": "/spec/size", "value": 2},
    ]


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), lambda body: body["nothing"].clear()],
    ids=["no JSON", "no number", "a function fails"],
)
async def test_a_patch_that_cannot_be_made_denies(
    value: Any, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.mutate("widgets", id="change", registry=registry)
    async def change(patch: trioperator.Patch) -> None:
        if callable(value):
            patch.fns.append(value)
        else:
            patch.spec["x"] = value

    async with asking(cluster, registry) as ask:
        response = await ask()
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert "The patch of Webhook 'change'" in response["status"]["message"]


async def test_a_handler_that_hangs_denies_before_the_api_server_gives_up(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="check", timeout=10, registry=registry)
    async def check(**_: Any) -> None:
        await trio.sleep_forever()

    async with asking(cluster, registry) as ask:
        began = trio.current_time()
        response = await ask()
        assert trio.current_time() - began < 10
    assert response["status"] == {"message": "Webhook 'check' has not answered within 10 seconds.", "code": 504}


@pytest.mark.parametrize("query", ["timeout=10s", "timeout=30s", ""])
@pytest.mark.parametrize("is_limited", [True, False], ids=["the server limits responses", "the application does"])
async def test_a_handler_that_hangs_is_named_whoever_limits_the_time(
    is_limited: bool,
    query: str,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: object,
) -> None:
    @trioperator.on.mutate("widgets", id="change", registry=registry)
    async def change(patch: trioperator.Patch, warnings: list[str]) -> None:
        patch.spec["x"] = 1
        warnings.append("old")

    @trioperator.on.validate("widgets", id="check", timeout=10, registry=registry)
    async def check(**_: Any) -> None:
        await trio.sleep_forever()

    async with asking_over_http(cluster, registry, is_limited=is_limited) as ask:
        began = trio.current_time()
        response = await ask(query)
        assert trio.current_time() - began < 10
    text = "Webhook 'check' has not answered within 10 seconds."
    assert response == {"uid": "u1", "allowed": False, "warnings": ["old"], "status": {"message": text, "code": 504}}
    assert caplog.messages.count(text) == 1


@pytest.mark.parametrize("is_limited", [True, False], ids=["the server limits responses", "the application does"])
async def test_a_late_review_whose_warnings_are_no_text_has_a_response_and_is_logged(
    is_limited: bool,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: object,
) -> None:
    @trioperator.on.validate("widgets", id="check", timeout=10, registry=registry)
    async def check(warnings: list[str], **_: Any) -> None:
        warnings.append("\ud800")
        await trio.sleep_forever()

    async with asking_over_http(cluster, registry, is_limited=is_limited) as ask:
        assert await ask("timeout=10s") == 504
    assert "Webhook 'check' has not answered within 10 seconds." in caplog.messages
    assert "The answer to a late review cannot be sent." in caplog.messages


@pytest.mark.parametrize("query", ["timeout=10s", "timeout=30s", ""])
@pytest.mark.parametrize("is_limited", [True, False], ids=["the server limits responses", "the application does"])
async def test_the_next_handler_is_called_after_one_that_hangs_and_is_ignored(
    is_limited: bool, query: str, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", id="slow", timeout=10, ignore_failures=True, registry=registry)
    async def slow(**_: Any) -> None:
        await trio.sleep_forever()

    @trioperator.on.validate("widgets", id="check", timeout=30, registry=registry)
    async def check(warnings: list[str]) -> None:
        warnings.append("checked")

    async with asking_over_http(cluster, registry, is_limited=is_limited) as ask:
        response = await ask(query)
    text = "Webhook 'slow' has failed, which is ignored: Webhook 'slow' has not answered within 10 seconds."
    assert response == {"uid": "u1", "allowed": True, "warnings": [text, "checked"]}


async def test_the_memo_of_an_object_is_shared_but_for_creations(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.create("widgets", registry=registry)
    async def created(memo: Any) -> None:
        memo.seen = "created"

    @trioperator.on.validate("widgets", registry=registry)
    async def check(memo: Any, warnings: list[str]) -> None:
        warnings.append(memo.get("seen", "new"))
        memo.seen = "checked"

    async with asking(cluster, registry) as ask:
        obj = await cluster.create(widget("w"))
        await trio.sleep(10)
        assert (await ask(make_review("CREATE", new=obj)))["warnings"] == ["new"]
        assert (await ask(make_review("UPDATE", new=obj, old=obj)))["warnings"] == ["created"]
        assert (await ask(make_review("UPDATE", new=obj, old=obj)))["warnings"] == ["checked"]
        assert (await ask(make_review("DELETE", old=obj)))["warnings"] == ["checked"]
        assert (await ask(make_review("UPDATE")))["warnings"] == ["new"]


async def test_an_unknown_resource_is_not_found(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.validate("widgets", registry=registry)
    async def check(**_: Any) -> None: ...

    async with asking(cluster, registry) as ask:
        with pytest.raises(ReviewError, match=r"The resource toys\.v1\.example\.com is unknown") as caught:
            await ask(make_review(resource={"group": "example.com", "version": "v1", "resource": "toys"}))
    assert caught.value.status == 404


async def test_adopting_and_logging_know_the_object(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    @trioperator.on.validate("widgets", registry=registry)
    def check(logger: trioperator.Logger, warnings: list[str]) -> None:
        child: dict[str, Any] = {}
        trioperator.label(child, {"a": "b"})
        trioperator.adjust_namespace(child)
        warnings.append(child["metadata"]["namespace"])
        logger.info("it was here")

    async with asking(cluster, registry) as ask:
        assert (await ask())["warnings"] == ["default"]
    (record,) = [record for record in caplog.records if "it was here" in record.getMessage()]
    assert record.__dict__["k8s_ref"]["name"] == "w"


async def test_slow_sync_handlers_do_not_hold_up_others(
    cluster: Cluster, registry: trioperator.OperatorRegistry
) -> None:
    release = trio.Event()

    @trioperator.on.validate("widgets", id="slow", registry=registry)
    def slow(**_: Any) -> None:
        while not release.is_set():
            time.sleep(0.02)

    @trioperator.on.validate("widgets", id="fast", registry=registry)
    def fast(**_: Any) -> None: ...

    async with asking(cluster, registry) as ask, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(lambda: ask(webhook="slow"))
        await trio.sleep(0.1)
        with trio.fail_after(10):
            assert (await ask(webhook="fast"))["allowed"]
        release.set()


@pytest.mark.parametrize("where", ["handler", "filter"])
async def test_handlers_see_complete_indices_at_the_start_and_after_a_pause(
    where: str, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.index("widgets", registry=registry)
    async def colors(spec: Any, **_: Any) -> dict[str, bool]:
        return {spec["color"]: True}

    def is_known(spec: Any, colors: trioperator.Index[str, bool], **_: Any) -> bool:
        return spec["color"] in colors

    if where == "filter":

        @trioperator.on.validate("widgets", id="v", when=is_known, registry=registry)
        async def deny_known(**_: Any) -> None:
            raise trioperator.AdmissionError("There is one of this color.")

    else:

        @trioperator.on.validate("widgets", id="v", registry=registry)
        async def deny_if_known(spec: Any, colors: trioperator.Index[str, bool], **_: Any) -> None:
            if is_known(spec, colors):
                raise trioperator.AdmissionError("There is one of this color.")

    settings = trioperator.OperatorSettings()
    settings.leadership.enabled, settings.leadership.namespace = True, "default"
    fns: list[WebhookFn] = []
    plan = FaultPlan()
    plan.add(Fault.delay(before=2), resource="widgets", verb="list")
    plan.add(Fault.delay(before=1), path="^/apis?$")
    await cluster.apply(CRD)
    await cluster.create(widget("other", color="red"))
    async with trio.open_nursery() as nursery:
        options = {"managed": None, "settings": settings, "transport": FaultyTransport(cluster.transport(), plan)}
        nursery.start_soon(
            functools.partial(operate_for, 60, cluster, registry, in_order=True, server=sleeping_server(fns), **options)
        )
        await until(lambda: bool(fns))
        plan.add(Fault.refuse(), resource="leases", since=trio.current_time() + 10, until=trio.current_time() + 30)
        for _ in range(500):
            response = (await fns[0](make_review(new=widget("w", color="red"))))["response"]
            assert response["status"]["message"] == "There is one of this color.", trio.current_time()
            await trio.sleep(0.1)


async def test_reviews_by_indices_wait_while_a_paused_operator_drains(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.index("widgets", registry=registry)
    async def colors(spec: Any, **_: Any) -> dict[str, bool]:
        return {spec["color"]: True}

    @trioperator.on.create("widgets", registry=registry)
    async def drain(**_: Any) -> None:
        await trio.sleep(15)

    @trioperator.on.validate("widgets", id="v", registry=registry)
    async def validate(spec: Any, colors: trioperator.Index[str, bool], **_: Any) -> None:
        if spec["color"] in colors:
            raise trioperator.AdmissionError("There is one of this color.")

    settings = trioperator.OperatorSettings()
    settings.peering.mandatory = True
    await cluster.apply(peering_crd())
    await cluster.create(peering())
    async with asking(cluster, registry, settings=settings) as ask:
        await cluster.create(widget("other", color="blue"))
        await trio.sleep(5)
        await cluster.delete("clusterkopfpeerings", "default")  # without it, the operator pauses
        await trio.sleep(1)
        await cluster.create(widget("another", color="red"))
        review = make_review(new=widget("w", color="red"))
        with pytest.raises(ReviewError, match="The indices are not complete") as caught:
            await ask(review)  # it does not watch until the handler has ended
        assert caught.value.status == 503
        await trio.sleep(5)
        assert (await ask(review))["status"]["message"] == "There is one of this color."


async def test_writes_are_not_reviewed_by_handlers_whose_indices_cannot_be_completed(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.index("widgets", registry=registry)
    def colors(spec: Any, **_: Any) -> dict[str, bool]:
        return {spec["color"]: True}

    @trioperator.on.validate("widgets", id="v", registry=registry)
    async def validate(colors: trioperator.Index[str, bool], **_: Any) -> None:
        raise AssertionError

    @trioperator.on.validate("widgets", id="other", registry=registry)
    async def validate_otherwise(**_: Any) -> None: ...

    fns: list[WebhookFn] = []
    plan = FaultPlan()
    plan.add(Fault.status(403), resource="widgets", verb="list")
    transport = FaultyTransport(cluster.transport(), plan)
    async with operating(cluster, registry, managed=None, server=sleeping_server(fns), transport=transport):
        with pytest.raises(ReviewError, match="The indices are not complete") as caught:
            await fns[0](make_review(), webhook="v")
        assert caught.value.status == 503
        assert (await fns[0](make_review(), webhook="other"))["response"]["allowed"]
