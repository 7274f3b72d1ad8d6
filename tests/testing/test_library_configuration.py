"""Tests for :mod:`trioperator.testing.library_configuration`: libraries find the API server of the test."""

from __future__ import annotations

import os
import types
from typing import Any

import pytest

from trioperator._kube.connection import load_connection
from trioperator.testing.library_configuration import (
    change_default_path,
    change_service_account,
    configured_environment,
)


def test_the_environment_names_the_api_server_in_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with configured_environment():
        assert load_connection().server == "http://cluster"
    assert "KUBECONFIG" not in os.environ


def test_default_paths_are_replaced() -> None:
    with configured_environment():
        [(_, name, path)] = change_default_path(types.ModuleType("kube_config"))
        assert (name, path) == ("KUBE_CONFIG_DEFAULT_LOCATION", os.environ["KUBECONFIG"])


@pytest.mark.parametrize("is_async", [False, True])
def test_there_is_a_service_account(is_async: bool) -> None:
    module, loaded = types.ModuleType("config"), list[Any]()

    def load(kubeconfig: Any, client_configuration: Any = None) -> None:
        loaded.append((kubeconfig["clusters"][0]["cluster"], client_configuration))

    async def load_async(*args: Any, **options: Any) -> None:
        load(*args, **options)

    module.load_kube_config_from_dict = load_async if is_async else load  # type: ignore[attr-defined]
    [(_, name, function)] = change_service_account(module)
    function("mine", try_refresh_token=False)
    assert name == "load_incluster_config"
    assert loaded == [({"server": "http://cluster"}, "mine")]
