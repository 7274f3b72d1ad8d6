"""Decorators and settings in all forms of Kopf's documentation."""

from __future__ import annotations

import concurrent.futures
import datetime
import functools
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trioperator as kopf
from tests.handling.factory import event_cause
from trioperator._handling.declaring.registry import KindHandlers, select_matching
from trioperator._handling.handlers.handler import (
    ActivityHandler,
    ChangeHandler,
    EventHandler,
    Handler,
    ResourceHandler,
)
from trioperator._model.resource import select_resources


@pytest.fixture
def registry() -> Iterator[kopf.OperatorRegistry]:
    """Return a new default registry."""
    before = kopf.get_default_registry()
    made = kopf.OperatorRegistry()
    kopf.set_default_registry(made)
    yield made
    kopf.set_default_registry(before)


# -------------------------------------------------------------------------------- Handlers and Arguments


def plain() -> None:
    @kopf.on.create("kopfexamples")
    def my_handler(spec: kopf.Spec, **_: Any) -> None: ...


def several_of_one_name() -> None:
    @kopf.on.create("kopfexamples")
    def my_handler(spec: kopf.Spec, **_: Any) -> None: ...

    @kopf.on.update("kopfexamples")  # type: ignore[no-redef]
    def my_handler(spec: kopf.Spec, old: Any, new: Any, diff: kopf.Diff, **_: Any) -> None: ...  # noqa: F811

    @kopf.on.delete("kopfexamples")  # type: ignore[no-redef]
    def my_handler(spec: kopf.Spec, **_: Any) -> None: ...  # noqa: F811


def method() -> None:
    class MyCls:
        def my_handler(self, spec: kopf.Spec, **kwargs: Any) -> None: ...

    kopf.on.create("kopfexamples")(MyCls().my_handler)


def event() -> None:
    @kopf.on.event("kopfexamples")
    def my_handler(event: kopf.RawEvent, **_: Any) -> None: ...


def status_of_others() -> None:
    @kopf.on.update("batch/v1", "jobs", field="status")
    def job_status_changes(**_: Any) -> None: ...


def optional_deletion() -> None:
    @kopf.on.delete("kopfexamples", optional=True)
    def my_handler(**_: Any) -> None: ...


def resuming() -> None:
    @kopf.on.resume("kopfexamples")
    @kopf.on.create("kopfexamples")
    def my_handler(spec: kopf.Spec, **_: Any) -> None: ...


def resuming_of_what_is_deleted() -> None:
    @kopf.on.resume("kopfexamples", deleted=True)
    def my_handler(spec: kopf.Spec, **_: Any) -> None: ...


def field() -> None:
    @kopf.on.field("kopfexamples", field="spec.somefield")
    def somefield_changed(old: Any, new: Any, **_: Any) -> None: ...


def parameters() -> None:
    @kopf.on.create("KopfExample", param=1000)
    @kopf.on.resume("KopfExample", param=100)
    @kopf.on.update("KopfExample", param=10, field="spec.field")
    @kopf.on.update("KopfExample", param=1, field="spec.items")
    def count_updates(param: int, patch: kopf.Patch, body: kopf.Body, **_: Any) -> None: ...

    @kopf.on.update("Child1", param="first", field="status.done", new=True)
    @kopf.on.update("Child2", param="second", field="status.done", new=True)
    def child_updated(param: str, patch: kopf.Patch, **_: Any) -> None: ...


def lambdas_and_partials() -> None:
    def create(item: Any, spec: kopf.Spec, **_: Any) -> None: ...

    kopf.on.create("kopfexamples")(lambda spec, **_: None)
    kopf.on.create("kopfexamples")(functools.partial(create, "item"))


# ---------------------------------------------------------------------- Startup, Shutdown, Health-checks


def activities() -> None:
    @kopf.on.startup()
    async def startup_fn(logger: Any, **kwargs: Any) -> None: ...

    @kopf.on.cleanup()
    async def cleanup_fn(logger: Any, **kwargs: Any) -> None: ...

    @kopf.on.probe(id="now")
    def get_current_timestamp(**kwargs: Any) -> str:
        return "now"

    @kopf.on.probe(id="random")
    def get_random_value(**kwargs: Any) -> int:
        return random.randint(0, 1_000_000)


# ------------------------------------------------------------------------------------------------ Authentication


def logins() -> None:
    @kopf.on.login(retries=3)
    def login_fn(**kwargs: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server="https://localhost",
            ca_path="/etc/ssl/ca.crt",
            insecure=True,
            username="...",
            password="...",
            scheme="Bearer",
            token="...",
            certificate_path="~/.minikube/client.crt",
            private_key_path="~/.minikube/client.key",
            expiration=datetime.datetime(2099, 12, 31, 23, 59, 59),
        )

    @kopf.on.login()
    async def async_login(**kwargs: Any) -> None: ...

    @kopf.on.login(id="piggyback")
    def piggyback(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_via_pykube(**kwargs) or kopf.login_via_client(**kwargs)

    @kopf.on.login(id="raw")
    def raw(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


@pytest.mark.parametrize(
    ("declare", "expected"),
    [
        (plain, [("create", "my_handler")]),
        (several_of_one_name, [("create", "my_handler"), ("update", "my_handler"), ("delete", "my_handler")]),
        (method, [("create", "MyCls.my_handler")]),
        (event, [("event", "my_handler")]),
        (status_of_others, [("update", "job_status_changes/status")]),
        (optional_deletion, [("delete", "my_handler")]),
        (resuming, [("create", "my_handler"), ("resume", "my_handler")]),
        (resuming_of_what_is_deleted, [("resume", "my_handler")]),
        (field, [("field", "somefield_changed/spec.somefield")]),
        (
            parameters,
            [
                ("update", "count_updates/spec.items"),
                ("update", "count_updates/spec.field"),
                ("resume", "count_updates"),
                ("create", "count_updates"),
                ("update", "child_updated/status.done"),
                ("update", "child_updated/status.done"),
            ],
        ),
        (
            activities,
            [("startup", "startup_fn"), ("cleanup", "cleanup_fn"), ("probe", "now"), ("probe", "random")],
        ),
        (
            logins,
            [("authentication", id) for id in ("login_fn", "async_login", "piggyback", "raw")],
        ),
    ],
)
def test_handlers_are_declared_as_in_the_documentation(
    registry: kopf.OperatorRegistry, declare: Callable[[], None], expected: list[tuple[str, str]]
) -> None:
    def sort(handler: Handler) -> str:
        if isinstance(handler, ActivityHandler):
            return handler.activity.value
        if isinstance(handler, EventHandler):
            return "event"
        assert isinstance(handler, ChangeHandler)
        return "resume" if handler.initial else "field" if handler.reason is None else handler.reason.value

    declare()
    registry.check()
    assert [(sort(handler), handler.id.rpartition("<locals>.")[2]) for handler in registry] == expected


def test_lambdas_and_partials_are_handlers(registry: kopf.OperatorRegistry) -> None:
    lambdas_and_partials()
    registry.check()
    ids = [handler.id for handler in registry]
    assert ids[0].startswith(f"lambda:{__file__}:")
    assert ids[1] == "lambdas_and_partials.<locals>.create"


# -------------------------------------------------------------------------------- Resource specification


def kind(group: str, version: str, plural: str, kind: str, *, short: str = "", **options: Any) -> kopf.Resource:
    return kopf.Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        shortcuts=frozenset(short.split()),
        verbs=frozenset({"list", "watch", "patch"}),
        **options,
    )


KEX = kind("kopf.dev", "v1", "kopfexamples", "KopfExample", short="kex")
KEX_OLD = kind("kopf.dev", "v1beta1", "kopfexamples", "KopfExample", short="kex", preferred=False)
PEERING = kind("kopf.dev", "v1", "kopfpeerings", "KopfPeering")
DEPLOYMENTS = kind("apps", "v1", "deployments", "Deployment", categories=frozenset({"all"}))
STATEFUL = kind("apps", "v1", "statefulsets", "StatefulSet", short="sts", categories=frozenset({"all"}))
PODS = kind("", "v1", "pods", "Pod", short="po", categories=frozenset({"all"}))
SECRETS = kind("", "v1", "secrets", "Secret")
POD_METRICS = kind("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
EVENTS = kind("", "v1", "events", "Event", short="ev")
NEW_EVENTS = kind("events.k8s.io", "v1", "events", "Event", short="ev")
SAME_A = kind("a.example.com", "v1", "twins", "Twin")
SAME_B = kind("b.example.com", "v1", "twins", "Twin")
CLUSTER = frozenset(
    {KEX, KEX_OLD, PEERING, DEPLOYMENTS, STATEFUL, PODS, SECRETS, POD_METRICS, EVENTS, NEW_EVENTS, SAME_A, SAME_B}
)
ALL = CLUSTER - {KEX_OLD, EVENTS, NEW_EVENTS}


@pytest.mark.parametrize(
    ("args", "options", "expected"),
    [
        (("kopf.dev", "v1", "kopfexamples"), {}, {KEX}),
        (("kopf.dev/v1", "kopfexamples"), {}, {KEX}),
        (("kopf.dev", "v1beta1", "kopfexamples"), {}, {KEX_OLD}),
        (("kopf.dev/v1beta1", "kopfexamples"), {}, {KEX_OLD}),
        (("apps", "v1", "deployments"), {}, {DEPLOYMENTS}),
        (("apps/v1", "deployments"), {}, {DEPLOYMENTS}),
        (("", "v1", "pods"), {}, {PODS}),
        (("v1", "pods"), {}, {PODS}),
        (("kopf.dev", "kopfexamples"), {}, {KEX}),
        (("apps", "deployments"), {}, {DEPLOYMENTS}),
        (("kopfexamples.kopf.dev",), {}, {KEX}),
        (("kopfexamples.v1beta1.kopf.dev",), {}, {KEX_OLD}),
        (("deployments.apps",), {}, {DEPLOYMENTS}),
        (("kopfexamples",), {}, {KEX}),
        (("kopfexample",), {}, {KEX}),
        (("KopfExample",), {}, {KEX}),
        (("kex",), {}, {KEX}),
        (("StatefulSet",), {}, {STATEFUL}),
        (("deployments",), {}, {DEPLOYMENTS}),
        (("pod",), {}, {PODS}),
        (("pods",), {}, {PODS}),
        (("pods.v1",), {}, {PODS}),
        (("pods.metrics.k8s.io",), {}, {POD_METRICS}),
        (("metrics.k8s.io", "pods"), {}, {POD_METRICS}),
        (("twins",), {}, set()),
        (("twins.a.example.com",), {}, {SAME_A}),
        (("nonexistent",), {}, set()),
        ((), {"kind": "KopfExample"}, {KEX}),
        ((), {"plural": "kopfexamples"}, {KEX}),
        ((), {"singular": "kopfexample"}, {KEX}),
        ((), {"shortcut": "kex"}, {KEX}),
        ((), {"kind": "kopfexamples"}, set()),
        ((), {"group": "kopf.dev", "plural": "kopfexamples"}, {KEX}),
        ((), {"group": "kopf.dev", "version": "v1", "plural": "kopfexamples"}, {KEX}),
        ((), {"category": "all"}, {DEPLOYMENTS, STATEFUL, PODS}),
        (("kopf.dev", "v1", kopf.EVERYTHING), {}, {KEX, PEERING}),
        (("kopf.dev/v1", kopf.EVERYTHING), {}, {KEX, PEERING}),
        (("kopf.dev", kopf.EVERYTHING), {}, {KEX, PEERING}),
        ((kopf.EVERYTHING,), {}, ALL),
        ((kopf.EVERYTHING,), {"labels": {"only-this": kopf.PRESENT}}, ALL),
        ((lambda resource: resource.plural == "kopfexamples" and resource.preferred,), {}, {KEX}),
        ((lambda resource: resource.plural == "kopfexamples",), {}, {KEX, KEX_OLD}),
        ((lambda resource: resource.preferred,), {"group": "kopf.dev"}, {KEX, PEERING}),
        ((lambda resource: resource.group == "" and resource.preferred,), {}, {PODS, SECRETS}),
        (("v1", "events"), {}, {EVENTS}),
        (("events.events.k8s.io",), {}, {NEW_EVENTS}),
    ],
)
def test_resources_are_specified_as_in_the_documentation(
    registry: kopf.OperatorRegistry, args: tuple[Any, ...], options: dict[str, Any], expected: set[kopf.Resource]
) -> None:
    @kopf.on.event(*args, **options)
    def fn(**_: Any) -> None: ...

    [selector] = registry.selectors()
    assert select_resources(selector, CLUSTER).resources == expected


def test_overlapping_selectors_call_a_function_once(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.event("kopfexamples")
    @kopf.on.event("KopfExample")
    @kopf.on.event(kopf.EVERYTHING)
    @kopf.on.event("v1", "pods")
    def fn(**_: Any) -> None: ...

    handlers = KindHandlers.of(h for h in registry.resource_handlers() if h.selector.matches(KEX))
    assert len(handlers.events) == 3
    assert len(select_matching(handlers.events, event_cause({}))) == 1


# --------------------------------------------------------------------------------------------- Filtering


def check_value(value: str | None, spec: kopf.Spec, **_: Any) -> bool:
    return value == "some-value" and spec.get("field") is not None


def is_good_enough(spec: kopf.Spec, **_: Any) -> bool:
    return spec.get("field") in spec.get("items", [])


@pytest.mark.parametrize(
    "decorate",
    [
        lambda: kopf.on.create("kex", labels={"l": "v"}, annotations={"a": "v"}),
        lambda: kopf.on.create("kex", labels={"l": kopf.PRESENT}, annotations={"a": kopf.PRESENT}),
        lambda: kopf.on.create("kex", labels={"l": kopf.ABSENT}, annotations={"a": kopf.ABSENT}),
        lambda: kopf.on.create("kex", field="spec.field", value="world"),
        lambda: kopf.on.create("kex", field="spec.field", value=kopf.PRESENT),
        lambda: kopf.on.create("kex", field="spec.no-field", value=kopf.ABSENT),
        lambda: kopf.on.create("kex", field="spec.field"),
        lambda: kopf.on.update("kex", field="spec.field"),
        lambda: kopf.on.update("kex", field="spec.field", old="x", new="y"),
        lambda: kopf.on.update("kex", field="spec.field", old=kopf.ABSENT, new=kopf.PRESENT),
        lambda: kopf.on.update("kex", field="spec.field", new="world"),
        lambda: kopf.on.update("kex", field="spec.field", old="world"),
        lambda: kopf.on.create("kex", labels={"l": check_value}, annotations={"a": check_value}),
        lambda: kopf.on.create("kex", when=is_good_enough),
        lambda: kopf.on.create("kex", when=lambda spec, **_: spec.get("field") in spec.get("items", [])),
        lambda: kopf.on.create("kex", when=kopf.all_([is_good_enough]), labels={"l": kopf.all_([check_value])}),
        lambda: kopf.on.create("kex", when=kopf.any_([is_good_enough]), labels={"l": kopf.any_([check_value])}),
        lambda: kopf.on.create("kex", when=kopf.not_(is_good_enough), labels={"l": kopf.none_([check_value])}),
    ],
)
def test_filters_are_declared_as_in_the_documentation(
    registry: kopf.OperatorRegistry, decorate: Callable[[], Any]
) -> None:
    def my_handler(spec: kopf.Spec, **_: Any) -> None: ...

    decorate()(my_handler)
    registry.check()
    [handler] = registry
    assert isinstance(handler, ResourceHandler)
    assert handler.has_filters


# ---------------------------------------------------------------------------------------- Error handling


@pytest.mark.parametrize(
    "options",
    [
        {"errors": kopf.ErrorsMode.PERMANENT},
        {"errors": kopf.ErrorsMode.TEMPORARY},
        {"errors": kopf.ErrorsMode.IGNORED},
        {"timeout": 60 * 60},
        {"retries": 3},
        {"backoff": 30},
        {"errors": kopf.ErrorsMode.PERMANENT, "timeout": 60, "retries": 3, "backoff": 1.5},
    ],
)
def test_limits_are_declared_as_in_the_documentation(registry: kopf.OperatorRegistry, options: dict[str, Any]) -> None:
    @kopf.on.create("kopfexamples", **options)
    @kopf.on.startup(**options)
    def create_fn(**_: Any) -> None: ...

    for handler in registry:
        assert {key: getattr(handler, key) for key in options} == options


def test_errors_are_raised_as_in_the_documentation() -> None:
    assert kopf.TemporaryError("The data is not yet ready.", delay=60).delay == 60
    assert kopf.TemporaryError(delay=60).delay == 60
    assert kopf.TemporaryError("x").delay == 60
    assert str(kopf.PermanentError("The object is not valid anymore.")) == "The object is not valid anymore."
    assert issubclass(kopf.HandlerTimeoutError, kopf.PermanentError)
    assert issubclass(kopf.HandlerRetriesError, kopf.PermanentError)
    assert not issubclass(kopf.TemporaryError, kopf.PermanentError)


# ----------------------------------------------------------------------------------------- Configuration


class InfiniteBackoffsWithJitter:
    def __iter__(self) -> Iterator[int]:
        while True:
            yield 10 + random.randint(-5, +5)


def replace_executor(settings: kopf.OperatorSettings) -> None:
    settings.execution.executor = concurrent.futures.ThreadPoolExecutor(7)


SETTINGS: list[tuple[str, str, Any]] = [
    ("posting", "level", logging.WARNING),
    ("posting", "level", logging.ERROR),
    ("posting", "enabled", False),
    ("posting", "loggers", False),
    ("watching", "connect_timeout", 1 * 60),
    ("watching", "server_timeout", 10 * 60),
    ("watching", "client_timeout", 60),
    ("watching", "reconnect_backoff", 0.5),
    ("watching", "inactivity_timeout", 999999999),
    ("execution", "max_workers", 20),
    ("execution", "max_workers", 1000),
    ("execution", "default_backoff", 5),
    ("networking", "connect_timeout", 10),
    ("networking", "request_timeout", 60),
    ("networking", "trust_env", True),
    ("networking", "enforce_retry_after", True),
    ("networking", "error_backoffs", [10, 20, 30]),
    ("networking", "error_backoffs", []),
    ("networking", "error_backoffs", ()),
    ("networking", "error_backoffs", InfiniteBackoffsWithJitter()),
    ("persistence", "consistency_timeout", 10),
    ("persistence", "consistency_timeout", 0),
    ("persistence", "finalizer", "my-operator.example.com/kopf-finalizer"),
    ("persistence", "progress_storage", kopf.AnnotationsProgressStorage(prefix="my-op.example.com")),
    ("persistence", "progress_storage", kopf.StatusProgressStorage(field="status.my-operator")),
    ("persistence", "progress_storage", kopf.StatusProgressStorage(field="status.kopf.progress")),
    (
        "persistence",
        "progress_storage",
        kopf.MultiProgressStorage(
            [
                kopf.AnnotationsProgressStorage(prefix="my-op.example.com"),
                kopf.StatusProgressStorage(field="status.my-operator"),
            ]
        ),
    ),
    ("persistence", "progress_storage", kopf.SmartProgressStorage()),
    (
        "persistence",
        "diffbase_storage",
        kopf.AnnotationsDiffBaseStorage(prefix="kopf.zalando.org", key="last-handled-configuration"),
    ),
    (
        "persistence",
        "diffbase_storage",
        kopf.MultiDiffBaseStorage(
            [
                kopf.StatusDiffBaseStorage(field="status.diff-base"),
                kopf.AnnotationsDiffBaseStorage(prefix="kopf.zalando.org", key="last-handled-configuration"),
            ]
        ),
    ),
    ("scanning", "disabled", True),
    ("peering", "name", "example"),
    ("peering", "priority", 100),
    ("peering", "mandatory", True),
    ("peering", "standalone", True),
    ("peering", "stealth", True),
    ("admission", "server", kopf.WebhookServer()),
    ("admission", "managed", "auto.kopf.dev"),
    ("queueing", "error_delays", [10, 20, 30]),
    ("batching", "error_delays", [10, 20, 30]),
    ("queueing", "error_delays", ()),
]


@pytest.mark.parametrize(("section", "name", "value"), SETTINGS)
def test_settings_are_assigned_as_in_the_documentation(section: str, name: str, value: Any) -> None:
    settings = kopf.OperatorSettings()
    setattr(getattr(settings, section), name, value)
    assert getattr(getattr(settings, section), name) is value or getattr(getattr(settings, section), name) == value


def test_a_single_backoff_is_a_sequence_of_one() -> None:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = 1.0  # type: ignore[assignment]
    assert list(settings.networking.error_backoffs) == [1.0]


def test_the_old_name_of_queueing_is_the_same() -> None:
    settings = kopf.OperatorSettings()
    settings.batching.error_delays = [10]
    assert settings.queueing.error_delays == [10]


def test_the_size_of_an_executor_is_the_number_of_threads() -> None:
    settings = kopf.OperatorSettings()
    replace_executor(settings)
    assert settings.execution.max_workers == 7


def test_settings_of_two_operators_are_separate() -> None:
    one, other = kopf.OperatorSettings(), kopf.OperatorSettings()
    one.posting.enabled = False
    assert other.posting.enabled


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("posting", "enabled", True),
        ("posting", "level", logging.INFO),
        ("posting", "loggers", True),
        ("watching", "server_timeout", None),
        ("watching", "client_timeout", None),
        ("watching", "connect_timeout", None),
        ("watching", "reconnect_backoff", 0.1),
        # Not Kopf's 70: kinds of which the server sends no bookmarks would be restarted, with a warning, every minute.
        ("watching", "inactivity_timeout", None),
        ("networking", "request_timeout", 300),
        ("networking", "connect_timeout", None),
        ("networking", "trust_env", False),
        ("networking", "enforce_retry_after", False),
        ("networking", "error_backoffs", (1, 1, 2, 3, 5, 8, 13, 21)),
        ("persistence", "consistency_timeout", 5),
        ("scanning", "disabled", False),
        ("execution", "default_backoff", 60),
        ("queueing", "error_delays", (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)),
    ],
)
def test_defaults_are_those_of_the_documentation(section: str, name: str, value: Any) -> None:
    assert getattr(getattr(kopf.OperatorSettings(), section), name) == value


def test_public_names_exist() -> None:
    assert len(set(kopf.__all__)) == len(kopf.__all__)
    for name in kopf.__all__:
        assert hasattr(kopf, name)
