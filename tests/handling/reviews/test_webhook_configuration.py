"""Tests for :mod:`trioperator._handling.reviews.webhook_configuration`."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from trioperator import on
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.filters import ABSENT, PRESENT
from trioperator._handling.reviews.admission import WebhookType
from trioperator._handling.reviews.webhook_configuration import (
    ServedKinds,
    build_webhooks,
    is_webhook_suffix,
    keep_rules,
)
from trioperator._model.resource import Resource

WIDGETS = Resource("example.com", "v1", "widgets")
PODS = Resource("", "v1", "pods")
ADDRESS = {"url": "https://host:1/base/", "caBundle": "abc"}


def fn(**_: Any) -> None: ...


def build(registry: OperatorRegistry, *resources: Resource, address: Any = ADDRESS, type: str = "validating") -> Any:
    handlers = dict.fromkeys(registry.admission_handlers(), resources or (WIDGETS,))
    return build_webhooks(handlers, address, type=WebhookType(type), suffix="hooks.example.com")


@pytest.fixture
def registry() -> OperatorRegistry:
    return OperatorRegistry()


def test_a_webhook_has_all_fields_with_their_defaults(registry: OperatorRegistry) -> None:
    on.validate("widgets", registry=registry)(fn)
    assert build(registry, WIDGETS, PODS) == [
        {
            "name": "fn.hooks.example.com",
            "clientConfig": {"url": "https://host:1/base/fn", "caBundle": "abc"},
            "rules": [
                {"apiGroups": [g], "apiVersions": ["v1"], "resources": [r], "operations": ["*"], "scope": "*"}
                for g, r in (("", "pods"), ("example.com", "widgets"))
            ],
            "admissionReviewVersions": ["v1", "v1beta1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "objectSelector": {},
            "namespaceSelector": {},
            "timeoutSeconds": 30,
        }
    ]
    assert build(registry, type="mutating") == []


def test_options_of_the_handler_are_in_the_webhook(registry: OperatorRegistry) -> None:
    on.mutate(
        "widgets",
        id="Some/Thing",
        operations=["UPDATE", "CREATE"],
        subresource="*",
        side_effects=True,
        ignore_failures=True,
        timeout=3,
        namespace_selector={"matchLabels": {"a": "b"}},
        match_conditions={"small": "true"},
        match_policy="Exact",
        reinvocation_policy="IfNeeded",
        labels={"a": "b", "c": PRESENT, "d": ABSENT, "e": lambda value, **_: True},
        registry=registry,
    )(fn)
    (webhook,) = build(registry, type="mutating")
    assert webhook["name"] == "some.thing.hooks.example.com"
    assert webhook["clientConfig"]["url"] == "https://host:1/base/Some/Thing"
    (rule,) = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["widgets", "widgets/*"], ["CREATE", "UPDATE"])
    assert webhook["objectSelector"] == {
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["b"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
        ]
    }
    chosen = ("sideEffects", "failurePolicy", "matchPolicy", "timeoutSeconds", "reinvocationPolicy")
    assert [webhook[key] for key in chosen] == ["NoneOnDryRun", "Ignore", "Exact", 3, "IfNeeded"]
    assert webhook["namespaceSelector"] == {"matchLabels": {"a": "b"}}
    assert webhook["matchConditions"] == [{"name": "small", "expression": "true"}]


def test_handlers_of_one_id_are_one_webhook(registry: OperatorRegistry) -> None:
    on.validate("widgets", operation="CREATE", labels={"a": "b"}, registry=registry)(fn)
    on.validate("widgets", operation="UPDATE", ignore_failures=True, registry=registry)(fn)
    (webhook,) = build(registry)
    assert [rule["operations"] for rule in webhook["rules"]] == [["CREATE"], ["UPDATE"]]
    assert (webhook["objectSelector"], webhook["failurePolicy"]) == ({}, "Fail")


def test_a_handler_without_resources_has_no_webhook(registry: OperatorRegistry) -> None:
    on.validate("widgets", registry=registry)(fn)
    (handler,) = registry.admission_handlers()
    assert build_webhooks({handler: ()}, ADDRESS, type=WebhookType.VALIDATING, suffix="a.b") == []


def test_the_id_is_added_to_the_path_of_a_service(registry: OperatorRegistry) -> None:
    on.validate("widgets", id="A b_c", registry=registry)(fn)
    service = {"namespace": "ns", "name": "hooks", "path": "/x", "port": None}
    (webhook,) = build(registry, address={"service": service, "url": None})
    expected = {"namespace": "ns", "name": "hooks", "path": "/x/a20b-c", "port": 443}
    assert webhook["clientConfig"] == {"service": expected}


@pytest.mark.parametrize(
    ("name", "suits"), [("a.b", True), ("auto.kopf.dev", True), ("a", False), ("A.b", False), ("a..b", False)]
)
def test_a_suffix_is_a_domain_of_two_parts(name: str, suits: bool) -> None:
    assert is_webhook_suffix(name) is suits


@hypothesis.settings(max_examples=50)
@hypothesis.given(st.lists(st.text(min_size=1, max_size=40) | st.just("x" * 300), min_size=1, max_size=4, unique=True))
def test_names_are_unique_and_valid_whatever_the_ids_are(ids: list[str]) -> None:
    registry = OperatorRegistry()
    for id in ids:
        on.validate("widgets", id=id, registry=registry)(fn)
    names = [webhook["name"] for webhook in build(registry)]
    assert len(set(names)) == len(ids)
    assert all(len(name) <= 253 and is_webhook_suffix(name) for name in names)


def test_rules_are_kept_for_kinds_that_are_not_served_up_to_a_limit() -> None:
    def rule(group: str, *resources: str) -> dict[str, Any]:
        return {"apiGroups": [group], "apiVersions": ["v1"], "resources": list(resources)}

    own, gone = rule("example.com", "doors"), rule("example.com", "windows", "windows/status")
    away, others = rule("metrics.example.com", "nodes"), [rule("example.com", f"kind{number}") for number in range(200)]
    served = ServedKinds(frozenset({("example.com", "doors"), ("metrics.example.com", "nodes")}))
    hooks: list[dict[str, Any]] = [{"name": "a", "rules": [own]}, {"name": "b", "rules": []}]
    stored: list[dict[str, Any]] = [
        {"name": "a", "rules": [rule("example.com", "doors/status"), gone, away, {}, own]},
        {"name": "c"},
    ]
    assert keep_rules(hooks, stored, served) == [{"name": "a", "rules": [own, gone]}]
    unavailable = msgspec.structs.replace(served, undiscovered=frozenset({"metrics.example.com"}))
    assert keep_rules(hooks, stored, unavailable) == [{"name": "a", "rules": [own, gone, away]}]
    for wild in (rule("*", "windows"), rule("example.com", "*"), rule("example.com", "*/*"), rule("*", "*")):
        assert keep_rules(hooks, [{"name": "a", "rules": [wild]}], served) == [{"name": "a", "rules": [own]}], wild
    [hook] = keep_rules([{"name": "b", "rules": []}], [{"name": "b", "rules": others}], served)
    assert hook["rules"] == others[:100]
