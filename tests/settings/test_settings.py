"""Tests for :mod:`trioperator.settings`."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import inspect
import itertools
import logging
import math
import pydoc
from collections.abc import Iterator
from typing import Any

import pytest

from trioperator.errors import ConfigError
from trioperator.settings import ExecutionSettings, OperatorSettings, QueueingSettings, WatchingSettings

# Kopf's names and defaults, those of the project's own where they differ, and the project's additions.
DEFAULTS: dict[str, dict[str, Any]] = {
    "process": {"grace": 25.0, "unresponsive_limit": 30.0},
    "posting": {
        "enabled": True,
        "loggers": True,
        "level": logging.INFO,
        "default_backoffs": (1, 1, 2, 3, 5, 8, 13, 21),
        "logging_backoffs": (1, 1, 2, 3, 5),
        "reporting_component": "trioperator",
        "reporting_instance": None,
        "event_name_prefix": "trioperator-event-",
    },
    "peering": {
        "name": "default",
        "stealth": False,
        "priority": 0,
        "lifetime": 60,
        "mandatory": False,
        "standalone": False,
        "tie_break": False,
    },
    "leadership": {
        "enabled": False,
        "name": "trioperator",
        "namespace": None,
        "identity": None,
        "lease_duration": 15,
        "renew_deadline": 10,
        "retry_period": 2,
        "shards": 1,
    },
    "watching": {
        "server_timeout": None,
        "client_timeout": None,
        "connect_timeout": None,
        "reconnect_backoff": 0.1,
        "inactivity_timeout": None,
        "page_size": 500,
        "label_selectors": {},
        "field_selectors": {},
        "shard_selectors": {},
        "initial_streaming": False,
        "infer_selectors": True,
    },
    "queueing": {
        "worker_limit": 256,
        "batch_window": 0.0,
        "backlog_limit": 100,
        "error_delays": (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610),
    },
    "scanning": {"disabled": False},
    "admission": {
        "server": None,
        "managed": None,
        "managed_conversions": False,
        "allow_unknown": False,
        "max_workers": 256,
        "shutdown_delay": None,
    },
    "execution": {
        "blocking_limit": 1.0,
        "blocking_fails": False,
        "default_backoff": 60,
        "activity_retries": 10,
        "executor": None,
        "max_workers": 64,
    },
    "networking": {
        "request_timeout": 300,
        "connect_timeout": None,
        "error_backoffs": (1, 1, 2, 3, 5, 8, 13, 21),
        "enforce_retry_after": False,
        "response_limit": 268435456,
        "max_connections": 20,
        "trust_env": False,
        "login_libraries": True,
    },
    "persistence": {
        "finalizer": "trioperator.dev/finalizer",
        "progress_storage": None,
        "diffbase_storage": None,
        "consistency_timeout": 5.0,
        "write_delay": 0.1,
        "digested_fields": {"secrets": (("data",), ("stringData",))},
        "digest_key": None,
        "field_manager": "trioperator",
        "owner_labels": frozenset(),
    },
    "background": {
        "cancellation_polling": 60,
        "max_threads": 1000,
        "exit_timeout": 5.0,
        "spread": 10.0,
    },
    "contention": {
        "enabled": True,
        "flips": 3,
        "unchanged_writes": 10,
        "writes": 120,
        "interval": 60.0,
    },
    "pausing": {
        "annotation": "trioperator.dev/paused",
        "poke_annotation": "trioperator.dev/reconcile-requested-at",
        "condition": "Paused",
        "holds_deletion": False,
    },
    "crds": {
        "migrate": False,
        "migration_rate": 100,
    },
}


class Storage:
    """Storage of either kind."""

    def build(self) -> None: ...
    def fetch(self) -> None: ...
    def store(self) -> None: ...
    def purge(self) -> None: ...


class Endless:
    """Infinite sequence of delays."""

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(10)


def assign(settings: OperatorSettings, path: str, value: object) -> None:
    section, _, name = path.partition(".")
    setattr(getattr(settings, section), name, value)


def test_all_settings_have_their_defaults() -> None:
    assert dataclasses.asdict(OperatorSettings()) == DEFAULTS


def test_the_help_of_a_section_shows_its_settings_with_their_defaults() -> None:
    settings = OperatorSettings()
    for section in dataclasses.fields(settings):
        assert f"``{section.name}``" in (OperatorSettings.__doc__ or "")
        kind = type(getattr(settings, section.name))
        shown = inspect.signature(kind).parameters
        assert list(shown) == [field.name for field in dataclasses.fields(kind)]
        assert all(parameter.default is not parameter.empty for parameter in shown.values())
        assert "docs/settings.md" in (kind.__doc__ or "")
        page = pydoc.render_doc(kind, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
        assert all(str(parameter) in page for parameter in shown.values())


def test_every_default_is_a_valid_value() -> None:
    settings = OperatorSettings()
    for section, defaults in DEFAULTS.items():
        for name, value in defaults.items():
            assign(settings, f"{section}.{name}", value)
    assert dataclasses.asdict(settings) == DEFAULTS


def test_operators_have_separate_settings() -> None:
    one, another = OperatorSettings(), OperatorSettings()
    one.watching.page_size = 7
    assert another.watching.page_size == 500


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("execution.executor", object()),
        ("execution.max_workers", 0),
        ("execution.blocking_limit", 0),
        ("networking.enforce_retry_after", "no"),
        ("networking.error_backoffs", [1, -1]),
        ("networking.error_backoffs", "12"),
        ("networking.error_backoffs", -1),
        ("networking.error_backoffs", None),
        ("networking.request_timeout", 0),
        ("networking.response_limit", None),
        ("peering.name", ""),
        ("peering.priority", 1.5),
        ("persistence.consistency_timeout", math.nan),
        ("persistence.diffbase_storage", object()),
        ("persistence.digest_key", ""),
        ("persistence.digest_key", b"key"),
        ("persistence.digested_fields", None),
        ("persistence.digested_fields", ["secrets"]),
        ("persistence.digested_fields", {"example.com/v1/databases": ["spec.password"]}),
        ("persistence.digested_fields", {"databases.example.com": "spec.password"}),
        ("persistence.digested_fields", {"databases.example.com": ["spec..password"]}),
        ("persistence.digested_fields", {"databases.example.com": [()]}),
        ("persistence.digested_fields", {"databases.example.com": [5]}),
        ("persistence.finalizer", "no finalizer"),
        ("persistence.finalizer", f"example.com/{'x' * 64}"),
        ("persistence.progress_storage", Storage),
        ("posting.enabled", 1),
        ("posting.level", "INFO"),
        ("process.grace", -0.1),
        ("process.grace", True),
        ("process.grace", None),
        ("queueing.worker_limit", 0),
        ("watching.inactivity_timeout", "70"),
        ("watching.page_size", 0.5),
    ],
)
def test_an_invalid_value_is_rejected_with_its_setting_named(path: str, value: object) -> None:
    settings = OperatorSettings()
    with pytest.raises(ConfigError) as caught:
        assign(settings, path, value)
    text = str(caught.value)
    assert text.startswith(f"settings.{path} is ")
    assert repr(value)[:90] in text
    assert ", but it must be " in text
    assert dataclasses.asdict(settings) == DEFAULTS


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("networking.connect_timeout", 0.5),
        ("networking.error_backoffs", ()),
        ("networking.error_backoffs", [10, 20.5]),
        ("networking.error_backoffs", Endless()),
        ("networking.request_timeout", None),
        ("persistence.diffbase_storage", Storage()),
        ("persistence.finalizer", "kopf.zalando.org/KopfFinalizerMarker"),
        ("persistence.finalizer", "plain"),
        ("persistence.finalizer", None),
        ("persistence.progress_storage", Storage()),
        ("posting.level", logging.WARNING),
        ("queueing.worker_limit", None),
        ("watching.inactivity_timeout", math.inf),
        ("watching.inactivity_timeout", None),
    ],
)
def test_valid_values_are_assigned(path: str, value: object) -> None:
    settings = OperatorSettings()
    assign(settings, path, value)
    section, _, name = path.partition(".")
    assert getattr(getattr(settings, section), name) is value


def test_the_data_of_secrets_is_digested_unless_it_is_set_itself() -> None:
    settings = OperatorSettings()
    settings.persistence.digested_fields = {"databases.example.com": ["spec.password", ["spec", "a.b"]]}
    assert settings.persistence.digested_fields == {
        "secrets": (("data",), ("stringData",)),
        "databases.example.com": (("spec", "password"), ("spec", "a.b")),
    }
    assert settings.copy().persistence.digested_fields == settings.persistence.digested_fields
    settings.persistence.digested_fields = {"secrets": []}
    assert settings.persistence.digested_fields == {"secrets": ()}


def test_the_key_of_digests_is_not_shown() -> None:
    settings = OperatorSettings()
    settings.persistence.digest_key = "hush"
    assert "hush" not in repr(settings)


@pytest.mark.parametrize("path", ["networking.error_backoffs", "queueing.error_delays"])
def test_a_single_delay_becomes_a_sequence(path: str) -> None:
    settings = OperatorSettings()
    assign(settings, path, 1.5)
    section, _, name = path.partition(".")
    assert list(getattr(getattr(settings, section), name)) == [1.5]


@pytest.mark.parametrize("path", ["networking.error_backoffs", "queueing.error_delays"])
def test_delays_that_can_be_iterated_only_once_are_rejected(path: str) -> None:
    with pytest.raises(ConfigError, match="repeatedly"):
        assign(OperatorSettings(), path, iter([1, 2]))


def test_an_unknown_name_is_rejected_with_the_closest_one() -> None:
    settings: Any = OperatorSettings()
    with pytest.raises(
        AttributeError, match=r"settings\.watching\.inactivty_timeout: did you mean 'inactivity_timeout'"
    ):
        settings.watching.inactivty_timeout = 1
    with pytest.raises(AttributeError, match=r"settings\.watchin: did you mean 'watching'"):
        _ = settings.watchin
    with pytest.raises(AttributeError, match=r"settings\.scanning\.xyz: available are disabled\."):
        settings.scanning.xyz = 1


def test_a_section_can_be_replaced_only_by_one_of_its_class() -> None:
    settings = OperatorSettings(watching=WatchingSettings(page_size=5))
    assert settings.watching.page_size == 5
    with pytest.raises(ConfigError, match=r"settings\.watching is .* of the class WatchingSettings"):
        settings.watching = QueueingSettings()  # type: ignore[assignment]


def test_none_resets_the_number_of_workers() -> None:
    settings = OperatorSettings()
    settings.execution.max_workers = 7
    settings.execution.max_workers = None  # type: ignore[assignment]  # as operators for Kopf do
    assert settings.execution.max_workers == 64


def test_the_size_of_an_executor_becomes_max_workers() -> None:
    settings = OperatorSettings()
    with concurrent.futures.ThreadPoolExecutor(7) as executor:
        settings.execution.executor = executor
        assert settings.execution.max_workers == 7
        settings.execution.max_workers = 8
        assert settings.execution.max_workers == 8
        assert ExecutionSettings(executor=executor).max_workers == 7


def test_batching_is_an_old_name_of_queueing() -> None:
    settings = OperatorSettings()
    settings.batching.worker_limit = 3
    assert settings.queueing.worker_limit == 3
    settings.batching = QueueingSettings(worker_limit=4)
    assert settings.queueing.worker_limit == 4


def test_settings_can_be_copied_and_compared() -> None:
    settings = OperatorSettings()
    settings.process.grace = 1
    twin = copy.deepcopy(settings)
    assert twin == settings
    twin.process.grace = 2
    assert twin != settings
