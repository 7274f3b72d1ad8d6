"""Conformance: conversion of custom objects between versions."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from tests.apiserver.admissions import WebhookCase, open_bench
from tests.apiserver.conftest import Answer, Target, ensure_definition
from tests.apiserver.hooks import BUNDLE, Hooks, Reply, allow, serve_hooks

Object = dict[str, Any]
GROUP = "conversions.dev"
TEXT = {"type": "string"}
NUMBERS = {"v1": {"address": TEXT}, "v2": {"host": TEXT, "port": TEXT}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def convert(review: Object, *, change: Callable[[Object], None] = lambda obj: None) -> Object:
    """Convert between ``address: host:port`` (v1) and ``host`` and ``port`` (v2)."""
    request = review["request"]
    converted = []
    for old in request["objects"]:
        obj = copy.deepcopy(old)
        spec = obj.get("spec", {})
        if request["desiredAPIVersion"].endswith("v2"):
            host, _, port = spec.get("address", ":").partition(":")
            obj["spec"] = {"host": host, "port": port}
        else:
            obj["spec"] = {"address": f"{spec.get('host', '')}:{spec.get('port', '')}"}
        obj["apiVersion"] = request["desiredAPIVersion"]
        change(obj)
        converted.append(obj)
    return answer(review, convertedObjects=converted)


def answer(review: Object, **response: Any) -> Object:
    """Return a conversion response."""
    response = {"uid": review["request"]["uid"], "result": {"status": "Success"}, **response}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


def changed(**content: Any) -> Callable[[Object], Object]:
    """Return a webhook that also changes the metadata."""

    def change(obj: Object) -> None:
        obj["metadata"].update(content)

    return lambda review: convert(review, change=change)


class Place(WebhookCase):
    """Definition with two versions and a conversion webhook."""

    def __init__(self, target: Target, hooks: Hooks) -> None:
        super().__init__(target, hooks)
        self.plural = f"{self.unique}s"
        self.kind = self.unique.capitalize()
        self.name = f"{self.plural}.{GROUP}"
        hooks.handlers["/convert"] = convert

    def definition(self, conversion: Object, *, storage: str = "v1") -> Object:
        """Return the definition."""
        versions = [
            {
                "name": version,
                "served": True,
                "storage": version == storage,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": properties}},
                    }
                },
            }
            for version, properties in NUMBERS.items()
        ]
        names = {"kind": self.kind, "plural": self.plural}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": names,
                "versions": versions,
                "conversion": conversion,
            },
        }

    @property
    def by_webhook(self) -> Object:
        """Return the conversion stanza for the webhook."""
        client = {"url": f"{self.hooks.url}/convert", "caBundle": BUNDLE}
        return {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}}

    async def define(self, conversion: Object) -> None:
        """Create the definition, and wait until both versions are served."""
        await ensure_definition(self.target, self.definition(conversion))
        for version in NUMBERS:
            await self.target.until(self.at(version), 200)
        self.hooks.asked.clear()

    def at(self, version: str, name: str = "") -> str:
        """Return the path of the objects in the version."""
        base = f"/apis/{GROUP}/{version}/namespaces/{self.target.namespace}/{self.plural}"
        return f"{base}/{name}" if name else base

    async def make(self, version: str, name: str, **spec: str) -> Answer:
        """Create an object in the version."""
        obj = {"apiVersion": f"{GROUP}/{version}", "kind": self.kind, "metadata": {"name": name}, "spec": spec}
        return await self.target.request("POST", self.at(version), obj)

    async def clear(self) -> None:
        """Delete the definition."""
        self.hooks.handlers["/convert"] = convert
        await super().clear()
        await self.target.delete(f"{DEFINITIONS}/{self.name}")


@pytest.fixture
async def hooks(nursery: trio.Nursery) -> Hooks:
    """Return webhooks that are served on loopback."""
    hooks = Hooks()
    hooks.handlers["/allow"] = allow
    await nursery.start(serve_hooks, hooks)
    return hooks


@pytest.fixture
async def place(target: Target, hooks: Hooks) -> AsyncIterator[Place]:
    """Yield a place whose definition does not exist yet."""
    place = Place(target, hooks)
    async with open_bench(target, hooks, place):
        yield place


async def test_without_a_webhook_versions_differ_by_name_and_fields(target: Target, place: Place) -> None:
    await place.define({"strategy": "None"})
    created = await place.make("v1", "a", address="h:1")
    assert created.content["apiVersion"] == f"{GROUP}/v1"
    shown = await target.get(place.at("v2", "a"))
    assert shown.content["apiVersion"] == f"{GROUP}/v2"
    assert "address" not in shown.content["spec"]
    assert shown.content["metadata"]["resourceVersion"] == created.content["metadata"]["resourceVersion"]
    assert (await target.get(place.at("v1", "a"))).content["spec"] == {"address": "h:1"}


async def test_objects_can_be_read_in_another_version(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    assert (await target.get(place.at("v2", "a"))).content["spec"] == {"host": "h", "port": "1"}
    created = await place.make("v2", "b", host="i", port="2")
    assert (created.code, created.content["spec"]) == (201, {"host": "i", "port": "2"})
    assert created.content["apiVersion"] == f"{GROUP}/v2"
    assert (await target.get(place.at("v1", "b"))).content["spec"] == {"address": "i:2"}


async def test_the_webhook_gets_a_conversion_review(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    await target.get(place.at("v2", "a"))
    asked, review = place.hooks.asked[-1]
    assert asked == "/convert?timeout=30s"
    assert (review["kind"], review["apiVersion"]) == ("ConversionReview", "apiextensions.k8s.io/v1")
    assert review["request"]["uid"]
    assert review["request"]["desiredAPIVersion"] == f"{GROUP}/v2"
    (obj,) = review["request"]["objects"]
    assert (obj["apiVersion"], obj["kind"], obj["spec"]) == (f"{GROUP}/v1", place.kind, {"address": "h:1"})


async def test_the_stored_version_needs_no_webhook(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    place.hooks.handlers["/convert"] = lambda review: Reply(b"", 500)
    assert (await place.make("v1", "a", address="h:1")).code == 201
    assert (await target.get(place.at("v1", "a"))).code == 200
    assert (await target.merge(place.at("v1", "a"), {"spec": {"address": "h:2"}})).code == 200


async def test_a_list_is_converted(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    for name in "abc":
        await place.make("v1", name, address=f"{name}:1")
    found = await target.get(place.at("v2"))
    assert found.content["apiVersion"] == f"{GROUP}/v2"
    assert [item["spec"]["host"] for item in found.content["items"]] == ["a", "b", "c"]
    page = await target.get(place.at("v2"), limit="2")
    assert [item["spec"]["host"] for item in page.content["items"]] == ["a", "b"]
    rest = await target.get(place.at("v2"), **{"continue": page.content["metadata"]["continue"]})
    assert [item["spec"]["host"] for item in rest.content["items"]] == ["c"]


async def test_a_watch_is_converted(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    first = await place.make("v1", "a", address="h:1")
    await target.merge(place.at("v2", "a"), {"spec": {"port": "2"}})
    await place.make("v2", "b", host="i", port="3")
    await target.delete(place.at("v1", "a"))
    version = first.content["metadata"]["resourceVersion"]
    events = await target.lines(place.at("v2"), 3, resourceVersion=version)
    assert [(event["type"], event["object"]["spec"]) for event in events] == [
        ("MODIFIED", {"host": "h", "port": "2"}),
        ("ADDED", {"host": "i", "port": "3"}),
        ("DELETED", {"host": "h", "port": "2"}),
    ]
    assert {event["object"]["apiVersion"] for event in events} == {f"{GROUP}/v2"}


async def test_initial_events_of_a_watch_are_converted(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    (event,) = await target.lines(place.at("v2"), 1)
    assert (event["type"], event["object"]["spec"]) == ("ADDED", {"host": "h", "port": "1"})


async def test_an_object_can_be_patched_in_another_version(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    answer = await target.merge(place.at("v2", "a"), {"spec": {"port": "2"}})
    assert (answer.code, answer.content["spec"]) == (200, {"host": "h", "port": "2"})
    assert answer.content["metadata"]["generation"] == 2
    edited = await target.edit(place.at("v2", "a"), [{"op": "replace", "path": "/spec/host", "value": "g"}])
    assert edited.content["spec"] == {"host": "g", "port": "2"}
    assert (await target.get(place.at("v1", "a"))).content["spec"] == {"address": "g:2"}


async def test_an_object_can_be_replaced_in_another_version(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    obj = (await target.get(place.at("v2", "a"))).content
    obj["spec"]["host"] = "g"
    replaced = await target.request("PUT", place.at("v2", "a"), obj)
    assert (replaced.code, replaced.content["spec"]) == (200, {"host": "g", "port": "1"})


async def test_an_object_can_be_deleted_in_any_version(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    assert (await target.delete(place.at("v2", "a"))).code == 200
    assert (await target.get(place.at("v1", "a"))).code == 404


async def test_the_webhook_may_change_labels(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    place.hooks.handlers["/convert"] = changed(labels={"converted": "yes"})
    assert (await target.get(place.at("v2", "a"))).content["metadata"]["labels"] == {"converted": "yes"}


async def test_the_webhook_may_not_change_other_metadata(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    created = await place.make("v1", "a", address="h:1")
    place.hooks.handlers["/convert"] = changed(finalizers=["a.b/c"], resourceVersion="1", generation=7)
    shown = (await target.get(place.at("v2", "a"))).content["metadata"]
    assert "finalizers" not in shown
    for field in ("resourceVersion", "generation"):
        assert shown[field] == created.content["metadata"][field]


def other_kind(obj: Object) -> None:
    """Convert to another kind."""
    obj["kind"] = "Other"


def other_version(obj: Object) -> None:
    """Convert to another version."""
    obj["apiVersion"] = f"{GROUP}/v9"


FAILURES: dict[str, tuple[Callable[[Object], Any], str]] = {
    "message": (lambda review: answer(review, result={"status": "Failed", "message": "no way"}), "failed: no way"),
    "status": (
        lambda review: answer(review, result={"status": "Failed"}),
        "failed: response.result.status was 'Failed', not 'Success'",
    ),
    "fewer": (lambda review: answer(review, convertedObjects=[]), "returned 0 objects, expected 1"),
    "uid": (lambda review: answer(review, uid="x"), "failed: expected response.uid="),
    "response": (
        lambda review: {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"},
        "failed: no response provided",
    ),
    "500": (
        lambda review: Reply(b"boom", 500, "text/plain"),
        'failed: an error on the server ("boom") has prevented the request from succeeding',
    ),
    "name": (changed(name="z"), "returned invalid object: must have the same name: a != z"),
    "namespace": (changed(namespace="z"), "returned invalid object: must have the same namespace: "),
    "object's uid": (changed(uid="z"), "returned invalid object: must have the same UID: "),
    "labels": (changed(labels={"!": "x"}), "returned invalid metadata: metadata.labels: Invalid value: "),
    "kind": (
        lambda review: convert(review, change=other_kind),
        "returned invalid object at index 0: invalid kind (expected ",
    ),
    "version": (
        lambda review: convert(review, change=other_version),
        f"returned invalid object at index 0: invalid groupVersion (expected {GROUP}/v2, received {GROUP}/v9)",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failed_conversion_is_reported(target: Target, place: Place, case: str) -> None:
    handler, text = FAILURES[case]
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    place.hooks.handlers["/convert"] = handler
    answer = await target.get(place.at("v2", "a"))
    assert (answer.code, answer.reason) == (500, "")
    start = f"conversion webhook for {GROUP}/v1, Kind={place.kind} "
    assert answer.message.startswith(start + text), answer.message


async def test_a_failed_conversion_stores_nothing(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    place.hooks.handlers["/convert"] = lambda review: answer(review, result={"status": "Failed", "message": "no"})
    answer_ = await place.make("v2", "a", host="h")
    assert answer_.code == 500
    assert answer_.message == f"conversion webhook for {GROUP}/v2, Kind={place.kind} failed: no"
    assert (await target.get(place.at("v1", "a"))).code == 404


async def test_the_stored_version_may_change(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    await place.make("v1", "a", address="h:1")
    definition = (await target.get(f"{DEFINITIONS}/{place.name}")).content
    for version in definition["spec"]["versions"]:
        version["storage"] = version["name"] == "v2"
    assert (await target.request("PUT", f"{DEFINITIONS}/{place.name}", definition)).code == 200
    stored = await target.eventually(
        lambda: target.get(f"{DEFINITIONS}/{place.name}"),
        lambda answer: len(answer.content["status"]["storedVersions"]) == 2,
    )
    assert stored.content["status"]["storedVersions"] == ["v1", "v2"]
    await place.make("v2", "b", host="i", port="2")
    for name, address in (("a", "h:1"), ("b", "i:2")):
        assert (await target.get(place.at("v1", name))).content["spec"] == {"address": address}
    assert (await target.get(place.at("v2", "a"))).content["spec"] == {"host": "h", "port": "1"}


async def test_a_watch_ends_when_its_definition_changes(target: Target, place: Place) -> None:
    await place.define({"strategy": "None"})
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def change() -> None:
                await target.merge(f"{DEFINITIONS}/{place.name}", {"spec": {"names": {"shortNames": [place.unique]}}})

            async with target.client.stream("GET", place.at("v1"), params={"watch": "1"}) as response:
                nursery.start_soon(change)
                assert [line async for line in response.aiter_lines()] == []


async def test_admission_reviews_use_the_version_of_the_rule(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    rule = place.rule(place.plural, group=GROUP, versions=("v2",))
    await place.configure("Validating", place.webhook("/allow", rules=[rule]))
    await place.make("v1", "a", address="h:1")
    (request,) = place.asked("/allow")
    assert request["object"]["spec"] == {"host": "h", "port": "1"}
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v2", "v1")
    assert (request["resource"]["version"], request["requestResource"]["version"]) == ("v2", "v1")


async def test_admission_patches_use_the_version_of_the_rule(target: Target, place: Place) -> None:
    from tests.apiserver.hooks import patch

    await place.define(place.by_webhook)
    place.hooks.handlers["/port"] = lambda review: patch(review, {"op": "add", "path": "/spec/port", "value": "9"})
    rule = place.rule(place.plural, group=GROUP, versions=("v2",))
    await place.configure("Mutating", place.webhook("/port", rules=[rule]))
    assert (await place.make("v1", "a", address="h:1")).content["spec"] == {"address": "h:9"}


async def test_the_match_policy_exact_requires_the_version_of_the_rule(target: Target, place: Place) -> None:
    await place.define(place.by_webhook)
    rule = place.rule(place.plural, group=GROUP, versions=("v2",))
    await place.configure("Validating", place.webhook("/allow", rules=[rule], matchPolicy="Exact"))
    await place.make("v1", "a", address="h:1")
    await place.make("v2", "b", host="h")
    assert [request["name"] for request in place.asked("/allow")] == ["b"]


NO_CLIENT = {"conversionReviewVersions": ["v1"]}
INVALID: dict[str, tuple[Object, str]] = {
    "strategy": ({"strategy": "Nope"}, '@strategy: Unsupported value: "Nope": supported values: "None", "Webhook"'),
    "no strategy": ({}, "@strategy: Required value"),
    "no webhook": (
        {"strategy": "Webhook"},
        "[@webhookClientConfig: Required value: required when strategy is set to Webhook, "
        "@conversionReviewVersions: Required value]",
    ),
    "no client": (
        {"strategy": "Webhook", "webhook": NO_CLIENT},
        "@webhookClientConfig: Required value: required when strategy is set to Webhook",
    ),
    "nowhere": (
        {"strategy": "Webhook", "webhook": {**NO_CLIENT, "clientConfig": {}}},
        "@webhookClientConfig: Required value: exactly one of url or service is required",
    ),
    "http": (
        {"strategy": "Webhook", "webhook": {**NO_CLIENT, "clientConfig": {"url": "http://a/b"}}},
        "@webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
        "desired format: https://host[/path]",
    ),
    "versions": (
        {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v9"], "clientConfig": {"url": "https://a/b"}},
        },
        '@conversionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1',
    ),
    "needless": (
        {"strategy": "None", "webhook": {**NO_CLIENT, "clientConfig": {"url": "https://a/b"}}},
        "[@webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook, "
        "@conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook]",
    ),
}


@pytest.mark.parametrize("case", INVALID)
async def test_conversions_of_definitions_are_validated(target: Target, place: Place, case: str) -> None:
    conversion, text = INVALID[case]
    answer = await target.request("POST", DEFINITIONS, place.definition(conversion))
    text = text.replace("@", "spec.conversion.")
    assert answer.code == 422
    assert answer.message == f'CustomResourceDefinition.apiextensions.k8s.io "{place.name}" is invalid: {text}'
