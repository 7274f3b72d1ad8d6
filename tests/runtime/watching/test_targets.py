"""Tests for :mod:`trioperator._runtime.watching.targets`: what is to be watched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import trioperator
from trioperator._model.resource import Resource, Selector
from trioperator._runtime.watching.targets import Key, Requirements, Targets, name_of, select_targets

on = trioperator.on
VERBS = frozenset({"list", "watch", "patch"})
SECRETS = Resource("", "v1", "secrets", kind="Secret", verbs=VERBS)
NODES = Resource("", "v1", "nodes", kind="Node", namespaced=False, verbs=VERBS)
LOGS = Resource("x.io", "v1", "logs", kind="Log", verbs=VERBS - {"patch"})
CLUSTER = [SECRETS, NODES, LOGS]
A, B = (("a", "1"),), (("b", "2"),)


class Reader(msgspec.Struct, frozen=True):
    """A kind that is read for reconcile handlers of others."""

    resource: Resource = SECRETS
    labels: tuple[tuple[str, str], ...] = ()
    needs_bodies: bool = False


def nothing(**_: Any) -> None: ...


def places(resource: Resource) -> tuple[str | None, ...]:
    return (None,) if resource.namespaced is False else ("one", "two")


class Setup:
    """The handlers of an operator, its settings, and what is to be watched for them."""

    def __init__(self) -> None:
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()

    @property
    def requirements(self) -> Requirements:
        return Requirements.of(self.registry, self.settings)

    def select(self, *related: Reader) -> Targets[Reader]:
        return select_targets(self.requirements, CLUSTER, related, places)


@pytest.fixture
def setup() -> Setup:
    return Setup()


@pytest.mark.parametrize(
    ("handled", "labels", "watched"),
    [
        (True, [], [()]),
        (True, [A, B, ()], [()]),
        (False, [A, B, ()], [()]),
        (False, [A], [A]),
        (False, [A, B], [A, B]),
        (False, [], []),
    ],
)
def test_all_that_read_a_kind_share_its_watches_unless_all_want_few_of_many(
    setup: Setup, handled: bool, labels: list[Any], watched: list[Any]
) -> None:
    if handled:
        on.event("secrets", registry=setup.registry)(nothing)
    readers = [Reader(labels=each) for each in labels]
    targets, problems = setup.select(*readers)
    assert not problems
    assert set(targets) == {Key(SECRETS, place, each, handled) for each in watched for place in ("one", "two")}
    for key, target in targets.items():
        assert set(target.related) == {reader for reader in readers if not key.labels or reader.labels == key.labels}
        assert (target.kind is not None) == handled
        assert target.parameters == ({"labelSelector": "=".join(key.labels[0])} if key.labels else {})


def test_cluster_scoped_kinds_are_watched_once(setup: Setup) -> None:
    on.event("nodes", registry=setup.registry)(nothing)
    assert list(setup.select().by_key) == [Key(NODES, None)]


@pytest.mark.parametrize(("needed", "handled"), [(False, False), (True, False), (False, True)])
def test_bodies_are_needed_by_handlers_and_by_those_who_say_so(setup: Setup, needed: bool, handled: bool) -> None:
    if handled:
        on.event("secrets", registry=setup.registry)(nothing)
    targets = setup.select(Reader(), Reader(needs_bodies=needed)).by_key.values()
    assert {target.needs_bodies for target in targets} == {needed or handled}


def test_what_the_settings_select_is_selected_for_handlers_and_readers_alike(setup: Setup) -> None:
    setup.settings.watching.label_selectors["nodes"] = "role=worker"
    setup.settings.watching.field_selectors["secrets"] = "type=Opaque"
    on.event("nodes", registry=setup.registry)(nothing)
    targets = setup.select(Reader(labels=A)).by_key
    assert targets[Key(NODES, None)].parameters == {"labelSelector": "role=worker"}
    read = targets[Key(SECRETS, "one", A, handled=False)]
    assert read.parameters == {"labelSelector": "a=1", "fieldSelector": "type=Opaque"}


def test_the_first_shard_selector_of_a_kind_counts_and_joins_other_selectors(setup: Setup) -> None:
    low = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    high = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
    setup.settings.watching.shard_selectors["nodes"] = low
    setup.settings.watching.shard_selectors[trioperator.EVERYTHING] = high
    on.event("nodes", labels={"a": "1"}, registry=setup.registry)(nothing)
    on.event("secrets", registry=setup.registry)(nothing)
    found = setup.select().by_key
    assert found[Key(NODES, None)].parameters == {"labelSelector": "a=1", "shardSelector": low}
    target = found[Key(SECRETS, "one")]
    assert target.parameters == {"shardSelector": high}
    assert target.kind is not None
    assert not target.kind.selected, "no object leaves a shard"


def test_a_function_in_the_settings_that_fails_keeps_its_kind_from_being_watched(setup: Setup) -> None:
    def select(resource: Resource) -> bool:
        if resource.plural == "secrets":
            raise KeyError("oops")
        return True

    setup.settings.watching.label_selectors[select] = "a=1"
    on.event("nodes", registry=setup.registry)(nothing)
    on.event("secrets", registry=setup.registry)(nothing)
    targets, problems = setup.select(Reader())
    assert {key: target.parameters for key, target in targets.items()} == {Key(NODES, None): {"labelSelector": "a=1"}}
    ((selector, problem),) = problems.items()
    assert selector.any_name == "secrets"
    assert "A selector of settings.watching has failed: KeyError('oops'). Nothing of secrets.v1 is watched." in problem


def test_a_kind_that_cannot_be_patched_is_watched_for_those_that_do_not_store(setup: Setup) -> None:
    on.create("logs", id="stores", registry=setup.registry)(nothing)
    on.event("logs", id="reads", registry=setup.registry)(nothing)
    targets, problems = setup.select()
    (target,) = set(targets.values())
    assert target.kind is not None
    assert [handler.id for handler in target.kind.handlers.events] == ["reads"]
    assert not target.kind.handlers.changes
    (problem,) = problems.values()
    assert "logs.v1.x.io cannot be patched" in problem
    assert "stores" in problem


def test_handlers_of_changes_in_several_versions_of_a_kind_are_a_problem_and_others_are_none(setup: Setup) -> None:
    served = [
        Resource("y.io", version, "pods", kind="Pod", verbs=VERBS, preferred=version == "v2")
        for version in ("v1", "v2")
    ]
    on.create("y.io", "v1", "pods", registry=setup.registry)(nothing)
    on.event("pods", registry=setup.registry)(nothing)
    on.timer("pods", interval=1, registry=setup.registry)(nothing)
    targets, problems = select_targets(setup.requirements, served, (), places)
    assert {key.resource for key in targets} == {*served}
    assert not problems
    on.delete("pods", registry=setup.registry)(nothing)
    _, problems = select_targets(setup.requirements, served, (), places)
    ((selector, problem),) = problems.items()
    assert selector.version == "v1"
    assert "pods.y.io are for several versions: v1, v2." in problem


def test_a_selector_that_fails_selects_nothing_and_harms_no_other(setup: Setup) -> None:
    def fail(resource: Resource) -> bool:
        raise KeyError("oops")

    on.event(fail, registry=setup.registry)(nothing)
    on.event("nodes", registry=setup.registry)(nothing)
    targets, problems = setup.select()
    assert list(targets) == [Key(NODES, None)]
    ((selector, problem),) = problems.items()
    assert selector.test is fail
    assert "oops" in problem


@pytest.mark.parametrize(
    ("handled", "reviewed", "related", "groups"),
    [
        (["nodes.v1."], [], [], None),
        ([("v1", "nodes")], [], [], {"", "apiextensions.k8s.io"}),
        ([("v1", "nodes")], [("x.io", "v1", "logs")], [], {"", "x.io", "apiextensions.k8s.io"}),
        ([("v1", "nodes")], [], [Selector(group="apps", plural="deployments")], {"", "apps", "apiextensions.k8s.io"}),
        ([("v1", "nodes")], [], [Selector(plural="deployments")], None),
    ],
)
def test_only_the_groups_must_be_known_that_are_named_if_all_are(
    setup: Setup, handled: list[Any], reviewed: list[Any], related: list[Selector], groups: set[str] | None
) -> None:
    for each in handled:
        on.event(*((each,) if isinstance(each, str) else each), registry=setup.registry)(nothing)
    for each in reviewed:
        on.validate(*each, registry=setup.registry)(nothing)
    found = setup.requirements.find_groups(related)
    assert (found if found is None else set(found)) == groups


def test_nothing_is_required_without_handlers(setup: Setup) -> None:
    assert not setup.requirements
    on.startup(registry=setup.registry)(nothing)
    assert not setup.requirements
    on.validate("nodes", registry=setup.registry)(nothing)
    assert setup.requirements
    assert not setup.select().by_key


def test_the_name_of_a_kind_is_that_of_its_definition() -> None:
    assert [name_of(SECRETS), name_of(LOGS)] == ["secrets", "logs.x.io"]


@pytest.mark.parametrize(
    ("shards", "reader", "decorator", "divisible"),
    [
        (8, None, on.event, True),
        (8, None, on.create, True),
        (1, None, on.event, False),
        (8, Reader(), on.event, False),
        (8, None, on.index, False),
    ],
)
def test_each_replica_receives_its_shards_only_unless_others_than_handlers_read_the_kind(
    setup: Setup, shards: int, reader: Reader | None, decorator: Any, divisible: bool
) -> None:
    setup.settings.leadership.shards = shards
    on.event("secrets", registry=setup.registry)(nothing)
    decorator("secrets", id="other", registry=setup.registry)(nothing)
    found = setup.select(*([reader] if reader else ())).by_key
    assert {target.is_divisible for target in found.values()} == {divisible}


def test_all_replicas_know_the_objects_whose_memos_webhooks_ask_for(setup: Setup) -> None:
    setup.settings.leadership.shards = 8
    on.event("secrets", registry=setup.registry)(nothing)

    @on.validate("secrets", registry=setup.registry)
    def validate(memo: Any, **_: Any) -> None: ...

    assert not any(target.is_divisible for target in setup.select().by_key.values())
