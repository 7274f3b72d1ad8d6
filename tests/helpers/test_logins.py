"""Logins for login handlers, with the client libraries that are installed: the session `clients` has all of them."""

from __future__ import annotations

import base64
import importlib.util
import inspect
import json
import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trioperator
from trioperator._kube.connection_info import ContextChoice
from trioperator._kube.tls_config import read_tls_config
from trioperator._logs import get_logger

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
VIA = {
    "login_via_client": ("kubernetes", 10),
    "login_via_async_client": ("kubernetes_asyncio", 15),
    "login_via_kr8s": ("kr8s", 15),
    "login_via_pykube": ("pykube", 20),
}
ALL = {**VIA, "login_with_kubeconfig": (None, 10)}

pytestmark = pytest.mark.filterwarnings("default:::(kubernetes|kubernetes_asyncio|kr8s|pykube)")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide the machine's own configuration."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("trioperator._kube.connection.SERVICE_ACCOUNT", tmp_path / "serviceaccount")
    return tmp_path


@pytest.fixture
def kubeconfig(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def write(**user: Any) -> None:
        cluster = {
            "server": "https://host:6443",
            "certificate-authority-data": base64.b64encode(CA.encode()).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ns"}}],
        }
        (home / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(home / "config"))
        if importlib.util.find_spec("kubernetes"):  # it reads the variable when it is imported
            monkeypatch.setattr(
                "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(home / "config"), raising=True
            )
        if importlib.util.find_spec("kubernetes_asyncio"):
            monkeypatch.setattr(
                "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(home / "config")
            )

    return write


async def login(name: str, **kwargs: Any) -> trioperator.ConnectionInfo | None:
    """Call a login as a login handler does, with all its arguments."""
    settings = trioperator.OperatorSettings()
    settings.networking.trust_env = True
    given = {"logger": get_logger("tests"), "settings": settings, "memo": None, "retry": 0, **kwargs}
    result: Any = getattr(trioperator, name)(**given)
    info: trioperator.ConnectionInfo | None = await result if inspect.isawaitable(result) else result
    return info


def skip_without(library: str | None) -> None:
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize("name", ALL)
async def test_a_token_and_a_certificate_authority_come_from_a_kubeconfig(
    kubeconfig: Callable[..., None], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    library, priority = ALL[name]
    skip_without(library)
    kubeconfig(token="t0ken")
    caplog.set_level(logging.DEBUG)
    info = await login(name)
    assert info is not None
    assert info.server == "https://host:6443"
    assert info.authorization() in ("Bearer t0ken", "bearer t0ken")
    assert read_tls_config(info).ca == CA
    assert (info.priority, info.trust_env, info.insecure or False) == (priority, True, False)
    assert "t0ken" not in caplog.text


@pytest.mark.parametrize("name", ALL)
async def test_later_logins_of_a_client_stay_with_the_context_that_was_the_current_one_at_first(
    home: Path, kubeconfig: Callable[..., None], name: str
) -> None:
    skip_without(ALL[name][0])
    kubeconfig(token="t0ken")
    with ContextChoice().applying():
        first = await login(name)
        config = json.loads((home / "config").read_text())
        config["clusters"].append({"name": "other", "cluster": {"server": "https://other:6443"}})
        config["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "u"}})
        config["current-context"] = "other"
        (home / "config").write_text(json.dumps(config))
        again = await login(name)
    elsewhere = await login(name)
    assert first is not None
    assert again is not None
    assert elsewhere is not None
    assert (first.server, again.server, elsewhere.server) == ("https://host:6443", first.server, "https://other:6443")


async def test_older_official_clients_have_the_token_under_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class Configuration:
        """What version 35 has of it, where a key has no alias."""

        host, verify_ssl, ssl_ca_cert, cert_file, key_file = "https://host:6443", True, None, None, None
        username = password = proxy = ""
        get_default_copy = classmethod(lambda cls: cls())

        def get_api_key_with_prefix(self, identifier: str) -> str | None:
            return {"authorization": "Bearer t0ken"}.get(identifier)

    config = types.SimpleNamespace(ConfigException=ValueError, load_incluster_config=lambda: None)
    monkeypatch.setitem(sys.modules, "kubernetes", types.ModuleType("kubernetes"))
    monkeypatch.setitem(sys.modules, "kubernetes.config", config)
    monkeypatch.setitem(sys.modules, "kubernetes.client", types.SimpleNamespace(Configuration=Configuration))
    info = await login("login_via_client")
    assert info is not None
    assert info.authorization() == "Bearer t0ken"


@pytest.mark.parametrize("name", ALL)
async def test_tokens_of_exec_plugins_are_used(home: Path, kubeconfig: Callable[..., None], name: str) -> None:
    library, _ = ALL[name]
    skip_without(library)
    if library == "pykube":
        pytest.skip("pykube knows no v1, and sends a request to get the token")
    status = {"token": "from-plugin"}
    version = "client.authentication.k8s.io/v1"
    output = json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": status})
    (home / "login").write_text(f"#!/bin/sh\necho '{output}'\n")
    (home / "login").chmod(0o700)
    kubeconfig(exec={"apiVersion": version, "command": str(home / "login"), "interactiveMode": "Never"})
    info = await login(name)
    assert info is not None
    assert (info.authorization() or "").lower() == "bearer from-plugin"


@pytest.mark.parametrize("name", VIA)
async def test_a_library_that_finds_no_configuration_is_an_error(
    home: Path, kubeconfig: Callable[..., None], name: str
) -> None:
    skip_without(VIA[name][0])
    kubeconfig(token="t")
    (home / "config").unlink()
    with pytest.raises(trioperator.LoginError, match=r"Cannot authenticate .* neither in-cluster, nor via kubeconfig"):
        await login(name)


@pytest.mark.parametrize("name", VIA)
async def test_a_library_that_is_not_installed_has_no_credentials(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(module: str) -> None:
        raise ModuleNotFoundError(name=module.partition(".")[0])

    assert getattr(trioperator, name)  # which is loaded on first use
    monkeypatch.setattr("trioperator.helpers.logins.importlib.import_module", refuse)
    assert await login(name) is None


async def test_a_library_that_is_broken_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: str) -> None:
        raise ModuleNotFoundError("No module named 'urllib3'", name="urllib3")

    monkeypatch.setattr("trioperator.helpers.logins.importlib.import_module", fail)
    with pytest.raises(ImportError, match="urllib3"):
        await login("login_via_client")


async def test_pykube_gets_the_token_of_a_plugin_with_a_request(
    home: Path, kubeconfig: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = pytest.importorskip("requests")
    version = "client.authentication.k8s.io/v1beta1"
    output = json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": {"token": "from-plugin"}})
    (home / "login").write_text(f"#!/bin/sh\necho '{output}'\n")
    (home / "login").chmod(0o700)
    kubeconfig(exec={"apiVersion": version, "command": str(home / "login")})

    def answer(self: Any, request: Any, **_: Any) -> Any:
        response = requests.Response()
        response.status_code, response.request = 401, request
        return response

    monkeypatch.setattr("pykube.http.KubernetesHTTPAdapter._do_send", answer)
    info = await login("login_via_pykube")
    assert info is not None
    assert info.authorization() == "Bearer from-plugin"


async def test_a_service_account_is_used_in_a_pod(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await login("login_with_service_account") is None
    folder = home / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("t0ken\n")
    (folder / "ca.crt").write_text(CA)
    (folder / "namespace").write_text("home")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    info = await login("login_with_service_account")
    assert info is not None
    assert (info.server, info.default_namespace, info.priority) == ("https://10.0.0.1:443", "home", 20)
    assert info.authorization() == "Bearer t0ken"
    (folder / "token").write_text("rotated")
    assert info.authorization() == "Bearer rotated"


async def test_there_need_not_be_a_kubeconfig() -> None:
    assert await login("login_with_kubeconfig") is None


async def test_mistakes_in_a_kubeconfig_are_errors(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").write_text("clusters: 5")
    monkeypatch.setenv("KUBECONFIG", str(home / "config"))
    with pytest.raises(trioperator.ConfigError, match="clusters is not a list"):
        await login("login_with_kubeconfig")
