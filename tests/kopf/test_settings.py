"""Settings of operators that were written for Kopf."""

from __future__ import annotations

import dataclasses
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from trioperator._model.resource import Selector
from trioperator.errors import ConfigError
from trioperator.kopf.settings import OperatorSettings
from trioperator.settings import OperatorSettings as NativeSettings


def test_what_others_see_is_named_as_by_kopf() -> None:
    settings = OperatorSettings()
    assert isinstance(settings, NativeSettings)
    assert settings.persistence.finalizer == "kopf.zalando.org/KopfFinalizerMarker"
    assert settings.persistence.progress_storage.prefix == "kopf.zalando.org"
    assert settings.persistence.diffbase_storage.prefix == "kopf.zalando.org"
    assert settings.posting.reporting_component == "kopf"
    assert not settings.posting.loggers


def test_all_else_is_as_it_is_by_default() -> None:
    ours, native = OperatorSettings(), NativeSettings()
    for name in ("networking", "leadership", "scanning"):
        assert dataclasses.asdict(getattr(ours, name)) == dataclasses.asdict(getattr(native, name))


def test_a_copy_is_of_the_same_classes() -> None:
    copy = OperatorSettings().copy()
    assert type(copy) is OperatorSettings
    copy.process.ultimate_exiting_timeout = 1
    assert copy.persistence.finalizer == "kopf.zalando.org/KopfFinalizerMarker"


@pytest.mark.parametrize(
    ("section", "name", "default"),
    [
        ("process", "ultimate_exiting_timeout", 600.0),
        ("posting", "worker_limit", None),
        ("peering", "clusterwide", False),
        ("queueing", "idle_timeout", 5.0),
        ("background", "instant_exit_timeout", None),
    ],
)
def test_settings_without_a_meaning_are_accepted_with_a_warning(
    section: str, name: str, default: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings: Any = getattr(OperatorSettings(), section)
    assert getattr(settings, name) == default
    with caplog.at_level(logging.WARNING):
        setattr(settings, name, 7)
    assert f"settings.{section}.{name} = 7 has no effect here: " in caplog.text
    assert getattr(settings, name) == 7, "whoever has set it finds it"


def test_the_old_name_of_a_section_warns_as_in_kopf() -> None:
    settings: Any = OperatorSettings()
    with pytest.warns(
        DeprecationWarning, match=r"Batching settings are now queueing settings: write settings\.queueing"
    ):
        assert settings.batching is settings.queueing


def test_objects_wait_for_more_changes_as_long_as_they_did_in_kopf_for_years() -> None:
    assert NativeSettings().queueing.batch_window == 0
    assert OperatorSettings().queueing.batch_window == 0.1


def test_timers_of_objects_that_exist_begin_at_once_as_in_kopf() -> None:
    assert NativeSettings().background.spread == 10
    assert OperatorSettings().background.spread == 0


def test_a_peering_is_of_namespaces_or_clusterwide() -> None:
    peering: Any = OperatorSettings().peering
    peering.clusterwide = True
    assert not peering.namespaced
    peering.namespaced = True
    assert not peering.clusterwide


def test_threads_are_limited_as_natively_until_kopf_s_settings_say_otherwise() -> None:
    execution = OperatorSettings().execution
    assert execution.max_workers is None
    assert execution.executor is not None
    assert execution.executor.submit(int, "5").result() == 5
    assert execution.threads == NativeSettings().execution.threads == 64
    execution.max_workers = 7
    assert execution.threads == 7
    execution.executor = ThreadPoolExecutor(3)
    assert execution.threads == execution.max_workers == 3
    with pytest.raises(ConfigError, match="max_workers is 0"):
        execution.max_workers = 0


def test_as_many_objects_are_handled_at_once_as_in_kopf() -> None:
    assert OperatorSettings().queueing.worker_limit is None
    with pytest.raises(ConfigError, match="worker_limit is 0"):
        OperatorSettings().queueing.worker_limit = 0


@pytest.mark.parametrize("section", ["process", "scanning", "networking", "admission", "persistence", "execution"])
def test_names_that_kopf_does_not_have_either_are_accepted_with_a_warning(
    section: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings: Any = OperatorSettings()
    with pytest.raises(AttributeError, match=rf"There is no setting settings\.{section}\.nothing"):
        _ = getattr(settings, section).nothing
    with caplog.at_level(logging.WARNING):
        getattr(settings, section).nothing = 7
        settings.own = "x"
    assert f"settings.{section}.nothing = 7 has no effect here: Kopf has no such setting either." in caplog.text
    copy: Any = settings.copy()
    assert (getattr(copy, section).nothing, copy.own) == (7, "x"), "whoever has set it finds it, in handlers, too"


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("watching", "server_timeout", 60),
        ("posting", "level", 30),
        ("networking", "error_backoffs", (1, 2)),
        ("persistence", "finalizer", "example.com/finalizer"),
        ("queueing", "worker_limit", 5),
    ],
)
def test_programs_that_update_the_dict_of_a_section_change_it(section: str, name: str, value: Any) -> None:
    settings = OperatorSettings()
    assert name in vars(getattr(settings, section))
    getattr(settings, section).__dict__.update({name: value})
    assert getattr(getattr(settings, section), name) == value
    assert getattr(getattr(settings.copy(), section), name) == value


def test_what_has_no_effect_is_found_in_a_copy() -> None:
    settings: Any = OperatorSettings()
    settings.process.ultimate_exiting_timeout = 7
    assert settings.copy().process.ultimate_exiting_timeout == 7


@pytest.mark.parametrize(
    ("section", "name", "value", "read"),
    [
        ("posting", "enabled", 0, False),
        ("posting", "loggers", "x", True),
        ("scanning", "disabled", None, False),
        ("watching", "server_timeout", "60", 60),
        ("networking", "request_timeout", "0.5", 0.5),
        ("peering", "priority", "100", 100),
        ("watching", "client_timeout", 0, None),
    ],
)
def test_values_are_read_as_kopf_reads_them_with_a_warning(
    section: str, name: str, value: Any, read: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings: Any = getattr(OperatorSettings(), section)
    with caplog.at_level(logging.WARNING):
        setattr(settings, name, value)
    assert getattr(settings, name) is read or getattr(settings, name) == read
    assert f"settings.{section}.{name} = {value!r} is taken for {read!r}." in caplog.text


@pytest.mark.parametrize("value", ["x", "-1", False, -1])
def test_values_that_mean_nothing_are_still_errors(value: Any) -> None:
    with pytest.raises(ConfigError, match=f"settings.watching.client_timeout is {value!r}"):
        OperatorSettings().watching.client_timeout = value


def test_the_chunk_size_is_that_of_pages() -> None:
    settings: Any = OperatorSettings()
    settings.watching.chunk_size = 7
    assert settings.watching.page_size == settings.watching.chunk_size == 7
    settings.watching.chunk_size = None
    assert settings.watching.page_size == 7


@pytest.mark.parametrize("name", ["label_selectors", "field_selectors"])
def test_selectors_are_those_of_trioperator(name: str) -> None:
    watching: Any = OperatorSettings().watching
    getattr(watching, name)["", "v1", "pods"] = "a=b"
    assert dict(getattr(watching, name)) == {Selector.parse("", "v1", "pods"): "a=b"}


def test_shard_selectors_and_streamed_lists_are_those_of_trioperator() -> None:
    watching: Any = OperatorSettings().watching
    text = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    watching.shard_selectors[lambda resource: True] = text
    assert list(watching.shard_selectors.values()) == [text]
    assert not watching.initial_streaming
    watching.initial_streaming = True
    assert watching.initial_streaming
