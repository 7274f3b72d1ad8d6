"""Registry of handlers, and selection of the handlers for a cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.handling.factory import change_cause, change_handler, event_cause, event_handler, nothing, update_handler
from trioperator._handling.declaring.registry import (
    KindHandlers,
    OperatorRegistry,
    any_prematches,
    get_default_registry,
    select_change_handlers,
    select_matching,
    set_default_registry,
)
from trioperator._handling.handlers.filters import PRESENT, all_, not_
from trioperator._handling.handlers.handler import Activity, ActivityHandler, ChangeHandler, Reason
from trioperator._model.resource import Selector
from trioperator.errors import ConfigError, UserCodeError

CREATE = change_handler(id="create", reason=Reason.CREATE)
UPDATE = update_handler(id="update")
DELETE = change_handler(id="delete", reason=Reason.DELETE)
RESUME = change_handler(id="resume", initial=True)
RESUME_DELETED = change_handler(id="resume-deleted", initial=True, deleted=True)
FIELD = change_handler(id="field", field=("spec", "f"), needs_change=True)
ALL = (CREATE, UPDATE, DELETE, RESUME, RESUME_DELETED, FIELD)


@pytest.fixture
def default_registry() -> Iterator[OperatorRegistry]:
    before = get_default_registry()
    registry = OperatorRegistry()
    set_default_registry(registry)
    yield registry
    set_default_registry(before)


def selected(handlers: Iterable[ChangeHandler], **options: Any) -> list[str]:
    return [
        handler.id for handler in select_change_handlers(KindHandlers.of(handlers).changes, change_cause(**options))
    ]


# --------------------------------------------------------------------------------------------- selection

A: Any = {"spec": {"f": 1}}
B: Any = {"spec": {"f": 2}}
C: Any = {"spec": {"f": 1, "g": 2}}


@pytest.mark.parametrize(
    ("reason", "old", "new", "initial", "expected"),
    [
        (Reason.CREATE, None, A, False, ["create", "field"]),
        (Reason.CREATE, None, {"spec": {}}, False, ["create"]),
        (Reason.UPDATE, A, B, False, ["update", "field"]),
        (Reason.UPDATE, A, C, False, ["update"]),
        (Reason.UPDATE, A, B, True, ["update", "resume", "resume-deleted", "field"]),
        (Reason.UPDATE, A, C, True, ["update", "resume", "resume-deleted"]),
        (Reason.RESUME, A, A, True, ["resume", "resume-deleted"]),
        (Reason.DELETE, A, A, False, ["delete"]),
        (Reason.DELETE, A, B, False, ["delete", "field"]),
        (Reason.DELETE, A, A, True, ["delete", "resume-deleted"]),
        (Reason.NOOP, A, A, False, []),
        (Reason.FREE, A, A, False, []),
    ],
)
def test_the_handlers_of_a_cause_are_selected(reason: Reason, old: Any, new: Any, initial: bool, expected: Any) -> None:
    assert selected(ALL, reason=reason, old=old, new=new, initial=initial) == expected


def test_handlers_are_selected_in_the_order_of_their_declaration() -> None:
    assert selected(reversed(ALL), reason=Reason.UPDATE, old=A, new=B, initial=True) == [
        "field",
        "resume-deleted",
        "resume",
        "update",
    ]


def test_handlers_whose_filters_do_not_match_are_not_selected() -> None:
    handlers = [
        change_handler(id="labelled", reason=Reason.CREATE, labels={"a": PRESENT}),
        change_handler(id="sized", reason=Reason.CREATE, field=("spec", "f"), value=1),
        change_handler(id="guarded", reason=Reason.CREATE, when=lambda reason: reason == "create"),
    ]
    assert selected(handlers, reason=Reason.CREATE, old=None, new=A) == ["sized", "guarded"]


def test_one_function_with_one_id_is_selected_once() -> None:
    handlers = [
        change_handler(nothing, id="fn", reason=Reason.CREATE, param=1),
        change_handler(nothing, id="fn", initial=True, param=2),
        change_handler(nothing, id="fn", reason=Reason.UPDATE, param=3),
    ]
    [chosen] = select_change_handlers(KindHandlers.of(handlers).changes, change_cause(old=A, new=B, initial=True))
    assert chosen.param == 2, "the first one that suits"


def test_one_function_with_two_ids_is_selected_twice() -> None:
    handlers = [update_handler(id="fn/spec", field=("spec",)), update_handler(id="fn/spec.f", field=("spec", "f"))]
    assert selected(handlers, old=A, new=B) == ["fn/spec", "fn/spec.f"]
    assert selected(handlers, old=A, new=C) == ["fn/spec"]


def test_two_functions_with_one_id_are_both_selected() -> None:
    handlers = [update_handler(lambda: 1, id="fn"), update_handler(lambda: 2, id="fn")]
    assert len(selected(handlers, old=A, new=B)) == 2


def test_a_bound_method_is_selected_once_for_each_instance() -> None:
    class Same:
        def method(self, **_: Any) -> None: ...

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    one, other = Same(), Same()
    handlers = [update_handler(fn, id="fn") for fn in (one.method, one.method, other.method, one.method)]
    chosen = select_change_handlers(KindHandlers.of(handlers).changes, change_cause(old=A, new=B))
    assert [handler.fn.__self__ for handler in chosen] == [one, other]  # type: ignore[attr-defined]
    assert chosen[0].fn.__self__ is one  # type: ignore[attr-defined]
    assert chosen[1].fn.__self__ is other  # type: ignore[attr-defined]


def test_event_handlers_are_called_once_for_each_function_and_id() -> None:
    def other(**_: Any) -> None: ...

    handlers = [event_handler(id="a"), event_handler(id="a"), event_handler(id="b"), event_handler(other, id="a")]
    chosen = select_matching(KindHandlers.of(handlers).events, event_cause({}))
    assert [handler.id for handler in chosen] == ["a", "b", "a"]


def test_each_decorator_of_an_event_handler_has_its_own_filters() -> None:
    handlers = [event_handler(id="a", labels={"x": PRESENT}), event_handler(id="a", labels={"y": PRESENT}, param=2)]
    kind = KindHandlers.of(handlers)

    def chosen(*labels: str) -> tuple[Any, ...]:
        return select_matching(kind.events, event_cause({"metadata": {"labels": dict.fromkeys(labels, "")}}))

    assert chosen("y") == (handlers[1],)
    assert chosen("x", "y") == (handlers[0],)
    assert chosen() == ()


def test_a_filter_that_raises_skips_only_its_own_event_handler(caplog: pytest.LogCaptureFixture) -> None:
    handlers = [event_handler(id="a", when=lambda spec: spec["nonexistent"]), event_handler(id="b")]
    assert select_matching(KindHandlers.of(handlers).events, event_cause({})) == (handlers[1],)
    [record] = caplog.records
    assert "Handler 'a'" in record.getMessage()
    assert record.exc_info


def test_a_filter_that_raises_stops_the_selection_for_a_change() -> None:
    handlers = [change_handler(id="a", when=lambda spec: spec["nonexistent"]), change_handler(id="b")]
    with pytest.raises(UserCodeError, match="A filter of Handler 'a' has failed: KeyError") as caught:
        selected(handlers, old=A, new=B)
    assert isinstance(caught.value.__cause__, KeyError)


# ------------------------------------------------------------------------------------ handlers of a kind


def test_handlers_of_a_kind_are_grouped_by_class() -> None:
    optional = change_handler(id="optional", reason=Reason.DELETE, optional=True)
    event = event_handler(id="event", field=("status", "phase"))
    handlers = KindHandlers.of([*ALL, optional, event])
    assert handlers.events == (event,)
    assert handlers.changes == (*ALL, optional)
    assert handlers.mandatory_deletes == (DELETE,)
    assert handlers.optional_deletes == (optional,)
    assert handlers.extra_fields == {("spec", "f"), ("status", "phase")}
    assert handlers
    assert not KindHandlers.of([])


def test_delete_handlers_that_prematch_require_the_finalizer() -> None:
    handlers = KindHandlers.of([change_handler(reason=Reason.DELETE, labels={"a": "b"}), UPDATE])
    mine = {"metadata": {"labels": {"a": "b"}}}
    assert any_prematches(handlers.mandatory_deletes, change_cause(old=None, new=mine, reason=Reason.CREATE))
    assert not any_prematches(handlers.mandatory_deletes, change_cause(old=None, new={}, reason=Reason.CREATE))
    assert not any_prematches(KindHandlers.of([CREATE, RESUME]).mandatory_deletes, change_cause(old=None, new={}))
    optional = KindHandlers.of([change_handler(reason=Reason.DELETE, optional=True)])
    assert not any_prematches(optional.mandatory_deletes, change_cause(old=None, new={}))


def test_an_object_prematches_if_any_handler_may_be_called_for_it() -> None:
    labelled = change_handler(reason=Reason.CREATE, labels={"a": "b"})
    cause = change_cause(old=A, new=A, reason=Reason.NOOP)
    assert not any_prematches(KindHandlers.of([labelled]).changes, cause)
    assert any_prematches(KindHandlers.of([labelled, DELETE]).changes, cause)


def test_a_handler_of_a_missing_field_prematches_all_objects() -> None:
    dummy = change_handler(field=("spec", "nonexistent"), needs_change=True)
    assert any_prematches(
        KindHandlers.of([dummy]).changes, change_cause(old=None, new={"spec": {}}, reason=Reason.CREATE)
    )
    present = change_handler(reason=Reason.CREATE, field=("spec", "nonexistent"))
    assert not any_prematches(KindHandlers.of([present]).changes, change_cause(old=None, new={}, reason=Reason.CREATE))


def test_a_filtered_field_handler_prematches_objects_that_have_or_had_the_field() -> None:
    handlers = KindHandlers.of([change_handler(field=("spec", "f"), needs_change=True, when=lambda **_: True)])
    have, lack = {"spec": {"f": 1}}, {"spec": {"other": 1}}
    assert any_prematches(handlers.changes, change_cause(old=have, new=have))
    assert any_prematches(handlers.changes, change_cause(old=have, new=lack))
    assert any_prematches(handlers.changes, change_cause(old=lack, new=have))
    assert not any_prematches(handlers.changes, change_cause(old=lack, new=lack))


# ---------------------------------------------------------------------------------------------- registry


def test_a_registry_keeps_handlers_in_order() -> None:
    registry = OperatorRegistry()
    startup = ActivityHandler(fn=nothing, id="s", activity=Activity.STARTUP)
    cleanup = ActivityHandler(fn=nothing, id="c", activity=Activity.CLEANUP)
    for handler in (CREATE, startup, UPDATE, cleanup):
        registry.append(handler)
    assert list(registry) == [CREATE, startup, UPDATE, cleanup]
    assert registry.activities(Activity.STARTUP) == (startup,)
    assert registry.activities(Activity.PROBE) == ()
    assert registry.resource_handlers() == (CREATE, UPDATE)


def test_activity_handlers_are_called_once_for_each_function_and_id() -> None:
    registry = OperatorRegistry()
    for id in ("a", "b", "a"):
        registry.append(ActivityHandler(fn=nothing, id=id, activity=Activity.STARTUP))
    assert [handler.id for handler in registry.activities(Activity.STARTUP)] == ["a", "b"]


def test_selectors_are_those_of_all_handlers_of_objects() -> None:
    registry = OperatorRegistry()
    registry.append(event_handler(selector=Selector.parse("pods")))
    registry.append(change_handler(selector=Selector.parse("v1", "pods")))
    registry.append(change_handler(selector=Selector.parse("pods")))
    registry.append(ActivityHandler(fn=nothing, id="s", activity=Activity.STARTUP))
    assert registry.selectors() == {Selector.parse("pods"), Selector.parse("v1", "pods")}


@pytest.mark.parametrize(
    "make",
    [
        lambda fn: ActivityHandler(fn=fn, id="my-id", activity=Activity.STARTUP),
        lambda fn: event_handler(fn, id="my-id"),
        lambda fn: change_handler(fn, id="my-id"),
    ],
)
def test_the_check_finds_unknown_arguments(make: Any) -> None:
    registry = OperatorRegistry()
    registry.append(make(lambda logger, memo, param, retry, started, runtime: None))
    registry.check()
    registry.append(make(lambda wrong, **_: None))
    with pytest.raises(ConfigError, match=r"my-id.*wrong"):
        registry.check()


def test_the_check_finds_all_unknown_arguments_at_once() -> None:
    registry = OperatorRegistry()
    registry.append(change_handler(lambda sepc, nmae: None, id="one", when=lambda labls: True))
    registry.append(event_handler(lambda typ: None, id="two"))
    with pytest.raises(ConfigError) as caught:
        registry.check()
    text = str(caught.value)
    assert "Handler 'one'" in text
    assert "nmae (did you mean name?), sepc (did you mean spec?)." in text
    assert "The filter when= of Handler 'one'" in text
    assert "labls (did you mean labels?)." in text
    assert "Handler 'two'" in text
    assert "typ (did you mean type?)." in text


def test_each_class_of_handlers_has_its_own_arguments() -> None:
    good: list[Any] = [
        ActivityHandler(fn=lambda settings, activity: None, id="a", activity=Activity.STARTUP),
        event_handler(lambda event, type, body, patch, resource: None),  # noqa: A006
        change_handler(lambda reason, diff, old, new, spec, status, meta, labels, annotations: None),
    ]
    bad: list[Any] = [
        ActivityHandler(fn=lambda spec: None, id="a", activity=Activity.STARTUP),
        event_handler(lambda diff: None),
        event_handler(lambda settings: None),
        change_handler(lambda event: None),
        change_handler(lambda activity: None),
    ]
    registry = OperatorRegistry()
    for handler in good:
        registry.append(handler)
    registry.check()
    for handler in bad:
        registry = OperatorRegistry()
        registry.append(handler)
        with pytest.raises(ConfigError):
            registry.check()


@pytest.mark.parametrize(
    "options",
    [
        {"when": lambda wrong: True},
        {"when": all_([lambda **_: True, not_(lambda wrong: True)])},
        {"labels": {"a": lambda value, wrong: True}},
        {"annotations": {"a": lambda value, wrong: True}},
        {"field": ("f",), "value": lambda value, wrong: True},
        {"field": ("f",), "old": lambda value, wrong: True},
        {"field": ("f",), "new": lambda value, wrong: True},
        {"when": lambda retry: True},  # filters are not attempts
    ],
)
def test_the_check_includes_filters(options: Any) -> None:
    registry = OperatorRegistry()
    registry.append(change_handler(id="my-id", **options))
    with pytest.raises(ConfigError, match=r"my-id.*(wrong|retry)"):
        registry.check()


def test_the_default_registry_can_be_replaced(default_registry: OperatorRegistry) -> None:
    assert get_default_registry() is default_registry
