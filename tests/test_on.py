"""The decorators: the handlers that they register, and validation of options."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from trioperator import crds, on
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator._handling.handlers.filters import ABSENT, PRESENT
from trioperator._handling.handlers.handler import (
    Activity,
    ActivityHandler,
    ChangeHandler,
    DaemonHandler,
    ErrorsMode,
    EventHandler,
    Reason,
    ResourceHandler,
    TimerHandler,
)
from trioperator._model.resource import EVERYTHING, Resource, Selector
from trioperator.errors import ConfigError

ACTIVITIES = ("startup", "login", "cleanup", "probe")
CHANGES = ("create", "resume", "update", "delete", "field")
RESOURCES = ("event", "index", "daemon", "timer", "reconcile", *CHANGES)

IDENTITY: dict[str, Any] = {"id": "my-id", "param": {"any": "thing"}}
RETRYING: dict[str, Any] = {"errors": ErrorsMode.PERMANENT, "timeout": 10.5, "retries": 3, "backoff": 1}
FILTERS: dict[str, Any] = {
    "labels": {"a": "b", "c": PRESENT, "d": ABSENT, "e": lambda value, **_: True},
    "annotations": {"f": "g"},
    "when": lambda **_: True,
}


@pytest.fixture
def registry() -> Iterator[OperatorRegistry]:
    """Return a new default registry."""
    before = get_default_registry()
    made = OperatorRegistry()
    set_default_registry(made)
    yield made
    set_default_registry(before)


def fn(**_: Any) -> None: ...


def decorate(name: str, *selector: Any, **options: Any) -> Any:
    """Use a decorator with its required options."""
    if name in RESOURCES and not selector and not set(options) & set(Selector.__struct_fields__):
        selector = ("widgets",)
    if name == "field":
        options.setdefault("field", "spec.f")
    registry = OperatorRegistry()
    decorator: Any = getattr(on, name)
    assert decorator(*selector, registry=registry, **options)(fn) is fn
    [handler] = registry
    return handler


# ---------------------------------------------------------------------------------------------- handlers


@pytest.mark.parametrize("name", ACTIVITIES)
def test_an_activity_is_registered_with_its_options(name: str) -> None:
    handler = decorate(name, **IDENTITY, **RETRYING)
    assert type(handler) is ActivityHandler
    assert handler.activity is Activity("authentication" if name == "login" else name)
    assert handler.fn is fn
    for key, value in {**IDENTITY, **RETRYING}.items():
        assert getattr(handler, key) == value


def test_an_event_handler_is_registered_with_its_options() -> None:
    handler = decorate("event", **IDENTITY, **FILTERS, field="spec.f", value="x")
    assert type(handler) is EventHandler
    for key, value in {**IDENTITY, **FILTERS, "id": "my-id/spec.f", "field": ("spec", "f"), "value": "x"}.items():
        assert getattr(handler, key) == value


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_handler_is_registered_with_its_options(name: str) -> None:
    handler = decorate(name, **IDENTITY, **RETRYING, **FILTERS, field="spec.f", value="x")
    assert type(handler) is ChangeHandler
    options = {**IDENTITY, **RETRYING, **FILTERS, "id": "my-id/spec.f", "field": ("spec", "f"), "value": "x"}
    for key, value in options.items():
        assert getattr(handler, key) == value


@pytest.mark.parametrize(
    ("name", "reason", "initial", "needs_change"),
    [
        ("create", Reason.CREATE, False, False),
        ("resume", None, True, False),
        ("update", Reason.UPDATE, False, True),
        ("delete", Reason.DELETE, False, False),
        ("field", None, False, True),
    ],
)
def test_change_handlers_differ_in_their_reasons(
    name: str, reason: Reason | None, initial: bool, needs_change: bool
) -> None:
    handler = decorate(name)
    assert (handler.reason, handler.initial, handler.needs_change) == (reason, initial, needs_change)


@pytest.mark.parametrize("name", [*ACTIVITIES, *RESOURCES])
def test_without_options_the_defaults_apply(name: str) -> None:
    handler = decorate(name)
    assert handler.id == ("fn/spec.f" if name == "field" else "fn")
    for key in ("param", "errors", "timeout", "retries", "backoff"):
        assert getattr(handler, key) is None
    if isinstance(handler, ResourceHandler):
        assert handler.selector == Selector.parse("widgets")
        assert (handler.labels, handler.annotations, handler.when, handler.value) == (None, None, None, None)
        assert handler.has_filters is (name == "field")
    if isinstance(handler, ChangeHandler):
        assert (handler.deleted, handler.optional, handler.old, handler.new) == (False, False, None, None)


@pytest.mark.parametrize("name", [*ACTIVITIES, *RESOURCES])
def test_none_means_the_default(name: str) -> None:
    options: dict[str, Any] = {"id": None, "param": None}
    if name != "event":
        options |= dict.fromkeys(RETRYING)
    if name in RESOURCES:
        options |= {**dict.fromkeys(FILTERS), "group": None, "version": None, "value": None}
    handler = decorate(name, *(["widgets"] if name in RESOURCES else []), **options)
    assert handler.id == ("fn/spec.f" if name == "field" else "fn")


@pytest.mark.parametrize("value", [True, False, None])
def test_the_options_of_single_decorators(value: bool | None) -> None:
    assert decorate("resume", deleted=value).deleted is bool(value)
    assert decorate("delete", optional=value).optional is bool(value)
    assert decorate("delete", optional=value).needs_finalizer is not bool(value)


@pytest.mark.parametrize("name", ["update", "field"])
@pytest.mark.parametrize("sides", [{"old": "x"}, {"new": PRESENT}, {"old": ABSENT, "new": lambda value, **_: True}])
def test_the_sides_of_a_change_are_options_of_updates(name: str, sides: dict[str, Any]) -> None:
    handler = decorate(name, field="spec.f", **sides)
    assert {"old": handler.old, "new": handler.new} == {"old": None, "new": None, **sides}


@pytest.mark.parametrize("value", [False, 0, "", []])
def test_values_that_are_false_are_values(value: Any) -> None:
    assert decorate("update", field="spec.f", value=value).value == value
    assert decorate("update", field="spec.f", old=value).old == value
    assert decorate("update", field="spec.f", new=value).new == value


def test_zero_timeout_and_zero_retries_are_limits() -> None:
    handler = decorate("create", timeout=0, retries=0, backoff=0)
    assert (handler.timeout, handler.retries, handler.backoff) == (0, 0, 0)


# --------------------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize("name", ["event", *CHANGES])
@pytest.mark.parametrize("field", ["spec.f", ["spec", "f"], ("spec", "f")])
@pytest.mark.parametrize("id", [None, "my-id"])
def test_the_field_is_part_of_the_id(name: str, field: Any, id: str | None) -> None:
    handler = decorate(name, field=field, id=id)
    assert handler.id == f"{id or 'fn'}/spec.f"
    assert handler.field == ("spec", "f")


def test_keys_with_dots_are_passed_as_a_list() -> None:
    assert decorate("field", field=["metadata", "labels", "example.com/x"]).field == (
        "metadata",
        "labels",
        "example.com/x",
    )


def test_functions_without_names_need_an_id(registry: OperatorRegistry) -> None:
    class Callee:
        def __call__(self, **_: Any) -> None: ...

    with pytest.raises(TypeError, match="id="):
        on.create("widgets")(Callee())
    on.create("widgets", id="named")(Callee())
    assert [handler.id for handler in registry] == ["named"]


@pytest.mark.parametrize("id", [0, 5])
@pytest.mark.parametrize("name", ["create", "daemon", "index"])
def test_an_id_must_be_a_string(name: str, id: Any) -> None:
    with pytest.raises(TypeError, match=f"id={id}: it must be a string"):
        decorate(name, id=id)


# -------------------------------------------------------------------------------------------- registries


def test_decorators_use_the_default_registry_by_default(registry: OperatorRegistry) -> None:
    on.startup()(fn)
    on.create("widgets")(fn)
    on.event("widgets")(fn)
    assert [type(handler) for handler in registry] == [ActivityHandler, ChangeHandler, EventHandler]


@pytest.mark.parametrize("name", [*ACTIVITIES, *RESOURCES])
def test_an_explicit_registry_gets_the_handler_even_if_it_is_empty(registry: OperatorRegistry, name: str) -> None:
    decorate(name)
    assert list(registry) == []


def test_the_default_registry_is_looked_up_when_decorating(registry: OperatorRegistry) -> None:
    decorator = on.create("widgets")
    later = OperatorRegistry()
    set_default_registry(later)
    decorator(fn)
    assert (len(list(registry)), len(list(later))) == (0, 1)


def test_decorators_can_be_stacked_and_reused(registry: OperatorRegistry) -> None:
    both = on.create("widgets", id="both")

    @on.resume("widgets")
    @on.update("widgets", field="spec.a", param=1)
    @on.update("widgets", field="spec.b", param=2)
    @both
    def first(**_: Any) -> None: ...

    @both
    def second(**_: Any) -> None: ...

    assert [(handler.id, handler.param) for handler in registry] == [
        ("both", None),
        ("test_decorators_can_be_stacked_and_reused.<locals>.first/spec.b", 2),
        ("test_decorators_can_be_stacked_and_reused.<locals>.first/spec.a", 1),
        ("test_decorators_can_be_stacked_and_reused.<locals>.first", None),
        ("both", None),
    ]


def test_functions_of_all_shapes_can_be_decorated(registry: OperatorRegistry) -> None:
    class Thing:
        def method(self, **_: Any) -> None: ...

        @staticmethod
        @on.event("widgets")
        def static(**_: Any) -> None: ...

    async def async_fn(**_: Any) -> None: ...

    for shape in (Thing().method, async_fn, functools.partial(async_fn, item=1), lambda **_: None):
        on.create("widgets")(shape)
    assert len(list(registry)) == 5


# --------------------------------------------------------------------------------------------- selectors

POD = Resource(group="", version="v1", plural="pods", kind="Pod", singular="pod", shortcuts=frozenset({"po"}))


@pytest.mark.parametrize("name", RESOURCES)
@pytest.mark.parametrize(
    ("selector", "options"),
    [
        (("pods",), {}),
        (("v1", "pods"), {}),
        (("", "v1", "pods"), {}),
        ((), {"kind": "Pod"}),
        ((), {"plural": "pods", "group": "", "version": "v1"}),
        ((), {"singular": "pod"}),
        ((), {"shortcut": "po"}),
        ((EVERYTHING,), {}),
        (("v1", EVERYTHING), {}),
        ((lambda resource: resource.plural == "pods",), {}),
        ((lambda resource: True,), {"group": ""}),
    ],
)
def test_each_resource_decorator_accepts_each_form_of_selector(
    name: str, selector: tuple[Any, ...], options: dict[str, Any]
) -> None:
    handler = decorate(name, *selector, **options)
    assert handler.selector.matches(POD)


@pytest.mark.parametrize("name", RESOURCES)
@pytest.mark.parametrize(
    ("selector", "options"),
    [
        ((), {"group": "apps"}),
        ((), {"labels": {"a": "b"}, "version": "v1"}),
        (("pods",), {"kind": "Pod"}),
        ((), {"kind": "Pod", "plural": "pods"}),
        (("a", "b", "c", "d"), {}),
        ((5,), {}),
        (("",), {}),
        (("v1", lambda resource: True), {}),
    ],
)
def test_an_empty_selector_is_rejected(name: str, selector: tuple[Any, ...], options: dict[str, Any]) -> None:
    decorator: Any = getattr(on, name)
    if name == "field":
        options = {**options, "field": "spec"}
    with pytest.raises(TypeError):
        decorator(*selector, **options)


def test_a_decorator_without_parentheses_is_rejected(registry: OperatorRegistry) -> None:
    def handler(**_: Any) -> None: ...
    def other(spec: Any, name: Any) -> None: ...
    async def third(spec: Any) -> None: ...
    def fourth(spec: Any, **_: Any) -> None: ...

    for function in (handler, other, third, fourth):
        with pytest.raises(TypeError, match="parentheses"):
            on.create(function)
    for activity in (on.startup, on.login, on.cleanup, on.probe):
        with pytest.raises(
            TypeError, match=r"on\.\w+ takes no positional arguments: use the decorator with parentheses"
        ):
            activity(handler)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parentheses"):
        on.create("widgets")("pods")  # type: ignore[type-var]
    assert list(registry) == []


def test_a_class_or_a_generator_is_no_handler(registry: OperatorRegistry) -> None:
    class Thing:
        def __init__(self, **_: Any) -> None: ...

    def generate(**_: Any) -> Iterator[int]:
        yield 1

    async def generate_async(**_: Any) -> AsyncIterator[int]:
        yield 1

    for decorator in (
        on.create("widgets"),
        on.event("widgets"),
        on.index("widgets"),
        on.daemon("widgets"),
        on.startup(),
    ):
        for cls in (Thing, functools.partial(Thing, a=1)):
            with pytest.raises(TypeError, match=r"A handler must be a function, not the class .*Thing"):
                decorator(cls)
        for generator in (generate, generate_async, functools.partial(generate_async, a=1)):
            with pytest.raises(TypeError, match=r"A handler must not contain yield: calling .*generate"):
                decorator(generator)
    assert list(registry) == []


# -------------------------------------------------------------------------------------------- validation


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"labels": {}}) for name in ACTIVITIES),
        *((name, {"field": "spec"}) for name in ACTIVITIES),
        *(("event", {key: value}) for key, value in RETRYING.items()),
        *((name, {"old": 1, "field": "f"}) for name in ("event", "create", "resume", "delete")),
        *((name, {"new": 1, "field": "f"}) for name in ("event", "create", "resume", "delete")),
        *((name, {"deleted": True}) for name in RESOURCES if name != "resume"),
        *((name, {"optional": True}) for name in RESOURCES if name != "delete"),
        *((name, {"lables": {}}) for name in (*ACTIVITIES, *RESOURCES)),
    ],
)
def test_unknown_options_are_rejected_by_name(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as caught:
        decorate(name, **options)
    assert f"on.{name} has no option {next(iter(options))}" in str(caught.value)
    assert "registry" in str(caught.value), "it tells which ones there are"


@pytest.mark.parametrize("name", RESOURCES)
def test_a_value_needs_a_field(name: str) -> None:
    decorator: Any = getattr(on, name)
    with pytest.raises(TypeError, match="field="):
        decorator("widgets", value="x")


@pytest.mark.parametrize("option", ["old", "new"])
def test_old_and_new_need_a_field(option: str) -> None:
    with pytest.raises(TypeError, match=rf"on.update has {option}=.*field="):
        decorate("update", **{option: "x"})


@pytest.mark.parametrize("name", ["update", "field"])
@pytest.mark.parametrize("options", [{"old": 1}, {"new": 1}, {"old": 1, "new": 1}])
def test_value_excludes_old_and_new(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"value=.*together"):
        decorate(name, field="f", value=2, **options)


@pytest.mark.parametrize("field", [None, "", [], ()])
def test_a_field_handler_needs_a_field(field: Any) -> None:
    with pytest.raises(TypeError, match=r"on.field needs field="):
        on.field("widgets", field=field)
    with pytest.raises(TypeError, match=r"on.field needs field="):
        on.field("widgets")


@pytest.mark.parametrize("name", RESOURCES)
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_none_is_rejected_as_a_metadata_filter(name: str, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"on.{name} has {kind}=.*'a'.*PRESENT or ABSENT"):
        decorate(name, **{kind: {"a": None}})


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("wanted", ["a=b", ["a"], {"a"}, 5])
def test_metadata_filters_must_be_mappings(kind: str, wanted: Any) -> None:
    with pytest.raises(TypeError, match=f"{kind}=.*mapping"):
        decorate("create", **{kind: wanted})


@pytest.mark.parametrize("when", [True, "text", {}])
def test_when_must_be_a_function(when: Any) -> None:
    with pytest.raises(TypeError, match=r"when=.*function"):
        decorate("create", when=when)


async def asynchronous(*_: Any, **__: Any) -> bool:
    return True


@pytest.mark.parametrize(
    "options",
    [
        {"when": asynchronous},
        {"labels": {"a": asynchronous}},
        {"annotations": {"a": asynchronous}},
        {"field": "f", "value": asynchronous},
        {"field": "f", "old": asynchronous},
        {"field": "f", "new": functools.partial(asynchronous, 1)},
    ],
)
def test_filters_must_not_be_async(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"on.update has an async function in {list(options)[-1]}="):
        decorate("update", **options)


@pytest.mark.parametrize("name", [*ACTIVITIES, *CHANGES])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"errors": "temporary"}, TypeError),
        ({"errors": True}, TypeError),
        ({"errors": ValueError}, TypeError),
        ({"timeout": -1}, ValueError),
        ({"timeout": "10"}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": True}, ValueError),
        ({"retries": -1}, ValueError),
        ({"retries": 1.5}, ValueError),
        ({"retries": "3"}, ValueError),
        ({"backoff": -0.1}, ValueError),
        ({"backoff": [1, 2]}, ValueError),
    ],
)
def test_invalid_limits_are_rejected(name: str, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"on.{name} has {next(iter(options))}="):
        decorate(name, **options)


def test_options_are_checked_before_the_function_is_passed(registry: OperatorRegistry) -> None:
    attempts: list[Any] = [
        lambda: on.event("widgets", value=1),
        lambda: on.event("widgets", typo=1),  # type: ignore[call-arg]
        lambda: on.startup(retries=-1),
        lambda: on.delete("widgets", labels={"a": None}),
    ]
    for attempt in attempts:
        with pytest.raises((TypeError, ValueError)):
            attempt()


def test_what_a_function_requires_is_checked_when_the_operator_starts(registry: OperatorRegistry) -> None:
    @on.create("widgets")
    def create(sepc: Any, **_: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"create.*sepc"):
        registry.check()


@pytest.mark.parametrize(
    "options",
    [
        {"initial_delay": 30, "cancellation_backoff": 1.5, "cancellation_timeout": 0, "cancellation_polling": 10},
        {"initial_delay": lambda **_: 1.0, "finalizer": False},
        {},
    ],
)
def test_a_daemon_is_registered_with_its_options(options: dict[str, Any]) -> None:
    handler = decorate("daemon", **IDENTITY, **RETRYING, **FILTERS, **options)
    assert isinstance(handler, DaemonHandler)
    assert str(handler) == "Daemon 'my-id'"
    expected = {
        "initial_delay": None,
        "cancellation_backoff": None,
        "cancellation_timeout": None,
        "cancellation_polling": None,
        "finalizer": True,
        **options,
    }
    assert {key: getattr(handler, key) for key in expected} == expected


@pytest.mark.parametrize(
    "options", [{"interval": 5, "sharp": True, "idle": 0.5, "initial_delay": 1, "finalizer": False}, {"idle": 10}, {}]
)
def test_a_timer_is_registered_with_its_options(options: dict[str, Any]) -> None:
    handler = decorate("timer", **IDENTITY, **RETRYING, **FILTERS, **options)
    assert isinstance(handler, TimerHandler)
    assert str(handler) == "Timer 'my-id'"
    expected = {"interval": None, "sharp": False, "idle": None, "initial_delay": None, "finalizer": True, **options}
    assert {key: getattr(handler, key) for key in expected} == expected
    assert handler.schedule is None


def test_a_timer_is_registered_with_its_schedule() -> None:
    handler = decorate("timer", cron="*/5 * * * *", timezone="Europe/Berlin")
    assert handler.schedule is not None
    assert (handler.schedule.expression, str(handler.schedule.timezone)) == ("*/5 * * * *", "Europe/Berlin")


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"cron": "* * * * *", "interval": 5}, TypeError, "use one or the other"),
        ({"cron": "* * * * *", "idle": 5}, TypeError, "use one or the other"),
        ({"cron": "* * * * *", "sharp": True}, TypeError, "use one or the other"),
        ({"cron": 5}, TypeError, "must be a string"),
        ({"cron": "every minute"}, ValueError, "is not a cron expression"),
        ({"cron": "* * * * *", "timezone": "Europe/Atlantis"}, ValueError, "Unknown time zone"),
        ({"interval": 5, "timezone": "UTC"}, TypeError, "without cron="),
        ({"sharp": True}, TypeError, "without interval="),
        ({"interval": 0}, ValueError, "interval=0: it must be a number of seconds, more than 0"),
        ({"interval": -1}, ValueError, "interval=-1"),
        ({"interval": "1"}, ValueError, "interval='1'"),
        ({"interval": True}, ValueError, "interval=True"),
        ({"idle": float("nan")}, ValueError, "idle=nan: it must be a number of seconds, 0 or more"),
        ({"initial_delay": float("inf")}, ValueError, "initial_delay=inf"),
        ({"finalizer": "no"}, TypeError, "finalizer='no': it must be True or False"),
        ({"finalizer": 0}, TypeError, "finalizer=0"),
    ],
)
def test_invalid_times_of_timers_are_rejected(options: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        decorate("timer", **options)


@pytest.mark.parametrize(
    "option", ["initial_delay", "cancellation_backoff", "cancellation_timeout", "cancellation_polling"]
)
def test_times_of_daemons_are_checked(option: str) -> None:
    with pytest.raises(ValueError, match=f"on.daemon has {option}=-1: it must be a number of seconds"):
        decorate("daemon", **{option: -1})


def test_initial_delay_must_not_be_an_async_function() -> None:
    async def delay(**_: Any) -> float:
        return 1.0

    with pytest.raises(TypeError, match="async function in initial_delay="):
        decorate("daemon", initial_delay=delay)


def test_intervals_and_cron_expressions_can_be_functions(registry: OperatorRegistry) -> None:
    def find(spec: Any) -> Any:
        return spec["every"]

    on.timer("widgets", interval=find, sharp=True, idle=5)(fn)
    on.timer("widgets", cron=find, timezone="Europe/Berlin")(fn)
    registry.check()
    first, second = registry
    assert isinstance(first, TimerHandler)
    assert isinstance(second, TimerHandler)
    assert (first.interval_of, first.interval, first.sharp, first.idle, first.is_variable) == (
        find,
        None,
        True,
        5,
        True,
    )
    assert (second.cron_of, second.schedule, str(second.timezone)) == (find, None, "Europe/Berlin")


async def find_later() -> float:
    return 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": lambda **_: 5, "cron": "* * * * *"}, "use one or the other"),
        ({"interval": 5, "cron": lambda **_: "* * * * *"}, "use one or the other"),
        ({"interval": find_later}, "interval"),
        ({"cron": find_later}, "cron"),
        ({"sharp": True, "cron": lambda **_: "* * * * *"}, "use one or the other"),
    ],
)
def test_functions_of_the_rhythm_of_timers_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        on.timer("widgets", **options)


@pytest.mark.parametrize("option", ["interval", "cron"])
def test_what_functions_of_the_rhythm_require_is_checked_when_the_operator_starts(
    registry: OperatorRegistry, option: str
) -> None:
    options: dict[str, Any] = {option: lambda retry: 1.0}
    on.timer("widgets", **options)(fn)
    with pytest.raises(ConfigError, match=rf"The function {option}= of .* requires .* retry"):
        registry.check()


@pytest.mark.parametrize("name", ["daemon", "timer"])
def test_what_an_initial_delay_requires_is_checked_when_the_operator_starts(
    registry: OperatorRegistry, name: str
) -> None:
    getattr(on, name)("widgets", initial_delay=lambda stopped: 1.0)(fn)
    with pytest.raises(ConfigError, match=r"The function initial_delay= of .* requires .* stopped"):
        registry.check()


@pytest.mark.parametrize("name", [name for name in on.__all__ if name not in ("register", "subhandler", "this")])
def test_rights_are_an_option_of_all_decorators(registry: OperatorRegistry, name: str) -> None:
    selector = () if name in ACTIVITIES else ("widgets",)
    options = {"field": {"field": "spec.size"}, "convert": {"from_": "v1", "to": "v2"}}.get(name, {})
    getattr(on, name)(*selector, rights=["create,patch:jobs.batch", "get:pods/log"], **options)(fn)
    [handler] = registry
    assert [str(rule) for rule in handler.rights] == ["create,patch:jobs.batch", "get:pods/log"]


@pytest.mark.parametrize(
    ("rights", "message"),
    [
        ("create:jobs.batch", r"on.create has rights='create:jobs.batch': it must be a list"),
        ({"jobs": "create"}, r"on.create has rights=.*it must be a list"),
        ([3], r"on.create has 3 in rights=: a right is 'create,patch:jobs.batch', or"),
        (
            ["crate:jobs.batch"],
            r"on.create has 'crate:jobs.batch' in rights=: 'crate' is no verb: did you mean create\?",
        ),
        ([("get", int)], r"on.create has \('get', <class 'int'>\) in rights=: a right is"),
    ],
)
def test_wrong_rights_are_explained(rights: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        on.create("widgets", rights=rights)


def test_a_right_names_a_typed_kind_by_its_class(registry: OperatorRegistry) -> None:
    @crds.kind("example.com/v1")
    class Gizmo(msgspec.Struct):
        spec: dict[str, int]

    on.startup(rights=[("get,patch", Gizmo)])(fn)
    [handler] = registry
    assert [str(rule) for rule in handler.rights] == ["get,patch:gizmos.example.com"]


@pytest.mark.parametrize("name", on.__all__)
def test_the_help_of_a_decorator_names_all_its_options(name: str) -> None:
    decorator = getattr(on, name)
    (options,) = typing.get_args(typing.get_type_hints(decorator, include_extras=True)["options"])
    text = inspect.getdoc(decorator) or ""
    assert [option for option in options.__annotations__ if f"``{option}``" not in text] == []
    assert re.search(r"See docs/(\w+)\.md", text)


def test_all_decorators_are_public() -> None:
    assert set(on.__all__) == {
        *ACTIVITIES,
        *RESOURCES,
        "convert",
        "mutate",
        "register",
        "subhandler",
        "this",
        "validate",
    }
    assert on.__all__ == sorted(on.__all__)


def test_an_index_has_the_unqualified_name_of_its_function(registry: OperatorRegistry) -> None:
    @on.index("widgets", field="spec.f")
    def by_size(**_: Any) -> None: ...

    @on.index("widgets", id="named")
    def other(**_: Any) -> None: ...

    assert sorted(registry.make_indices()) == ["by_size", "named"]


def test_all_handlers_may_declare_all_indices(registry: OperatorRegistry) -> None:
    on.index("widgets", id="sizes")(fn)

    def when(sizes: Any, **_: Any) -> bool:
        return bool(sizes)

    @on.create("widgets", when=when)
    def create(sizes: Any) -> None: ...

    @on.startup()
    def startup(sizes: Any) -> None: ...

    @on.index("widgets")
    def others(sizes: Any) -> None: ...

    registry.check()
