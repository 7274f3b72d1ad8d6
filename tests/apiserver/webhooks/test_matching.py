"""Tests for :mod:`trioperator.apiserver.webhooks.matching`: rules and selectors decide which webhooks are called."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.model.kinds import Catalog, Kind
from trioperator.apiserver.webhooks.matching import AdmissionAttributes, Webhook, select, webhooks_of

catalog = Catalog()
ALL = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
LABELLED = {"matchLabels": {"a": "b"}}


def kind(api_version: str, name: str) -> Kind:
    found = catalog.by_object(api_version, name)
    assert found is not None
    return found


PODS = kind("v1", "Pod")
NAMESPACES = kind("v1", "Namespace")


def webhook(*rules: dict[str, Any], **more: Any) -> Webhook:
    hook = {"name": "hook.test", "clientConfig": {"url": "https://hooks.test"}, "rules": list(rules), **more}
    (found,) = webhooks_of({"metadata": {"name": "c"}, "webhooks": [hook]})
    return found


def write(kind: Kind = PODS, operation: str = "CREATE", **more: Any) -> AdmissionAttributes:
    return AdmissionAttributes(operation=operation, kind=kind, namespace="ns", name="a", **more)


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "x", "labels": labels}}


def matches(webhook: Webhook, attributes: AdmissionAttributes, namespace: dict[str, Any] | None = None) -> bool:
    return select(webhook, attributes, equivalents=(), namespace=namespace) is not None


def test_the_webhooks_of_a_configuration_are_distinct() -> None:
    hook = {"name": "same", "clientConfig": {"url": "https://hooks.test"}}
    found = webhooks_of({"metadata": {"name": "c"}, "webhooks": [hook, hook]})
    assert [each.name for each in found] == ["same", "same"]
    assert len({each.id for each in found}) == 2
    assert webhooks_of({"metadata": {"name": "c"}}) == []


def test_the_policies_of_a_webhook_are_parsed() -> None:
    hook = webhook(
        failurePolicy="Ignore",
        matchPolicy="Exact",
        reinvocationPolicy="IfNeeded",
        sideEffects="Some",
        timeoutSeconds=3,
        matchConditions=[{"name": "one", "expression": "true"}],
    )
    assert hook.ignores_failures
    assert not hook.matches_equivalents
    assert hook.is_reinvoked
    assert not hook.allows_dry_run
    assert (hook.timeout, hook.conditions) == (3, (("one", "true"),))


@pytest.mark.parametrize(
    ("changes", "is_called"),
    [
        ({}, True),
        ({"operations": ["CREATE", "DELETE"]}, True),
        ({"operations": ["UPDATE"]}, False),
        ({"apiGroups": [""]}, True),
        ({"apiGroups": ["apps"]}, False),
        ({"apiVersions": ["v1"]}, True),
        ({"apiVersions": ["v2"]}, False),
        ({"resources": ["pods"]}, True),
        ({"resources": ["*"]}, True),
        ({"resources": ["pods/status", "configmaps"]}, False),
        ({"resources": ["*/status"]}, False),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
    ],
)
def test_a_webhook_is_called_if_all_parts_of_a_rule_match(changes: dict[str, Any], is_called: bool) -> None:
    assert matches(webhook({**ALL, **changes}), write()) is is_called


@pytest.mark.parametrize(
    ("resource", "is_called"),
    [("pods", False), ("*", False), ("pods/status", True), ("pods/*", True), ("*/status", True), ("*/scale", False)],
)
def test_a_subresource_matches_only_by_its_own_name(resource: str, is_called: bool) -> None:
    hook = webhook({**ALL, "resources": [resource]})
    assert matches(hook, write(operation="UPDATE", subresource="status")) is is_called


@pytest.mark.parametrize(("policy", "group"), [("Equivalent", "events.k8s.io"), ("Exact", None)])
def test_other_versions_match_if_the_policy_allows_it(policy: str, group: str | None) -> None:
    old, new = (kind(each, "Event") for each in ("v1", "events.k8s.io/v1"))
    hook = webhook({**ALL, "apiGroups": ["events.k8s.io"]}, matchPolicy=policy)
    found = select(hook, write(old), equivalents=[new], namespace=None)
    assert (found and found.group) == group
    assert select(hook, write(new), equivalents=[old], namespace=None) is new


@pytest.mark.parametrize(
    ("new", "old", "is_called"),
    [
        (labelled(a="b"), None, True),
        (labelled(a="x"), labelled(a="b"), True),
        (labelled(a="b"), labelled(), True),
        (None, labelled(a="b"), True),
        (labelled(a="x"), labelled(), False),
    ],
)
def test_an_object_is_selected_by_its_old_or_new_labels(new: Any, old: Any, is_called: bool) -> None:
    assert matches(webhook(ALL, objectSelector=LABELLED), write(new=new, old=old)) is is_called


def test_objects_are_selected_by_the_labels_of_their_namespace() -> None:
    hook = webhook(ALL, namespaceSelector=LABELLED)
    assert matches(hook, write(), labelled(a="b"))
    assert not matches(hook, write(), labelled(a="x"))
    assert not matches(hook, write(), None)
    assert matches(hook, write(kind("v1", "Node")), None)


def test_a_namespace_is_selected_by_its_own_labels() -> None:
    hook = webhook(ALL, namespaceSelector=LABELLED)
    assert matches(hook, write(NAMESPACES, new=labelled(a="b")))
    assert not matches(hook, write(NAMESPACES, "UPDATE", new=labelled(), old=labelled(a="b")))
    assert matches(hook, write(NAMESPACES, "UPDATE", subresource="status", new=labelled(), old=labelled(a="b")))
    assert matches(hook, write(NAMESPACES, "DELETE", old=labelled(a="b")))


def test_webhook_configurations_are_exempt() -> None:
    configurations = kind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
    assert write(configurations).is_exempt
    assert not write().is_exempt
