"""Tests for :mod:`trioperator.client.library_logins`: libraries that handlers use are logged in as the operator is."""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.processes.conftest import environment
from tests.program import Program
from trioperator import ConnectionInfo
from trioperator._concurrency.clock import wall_now
from trioperator._kube.api_client import log_in
from trioperator._kube.credential_store import Login, login_with
from trioperator.apiserver import Cluster
from trioperator.client.library_logins import LIBRARIES, LibraryLogins
from trioperator.settings import OperatorSettings

INFO = ConnectionInfo(server="http://127.0.0.1:1", token="first")
MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: default}
data: {key: value}
"""
# As in the walk-through of Kopf's documentation: no configuration is loaded.
WALKTHROUGH = """
import kubernetes
import IMPORTED as kopf

@kopf.on.create("configmaps", when=lambda name, **_: name == "one")
def create_fn(name, namespace, logger, **_):
    api = kubernetes.client.CoreV1Api()
    logger.info("Found %s.", api.read_namespaced_config_map(name, namespace).data)
"""
OTHERS = """
import kopf
import kr8s
import kubernetes.aio
import kubernetes_asyncio
import lightkube
import pykube
from lightkube.resources.core_v1 import ConfigMap

@kopf.on.create("configmaps", when=lambda name, **_: name == "one")
def use_sync(name, namespace, logger, **_):
    api = pykube.HTTPClient(pykube.KubeConfig.from_env())
    logger.info("pykube: %s", pykube.ConfigMap.objects(api).filter(namespace=namespace).get(name=name).obj["data"])
    logger.info("kr8s: %s", [each.raw["data"] for each in kr8s.get("configmaps", name, namespace=namespace)])
    logger.info("lightkube: %s", lightkube.Client().get(ConfigMap, name, namespace=namespace).data)

@kopf.on.create("configmaps", when=lambda name, **_: name == "one")
async def use_async(name, namespace, logger, **_):
    for library in (kubernetes_asyncio, kubernetes.aio):
        async with library.client.ApiClient() as api:
            found = await library.client.CoreV1Api(api).read_namespaced_config_map(name, namespace)
            logger.info("%s: %s", library.__name__, found.data)
"""


def needs(*libraries: str) -> pytest.MarkDecorator:
    """Skip the test if a library is not installed (`nox -s clients` installs all)."""
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


def find_key(configuration: Any) -> str:
    """Return the token that clients with this configuration send; some compute it asynchronously."""
    result = configuration.get_api_key_with_prefix("BearerToken")
    if isinstance(result, str):
        return result
    with pytest.raises(StopIteration) as stop:
        result.send(None)
    return str(stop.value.value)


@pytest.fixture(params=LIBRARIES)
def configuration(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Import each library, which has no default configuration, and yield its class of configurations."""
    if importlib.util.find_spec(request.param.split(".")[0]) is None:
        pytest.skip(f"{request.param} is not installed")
    try:
        found = importlib.import_module(f"{request.param}.client").Configuration
    except ModuleNotFoundError:
        pytest.skip(f"{request.param} is not installed")
    found.set_default(None)
    yield found
    found.set_default(None)


class Rotation:
    """Login whose credentials are others each time, and expire."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> Sequence[ConnectionInfo]:
        self.count += 1
        expiration = wall_now() + datetime.timedelta(minutes=10)
        return [ConnectionInfo(server=f"http://127.0.0.{self.count}", token=f"t{self.count}", expiration=expiration)]


async def use(cluster: Cluster, login: Login | None = None, **networking: Any) -> list[Any]:
    """Log libraries in for an hour, and return the defaults at its beginning and at its end: address and token."""
    settings, found = OperatorSettings(), list[Any]()
    for name, value in networking.items():
        setattr(settings.networking, name, value)
    async with (
        log_in(login or login_with(INFO), settings=settings, transport=cluster.transport()) as kube,
        trio.open_nursery() as nursery,
    ):
        logins = LibraryLogins(kube)
        nursery.start_soon(kube.credentials.serve)
        await nursery.start(logins.serve)
        found.append(_read_defaults())
        await trio.sleep(3600)
        found.append(_read_defaults())
        nursery.cancel_scope.cancel(reason="test ended")
    logins.log_out()
    return found


def _read_defaults() -> dict[str, tuple[str, str]]:
    defaults = {}
    for name in LIBRARIES:
        module = sys.modules.get(f"{name}.client")
        if module is not None and module.Configuration._default is not None:
            copied = module.Configuration.get_default_copy()
            defaults[name] = copied.host, find_key(copied)
    return defaults


def name_of(configuration: Any) -> str:
    return str(configuration.__module__).partition(".client")[0]


async def test_a_library_that_was_imported_gets_the_operators_credentials(
    cluster: Cluster, configuration: Any, autojump_clock: MockClock
) -> None:
    found = await use(cluster)
    assert found[0][name_of(configuration)] == ("http://127.0.0.1:1", "Bearer first")
    assert configuration._default is None, "the end of the operator is the end of its login"


async def test_clients_get_credentials_that_were_renewed(
    cluster: Cluster, configuration: Any, autojump_clock: MockClock
) -> None:
    login = Rotation()
    first, last = await use(cluster, login)
    name = name_of(configuration)
    assert first[name] == ("http://127.0.0.1", "Bearer t1")
    assert login.count > 3
    assert last[name] == (f"http://127.0.0.{login.count}", f"Bearer t{login.count}")


async def test_another_operator_of_the_process_logs_libraries_in_when_the_first_one_has_stopped(
    cluster: Cluster, configuration: Any
) -> None:
    other, name = ConnectionInfo(server="http://127.0.0.1:2", token="second"), name_of(configuration)
    async with (
        log_in(login_with(INFO), settings=OperatorSettings(), transport=cluster.transport()) as one,
        log_in(login_with(other), settings=OperatorSettings(), transport=cluster.transport()) as another,
        trio.open_nursery() as nursery,
    ):
        first, second = LibraryLogins(one), LibraryLogins(another)
        for logins in (first, second):
            await nursery.start(logins.serve)
        assert _read_defaults()[name] == ("http://127.0.0.1:1", "Bearer first")
        first.log_out()
        assert _read_defaults()[name] == ("http://127.0.0.1:2", "Bearer second")
        second.log_out()
        assert configuration._default is None
        nursery.cancel_scope.cancel(reason="test ended")


async def test_clients_that_exist_send_the_current_token(
    cluster: Cluster, configuration: Any, tmp_path: pathlib.Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    info = ConnectionInfo(server="http://127.0.0.1:1", token_file=token)
    async with log_in(login_with(info), settings=OperatorSettings(), transport=cluster.transport()) as kube:
        async with trio.open_nursery() as nursery:
            logins = LibraryLogins(kube)
            await nursery.start(logins.serve)
            used = configuration.get_default_copy()
            for text in ("first", "second"):
                token.write_text(text)
                assert find_key(used) == f"Bearer {text}"
                assert used.api_key["authorization"] == f"Bearer {text}", "the key of kubernetes until version 36"
            nursery.cancel_scope.cancel(reason="test ended")
        logins.log_out()


async def test_a_library_that_is_configured_keeps_its_configuration(
    cluster: Cluster, configuration: Any, autojump_clock: MockClock
) -> None:
    configuration.set_default(configuration(host="http://127.0.0.9", api_key={"BearerToken": "own"}))
    for found in await use(cluster):
        assert found[name_of(configuration)] == ("http://127.0.0.9", "own")
    assert configuration._default is not None


async def test_a_setting_switches_the_login_of_libraries_off(
    cluster: Cluster, configuration: Any, autojump_clock: MockClock
) -> None:
    assert await use(cluster, login_libraries=False) == [{}, {}]


async def test_credentials_that_a_library_cannot_have_are_a_warning(
    cluster: Cluster, configuration: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    info = ConnectionInfo(server="http://127.0.0.1:1", scheme="Digest", token="x")
    assert await use(cluster, login_with(info)) == [{}, {}]
    assert f"The library {name_of(configuration)} is not logged in" in caplog.text


def test_no_library_is_imported_for_it(tmp_path: pathlib.Path) -> None:
    source = f"import sys, trioperator.client.session; print([n for n in {LIBRARIES} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", source], env=environment(tmp_path), capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def run_embedded(home: pathlib.Path, module: str, source: str, *, until: str) -> str:
    """Run an operator with an object, and return its log."""
    (home / "app.py").write_text(source)
    (home / "one.yaml").write_text(MANIFEST)
    command = [sys.executable, "-W", "ignore", "-m", module, "run", "-A", "--embedded", "--apply=one.yaml", "app.py"]
    with (home / "log").open("wb") as log:
        env = environment(home)
        with subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                operator = Program(process, home / "log")
                operator.wait_for(until)
                assert operator.stop() == 0
            finally:
                process.kill()
    return operator.output


@needs("kubernetes")
@pytest.mark.parametrize(("module", "imported"), [("trioperator", "trioperator"), ("trioperator.kopf", "kopf")])
def test_the_walkthrough_runs_as_it_stands(tmp_path: pathlib.Path, module: str, imported: str) -> None:
    log = run_embedded(tmp_path, module, WALKTHROUGH.replace("IMPORTED", imported), until="Handler 'create_fn' ")
    assert "Found {'key': 'value'}." in log, log


@needs("kubernetes", "kubernetes_asyncio", "pykube", "kr8s", "lightkube")
def test_all_libraries_are_logged_in_in_handlers(tmp_path: pathlib.Path) -> None:
    log = run_embedded(tmp_path, "trioperator.kopf", OTHERS, until="Creation is processed")
    for library in ("pykube", "kr8s", "lightkube", "kubernetes_asyncio", "kubernetes.aio"):
        assert f"{library}: " in log, log
    assert log.count("{'key': 'value'}") == 5
