"""Settings of operators that were written for Kopf."""

from __future__ import annotations

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
        assert getattr(ours, name) == getattr(native, name)


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


def test_wrong_settings_are_still_errors() -> None:
    settings: Any = OperatorSettings()
    with pytest.raises(AttributeError, match=r"There is no setting settings\.process\.nothing"):
        settings.process.nothing = 1
    with pytest.raises(AttributeError, match=r"There is no setting settings\.queueing\.nothing"):
        _ = settings.queueing.nothing
    with pytest.raises(ConfigError, match=r"settings\.posting\.loggers is 'x'"):
        settings.posting.loggers = "x"


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
