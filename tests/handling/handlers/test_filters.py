"""Filters: matching of objects and changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handling.factory import change_cause, change_handler, event_cause, event_handler, update_handler
from trioperator._handling.handlers.filters import (
    ABSENT,
    PRESENT,
    all_,
    any_,
    callbacks,
    describe_split_name,
    field_paths,
    matches,
    none_,
    not_,
    prematches,
)
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._model.fields import parse_field


def labelled(labels: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


def never(*_: Any, **__: Any) -> bool:
    raise AssertionError("It must not be asked.")


# ---------------------------------------------------------------------------------------------- metadata


@pytest.mark.parametrize("stanza", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("content", "wanted", "expected"),
    [
        ({"a": "b"}, {"a": "b"}, True),
        ({"a": "c"}, {"a": "b"}, False),
        ({}, {"a": "b"}, False),
        (None, {"a": "b"}, False),
        ({"a": "b"}, {"a": PRESENT}, True),
        ({"a": ""}, {"a": PRESENT}, True),
        ({}, {"a": PRESENT}, False),
        (None, {"a": PRESENT}, False),
        ({"a": "b"}, {"a": ABSENT}, False),
        ({"a": ""}, {"a": ABSENT}, False),
        ({}, {"a": ABSENT}, True),
        (None, {"a": ABSENT}, True),
        ({"a": None}, {"a": ABSENT}, True),
        ({"a": None}, {"a": PRESENT}, False),
        ({"a": ""}, {"a": ""}, True),
        ({}, {"a": ""}, False),
        ({"a": "b", "c": "d"}, {"a": "b", "c": "d"}, True),
        ({"a": "b", "c": "d"}, {"a": "b", "c": "x"}, False),
        ({"a": "b", "c": "d"}, {"a": "b", "x": ABSENT}, True),
        ({"a": "b"}, {}, True),
        ({"a": "bcd"}, {"a": lambda value, **_: value.startswith("b")}, True),
        ({"a": "xbc"}, {"a": lambda value, **_: value.startswith("b")}, False),
        ({}, {"a": lambda value, **_: value is None}, True),
        ({"a": "12"}, {"a": str.isdigit}, True),
        ({"a": "1b"}, {"a": str.isdigit}, False),
    ],
)
def test_metadata_filters(stanza: str, content: Any, wanted: Any, expected: bool) -> None:
    cause = event_cause({"metadata": {stanza: content}})
    assert matches(event_handler(**{stanza: wanted}), cause) is expected
    assert prematches(event_handler(**{stanza: wanted}), cause) is expected


def test_objects_without_metadata_have_no_labels() -> None:
    assert matches(event_handler(labels={"a": ABSENT}), event_cause({}))
    assert not matches(event_handler(labels={"a": PRESENT}), event_cause({"metadata": None}))


def test_a_handler_without_filters_matches_everything() -> None:
    assert matches(event_handler(), event_cause({}))
    assert matches(change_handler(), change_cause(old=None, new={}))


_TEXTS = st.sampled_from(["", "a", "b"])
_METADATA = st.dictionaries(st.sampled_from("xyz"), _TEXTS)


@given(
    _METADATA,
    _METADATA,
    st.dictionaries(st.sampled_from("xyz"), _TEXTS | st.just(PRESENT) | st.just(ABSENT)),
    st.dictionaries(st.sampled_from("xyz"), _TEXTS | st.just(PRESENT) | st.just(ABSENT)),
)
def test_all_metadata_criteria_must_match(
    labels: dict[str, str], annotations: dict[str, str], wanted: dict[str, Any], wanted_too: dict[str, Any]
) -> None:
    def satisfied(content: dict[str, str], key: str, criterion: Any) -> bool:
        if criterion is PRESENT:
            return key in content
        if criterion is ABSENT:
            return key not in content
        return bool(content.get(key) == criterion)

    expected = all(satisfied(labels, *item) for item in wanted.items()) and all(
        satisfied(annotations, *item) for item in wanted_too.items()
    )
    cause = event_cause({"metadata": {"labels": labels, "annotations": annotations}})
    assert matches(event_handler(labels=wanted, annotations=wanted_too), cause) is expected


# --------------------------------------------------------------------------------------------- callbacks


@pytest.mark.parametrize(
    "when",
    [
        lambda **_: True,
        lambda spec, **_: spec["size"] == 1,
        lambda spec: spec["size"] == 1,
        lambda *, name, memo: (name, memo) == ("w", "kept"),
        lambda body, meta, status, labels, annotations: (
            body.spec == {"size": 1} and not (labels or annotations or status)
        ),
        lambda type, event: (type, event["type"]) == ("ADDED", "ADDED"),  # noqa: A006
        lambda resource, uid, namespace, logger, patch: (resource.plural, uid, namespace) == ("widgets", "u", "ns"),
        lambda: True,
        lambda spec, unknown=5: unknown == 5,
    ],
)
def test_a_callback_may_declare_any_of_the_arguments(when: Callable[..., bool]) -> None:
    raw = {"kind": "Widget", "metadata": {"name": "w", "uid": "u", "namespace": "ns"}, "spec": {"size": 1}}
    assert matches(event_handler(when=when), event_cause(raw, memo="kept"))


@pytest.mark.parametrize(
    "check",
    [
        lambda value, **_: value == "x",
        lambda value: value == "x",
        lambda value, /, spec: value == "x" and spec["size"] == 1,
        lambda value, *, name: (value, name) == ("x", "w"),
        lambda anything, **_: anything == "x",
        lambda *values: values == ("x",),
        lambda *values, spec: values == ("x",) and spec["size"] == 1,
    ],
)
def test_a_value_callback_may_declare_any_of_the_arguments_after_the_value(check: Callable[..., bool]) -> None:
    raw = {"metadata": {"name": "w", "labels": {"a": "x"}, "annotations": {"a": "x"}}, "spec": {"size": 1, "f": "x"}}
    assert matches(event_handler(labels={"a": check}), event_cause(raw))
    assert matches(event_handler(annotations={"a": check}), event_cause(raw))
    assert matches(event_handler(field=("spec", "f"), value=check), event_cause(raw))
    assert matches(event_handler(when=lambda **kwargs: "retry" not in kwargs), event_cause(raw))


def test_callbacks_of_a_change_get_the_whole_change() -> None:
    cause = change_cause(old={"spec": {"a": 1}}, new={"spec": {"a": 2}})

    def when(reason: str, old: Any, new: Any, diff: Any) -> bool:
        assert tuple(diff) == (("change", ("spec", "a"), 1, 2),)
        return bool((reason, old, new) == ("update", {"spec": {"a": 1}}, {"spec": {"a": 2}}))

    assert matches(update_handler(when=when), cause)
    assert matches(update_handler(when=when, field=("spec", "a")), cause)


def test_the_result_of_a_callback_is_converted_to_a_bool() -> None:
    assert matches(event_handler(when=lambda spec: spec.get("f")), event_cause({"spec": {"f": "text"}})) is True
    assert matches(event_handler(when=lambda spec: spec.get("f")), event_cause({"spec": {}})) is False


def test_an_unhashable_callback_is_called() -> None:
    class Check:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, name: str) -> bool:
            return name == "w"

    assert matches(event_handler(when=Check()), event_cause({"metadata": {"name": "w"}}))


def test_when_is_called_last_and_only_if_all_else_matches() -> None:
    assert not matches(event_handler(labels={"a": "b"}, when=never), event_cause({}))
    assert not matches(event_handler(annotations={"a": "b"}, when=never), event_cause({}))
    assert not matches(event_handler(field=("spec",), when=never), event_cause({}))
    assert not matches(event_handler(labels={"a": "b"}, field=("spec",), value=never), event_cause({}))


@given(st.lists(st.booleans()))
def test_combined_callbacks_behave_like_the_builtins(answers: list[bool]) -> None:
    whole: list[Any] = [lambda spec, answer=answer: answer for answer in answers]
    values: list[Any] = [lambda value, spec, answer=answer: answer and value == "x" for answer in answers]
    cause = event_cause(labelled({"a": "x"}))
    expected = {all_: all(answers), any_: any(answers), none_: not any(answers)}
    for combine, passes in expected.items():
        assert matches(event_handler(when=combine(whole)), cause) is passes
        assert matches(event_handler(labels={"a": combine(values)}), cause) is passes
        assert matches(event_handler(when=not_(combine(whole))), cause) is not passes
        assert matches(event_handler(when=combine(fn for fn in whole)), cause) is passes
    for fn, answer in zip(whole, answers, strict=True):
        assert matches(event_handler(when=not_(fn)), cause) is not answer


def test_combined_callbacks_can_be_nested_and_short_circuit() -> None:
    def yes(name: str) -> bool:
        return True

    def no(**_: Any) -> bool:
        return False

    cause = event_cause({"metadata": {"name": "w"}})
    assert matches(event_handler(when=any_([all_([yes, not_(no)]), never])), cause)
    assert not matches(event_handler(when=all_([no, never])), cause)
    assert not matches(event_handler(when=none_([yes, never])), cause)


def test_only_functions_can_be_combined() -> None:
    for combine in (all_, any_, none_):
        with pytest.raises(TypeError, match="'text'"):
            combine(["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="5"):
        not_(5)  # type: ignore[arg-type]


def test_all_callbacks_of_a_handler_are_found_with_their_options() -> None:
    def fn(index: int) -> Any:
        return lambda **_: index

    fns = [fn(index) for index in range(8)]
    handler = change_handler(
        when=all_([fns[0], not_(fns[1])]),
        labels={"a": fns[2], "b": "text", "c": PRESENT},
        annotations={"a": any_([fns[3]])},
        field=("spec",),
        old=fns[4],
        new=none_([fns[5]]),
    )
    found = list(callbacks(handler))
    assert [(option, fn()) for option, fn in found] == [
        ("when", 0),
        ("when", 1),
        ("labels", 2),
        ("annotations", 3),
        ("old", 4),
        ("new", 5),
    ]
    assert [(option, fn()) for option, fn in callbacks(event_handler(field=("spec",), value=fns[6]))] == [("value", 6)]
    assert list(callbacks(event_handler())) == []


# ---------------------------------------------------------------------------------- fields of the object

NOT_UPDATING: list[dict[str, Any]] = [
    {"reason": Reason.CREATE},
    {"reason": Reason.DELETE},
    {"initial": True},
]
FIELD_CASES: list[tuple[Any, Any, bool]] = [
    ({"f": "world"}, "world", True),
    ({"f": "other"}, "world", False),
    ({}, "world", False),
    (None, "world", False),
    ({"f": "x"}, PRESENT, True),
    ({"f": ""}, PRESENT, True),
    ({"f": 0}, PRESENT, True),
    ({"f": False}, PRESENT, True),
    ({"f": {}}, PRESENT, True),
    ({"f": None}, PRESENT, False),
    ({}, PRESENT, False),
    ({"f": "x"}, ABSENT, False),
    ({"f": ""}, ABSENT, False),
    ({"f": None}, ABSENT, True),
    ({}, ABSENT, True),
    (None, ABSENT, True),
    ({"f": "x"}, None, True),
    ({"f": ""}, None, True),
    ({}, None, False),
    ({"f": 5}, lambda value, **_: value > 3, True),
    ({"f": 2}, lambda value, **_: value > 3, False),
    ({}, lambda value, **_: value is None, True),
    ({"f": [1, 2]}, [1, 2], True),
    ({"f": {"a": 1}}, {"a": 1}, True),
]


@pytest.mark.parametrize(("spec", "wanted", "expected"), FIELD_CASES)
def test_fields_of_an_event_are_those_of_the_object(spec: Any, wanted: Any, expected: bool) -> None:
    handler = event_handler(field=("spec", "f"), value=wanted)
    assert matches(handler, event_cause({"spec": spec})) is expected
    assert prematches(handler, event_cause({"spec": spec})) is expected


@pytest.mark.parametrize("options", NOT_UPDATING)
@pytest.mark.parametrize(("spec", "wanted", "expected"), FIELD_CASES)
def test_handlers_other_than_for_updates_check_only_the_current_state(
    options: dict[str, Any], spec: Any, wanted: Any, expected: bool
) -> None:
    handler = change_handler(field=("spec", "f"), value=wanted, **options)
    olds: list[Any] = [None, {"spec": {"f": "world"}}, {"spec": {}}, {"spec": {"f": 99}}]
    for old in olds:
        cause = change_cause(old=old, new={"spec": spec})
        assert matches(handler, cause) is expected
        assert prematches(handler, cause) is expected


def test_field_names_may_contain_dots() -> None:
    raw = {"metadata": {"labels": {"example.com/x": "y"}}}
    assert matches(event_handler(field=("metadata", "labels", "example.com/x"), value="y"), event_cause(raw))


def test_a_parent_field_that_is_not_a_mapping_counts_as_empty() -> None:
    assert not matches(event_handler(field=("spec", "f", "g")), event_cause({"spec": {"f": "text"}}))


# ------------------------------------------------------------------------------------ fields that change


def both(old: Any, new: Any, /, **options: Any) -> tuple[bool, bool]:
    handler = update_handler(field=("spec", "f"), **options)
    cause = change_cause(old={"spec": old}, new={"spec": new})
    return matches(handler, cause), prematches(handler, cause)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"f": 1}, {"f": 2}, True),
        ({}, {"f": 2}, True),
        ({"f": 1}, {}, True),
        ({"f": 1}, {"f": 1, "other": 5}, False),
        ({}, {"other": 5}, False),
        ({"f": None}, {}, False),
        ({}, {"f": None}, False),
        ({}, {"f": ""}, True),
        ({"f": ""}, {}, True),
        ({"f": {"a": 1}}, {"f": {"a": 2}}, True),
        ({"f": 1}, None, True),
    ],
)
def test_an_update_handler_is_called_when_its_field_is_affected_in_any_way(old: Any, new: Any, expected: bool) -> None:
    assert both(old, new) == (expected, True)


@pytest.mark.parametrize(
    ("old", "new", "value", "expected", "before"),
    [
        ({"f": 1}, {"f": 2}, 2, True, True),
        ({"f": 2}, {"f": 1}, 2, True, True),
        ({"f": 1}, {"f": 3}, 2, False, False),
        ({"f": 2}, {"f": 2, "x": 1}, 2, False, True),
        ({"f": 2}, {}, 2, True, True),
        ({}, {"f": 2}, 2, True, True),
        ({}, {"f": 2}, PRESENT, True, True),
        ({"f": 1}, {}, PRESENT, True, True),
        ({"f": 1}, {"f": 2}, PRESENT, True, True),
        ({}, {"x": 1}, PRESENT, False, False),
        ({}, {"f": 1}, ABSENT, True, True),
        ({"f": 1}, {}, ABSENT, True, True),
        ({"f": 1}, {"f": 2}, ABSENT, False, False),
        ({}, {"x": 1}, ABSENT, False, True),
        ({"f": 1}, {"f": 9}, lambda value, **_: value > 5, True, True),
        ({"f": 9}, {"f": 1}, lambda value, **_: value > 5, True, True),
        ({"f": 1}, {"f": 2}, lambda value, **_: value > 5, False, False),
        ({}, {"f": 1}, lambda value, **_: value is None, True, True),
    ],
)
def test_the_value_of_an_update_matches_the_old_or_new_value(
    old: Any, new: Any, value: Any, expected: bool, before: bool
) -> None:
    assert both(old, new, value=value) == (expected, before)


def test_a_value_callback_is_called_for_the_new_value_first() -> None:
    asked: list[Any] = []

    def check(value: Any) -> bool:
        asked.append(value)
        return False

    both({"f": "old"}, {"f": "new"}, value=check)
    assert asked[:2] == ["new", "old"]


@pytest.mark.parametrize(
    ("old", "new", "sides", "expected"),
    [
        ({"f": "x"}, {"f": "y"}, {"old": "x", "new": "y"}, True),
        ({"f": "x"}, {"f": "z"}, {"old": "x", "new": "y"}, False),
        ({"f": "z"}, {"f": "y"}, {"old": "x", "new": "y"}, False),
        ({}, {"f": "y"}, {"old": ABSENT, "new": PRESENT}, True),
        ({"f": "x"}, {"f": "y"}, {"old": ABSENT, "new": PRESENT}, False),
        ({"f": None}, {"f": "y"}, {"old": ABSENT, "new": PRESENT}, True),
        ({"f": "x"}, {}, {"old": PRESENT, "new": ABSENT}, True),
        ({"f": ""}, {}, {"old": PRESENT, "new": ABSENT}, True),
        ({"f": "x"}, {"f": "y"}, {"old": PRESENT, "new": ABSENT}, False),
        ({"f": "x"}, {"f": "world"}, {"new": "world"}, True),
        ({}, {"f": "world"}, {"new": "world"}, True),
        ({"f": "world"}, {"f": "x"}, {"new": "world"}, False),
        ({"f": "world"}, {"f": "x"}, {"old": "world"}, True),
        ({"f": "world"}, {}, {"old": "world"}, True),
        ({"f": "x"}, {"f": "world"}, {"old": "world"}, False),
        ({"f": "world"}, {"f": "world", "x": 1}, {"new": "world"}, False),
        ({"f": "world"}, {"f": "world", "x": 1}, {"old": "world"}, False),
        ({"f": 1}, {"f": 5}, {"old": lambda value, **_: value < 3, "new": lambda value, **_: value > 3}, True),
        ({"f": 1}, {"f": 2}, {"old": lambda value, **_: value < 3, "new": lambda value, **_: value > 3}, False),
        ({}, {"f": 2}, {"old": lambda value, **_: value is None}, True),
        ({"f": 1}, {"f": False}, {"new": False}, True),
        ({"f": 1}, {"f": ""}, {"new": ""}, True),
    ],
)
def test_old_and_new_filter_the_two_sides_of_a_change(old: Any, new: Any, sides: Any, expected: bool) -> None:
    assert both(old, new, **sides) == (expected, True)


_SIDES = st.none() | st.fixed_dictionaries({}, optional={"f": st.sampled_from([None, "", 0, 1, "x"])})


@given(_SIDES, _SIDES, st.sampled_from([None, PRESENT, ABSENT, "", 0, "x"]), st.sampled_from(["value", "old", "new"]))
def test_an_update_handler_with_a_field_is_never_called_unless_the_field_has_changed(
    old: Any, new: Any, wanted: Any, option: str
) -> None:
    matching, before = both(old, new, **{option: wanted})
    changed = (old or {}).get("f") != (new or {}).get("f")
    assert not matching or (changed and before)
    if wanted is None:
        assert matching is changed


def test_whatever_matches_prematches() -> None:
    change = change_cause(
        old={"spec": {"f": 1}}, new={"spec": {"f": 2}}, raw={**labelled({"a": "b"}), "spec": {"f": 2}}
    )
    for handler in (
        update_handler(labels={"a": "b"}, field=("spec", "f"), new=2),
        update_handler(labels={"a": "b"}, field=("spec", "f"), value=1),
        change_handler(reason=Reason.DELETE, when=lambda spec: spec["f"] == 2),
    ):
        assert matches(handler, change)
        assert prematches(handler, change)


@pytest.mark.parametrize("options", [{"labels": {"a": "x"}}, {"annotations": {"a": "x"}}, {"when": lambda **_: False}])
def test_prematching_ignores_only_the_filters_of_changes(options: Any) -> None:
    handler: ChangeHandler = update_handler(field=("spec", "f"), **options)
    assert not prematches(handler, change_cause(old={"spec": {"f": 1}}, new={"spec": {"f": 2}}))


def test_an_update_handler_without_a_field_needs_no_change_of_any_field() -> None:
    assert matches(update_handler(), change_cause(old={"spec": 1}, new={"spec": 2}))


def test_creations_have_no_old_value() -> None:
    assert matches(update_handler(field=("spec", "f"), old=ABSENT), change_cause(old=None, new={"spec": {"f": 1}}))
    assert not matches(update_handler(field=("spec", "g")), change_cause(old=None, new={"spec": {"f": 1}}))


def test_the_fields_of_handlers_are_collected() -> None:
    handlers = [event_handler(), event_handler(field=("status",)), update_handler(field=("spec", "f"))]
    assert field_paths(handlers) == {("status",), ("spec", "f")}


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("metadata.labels.a.b", "('metadata', 'labels', 'a.b')"),
        (r"metadata.annotations.a\.b\.c/d", "('metadata', 'annotations', 'a.b.c/d')"),
        (("metadata", "annotations", "a", "b"), "('metadata', 'annotations', 'a.b')"),
        (("metadata", "annotations", "a.b"), None),
        ("metadata.labels.a", None),
        ("metadata.ownerReferences.a.b", None),
        (None, None),
    ],
)
def test_fields_that_split_the_name_of_a_label_are_described_with_what_was_meant(
    field: str | tuple[str, ...] | None, meant: str | None
) -> None:
    text = describe_split_name(event_handler(field=parse_field(field)))
    assert text is None if meant is None else text is not None and f"pass field={meant}." in text
