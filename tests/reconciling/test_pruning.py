"""Tests for :mod:`trioperator._reconciling.pruning`.

When children that no handler desires are deleted, and when not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import children_of, config_map, names_of, requests_of
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator import on
from trioperator.testing import Fault, FaultPlan, FaultyTransport


def secret(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


async def secrets_of(bench: Bench) -> list[str]:
    return [each["metadata"]["name"] for each in await bench.cluster.list("secrets", "default")]


def is_marked(body: Mapping[str, Any]) -> object:
    return "ready" in body["metadata"].get("labels", {})


@pytest.fixture
async def chain(bench: Bench) -> Bench:
    """Return a bench where a ConfigMap depends on a Secret, each with the version of the object in its name."""

    @on.reconcile("widgets", owns=["configmaps", trioperator.Owned("secrets", bodies=True)], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[trioperator.Child]:
        database = trioperator.Child(secret(f"db-{spec['version']}"), ready=is_marked)
        return [database, trioperator.Child(config_map(f"web-{spec['version']}"), depends_on=[database])]

    await bench.cluster.create(widget(version=1))
    return bench


async def mark(bench: Bench, name: str) -> None:
    await bench.cluster.patch("secrets", name, {"metadata": {"labels": {"ready": "y"}}})
    await settle(1)


async def move_on(bench: Bench, **spec: Any) -> None:
    await bench.cluster.patch("widgets", "w", {"spec": spec or {"version": 2}})
    await settle(60)


async def test_old_children_stay_until_those_that_wait_are_applied(chain: Bench, autojump_clock: MockClock) -> None:
    async with chain.running():
        await settle(1)
        await mark(chain, "db-1")
        await move_on(chain)
        assert (await secrets_of(chain), await names_of(chain.cluster)) == (["db-1", "db-2"], ["web-1"])
        await mark(chain, "db-2")
        assert (await secrets_of(chain), await names_of(chain.cluster)) == (["db-2"], ["web-2"])


async def test_old_children_stay_after_a_restart_until_those_that_wait_are_applied(
    chain: Bench, autojump_clock: MockClock
) -> None:
    async with chain.running():
        await settle(1)
        await mark(chain, "db-1")
        await move_on(chain)
    async with chain.running():
        await settle(60)
        assert (await secrets_of(chain), await names_of(chain.cluster)) == (["db-1", "db-2"], ["web-1"])
        await mark(chain, "db-2")
        assert (await secrets_of(chain), await names_of(chain.cluster)) == (["db-2"], ["web-2"])


async def test_another_handler_does_not_delete_what_is_about_to_be_replaced(
    chain: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps", "secrets"], resync=10, registry=chain.registry)
    async def another() -> list[dict[str, Any]]:
        return [config_map("other")]

    async with chain.running():
        await settle(1)
        await mark(chain, "db-1")
        await move_on(chain)
        assert (await secrets_of(chain), await names_of(chain.cluster)) == (["db-1", "db-2"], ["other", "web-1"])
    async with chain.running():
        await settle(60)
        assert (await secrets_of(chain), await names_of(chain.cluster)) == (["db-1", "db-2"], ["other", "web-1"])
        await mark(chain, "db-2")
        assert (await secrets_of(chain), await names_of(chain.cluster)) == (["db-2"], ["other", "web-2"])


async def test_old_children_stay_while_a_rollout_is_held(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile(
        "widgets", owns=[trioperator.Owned("secrets", bodies=True, strategy="rolling")], registry=bench.registry
    )
    async def reconcile(spec: Mapping[str, Any]) -> list[trioperator.Child]:
        return [
            trioperator.Child({**secret(name), "stringData": {"v": str(spec["version"])}}, ready=is_marked)
            for name in spec["names"]
        ]

    await bench.cluster.create(widget(version=1, names=["a", "b", "c"]))
    async with bench.running():
        await settle(1)
        for name in "abc":
            await mark(bench, name)
        await bench.cluster.patch("secrets", "a", {"metadata": {"labels": {"ready": None}}})
        await move_on(bench, version=2, names=["a", "b"])
        assert await secrets_of(bench) == ["a", "b", "c"]
        await mark(bench, "a")
        await settle(60)
        assert await secrets_of(bench) == ["a", "b"]


async def test_old_children_stay_while_a_new_one_is_still_being_deleted(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return children_of(spec)

    await bench.cluster.create(widget(maps={"one": {}, "two": {}}))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("configmaps", "one", {"metadata": {"finalizers": ["example.com/slow"]}})
        await bench.cluster.delete("configmaps", "one")
        await move_on(bench, maps={"two": None})
        assert await names_of(bench.cluster) == ["one", "two"]
        await bench.cluster.patch("configmaps", "one", {"metadata": {"finalizers": None}})
        await settle(60)
        assert await names_of(bench.cluster) == ["one"]
        assert "deletionTimestamp" not in (await bench.cluster.get("configmaps", "one"))["metadata"]


async def test_children_stay_when_the_object_no_longer_matches_whatever_other_handlers_do(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.apply({**CRD, **_GADGETS})

    for kind in ("widgets", "gadgets"):

        @on.reconcile(kind, owns=["configmaps"], labels={"a": "yes"}, registry=bench.registry)
        async def some(name: str) -> dict[str, Any]:
            return config_map(f"{name}-some")

    @on.reconcile("widgets", owns=["configmaps"], resync=10, registry=bench.registry)
    async def all(name: str) -> dict[str, Any]:
        return config_map(f"{name}-all")

    for name, kind in (("w", "Widget"), ("g", "Gadget")):
        manifest = widget(name, kind=kind)
        manifest["metadata"]["labels"] = {"a": "yes"}
        await bench.cluster.create(manifest)
    expected = ["g-some", "w-all", "w-some"]
    async with bench.running():
        await settle(1)
        assert await names_of(bench.cluster) == expected
        for name, plural in (("w", "widgets"), ("g", "gadgets")):
            await bench.cluster.patch(plural, name, {"metadata": {"labels": {"a": "no"}}})
        await settle(60)
        assert await names_of(bench.cluster) == expected
    async with bench.running():
        await settle(60)
        assert await names_of(bench.cluster) == expected, "also after a restart"


_GADGETS = {
    "metadata": {"name": "gadgets.example.com"},
    "spec": {**CRD["spec"], "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"}},
}


async def test_after_a_restart_old_children_are_deleted_when_all_handlers_have_returned(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def first(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return children_of(spec)

    @on.reconcile("widgets", owns=["secrets"], registry=bench.registry)
    async def second(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [secret("s")]

    await bench.cluster.create(widget(maps={"one": {}, "two": {}}))
    async with bench.running():
        await settle(1)
    await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"two": None}}})
    async with bench.running():
        await settle(1)
        assert (await names_of(bench.cluster), await secrets_of(bench)) == (["one"], ["s"])


async def test_a_child_that_several_handlers_return_is_deleted_when_none_does(
    bench: Bench, autojump_clock: MockClock
) -> None:
    for part in ("a", "b"):

        @on.reconcile("widgets", owns=["configmaps"], id=part, param=part, registry=bench.registry)
        async def reconcile(spec: Mapping[str, Any], param: str) -> list[dict[str, Any]]:
            return [config_map("shared")] if param in spec["parts"] else []

    await bench.cluster.create(widget(parts="ab"))
    async with bench.running():
        await settle(1)
        for left, expected in (("a", ["shared"]), ("", [])):
            await move_on(bench, parts=left)
            assert await names_of(bench.cluster) == expected
        await move_on(bench, parts="ab")
        for left, expected in (("b", ["shared"]), ("", [])):
            await move_on(bench, parts=left)
            assert await names_of(bench.cluster) == expected


async def test_children_stay_when_a_handler_of_the_same_name_no_longer_matches(
    bench: Bench, autojump_clock: MockClock
) -> None:
    def declare(part: str) -> None:
        @on.reconcile("widgets", owns=["configmaps"], labels={part: "yes"}, id="same", registry=bench.registry)
        async def reconcile() -> list[dict[str, Any]]:
            return [config_map(part)]

    declare("a")
    declare("b")
    manifest = widget()
    manifest["metadata"]["labels"] = {"a": "yes", "b": "yes"}
    await bench.cluster.create(manifest)
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"a": "no"}}})
        await settle(60)
    async with bench.running():
        await settle(60)
        assert await names_of(bench.cluster) == ["a", "b"]


async def test_a_namespace_and_what_is_in_it_can_be_children(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    tenants = {**CRD, "metadata": {"name": "tenants.example.com"}}
    names = {"kind": "Tenant", "plural": "tenants", "singular": "tenant"}
    tenants["spec"] = {**CRD["spec"], "scope": "Cluster", "names": names}
    await bench.cluster.apply(tenants)

    @on.reconcile("tenants", owns=["namespaces", "configmaps"], registry=bench.registry)
    async def reconcile(name: str) -> list[dict[str, Any]]:
        inside = config_map("settings")
        inside["metadata"]["namespace"] = f"tenant-{name}"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"tenant-{name}"}}
        return [namespace, inside]

    manifest = widget("one", kind="Tenant")
    del manifest["metadata"]["namespace"]
    await bench.cluster.create(manifest)
    await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-zero"}})
    async with bench.running(namespaces=["tenant-*"]):
        await settle(1)
        assert await bench.cluster.find("configmaps", "settings", "tenant-one")
    assert "ERROR" not in {record.levelname for record in caplog.records}


async def test_a_namespace_that_is_served_later_gets_its_children_then(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    tenants = {**CRD, "metadata": {"name": "tenants.example.com"}}
    names = {"kind": "Tenant", "plural": "tenants", "singular": "tenant"}
    tenants["spec"] = {**CRD["spec"], "scope": "Cluster", "names": names}
    await bench.cluster.apply(tenants)

    @on.reconcile("tenants", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        made = [config_map("settings"), config_map("settings")]
        for each, namespace in zip(made, ("tenant-zero", "tenant-one"), strict=True):
            each["metadata"]["namespace"] = namespace
        return made

    manifest = widget("one", kind="Tenant")
    del manifest["metadata"]["namespace"]
    await bench.cluster.create(manifest)
    await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-zero"}})
    async with bench.running(namespaces=["tenant-*"]):
        await settle(3600)
        assert await bench.cluster.find("configmaps", "settings", "tenant-zero"), "it does not hold up others"
        assert "the operator does not serve the namespace tenant-one" in caplog.text
        await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-one"}})
        await settle(1)
        assert await bench.cluster.find("configmaps", "settings", "tenant-one")


async def test_a_handler_is_still_unblocked_after_another_handler_was_called(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], retries=1, registry=bench.registry)
    async def blocked() -> list[dict[str, Any]]:
        return [config_map("taken")]

    @on.reconcile("widgets", owns=["secrets"], resync=10, registry=bench.registry)
    async def another() -> list[dict[str, Any]]:
        return []

    taken = config_map("taken")
    await bench.cluster.create(taken, "default")
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
        await bench.cluster.delete("configmaps", "taken", "default")
        await settle(1)
        assert await names_of(bench.cluster) == ["taken"]


async def test_a_child_that_was_deleted_has_not_come_back_because_its_creation_is_seen_late(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return children_of(spec)

    plan = FaultPlan()
    plan.add(Fault.lag(5), resource="configmaps", watch=True)
    await bench.cluster.create(widget(maps={"a": {}}))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(2)
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": None}})
        await settle(1)
        for step in range(20):  # also between the events of its creation and of its deletion
            await bench.cluster.patch("widgets", "w", {"spec": {"step": step}})
            await settle(0.5)
        assert await names_of(bench.cluster) == []
    assert requests_of(bench).count("delete a") == 1
    assert "has come back" not in caplog.text


async def test_objects_exchange_children(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(name: str, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [config_map(child, of=name) for child in spec["children"]]

    for name, child in (("w", "one"), ("v", "two")):
        await bench.cluster.create(widget(name, children=[child]))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"children": ["two"]}})
        await bench.cluster.patch("widgets", "v", {"spec": {"children": ["one"]}})
        await settle(60)
        found = [each for each in await bench.cluster.list("configmaps", "default") if "of" in each.get("data", {})]
    assert {each["metadata"]["name"]: each["data"]["of"] for each in found} == {"one": "v", "two": "w"}


async def test_old_children_stay_while_the_name_of_a_new_one_is_that_of_a_child_of_a_deleted_object(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [config_map(child) for child in spec["children"]]

    await bench.cluster.create(widget(children=["b"]))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("configmaps", "b", {"metadata": {"finalizers": ["example.com/hold"]}})
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        await bench.cluster.create(widget(children=["a"]))
        await settle(1)
        await move_on(bench, children=["b"])
        assert await names_of(bench.cluster) == ["a", "b"]
        await bench.cluster.patch("configmaps", "b", {"metadata": {"finalizers": None}})
        await settle(60)
        assert await names_of(bench.cluster) == ["b"]


async def test_old_children_stay_while_another_program_has_the_name_of_a_new_one(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [config_map(child) for child in spec["children"]]

    await bench.cluster.create({**config_map("theirs"), "metadata": {"name": "theirs", "namespace": "default"}})
    await bench.cluster.create(widget(children=["old"]))
    async with bench.running():
        await settle(1)
        await move_on(bench, children=["theirs"])
        assert await names_of(bench.cluster) == ["old", "theirs"]


def autoscaler(maximum: int) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}
    spec = {"scaleTargetRef": target, "minReplicas": 5, "maxReplicas": maximum}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}


@pytest.fixture
async def scaled(bench: Bench) -> Bench:
    """Return a bench of an autoscaler that the server may reject, and of a ConfigMap that comes and goes."""

    @on.reconcile("widgets", owns=["configmaps", "horizontalpodautoscalers.autoscaling"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[Any]:
        maximum = [autoscaler(spec["maximum"])] if spec.get("maximum") else []
        return [*maximum, *(config_map(name) for name in spec.get("names") or ())]

    await bench.cluster.create(widget(names=["w", "other"], maximum=10))
    return bench


async def test_what_is_rejected_and_stays_as_it_was_holds_up_no_deletions(
    scaled: Bench, autojump_clock: MockClock
) -> None:
    async with scaled.running():
        await settle(1)
        assert await names_of(scaled.cluster) == ["other", "w"]
        await move_on(scaled, names=[], maximum=2)
        assert await names_of(scaled.cluster) == []
        found = await scaled.cluster.get("horizontalpodautoscalers", "w")
        assert found["spec"]["maxReplicas"] == 10


async def test_what_is_rejected_and_does_not_exist_yet_holds_up_deletions(
    scaled: Bench, autojump_clock: MockClock
) -> None:
    async with scaled.running():
        await move_on(scaled, names=["w"], maximum=None)
        await move_on(scaled, names=["other"], maximum=2)
        assert await names_of(scaled.cluster) == ["other", "w"]
        await move_on(scaled, maximum=6)
        assert await names_of(scaled.cluster) == ["other"]


async def test_what_is_rejected_keeps_the_children_that_it_still_names(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps", "pods"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[Any]:
        version = spec["version"]
        container = {"name": "web", "image": f"web:{version}", "command": [spec["command"]]}
        container["envFrom"] = [{"configMapRef": {"name": f"web-{version}"}}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [container]}}
        return [config_map(f"web-{version}"), *([config_map("other")] if version == 1 else []), pod]

    await bench.cluster.create(widget(version=1, command="run"))
    async with bench.running():
        await settle(1)
        await move_on(bench, version=2, command="other")  # which cannot be changed
        assert await names_of(bench.cluster) == ["web-1", "web-2"]


@pytest.mark.parametrize("owns_old", [False, True])
async def test_children_with_former_labels_are_deleted_only_by_a_release_that_owns_them_too(
    bench: Bench, autojump_clock: MockClock, owns_old: bool
) -> None:
    old, new = (trioperator.Owned("configmaps", labels={"by": value}) for value in ("old", "new"))

    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return children_of(spec)

    former, later = trioperator.OperatorRegistry(), trioperator.OperatorRegistry()
    on.reconcile("widgets", owns=[old], registry=former)(reconcile)
    on.reconcile("widgets", owns=[new, old] if owns_old else [new], registry=later)(reconcile)
    await bench.cluster.create(widget(maps={"kept": {}, "dropped": {}}))
    async with bench.running(registry=former):
        await settle(5)
    await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"dropped": None}}})
    async with bench.running(registry=later):
        await settle(60)
    assert await names_of(bench.cluster) == (["kept"] if owns_old else ["dropped", "kept"])
    assert (await bench.cluster.get("configmaps", "kept"))["metadata"]["labels"] == {"by": "new"}
