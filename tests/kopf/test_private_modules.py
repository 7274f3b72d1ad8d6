"""Modules that are private to Kopf, and that operators import nevertheless."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.processes.conftest import ROOT, environment
from trioperator._model.kopf_names import FORMER, PUBLIC
from trioperator.kopf import install


@pytest.fixture
def kopf() -> Iterator[Any]:
    """Kopf, as operators import it."""
    with install():
        yield importlib.import_module("kopf")


@pytest.mark.parametrize("path", [*PUBLIC, *FORMER])
def test_a_module_has_the_public_names_that_kopf_has_there(path: str, kopf: Any) -> None:
    with pytest.warns(DeprecationWarning, match=rf"kopf\.{path} is private to Kopf: import its names from kopf"):
        module = importlib.import_module(f"kopf.{path}")
    for name in PUBLIC[FORMER.get(path, path)].split():
        assert getattr(module, name) is getattr(kopf, name)


def test_the_forms_of_imports_that_real_operators_have_work(kopf: Any) -> None:
    found: dict[str, Any] = {}
    code = """
from kopf._cogs.structs.bodies import Body, RawMeta
from kopf._cogs.structs import diffs
from kopf._cogs.configs.configuration import PostingSettings
from kopf._core.actions.execution import Logger, LifeCycleFn
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.engines.posting import event_queue_var
from kopf._core.intents.callbacks import ChangingFn
from kopf._core.intents.registries import SmartOperatorRegistry
from kopf._kits.runner import KopfRunner
from kopf.structs.bodies import Body as Former
"""
    with pytest.warns(DeprecationWarning, match="is private to Kopf"):
        exec(code, found)
    assert found["Body"] is found["Former"] is kopf.Body
    assert found["RawMeta"](labels={}) == {"labels": {}}
    assert not found["OperatorIndexers"]().indices
    assert found["event_queue_var"].name == "event_queue_var"
    assert found["diffs"].diff({}, {"a": 1})[0].field == ("a",)
    assert found["SmartOperatorRegistry"] is kopf.OperatorRegistry
    assert found["KopfRunner"] is importlib.import_module("kopf.testing").KopfRunner


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_are_attributes_of_their_packages(kopf: Any) -> None:
    assert kopf._cogs.structs.bodies.Spec is kopf.Spec


@pytest.mark.parametrize(
    ("code", "replacement"),
    [
        ("from kopf._core.engines.posting import event_queue_loop_var", r"use kopf\.event\(\), kopf\.info\(\)"),
        ("from kopf._core.engines.indexing import OperatorIndexer", r"use @kopf\.index"),
        ("from kopf._cogs.clients import patching", r"use a client library for Kubernetes"),
        ("from kopf._core.reactor.queueing import watcher", r"use kopf\.operator\(\)"),
        ("from kopf._core.actions.execution import cause_var", r"use kopf\.execute\(\), the arguments of handlers"),
        ("from kopf._core.actions.invocation import context", r"use kopf\.execute\(\), the arguments of handlers"),
        ("from kopf._core.intents.causes import ChangingCause", r"use kopf\.Reason and the arguments of handlers"),
        ("import kopf; kopf._core.intents.handlers", r"use the decorators of kopf and kopf\.on, and an Operator"),
        ("import kopf.clients.auth", r"use a client library for Kubernetes"),
        ("from kopf._cogs.structs.bodies import nothing", r"use the public names of kopf"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("kopf")
def test_what_does_not_exist_names_its_replacement(code: str, replacement: str) -> None:
    with pytest.raises(ImportError, match=replacement):
        exec(code, {})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_missing_dunder_names_are_plain_attribute_errors(kopf: Any) -> None:
    assert not hasattr(kopf._cogs.structs.bodies, "__wrapped__")
    assert not hasattr(kopf._cogs, "__wrapped__")


def test_nothing_is_left_of_an_installation() -> None:
    with install(), pytest.warns(DeprecationWarning, match="is private to Kopf"):
        importlib.import_module("kopf._cogs.structs.ids")
    assert not [name for name in sys.modules if name.startswith("kopf.")]


def test_kopf_has_these_modules_with_these_names(tmp_path_factory: pytest.TempPathFactory) -> None:
    if importlib.util.find_spec("kopf") is None:
        pytest.skip("kopf is not installed")
    code = """
import importlib, json, sys
names = json.load(sys.stdin)
print([f"{module}.{name}" for module in names for name in names[module].split()
       if not hasattr(importlib.import_module(f"kopf.{module}"), name)])
"""
    env = environment(tmp_path_factory.getbasetemp(), PYTHONWARNINGS="ignore")
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(dict(PUBLIC)), cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
