"""Tests for :mod:`trioperator._handling.handlers.typed`: typed arguments, by annotations, on an embedded cluster."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic
import pytest

import trioperator
from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.typed import bind_types
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner, eventually

UNUSED = OperatorRegistry()


class DatabaseSpec(msgspec.Struct):
    size: int
    tags: list[str] = []


class DatabaseStatus(msgspec.Struct):
    phase: str = "New"


@crds.kind("example.com/v1", registry=UNUSED)
class Database(msgspec.Struct):
    spec: DatabaseSpec
    metadata: crds.ObjectMeta
    status: DatabaseStatus | None = None


@dataclasses.dataclass
class Other:
    size: int


def make(name: str = "db", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Database", "metadata": metadata, "spec": spec}


#: A definition that lets anything in, as if it were older than the class.
LAX = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "databases.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Database", "plural": "databases", "singular": "database", "listKind": "DatabaseList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_handlers_get_what_they_are_annotated_with(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    seen: dict[str, Any] = {}

    @trioperator.on.create(Database)
    def sync(spec: DatabaseSpec, status: DatabaseStatus | None) -> None:
        seen["sync"] = (spec, status)

    @trioperator.on.create(Database)
    async def typed(spec: DatabaseSpec, status: DatabaseStatus, body: Database, name: str, patch: Any) -> None:
        seen["typed"] = (spec, status, body.metadata.name, body.status, name)
        patch.status.update(crds.encode(DatabaseStatus(phase="Ready")))

    @trioperator.on.create(Database)
    async def untyped(spec: trioperator.Spec, status: Any, **kwargs: Any) -> None:
        seen["untyped"] = (type(spec), spec["size"], type(status), type(kwargs["body"]))

    await operator.start()
    await cluster.create(make(size=3, tags=["a"]))
    await eventually(lambda: len(seen) == 3)
    spec = DatabaseSpec(3, ["a"])
    assert seen["typed"] == (spec, DatabaseStatus("New"), "db", None, "db")
    assert seen["sync"] == (spec, None)
    assert seen["untyped"] == (trioperator.Spec, 3, trioperator.Status, trioperator.Body)
    await cluster.wait_for(
        "databases", "db", lambda obj: obj.get("status", {}).get("phase") == "Ready", namespace="default"
    )


_FOR_TYPE_CHECKERS = """
@trioperator.on.create(Database)
async def create(spec: DatabaseSpec | None, status: Unknown, patch: Unknown, **_: Unknown) -> Unknown:
    patch.status["phase"] = f"Created with {spec.size}"

@trioperator.on.create("example.com/v1", "databases", labels={"app": lambda value, **_: value is None})
def untyped(spec: Unknown, body: Database | Unknown, **_: Unknown) -> Unknown: ...

@trioperator.on.reconcile(Database, owns=["configmaps"])
def reconcile(name: str, namespace: Unknown, **_: Unknown) -> list[Unknown]:
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}]

@trioperator.index(lambda resource: resource.plural == "databases")
def by_name(name: Unknown, **_: Unknown) -> dict[Unknown, Unknown]:
    return {name: name}
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="Python evaluates annotations when functions are defined")
async def test_annotations_may_name_what_is_imported_for_type_checkers_only(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    code = compile(_FOR_TYPE_CHECKERS, "app.py", "exec", dont_inherit=True)
    exec(code, {"trioperator": trioperator, "Database": Database, "DatabaseSpec": DatabaseSpec})
    await operator.start()
    await cluster.create(make(size=3))
    await cluster.wait_for(
        "databases", "db", lambda obj: obj.get("status", {}).get("phase") == "Created with 3", namespace="default"
    )
    await cluster.wait_for("configmaps", "db", bool, namespace="default")


async def test_all_decorators_take_a_class(cluster: Cluster, operator: OperatorRunner, autojump_clock: object) -> None:
    seen: dict[str, Any] = {}

    def note(name: str) -> Callable[..., Any]:
        async def handle(spec: DatabaseSpec) -> None:
            seen[name] = spec.size

        handle.__qualname__ = name
        return handle

    @trioperator.on.reconcile(Database)
    async def reconcile(body: Database) -> None:
        seen["reconcile"] = body.spec.size

    @trioperator.index(Database)
    def sizes(spec: DatabaseSpec, name: str) -> dict[str, int]:
        return {name: spec.size}

    trioperator.on.event(Database)(note("event"))
    trioperator.on.resume(Database)(note("resume"))
    trioperator.on.update(Database)(note("update"))
    trioperator.on.field(Database, field="spec.size")(note("field"))
    trioperator.on.delete(Database)(note("delete"))
    trioperator.daemon(Database)(note("daemon"))
    trioperator.timer(Database, interval=1000)(note("timer"))

    await operator.start()
    await cluster.create(make(size=1))
    await eventually(lambda: {"reconcile", "event", "daemon", "timer"} <= seen.keys())
    await cluster.patch("databases", "db", {"spec": {"size": 2}}, namespace="default")
    await eventually(lambda: seen.get("update") == seen.get("field") == seen.get("reconcile") == 2)
    await cluster.delete("databases", "db", "default")
    await eventually(lambda: seen.get("delete") == 2)


async def test_an_object_that_does_not_fit_is_reported_on_it_and_not_retried(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    calls: list[int] = []
    operator.expect_failures("typed")

    @trioperator.on.create(Database, id="typed")
    @trioperator.on.update(Database, id="typed")
    async def typed(spec: DatabaseSpec) -> None:
        calls.append(spec.size)

    await cluster.apply(LAX)
    await operator.start()
    await cluster.create(make(size="big"))
    await operator.assert_converged()
    assert calls == []
    text = "Handler 'typed' failed permanently: It is not a valid Database.spec.size: Expected `int`, got `str`."
    assert [line.message for line in operator.logs if "failed permanently" in line.message] == [text]
    messages = [event["message"] for event in await operator.list_events("db", kind="Database")]
    assert messages.count(text) == 1

    await cluster.patch("databases", "db", {"spec": {"size": 5}}, namespace="default")
    await eventually(lambda: calls == [5])


async def test_sub_handlers_are_typed(cluster: Cluster, operator: OperatorRunner, autojump_clock: object) -> None:
    seen: list[tuple[str, int]] = []

    async def deepest(body: Database) -> None:
        seen.append(("deepest", body.spec.size))

    @trioperator.on.create(Database)
    async def create(spec: DatabaseSpec, **_: Any) -> None:
        for tag in spec.tags:

            @trioperator.subhandler(id=tag)
            async def declared(spec: DatabaseSpec, tag: str = tag, **_: Any) -> None:
                seen.append((tag, spec.size))
                await trioperator.execute(fns=[deepest])

        def registered(spec: DatabaseSpec) -> None:
            seen.append(("registered", spec.size))

        trioperator.register(registered, id="c")

    await operator.start()
    await cluster.create(make(size=3, tags=["a", "b"]))
    await eventually(lambda: len(seen) == 5)
    assert sorted(seen) == [("a", 3), ("b", 3), ("deepest", 3), ("deepest", 3), ("registered", 3)]


def test_filters_take_views_as_objects_that_do_not_fit_are_filtered_too() -> None:
    def is_big(spec: DatabaseSpec, **_: Any) -> bool:
        return spec.size > 5

    def is_tagged(value: Any, body: Database | None) -> bool:
        return body is not None and value

    async def handle(spec: DatabaseSpec) -> None: ...

    for filters in ({"when": is_big}, {"when": trioperator.not_(is_big)}, {"labels": {"a": is_tagged}}):
        with pytest.raises(TypeError, match=r"(when|labels)=... with typed arguments, .* spec: trioperator.Spec"):
            trioperator.on.create(Database, registry=UNUSED, **filters)(handle)
    with pytest.raises(TypeError, match=r"initial_delay=... with typed arguments"):
        trioperator.daemon(Database, registry=UNUSED, initial_delay=is_big)(handle)


async def test_sub_handlers_filters_take_views_too(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    errors: list[str] = []

    @trioperator.on.create(Database)
    async def create() -> None:
        def when(spec: DatabaseSpec, **_: Any) -> bool:
            return True

        async def handle() -> None: ...

        with pytest.raises(TypeError, match=r"when=... with typed arguments"):
            trioperator.register(handle, id="a", when=when)
        errors.append("a")

    await operator.start()
    await cluster.create(make(size=3))
    await eventually(lambda: errors == ["a"])


async def test_children_that_are_returned_or_yielded_may_be_typed(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    @trioperator.on.reconcile("configmaps", owns=[Database])
    async def returned(name: str) -> Any:
        return Database(metadata=crds.ObjectMeta(name=f"{name}-1"), spec=DatabaseSpec(1))

    @trioperator.on.reconcile("secrets", owns=[Database])
    def yielded(name: str) -> Any:
        yield Database(metadata=crds.ObjectMeta(name=f"{name}-2"), spec=DatabaseSpec(2))

    @trioperator.on.reconcile(Database, owns=["services"])
    def typed(spec: DatabaseSpec, name: str) -> Any:
        yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}

    await operator.start()
    for kind in ("ConfigMap", "Secret"):
        await cluster.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "default"}})
    for name, size in (("x-1", 1), ("x-2", 2)):
        await cluster.wait_for("databases", name, lambda obj, size=size: obj["spec"]["size"] == size, "default")
        await cluster.wait_for("services", name, lambda obj: True, "default")


def test_the_old_state_has_no_typed_form() -> None:
    async def update(old: Database | None, spec: DatabaseSpec) -> None: ...

    with pytest.raises(TypeError, match=r"update has a typed old, .*: use trioperator.crds.decode"):
        trioperator.on.update(Database, registry=UNUSED)(update)


def test_stacked_decorators_count_as_one_handler() -> None:
    registry = OperatorRegistry()

    async def typed(spec: DatabaseSpec) -> None: ...

    for decorate in (trioperator.on.create, trioperator.on.update, trioperator.on.reconcile, trioperator.on.reconcile):
        assert decorate(Database, registry=registry)(typed) is typed
    created, updated, *reconciles = registry
    assert created.fn is updated.fn
    assert len({handler.fn for handler in reconciles}) == 1


def test_handlers_that_ask_for_nothing_typed_stay_as_they_are() -> None:
    def untyped(spec: trioperator.Spec, body: dict[str, Any], status: Any, **_: Any) -> None: ...

    assert bind_types(untyped, Database) is untyped
    assert bind_types(untyped, None) is untyped


def test_methods_and_partials_are_typed() -> None:
    class Holder:
        def method(self, spec: DatabaseSpec) -> int:
            return spec.size

    def function(factor: int, spec: DatabaseSpec) -> int:
        return factor * spec.size

    assert bind_types(Holder().method, Database)(spec={"size": 2}) == 2
    assert bind_types(functools.partial(function, 3), Database)(spec={"size": 2}) == 6


def test_an_annotation_with_another_class_is_an_error() -> None:
    async def wrong(spec: Other) -> None: ...

    with pytest.raises(TypeError, match=r"wrong has spec: Other, but the kind has DatabaseSpec there"):
        trioperator.on.create(Database, registry=UNUSED)(wrong)

    async def several(spec: Other | DatabaseSpec) -> None: ...

    trioperator.on.create(Database, registry=OperatorRegistry())(several)


def test_a_class_that_declares_no_kind_is_no_selector() -> None:
    with pytest.raises(TypeError, match=r"got Other as a selector: .* trioperator.crds.kind\(\)"):
        trioperator.on.create(Other, registry=UNUSED)


def test_errors_name_the_field() -> None:
    with pytest.raises(trioperator.PermanentError, match=r"^It is not a valid Database.spec.tags\[1\]: Expected `str`"):
        crds.decode(Database, make(size=1, tags=["a", 2]))


class Volume(msgspec.Struct):
    storage: crds.Quantity = crds.Quantity("0.5Gi")
    limit: crds.Quantity | None = None


class PydanticVolume(pydantic.BaseModel):
    storage: crds.Quantity = crds.Quantity("0.5Gi")
    limit: crds.Quantity | None = None


HALF = crds.Quantity("0.5Gi")


@dataclasses.dataclass
class DataclassVolume:
    storage: crds.Quantity = HALF
    limit: crds.Quantity | None = None


@pytest.mark.parametrize("cls", [Volume, PydanticVolume, DataclassVolume])
async def test_quantities_are_read_written_and_checked(cls: Any, cluster: Cluster) -> None:
    registry = trioperator.OperatorRegistry()
    kind = msgspec.defstruct("Disk", [("spec", cls)])
    await cluster.apply(crds.make_definition([crds.kind("example.com/v1", registry=registry)(kind)]))
    body = {"apiVersion": "example.com/v1", "kind": "Disk", "metadata": {"name": "a"}}
    stored = await cluster.create({**body, "spec": {"limit": 5}})
    assert stored["spec"] == {"storage": "512Mi", "limit": 5}
    found = crds.decode(cls, stored["spec"])
    assert (found.storage, found.limit) == (crds.Quantity("512Mi"), crds.Quantity("5"))
    assert crds.encode(cls(limit=crds.Quantity("1000m"))) == {"storage": "512Mi", "limit": "1"}
    for wrong in ("5x", 0.5):
        with pytest.raises(trioperator.PermanentError, match=r"storage.*(is no quantity|A quantity is a string)"):
            crds.decode(cls, {"storage": wrong})
    with pytest.raises(trioperator.ApiError, match=r"spec\.storage"):
        await cluster.create({**body, "metadata": {"name": "b"}, "spec": {"storage": "5x"}})
