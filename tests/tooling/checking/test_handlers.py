"""Tests for :mod:`trioperator._tooling.checking.handlers`: mistakes that handlers show before they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trioperator import ABSENT, PRESENT, OperatorRegistry, on
from trioperator._tooling.checking import Problem, Source
from trioperator._tooling.checking.handlers import find_handler_problems

Declare = Callable[[OperatorRegistry], object]


def find(declare: Declare, *, source: str = "") -> list[Problem]:
    registry = OperatorRegistry()
    declare(registry)
    return list(find_handler_problems(registry, [Source.parse("m", "m.py", source)]))


def one(**_: Any) -> None:
    pass


def other(**_: Any) -> None:
    pass


def wrong(spec: Any, nmae: Any) -> None:
    pass


# -- arguments


def test_unknown_arguments_are_reported_where_the_function_is() -> None:
    [problem] = find(lambda r: on.create("widgets", registry=r)(wrong))
    assert (problem.check, problem.file, problem.line) == ("arguments", __file__, wrong.__code__.co_firstlineno)
    assert problem.message.startswith(
        "Handler 'wrong' requires arguments that do not exist: nmae (did you mean name?). Available arguments: anno"
    )


def test_arguments_depend_on_the_decorator() -> None:
    def takes_old(old: Any) -> None:
        pass

    assert find(lambda r: on.update("widgets", registry=r)(takes_old)) == []
    [problem] = find(lambda r: on.event("widgets", registry=r)(takes_old))
    assert "do not exist: old" in problem.message


def test_filters_are_reported_where_they_are() -> None:
    def chosen(labls: Any) -> bool:
        return bool(labls)

    [problem] = find(lambda r: on.create("widgets", when=chosen, registry=r)(one))
    assert problem.line == chosen.__code__.co_firstlineno
    assert problem.message.startswith("The filter when= of Handler 'one' requires arguments")


# -- ids


@pytest.mark.parametrize(
    "declare",
    [
        lambda r: (on.create("a", registry=r, id="x")(one), on.create("a", registry=r, id="x")(other)),
        lambda r: (on.create("a", registry=r, id="x")(one), on.resume("a", registry=r, id="x")(other)),
        lambda r: (
            on.field("a", field="f", registry=r, id="x")(one),
            on.update("a", field="f", registry=r, id="x")(other),
        ),
        lambda r: (on.create("a", registry=r, id="x")(one), on.create("g", "v1", "a", registry=r, id="x")(other)),
    ],
)
def test_functions_that_share_an_id_and_a_cause_are_reported(declare: Declare) -> None:
    [problem] = find(declare)
    assert (problem.check, problem.line) == ("ids", other.__code__.co_firstlineno)
    assert "Two functions are handlers with the id 'x" in problem.message


@pytest.mark.parametrize(
    "declare",
    [
        lambda r: (on.create("a", registry=r)(one), on.update("a", registry=r)(one), on.create("a", registry=r)(one)),
        lambda r: (on.create("a", registry=r, id="x")(one), on.update("a", registry=r, id="x")(other)),
        lambda r: (on.create("a", registry=r, id="x")(one), on.create("b", registry=r, id="x")(other)),
        lambda r: (on.delete("a", registry=r, id="x")(one), on.resume("a", registry=r, id="x")(other)),
        lambda r: (on.event("a", registry=r, id="x")(one), on.event("a", registry=r, id="x")(other)),
    ],
)
def test_the_same_id_is_fine_where_no_progress_is_shared(declare: Declare) -> None:
    assert find(declare) == []


def test_ids_of_webhooks_and_versions_of_conversions_are_reported() -> None:
    def declare(registry: OperatorRegistry) -> None:
        on.validate("a", id="x", registry=registry)(one)
        on.mutate("a", id="x", registry=registry)(other)
        on.convert("a", from_="v1", to="v2", registry=registry)(one)
        on.convert("a", from_="v1", to="v2", registry=registry)(other)

    problems = find(declare, source="settings.admission.server = 1")
    assert [problem.check for problem in problems] == ["ids", "ids"]
    assert {problem.line for problem in problems} == {other.__code__.co_firstlineno}


# -- filters


@pytest.mark.parametrize(
    "declare",
    [
        lambda r: on.update("a", field="spec.x", old=1, new=1, registry=r)(one),
        lambda r: on.field("a", field="spec.x", old=ABSENT, new=ABSENT, registry=r)(one),
        lambda r: on.create("a", field="metadata.labels.x", labels={"x": ABSENT}, registry=r)(one),
        lambda r: on.event("a", field="metadata.labels.x", value="1", labels={"x": "2"}, registry=r)(one),
        lambda r: on.timer("a", interval=1, field="metadata.labels.x", value=ABSENT, labels={"x": PRESENT}, registry=r)(
            one
        ),
        lambda r: on.create("a", field="metadata.annotations.x", value=1, registry=r)(one),
        lambda r: on.field("a", field="spec.members[0].name", registry=r)(one),
        lambda r: on.field("a", field="spec.members[*]", registry=r)(one),
    ],
)
def test_filters_that_contradict_each_other_are_reported(declare: Declare) -> None:
    [problem] = find(declare)
    assert (problem.check, problem.line) == ("filters", one.__code__.co_firstlineno)
    assert "can never match: " in problem.message


@pytest.mark.parametrize("value", [None, "1", ABSENT])
@pytest.mark.parametrize("field", ["metadata.annotations.a.b/c", r"metadata.annotations.a\.b/c"])
def test_names_of_annotations_that_were_split_are_reported_with_the_tuple_that_was_meant(
    field: str, value: object
) -> None:
    [problem] = find(lambda r: on.create("a", field=field, value=value, registry=r)(one))
    assert (problem.check, problem.line) == ("filters", one.__code__.co_firstlineno)
    assert "pass field=('metadata', 'annotations', 'a.b/c')" in problem.message


@pytest.mark.parametrize(
    "declare",
    [
        lambda r: on.create("a", field=("metadata", "labels", "a.b/c"), registry=r)(one),
        lambda r: on.create("a", field="metadata.labels", registry=r)(one),
        lambda r: on.create("a", field="spec.metadata.labels.a.b", registry=r)(one),
        lambda r: on.update("a", field="spec.x", old=1, new=2, registry=r)(one),
        lambda r: on.update("a", field="spec.x", old=PRESENT, new=PRESENT, registry=r)(one),
        lambda r: on.update("a", field="metadata.labels.x", value="1", labels={"x": "2"}, registry=r)(one),
        lambda r: on.create("a", field="metadata.labels.x", value="1", labels={"x": PRESENT}, registry=r)(one),
        lambda r: on.create("a", field="metadata.labels.x", labels={"x": lambda value: True}, registry=r)(one),
        lambda r: on.create("a", field="spec.labels.x", value=1, labels={"x": "1"}, registry=r)(one),
        lambda r: on.create("a", labels={"x": "1"}, registry=r)(one),
    ],
)
def test_filters_that_can_match_are_left_alone(declare: Declare) -> None:
    assert find(declare) == []


# -- webhooks


@pytest.mark.parametrize("decorator", [on.validate, on.mutate])
def test_webhooks_need_a_server(decorator: Any) -> None:
    [problem] = find(lambda r: decorator("a", registry=r)(one), source="settings.admission.managed = 'a.b'")
    assert problem.check == "webhooks"
    assert "settings.admission.server" in problem.message


@pytest.mark.parametrize(
    "source",
    [
        "def f(settings): settings.admission.server = 1",
        "def f(admission): admission.server = 1",
        "s.admission = make()",
    ],
)
def test_webhooks_with_a_server_are_left_alone(source: str) -> None:
    assert find(lambda r: on.validate("a", registry=r)(one), source=source) == []
