"""The names that ``import kopf`` gets."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

import trioperator
from tests.processes.conftest import ROOT, environment
from trioperator._handling.declaring.registry import get_default_registry
from trioperator.kopf.names import make_modules

PUBLIC = """
import json, kopf, kopf.on, kopf.testing, kopf.cli
fields = {name: sorted(vars(getattr(kopf.OperatorSettings(), name))) for name in vars(kopf.OperatorSettings())}
print(json.dumps({
    "kopf": [*kopf.__all__, "harmonize_naming", "adjust_namespace", "__version__", "__version_tuple__"],
    "kopf.on": [name for name in vars(kopf.on) if hasattr(getattr(kopf.on, name), "__module__")
                and getattr(kopf.on, name).__module__ == "kopf.on" and name[0] != "_"],
    "kopf.testing": kopf.testing.__all__,
    "kopf.cli": ["main", "CLIControls"],
    "settings": fields,
}))
"""


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the installed Kopf has."""
    if importlib.util.find_spec("kopf") is None:
        pytest.skip("kopf is not installed")
    env = environment(tmp_path_factory.getbasetemp(), PYTHONWARNINGS="ignore")
    done = subprocess.run([sys.executable, "-c", PUBLIC], cwd=ROOT, env=env, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("module", ["kopf", "kopf.on", "kopf.testing", "kopf.cli"])
def test_all_public_names_of_kopf_exist(module: str, public: dict[str, Any]) -> None:
    ours = make_modules()[module]
    assert len(public[module]) > 0
    assert [name for name in public[module] if not hasattr(ours, name)] == []


def test_all_settings_of_kopf_exist(public: dict[str, Any]) -> None:
    settings = make_modules()["kopf"].OperatorSettings()
    for section, names in public["settings"].items():
        for name in names:
            if name.startswith("_"):  # the field of a property
                continue
            getattr(getattr(settings, section), name)


def test_names_without_a_difference_are_the_same_objects() -> None:
    kopf = make_modules()["kopf"]
    for name in ("TemporaryError", "Spec", "Memo", "adopt", "event", "WebhookFn", "login_via_client", "PRESENT"):
        assert getattr(kopf, name) is getattr(trioperator, name)


def test_a_star_import_gets_the_names_of_kopf() -> None:
    kopf = make_modules()["kopf"]
    assert {"on", "Spec", "execute", "TemporaryError", "AiohttpSession", "PatchFn", "lifecycles"} <= set(kopf.__all__)
    assert all(hasattr(kopf, name) for name in kopf.__all__)
    assert "__version__" not in kopf.__all__
    assert {*kopf.__all__, "__version__"} <= set(dir(kopf)), "names that are found when they are used are listed, too"


def test_unknown_names_are_unknown() -> None:
    modules = make_modules()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = modules["kopf"].nothing
    with pytest.raises(AttributeError, match=r"module 'kopf\.testing' has no attribute 'nothing'"):
        _ = modules["kopf.testing"].nothing


def test_decorators_return_the_function_and_register_what_runs_in_asyncio() -> None:
    kopf = make_modules()["kopf"]

    async def handle(**_: object) -> None: ...

    assert kopf.on.create("pods")(handle) is handle
    (handler,) = get_default_registry()
    assert handler.fn is not handle
    assert handler.id == handle.__qualname__
    assert handler.is_async


def test_errors_in_declarations_are_the_same() -> None:
    kopf = make_modules()["kopf"]
    with pytest.raises(TypeError, match="parentheses"):

        @kopf.on.startup
        async def start(**_: object) -> None: ...

    with pytest.raises(TypeError, match="yield"):

        @kopf.on.create("pods")
        async def create(**_: object) -> Any:
            yield


def test_backoffs_may_be_strings_as_in_environment_variables() -> None:
    kopf = make_modules()["kopf"]
    kopf.on.create("pods", backoff="1.5")(lambda **_: None)
    (handler,) = get_default_registry()
    assert handler.backoff == 1.5
    with pytest.raises(ValueError, match="backoff='soon': it must be a number"):
        kopf.on.create("pods", backoff="soon")


def test_what_cannot_work_says_why() -> None:
    kopf = make_modules()["kopf"]
    with pytest.raises(trioperator.LoginError, match=r"return a kopf\.ConnectionInfo"):
        kopf.AiohttpSession(server="https://localhost")


def test_handlers_with_the_fewest_attempts_come_first_by_default() -> None:
    kopf = make_modules()["kopf"]
    assert kopf.get_default_lifecycle() is kopf.lifecycles.asap
    try:
        kopf.set_default_lifecycle(kopf.lifecycles.all_at_once)
        assert kopf.get_default_lifecycle() is kopf.lifecycles.all_at_once
    finally:
        kopf.set_default_lifecycle(None)
    assert kopf.get_default_lifecycle() is kopf.lifecycles.asap


def test_dicts_of_kopf_can_be_made_by_their_names() -> None:
    kopf = make_modules()["kopf"]
    assert kopf.RawBody(kind="Pod", metadata={}) == {"kind": "Pod", "metadata": {}}
    assert kopf.RawEvent(type="ADDED", object={}) == {"type": "ADDED", "object": {}}
    assert kopf.UserInfo(username="me", uid="1", groups=[]) == {"username": "me", "uid": "1", "groups": []}
