"""Filtering: which objects and changes a handler is called for."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import change, example, operating, rest
from trioperator.apiserver import Cluster


def check_value(value: str | None, spec: kopf.Spec, **_: Any) -> bool:
    return value == "some-value" and spec.get("field") is not None


def is_good_enough(spec: kopf.Spec, **_: Any) -> bool:
    return spec.get("field") in spec.get("items", [])


WHOLE = [lambda name, **_: name.startswith("kex-"), lambda spec, **_: spec.get("field") == "value"]
VALUES = [lambda value, **_: value.startswith("some"), lambda value, **_: value.endswith("label")]
LABELLED = {"labels": {"somelabel": "somelabel"}}

CREATED: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"labels": {"l": "v"}, "annotations": {"a": "v"}}, {"labels": {"l": "v"}, "annotations": {"a": "v"}}, True),
    ({"labels": {"l": "v"}, "annotations": {"a": "v"}}, {"labels": {"l": "v"}}, False),
    ({"labels": {"l": kopf.PRESENT}}, {"labels": {"l": ""}}, True),
    ({"labels": {"l": kopf.PRESENT}}, {}, False),
    ({"annotations": {"a": kopf.ABSENT}}, {}, True),
    ({"annotations": {"a": kopf.ABSENT}}, {"annotations": {"a": ""}}, False),
    ({"field": "spec.field", "value": "world"}, {"field": "world"}, True),
    ({"field": "spec.field", "value": "world"}, {"field": "other"}, False),
    ({"field": "spec.field", "value": kopf.PRESENT}, {"field": ""}, True),
    ({"field": "spec.field", "value": kopf.PRESENT}, {}, False),
    ({"field": "spec.no-field", "value": kopf.ABSENT}, {}, True),
    ({"field": "spec.no-field", "value": kopf.ABSENT}, {"no-field": 1}, False),
    ({"field": "spec.field"}, {"field": 1}, True),
    ({"field": "spec.field"}, {}, False),
    ({"labels": {"l": check_value}}, {"labels": {"l": "some-value"}, "field": 1}, True),
    ({"labels": {"l": check_value}}, {"labels": {"l": "some-value"}}, False),
    ({"labels": {"l": check_value}}, {"field": 1}, False),
    ({"when": is_good_enough}, {"field": 1, "items": [1, 2]}, True),
    ({"when": is_good_enough}, {"field": 3, "items": [1, 2]}, False),
    ({"when": kopf.all_(WHOLE), "labels": {"somelabel": kopf.all_(VALUES)}}, {**LABELLED, "field": "value"}, True),
    ({"when": kopf.all_(WHOLE), "labels": {"somelabel": kopf.all_(VALUES)}}, {**LABELLED, "field": "x"}, False),
    ({"when": kopf.any_(WHOLE), "labels": {"somelabel": kopf.any_(VALUES)}}, {**LABELLED, "field": "x"}, True),
    ({"when": kopf.none_(WHOLE)}, {"field": "x"}, False),
    ({"when": kopf.not_(WHOLE[1])}, {"field": "x"}, True),
    ({"when": lambda reason, memo, **_: reason == "create"}, {}, True),
]


@pytest.mark.parametrize(("filters", "made", "expected"), CREATED)
async def test_filters_select_the_handlers_of_a_creation(
    kex: Cluster, autojump_clock: MockClock, filters: dict[str, Any], made: dict[str, Any], expected: bool
) -> None:
    calls: list[str] = []

    @kopf.on.create("kopfexamples", **filters)
    async def my_handler(name: str, **_: Any) -> None:
        calls.append(name)

    metadata = {key: made[key] for key in ("labels", "annotations") if key in made}
    spec = {key: value for key, value in made.items() if key not in metadata}
    async with operating(kex):
        await kex.create(example(meta=metadata, **spec))
        await rest()
    assert calls == (["kex-1"] if expected else [])


UPDATED: list[tuple[dict[str, Any], Any, Any, bool]] = [
    ({}, "x", "y", True),
    ({}, None, "y", True),
    ({}, "x", None, True),
    ({}, "x", "x", False),
    ({"value": "y"}, "x", "y", True),
    ({"value": "y"}, "y", "x", True),
    ({"value": "y"}, "x", "z", False),
    ({"value": "y"}, "y", "y", False),
    ({"old": "x", "new": "y"}, "x", "y", True),
    ({"old": "x", "new": "y"}, "x", "z", False),
    ({"old": kopf.ABSENT, "new": kopf.PRESENT}, None, "y", True),
    ({"old": kopf.ABSENT, "new": kopf.PRESENT}, "x", "y", False),
    ({"old": kopf.PRESENT, "new": kopf.ABSENT}, "x", None, True),
    ({"new": "world"}, None, "world", True),
    ({"new": "world"}, "world", "x", False),
    ({"old": "world"}, "world", "x", True),
    ({"old": "world"}, "world", None, True),
    ({"old": "world"}, "x", "world", False),
]


@pytest.mark.parametrize(("filters", "old", "new", "expected"), UPDATED)
async def test_filters_select_the_handlers_of_a_change(
    kex: Cluster, autojump_clock: MockClock, filters: dict[str, Any], old: Any, new: Any, expected: bool
) -> None:
    calls: list[Any] = []

    @kopf.on.create("kopfexamples")  # so that the object is in view before the change
    async def created(**_: Any) -> None: ...

    @kopf.on.update("kopfexamples", field="spec.field", **filters)
    async def my_handler(old: Any, new: Any, **_: Any) -> None:
        calls.append((old, new))

    async with operating(kex):
        await kex.create(example(**({} if old is None else {"field": old})))
        await rest()
        await change(kex, field=new, other="changed, too")
        await rest()
    assert calls == ([(old, new)] if expected else [])


async def test_an_object_that_matches_no_filter_is_untouched_and_created_when_it_does(
    kex: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    calls: list[str] = []

    @kopf.on.create("kopfexamples", labels={"mine": kopf.PRESENT})
    @kopf.on.update("kopfexamples", labels={"mine": kopf.PRESENT})
    async def my_handler(reason: str, **_: Any) -> None:
        calls.append(reason)

    async with operating(kex):
        caplog.clear()
        await kex.create(example(field=1))
        await rest()
        await change(kex, field=2)
        await rest()
        assert "annotations" not in (await kex.get("kopfexamples", "kex-1"))["metadata"]
        assert not caplog.records
        await kex.patch("kopfexamples", "kex-1", {"metadata": {"labels": {"mine": "yes"}}})
        await rest()
    assert calls == ["create"]


async def test_a_handler_of_a_missing_field_applies_to_all_objects(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @kopf.on.field("kopfexamples", field="spec.nonexistent")
    async def dummy(**_: Any) -> None:
        raise AssertionError

    @kopf.on.create("kopfexamples", labels={"mine": kopf.PRESENT})
    @kopf.on.update("kopfexamples", labels={"mine": kopf.PRESENT})
    async def my_handler(reason: str, **_: Any) -> None:
        calls.append(reason)

    async with operating(kex):
        await kex.create(example(field=1))
        await rest()
        await kex.patch("kopfexamples", "kex-1", {"metadata": {"labels": {"mine": "yes"}}})
        await rest()
    assert calls == ["update"]


async def test_values_of_resuming_and_deletion_are_those_of_the_only_state(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    def declare(decorator: Any, name: str, **options: Any) -> None:
        async def fn(**_: Any) -> None:
            calls.append(name)

        decorator("kopfexamples", id=name, field="spec.field", **options)(fn)

    for value in ("old", "new"):
        declare(kopf.on.update, f"update/{value}", value=value)
        declare(kopf.on.resume, f"resume/{value}", value=value)
        declare(kopf.on.delete, f"delete/{value}", value=value)
    async with operating(kex):
        await kex.create(example(field="old"))
        await rest()
    await change(kex, field="new")
    async with operating(kex):
        await rest()
    assert calls == ["update/old", "update/new", "resume/new"]
    await change(kex, field="old")
    await kex.delete("kopfexamples", "kex-1")
    async with operating(kex):
        await kex.wait_deleted("kopfexamples", "kex-1")
    assert calls[3:] == ["delete/old"]
