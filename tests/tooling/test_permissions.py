"""Tests for :mod:`trioperator._tooling.permissions`.

The rules are enough for an operator, and each of them is needed.
"""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.peers import peering, peering_crd
from tests.runtime.conftest import CRD, PLAIN_CRD, settle, widget
from trioperator._concurrency.clock import wall_now
from trioperator._handling.handlers.handler import ResourceHandler
from trioperator._kube.api_client import open_client
from trioperator._kube.discovery import discover
from trioperator._model.resource import EVERYTHING, Resource
from trioperator._model.rights import Rule
from trioperator._runtime.watching.scope import Scope
from trioperator._tooling.permissions import Permissions, Requirements, list_permissions, make_roles
from trioperator.apiserver import Cluster, User
from trioperator.errors import ConfigError, UserCodeError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on

ACCOUNT = ("operators", "robot")
ROBOT = User(name="system:serviceaccount:operators:robot", groups=("system:authenticated",))
VERBS = frozenset({"get", "list", "watch", "create", "update", "patch"})
WIDGETS = Resource("example.com", "v1", "widgets", kind="Widget", subresources=frozenset({"status"}), verbs=VERBS)
GADGETS = Resource("example.com", "v1", "gadgets", kind="Gadget", verbs=VERBS)
NODES = Resource("", "v1", "nodes", kind="Node", namespaced=False, verbs=VERBS)
STATUSES = Resource("", "v1", "componentstatuses", namespaced=False, verbs=frozenset({"get", "list", "watch"}))
KINDS = (WIDGETS, GADGETS, NODES, STATUSES)

# What the operator below needs with a namespace pattern: verbs for resources.
NEEDED = {
    "widgets": "get list watch patch",
    "widgets/status": "patch",
    "gadgets": "get list watch patch",
    "toys": "list watch",
    "toys/status": "patch",
    "configmaps": "get list watch patch",
    "secrets": "list watch",
    "priorityclasses": "list watch",
    "namespaces": "list watch",
    "customresourcedefinitions": "list watch",
    "kopfpeerings": "list watch patch",
    "leases": "get create update",
}
EACH = [(verb, resource) for resource, verbs in NEEDED.items() for verb in verbs.split()]


# The rules are enough, and no more.


def toys_crd() -> dict[str, Any]:
    crd = copy.deepcopy(CRD)
    crd["metadata"]["name"] = "toys.example.com"
    crd["spec"]["names"] = {"kind": "Toy", "plural": "toys", "singular": "toy"}
    return crd


class Setup:
    """A cluster with RBAC, and an operator in it that does a bit of everything."""

    def __init__(self) -> None:
        self.cluster = Cluster(clock=wall_now, seed=0, authorization="rbac")
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()
        self.settings.leadership.enabled = True
        self.settings.leadership.namespace = "operators"
        self.handled: set[str] = set()
        self.roles: list[dict[str, Any]] = []
        self._register(self.registry)

    def _register(self, registry: trioperator.OperatorRegistry) -> None:
        handled, cluster = self.handled, self.cluster

        @on.create("widgets", registry=registry)
        @on.delete("widgets", registry=registry)
        async def widgets(reason: str, **_: Any) -> str | None:
            handled.add(f"{reason} widget")
            if reason != "delete":
                return reason
            # Somebody changes the object, so that its finalizer cannot be removed at once.
            await cluster.patch("widgets", "w", {"metadata": {"labels": {"in": "between"}}})
            return None

        @trioperator.daemon("gadgets", registry=registry)
        async def gadgets(stopped: trioperator.DaemonStopped, **_: Any) -> None:
            handled.add("gadget")
            await stopped.wait()
            await cluster.patch("gadgets", "g", {"metadata": {"labels": {"in": "between"}}})

        @on.event("toys", registry=registry)
        def toys(**_: Any) -> str:
            handled.add("toy")
            return "seen"

        @on.event("configmaps", field="data.mine", registry=registry)
        async def configmaps(patch: trioperator.Patch, meta: Any, **_: Any) -> None:
            handled.add("configmap")
            if "seen" not in meta.get("annotations", {}):
                await cluster.patch("configmaps", "c", {"metadata": {"labels": {"in": "between"}}})
                patch.fns.append(lambda body: body["metadata"].setdefault("annotations", {}).update(seen="yes"))

        @trioperator.index("secrets", registry=registry)
        def secrets(name: str, **_: Any) -> str:
            handled.add("secret")
            return name

        @on.event("priorityclasses", registry=registry)
        def classes(**_: Any) -> None:
            handled.add("priorityclass")

    async def prepare(self, requirements: Callable[[Collection[Resource]], Requirements]) -> None:
        """Create kinds and objects, and the roles for the operator."""
        for crd in (CRD, PLAIN_CRD, toys_crd(), peering_crd(), peering_crd(clusterwide=False)):
            await self.cluster.apply(crd)
        await self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operators"}})
        for manifest in (peering(), peering(namespace="default")):
            await self.cluster.create(manifest)
        info = trioperator.ConnectionInfo(server="http://embedded")
        async with open_client(lambda: info, settings=self.settings, transport=self.cluster.transport()) as client:
            resources = (await discover(client)).resources
        permissions = list_permissions(self.registry.resource_handlers(), resources, requirements(resources))
        assert permissions.problems == ()
        self.roles = make_roles(permissions, name="robot", account=ACCOUNT)
        for role in self.roles:
            await self.cluster.apply(role)

    async def take_away(self, verb: str, resource: str) -> None:
        """Take one verb for one resource out of the roles."""
        for role in self.roles:
            rules = []
            for rule in role.get("rules", ()):
                for each in rule["resources"]:
                    verbs = [v for v in rule["verbs"] if (v, each) != (verb, resource)]
                    rules.append({**rule, "resources": [each], "verbs": verbs})
            if rules:
                await self.cluster.apply({**role, "rules": [rule for rule in rules if rule["verbs"]]})

    async def live(self, namespaces: Sequence[str]) -> None:
        """Run the operator while objects come and go."""
        cluster, plan, stop = self.cluster, FaultPlan(), trio.Event()
        for resource in ("widgets", "gadgets"):  # so that the finalizer is removed from a state that is not the newest
            plan.add(Fault.lag(0.5), resource=resource, watch=True)
        operator = functools.partial(
            trioperator.operator,
            registry=self.registry,
            settings=self.settings,
            namespaces=namespaces,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=FaultyTransport(cluster.transport(user=ROBOT), plan),
            stop_flag=stop,
            handle_signals=False,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operator)
            await settle(30)
            for manifest in (
                widget(),
                widget("g", kind="Gadget"),
                widget("t", kind="Toy"),
                named("v1", "Secret", "s"),
                named("v1", "ConfigMap", "c", data={"mine": "yes"}),
                named("scheduling.k8s.io/v1", "PriorityClass", "p", value=1),
            ):
                await cluster.create(manifest)
            await settle(10)
            await cluster.delete("widgets", "w")
            await cluster.delete("gadgets", "g")
            await settle(10)
            stop.set()

    def forbidden(self) -> set[tuple[str, str]]:
        """Return what the operator was not allowed: verbs, and resources without their groups."""
        records = self.cluster.requests.select(user=ROBOT.name, status=403)
        return {(r.verb, "/".join(filter(None, [r.resource.partition(".")[0], r.subresource]))) for r in records}

    async def left(self) -> list[Any]:
        return [*await self.cluster.list("widgets"), *await self.cluster.list("gadgets")]


def named(
    api_version: str, kind: str, name: str, *, labels: dict[str, str] | None = None, **rest: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    if kind == "PriorityClass":
        del metadata["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def require(namespaces: Sequence[str] = (), *, scanning: bool = True) -> Callable[[Collection[Resource]], Requirements]:
    """Return a function that makes the requirements of the operator in a cluster with some kinds."""
    plural = "kopfpeerings" if namespaces else "clusterkopfpeerings"

    def make(resources: Collection[Resource]) -> Requirements:
        [kind] = [resource for resource in resources if resource.plural == plural]
        return Requirements(
            scope=Scope(clusterwide=not namespaces, namespaces=tuple(namespaces)),
            scanning=scanning,
            events=False,
            peering=(kind, "default"),
            lease=("operators", "trioperator"),
        )

    return make


@pytest.mark.parametrize(
    ("namespaces", "scanning"),
    [([], True), ([], False), (["def*"], True), (["default"], True), (["default"], False), (["default", "a*"], False)],
)
async def test_an_operator_with_exactly_these_rights_does_everything(
    namespaces: list[str], scanning: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    setup.settings.scanning.disabled = not scanning
    await setup.prepare(require(namespaces, scanning=scanning))
    await setup.live(namespaces)
    everything = {"create widget", "delete widget", "gadget", "toy", "configmap", "secret", "priorityclass"}
    assert setup.handled == everything
    assert await setup.left() == []
    assert setup.forbidden() == set()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text for text in warnings if "a*" not in text] == []


async def test_an_operator_with_shards_does_everything_with_exactly_these_rights(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    setup.settings.leadership.shards = 2
    make = require(["default"], scanning=True)
    await setup.prepare(lambda resources: msgspec.structs.replace(make(resources), shards=2))
    await setup.live(["default"])
    assert setup.handled >= {"create widget", "delete widget", "gadget"}
    assert setup.forbidden() == set()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_rules_of_an_operator_with_patterns_are_these(autojump_clock: MockClock) -> None:
    setup = Setup()
    await setup.prepare(require(["def*"]))
    granted = [
        (verb, resource)
        for role in setup.roles
        for rule in role.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert sorted(granted) == sorted(EACH)
    assert {role["metadata"].get("namespace") for role in setup.roles} == {None, "operators"}


@pytest.mark.parametrize(("verb", "resource"), EACH)
async def test_each_right_is_needed_and_named_if_it_is_missing(
    verb: str, resource: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    await setup.prepare(require(["def*"]))
    await setup.take_away(verb, resource)
    await setup.live(["def*"])
    assert setup.forbidden() == {(verb, resource)}
    if (verb, resource) == ("get", "configmaps"):
        return  # without it, functions of patches get the newest state by a patch that changes nothing
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text for text in warnings if f'cannot {verb} resource "{resource}" in API group' in text]


# The rules of single handlers.


def rules(
    declare: Callable[[trioperator.OperatorRegistry], Any], requirements: Requirements | None = None
) -> dict[str, str]:
    """Return the rules for the whole cluster of an operator whose handlers a function declares."""
    return shown(permissions(declare, requirements).cluster)


def permissions(
    declare: Callable[[trioperator.OperatorRegistry], Any], requirements: Requirements | None = None
) -> Permissions:
    return list_permissions(handlers(declare), KINDS, requirements or Requirements(scanning=False, events=False))


def handlers(declare: Callable[[trioperator.OperatorRegistry], Any]) -> Collection[ResourceHandler]:
    registry = trioperator.OperatorRegistry()
    declare(registry)
    return registry.resource_handlers()


def shown(rules: Collection[Rule]) -> dict[str, str]:
    """Return rules by their resources, with the verbs sorted."""
    return {" ".join([rule.resource, *sorted(rule.names)]): " ".join(sorted(rule.verbs)) for rule in rules}


def nothing(**_: Any) -> None:
    pass


def conditional(name: str, **_: Any) -> str | None:
    return name if name else None


def unused(name: str, **_: Any) -> object:
    if name:
        return None
    return None


def passing_on(**kwargs: Any) -> None:
    nothing(**kwargs)


def patching(patch: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (nothing, {"widgets": "list watch"}),
        (unused, {"widgets": "list watch"}),
        (lambda **_: None, {"widgets": "list watch"}),
        (lambda **_: 1, {"widgets": "list watch", "widgets/status": "patch"}),
        (conditional, {"widgets": "list watch", "widgets/status": "patch"}),
        (patching, {"widgets": "get list patch watch", "widgets/status": "patch"}),
        (passing_on, {"widgets": "get list patch watch", "widgets/status": "patch"}),
        (functools.partial(patching), {"widgets": "get list patch watch", "widgets/status": "patch"}),
        (print, {"widgets": "list watch", "widgets/status": "patch"}),
    ],
)
def test_event_handlers_need_to_patch_what_they_store(fn: Any, expected: dict[str, str]) -> None:
    assert rules(lambda registry: on.event("widgets", id="fn", registry=registry)(fn)) == expected


def test_results_are_patched_into_the_object_where_the_status_is_no_subresource() -> None:
    assert rules(lambda r: on.event("gadgets", registry=r)(conditional)) == {"gadgets": "list patch watch"}


def test_index_handlers_need_no_patches() -> None:
    assert rules(lambda r: trioperator.index("widgets", registry=r)(passing_on)) == {"widgets": "list watch"}


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [
        (on.create, {"widgets": "get list patch watch", "widgets/status": "patch"}),
        (on.resume, {"widgets": "get list patch watch", "widgets/status": "patch"}),
        (on.delete, {"widgets": "get list patch watch", "widgets/status": "patch"}),
        (functools.partial(on.delete, optional=True), {"widgets": "get list patch watch", "widgets/status": "patch"}),
        (trioperator.daemon, {"widgets": "get list patch watch"}),
        (functools.partial(trioperator.daemon, finalizer=False), {"widgets": "get list watch"}),
        (functools.partial(trioperator.timer, interval=1), {"widgets": "get list patch watch"}),
    ],
)
def test_the_rules_of_other_handlers(decorator: Any, expected: dict[str, str]) -> None:
    assert rules(lambda registry: decorator("widgets", registry=registry)(nothing)) == expected


def test_reconcile_handlers_write_children_and_nothing_else() -> None:
    def declare(registry: trioperator.OperatorRegistry) -> None:
        on.reconcile("widgets", owns=["gadgets"], watches={"nodes": nothing}, registry=registry)(nothing)

    expected = {
        "widgets": "get list watch",
        "widgets/finalizers": "update",
        "widgets/status": "patch",
        "gadgets": "create delete get list patch watch",
        "nodes": "list watch",
    }
    assert rules(declare) == expected


def test_reconcile_handlers_write_a_status_of_custom_kinds_only_and_if_they_are_to() -> None:
    without = rules(lambda registry: on.reconcile("widgets", kstatus=False, registry=registry)(nothing))
    assert without == {"widgets": "get list watch"}
    assert rules(lambda registry: on.reconcile("nodes", registry=registry)(nothing)) == {"nodes": "get list watch"}


@pytest.mark.parametrize("fn", [lambda patch: None, lambda conditions: None, lambda **kwargs: None])
def test_reconcile_handlers_that_take_a_patch_store_it(fn: Any) -> None:

    expected = {"widgets": "get list patch watch", "widgets/status": "patch"}
    assert rules(lambda registry: on.reconcile("widgets", registry=registry)(fn)) == expected
    with_condition = rules(lambda registry: on.reconcile("widgets", condition="Applied", registry=registry)(nothing))
    assert with_condition == expected


def test_kinds_of_children_that_do_not_exist_are_named() -> None:
    found = permissions(lambda registry: on.reconcile("widgets", owns=["toys.example.com"], registry=registry)(nothing))
    assert shown(found.cluster)["toys"] == "create delete get list patch watch"
    assert "toys" in found.problems[0]


async def test_a_reconcile_handler_with_exactly_its_rights_does_everything(autojump_clock: MockClock) -> None:
    setup = Setup()
    setup.registry = trioperator.OperatorRegistry()

    @on.reconcile("widgets", owns=["configmaps"], watches={"secrets": nothing}, registry=setup.registry)
    async def reconcile(spec: Any, name: str, patch: trioperator.Patch) -> Any:
        patch.status["size"] = spec["size"]
        return [{"apiVersion": "v1", "kind": "ConfigMap"}] if spec["size"] == 1 else []

    await setup.prepare(require(["default"]))
    live, cluster = functools.partial(setup.live, ["default"]), setup.cluster
    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        await settle(32)
        assert await cluster.find("configmaps", "w") is not None
        await cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(2)
        assert await cluster.find("configmaps", "w") is None
        assert (await cluster.get("widgets", "w"))["status"] == {"size": 2}
    assert setup.forbidden() == set()


def test_kinds_that_cannot_be_patched_have_no_rules_for_handlers_that_are_not_called() -> None:
    assert rules(lambda r: on.create("componentstatuses", registry=r)(nothing)) == {}
    assert rules(lambda r: on.event("componentstatuses", registry=r)(patching)) == {
        "componentstatuses": "get list watch"
    }


# Rights that are declared.


def test_rights_of_all_handlers_are_among_the_rules() -> None:
    def declare(registry: trioperator.OperatorRegistry) -> None:
        on.create("widgets", rights=["create,patch:jobs.batch", "get:nodes"], registry=registry)(nothing)
        on.validate("widgets", rights=["get:namespaces"], registry=registry)(nothing)
        on.startup(rights=["create:pods/eviction"], registry=registry)(nothing)

    registry = trioperator.OperatorRegistry()
    declare(registry)
    resources = [*KINDS, Resource("", "v1", "namespaces", namespaced=False, verbs=VERBS)]
    scope = Scope(clusterwide=False, namespaces=("a",))
    requirements = Requirements(scanning=False, events=False, scope=scope)
    found = list_permissions(tuple(registry), resources, requirements)
    assert shown(found.cluster) == {"namespaces": "get", "nodes": "get"}
    assert shown(found.namespaces["a"]) == {
        "jobs": "create patch",
        "pods/eviction": "create",
        "widgets": "get list patch watch",
        "widgets/finalizers": "update",
        "widgets/status": "patch",
    }


@pytest.mark.parametrize(("right", "expected"), [("get:nodes", False), ("patch:nodes", True), ("*:nodes", True)])
def test_objects_can_own_what_their_handlers_write(right: str, expected: bool) -> None:
    found = rules(lambda r: on.event("widgets", rights=[right], registry=r)(nothing))
    assert ("widgets/finalizers" in found) is expected


def test_rights_for_kinds_that_do_not_exist_are_named() -> None:
    registry = trioperator.OperatorRegistry()
    on.create("widgets", rights=["get:gadget.example.com,nodes"], registry=registry)(nothing)
    found = list_permissions(tuple(registry), KINDS, Requirements(scanning=False, events=False))
    assert found.problems == (
        "The rights= of Handler 'nothing' name a kind that does not exist in the cluster: gadget.example.com"
        " (did you mean gadgets.example.com?).",
    )


# Selectors.


@pytest.mark.parametrize("selector", [("widgets",), ("Widget",), ("example.com", "v1", "widgets")])
def test_rules_have_the_plural_whatever_the_selector_is(selector: tuple[str, ...]) -> None:
    found = permissions(lambda r: on.event(*selector, registry=r)(nothing))
    assert found.cluster == (Rule("example.com", "widgets", frozenset({"list", "watch"})),)


def test_only_a_selector_for_everything_leads_to_a_star() -> None:
    def declare(registry: trioperator.OperatorRegistry) -> None:
        on.event(EVERYTHING, registry=registry)(nothing)
        on.create("gadgets", registry=registry)(nothing)

    found = permissions(declare)
    assert found.cluster == (
        Rule("*", "*", frozenset({"list", "watch"})),
        Rule("example.com", "gadgets", frozenset({"get", "patch"})),
    )
    assert found.problems == (
        "EVERYTHING is for all kinds of objects: the role allows to read all of them, Secrets included.",
    )
    [grouped] = permissions(lambda r: on.event("", "v1", EVERYTHING, registry=r)(nothing)).cluster
    assert (grouped.group, grouped.resource) == ("", "*")


def test_a_star_for_some_namespaces_does_not_reach_beyond_them() -> None:
    requirements = Requirements(scope=Scope(clusterwide=False, namespaces=("a", "b")), scanning=False, events=False)
    found = permissions(lambda r: on.event(EVERYTHING, registry=r)(nothing), requirements)
    assert shown(found.cluster) == {"componentstatuses": "list watch", "nodes": "list watch"}
    assert {name: shown(each) for name, each in found.namespaces.items()} == {
        "a": {"*": "list watch"},
        "b": {"*": "list watch"},
    }


def test_a_function_selects_the_kinds_that_exist() -> None:
    found = permissions(lambda r: on.event(lambda resource: resource.group == "example.com", registry=r)(nothing))
    assert shown(found.cluster) == {"gadgets": "list watch", "widgets": "list watch"}
    none = permissions(lambda r: on.event(category="toys", registry=r)(nothing))
    assert none.cluster == ()
    assert none.problems == ("No resource matches category=toys for now: the rules have nothing for it.",)


def test_a_function_that_fails_is_named() -> None:
    def fail(resource: Resource) -> bool:
        raise ValueError("no")

    with pytest.raises(UserCodeError, match="fail"):
        permissions(lambda r: on.event(fail, registry=r)(nothing))


def test_a_kind_that_does_not_exist_is_taken_from_the_selector_if_that_says_enough() -> None:
    found = permissions(lambda r: on.create("later.example.com", "v1", "things", registry=r)(nothing))
    assert shown(found.cluster) == {"things": "get list patch watch", "things/status": "patch"}
    [problem] = found.problems
    assert problem.startswith("The resource later.example.com/v1/things does not exist in the cluster")


@pytest.mark.parametrize("selector", [("things",), ("later.example.com", "v1", "Thing")])
def test_a_kind_that_does_not_exist_is_an_error_if_its_group_or_plural_is_not_known(selector: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"are not known.* manifests and bundle: --crds .* rbac: --embedded --apply"):
        permissions(lambda r: on.create(*selector, registry=r)(nothing))


def test_ambiguous_kinds_need_no_rules() -> None:
    others = [Resource("other.example.com", "v1", "widgets", kind="Widget", verbs=VERBS), *KINDS]
    found = list_permissions(handlers(lambda r: on.event("widgets", registry=r)(nothing)), others, Requirements())
    assert "widgets" not in shown(found.cluster)
    assert "ambiguous" in found.problems[0]


# What the operator itself needs.


def test_kubernetes_events_are_posted_where_the_objects_are() -> None:
    posting = Rule("", "events", frozenset({"create", "patch"}))
    exact = Requirements(scope=Scope(clusterwide=False, namespaces=("a",)), scanning=False)

    def declare(registry: trioperator.OperatorRegistry) -> None:
        on.event("widgets", registry=registry)(nothing)

    def declare_both(registry: trioperator.OperatorRegistry) -> None:
        declare(registry)
        on.event("nodes", registry=registry)(nothing)

    assert posting in permissions(declare, Requirements()).cluster
    assert posting not in permissions(declare, exact).cluster
    assert {name for name, each in permissions(declare, exact).namespaces.items() if posting in each} == {"a"}
    assert {name for name, each in permissions(declare_both, exact).namespaces.items() if posting in each} == {
        "a",
        "default",
    }


def test_the_status_of_peering_objects_is_patched_where_it_is_a_subresource() -> None:
    kind = Resource("kopf.dev", "v1", "clusterkopfpeerings", namespaced=False, subresources=frozenset({"status"}))
    requirements = Requirements(scanning=False, events=False, peering=(kind, "mine"))
    found = rules(lambda r: on.event("widgets", registry=r)(nothing), requirements)
    assert found == {
        "clusterkopfpeerings": "list watch",
        "clusterkopfpeerings/status mine": "patch",
        "widgets": "list watch",
    }


def test_admission_handlers_need_their_configurations_if_these_are_managed() -> None:
    registry = trioperator.OperatorRegistry()
    on.validate("widgets", registry=registry)(nothing)
    declared, unmanaged = registry.webhook_handlers(), Requirements(scanning=False, events=False)
    assert list_permissions(declared, KINDS, unmanaged).cluster == ()
    found = list_permissions(declared, KINDS, msgspec.structs.replace(unmanaged, managed="hooks.example.com"))
    group, names = "admissionregistration.k8s.io", frozenset({"hooks.example.com"})
    verbs = frozenset({"get", "list", "watch", "patch"})
    assert found.cluster == tuple(
        rule
        for resource in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        for rule in (Rule(group, resource, frozenset({"create"})), Rule(group, resource, verbs, names))
    )


def test_conversion_handlers_need_their_crds_if_these_are_managed() -> None:
    registry = trioperator.OperatorRegistry()
    for name in ("widgets", "example.com/gadgets"):
        on.convert(*name.split("/"), from_="v1", to="v2", registry=registry)(nothing)
        on.convert(*name.split("/"), from_="v2", to="v1", registry=registry)(nothing)
    declared, unmanaged = registry.webhook_handlers(), Requirements(scanning=False, events=False)
    assert list_permissions(declared, KINDS, unmanaged).cluster == ()
    found = list_permissions(declared, KINDS, msgspec.structs.replace(unmanaged, conversions=True)).cluster
    assert [(rule.group, rule.resource) for rule in found] == 2 * [
        ("apiextensions.k8s.io", "customresourcedefinitions")
    ]
    assert [set(rule.names) for rule in found] == [{"gadgets.example.com"}, {"widgets.example.com"}]
    assert {rule.verbs for rule in found} == {frozenset({"get", "patch"})}


def test_an_operator_without_handlers_needs_its_lease_only() -> None:
    found = list_permissions((), KINDS, Requirements(lease=("operators", "mine")))
    assert found.cluster == ()
    assert {name: shown(each) for name, each in found.namespaces.items()} == {
        "operators": {"leases": "create", "leases mine": "get update"}
    }


# Manifests.


def test_roles_are_written_with_few_rules_and_usual_verbs() -> None:
    watched = frozenset({"watch", "list"})
    names = (("pods", ""), ("secrets", ""), ("x", "n"))
    rules = tuple(Rule("", resource, watched, frozenset(name)) for resource, name in names)
    found = Permissions(cluster=(), namespaces={"a": rules})
    role, binding = make_roles(found, name="robot", account=("operators", "account"))
    assert role == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "robot", "namespace": "a"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["x"], "resourceNames": ["n"], "verbs": ["list", "watch"]},
        ],
    }
    assert binding["kind"] == "RoleBinding"
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "account", "namespace": "operators"}]
    assert len(make_roles(found, name="robot")) == 1
