"""``import kopf`` is trioperator while it is installed, and only then."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys
import types
from typing import Any

import pytest

import trioperator
from tests.processes.conftest import ROOT, environment
from trioperator.kopf import install


def test_all_forms_of_the_import_work() -> None:
    found: dict[str, Any] = {}
    code = """
import kopf, kopf.on, kopf.testing, kopf.cli
import kopf as k
from kopf import on, TemporaryError, Spec
from kopf.on import create
from kopf.testing import KopfRunner
"""
    with install():
        exec(code, found)
    assert found["kopf"] is found["k"]
    assert found["kopf"].on is found["on"] is found["kopf"].on
    assert found["create"] is found["on"].create
    assert found["TemporaryError"] is trioperator.TemporaryError
    assert found["kopf"].testing.KopfRunner is found["KopfRunner"]


def test_modules_that_are_private_to_kopf_are_explained() -> None:
    with (
        install(),
        pytest.raises(
            ModuleNotFoundError,
            match=r"module kopf\._core\.nothing does not exist here.*use the public names of kopf, ",
        ) as e,
    ):
        importlib.import_module("kopf._core.nothing")
    assert e.value.name == "kopf._core.nothing"


def test_what_was_imported_before_is_hidden_and_comes_back(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kopf").mkdir()
    (tmp_path / "kopf" / "__init__.py").write_text("from kopf import on")
    (tmp_path / "kopf" / "on.py").write_text("real = True")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kopf"]:
        monkeypatch.delitem(sys.modules, name)
    real = importlib.import_module("kopf")
    with install():
        ours = importlib.import_module("kopf")
        assert not hasattr(ours.on, "real")
    assert importlib.import_module("kopf") is real
    assert importlib.import_module("kopf.on").real
    assert isinstance(ours, types.ModuleType)
    for name in ("kopf", "kopf.on"):
        del sys.modules[name]


def test_installations_end_one_by_one_and_once() -> None:
    outer, inner = install(), install()
    inner.uninstall()
    inner.uninstall()
    assert importlib.import_module("kopf").TemporaryError is trioperator.TemporaryError
    outer.uninstall()


def test_nothing_changes_without_an_installation(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys, asyncio; get = asyncio.get_running_loop;"
        "import trioperator, trioperator.cli.run, trioperator.kopf;"
        "trioperator.kopf.install().uninstall();"
        "assert get is asyncio.get_running_loop;"
        "assert not [n for n in sys.modules if n.partition('.')[0] == 'kopf']"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(tmp_path), cwd=ROOT, check=True, timeout=60)
