"""Exec plugins, as real processes: what they get, what they print, and all the ways in which they fail."""

from __future__ import annotations

import base64
import datetime
import functools
import json
import logging
import os
import select
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from trioperator._kube.api_client import open_client
from trioperator._kube.connection import load_connection
from trioperator._kube.exec_plugin import describe_cluster, parse_exec_plugin, run_exec_plugin
from trioperator.apiserver import Cluster, User
from trioperator.apiserver.server import serve_cluster
from trioperator.errors import ConfigError, LoginError
from trioperator.settings import OperatorSettings

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
SECRET = "ey" + "J0b2tlbg" * 8


def script(tmp_path: Path, text: str, name: str = "login") -> Path:
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def credential(version: str = V1, kind: str = "ExecCredential", **status: Any) -> str:
    return json.dumps({"kind": kind, "apiVersion": version, "status": status})


def run(tmp_path: Path, text: str, cluster: dict[str, Any] | None = None, **section: Any) -> dict[str, Any]:
    script(tmp_path, text)
    section = {"apiVersion": V1, "command": "./login", "interactiveMode": "Never", **section}
    return run_exec_plugin(parse_exec_plugin(section, folder=tmp_path), cluster or {})


def test_a_plugin_provides_a_token_with_its_expiration(tmp_path: Path) -> None:
    output = credential(token="t", expirationTimestamp="2030-01-02T03:04:05Z")
    fields = run(tmp_path, f"echo '{output}'")
    assert fields == {"token": "t", "expiration": datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)}


def test_a_plugin_provides_a_certificate_with_its_key(tmp_path: Path) -> None:
    output = credential(V1BETA1, clientCertificateData="CERT", clientKeyData="KEY")
    fields = run(tmp_path, f"echo '{output}'", apiVersion=V1BETA1, interactiveMode=None)
    assert fields == {"certificate_data": "CERT", "private_key_data": "KEY"}


def test_a_plugin_gets_its_arguments_and_environment_and_no_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "in")
    monkeypatch.setenv("CHANGED", "old")
    text = f"""echo '{credential(token="t")}'; echo "$*|$INHERITED|$CHANGED|$(cat)|" > {tmp_path}/seen"""
    env = [{"name": "CHANGED", "value": "new"}]
    assert run(tmp_path, text, args=["get token", "--now"], env=env) == {"token": "t"}
    assert (tmp_path / "seen").read_text() == "get token --now|in|new||\n"


@pytest.mark.parametrize("provide", [True, False])
def test_a_plugin_gets_the_cluster_if_it_is_to(tmp_path: Path, provide: bool) -> None:
    text = f"""echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/seen; echo '{credential(token="t")}'"""
    cluster = describe_cluster(
        {"server": "https://host", "ca_data": PEM, "insecure": None, "tls_server_name": "name"}, {"audience": "a"}
    )
    run(tmp_path, text, cluster, provideClusterInfo=provide)
    info = json.loads((tmp_path / "seen").read_text())
    assert (info["kind"], info["apiVersion"], info["spec"].pop("interactive")) == ("ExecCredential", V1, False)
    expected = {
        "server": "https://host",
        "tls-server-name": "name",
        "certificate-authority-data": base64.b64encode(PEM.encode()).decode(),
        "config": {"audience": "a"},
    }
    assert info["spec"] == ({"cluster": expected} if provide else {})


def test_the_cluster_has_the_certificate_authority_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("CA")
    assert describe_cluster({"server": "s", "ca_path": path}, None) == {
        "server": "s",
        "certificate-authority-data": "Q0E=",
    }
    with pytest.raises(ConfigError, match=r"absent cannot be read"):
        describe_cluster({"server": "s", "ca_path": tmp_path / "absent"}, None)


def test_a_plugin_without_a_slash_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", f"echo '{credential(token='t')}'", name="cloud-login")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert run(tmp_path, "", command="cloud-login") == {"token": "t"}


FAILURES = {
    "fails": ("echo 'no session:  run' >&2; echo sso-login >&2; exit 3", r"exit code 3: no session: run sso-login$"),
    "silent": ("exit 1", r"exit code 1, and printed nothing on stderr\.$"),
    "killed": ("kill -9 $$", r"exit code -9"),
    "nothing": ("true", "did not print an ExecCredential"),
    "nonsense": ("echo please log in; echo hint >&2", "did not print an ExecCredential: hint"),
    "list": ("echo '[]'", "did not print an ExecCredential"),
    "binary": (r"printf '\377\376'", "did not print an ExecCredential"),
    "deep": (r"""printf '{"x": '; head -c 5000 /dev/zero | tr '\0' '['""", "did not print an ExecCredential"),
    "number": (f"echo '{credential(token=5)}'", "did not print an ExecCredential"),
    "time": (f"echo '{credential(token='t', expirationTimestamp='soon')}'", "did not print an ExecCredential"),
    "version": (f"echo '{credential(V1BETA1, token='t')}'", rf"another kind or version than .* {V1} that it is"),
    "kind": (f"echo '{credential(kind='Status', token='t')}'", "another kind or version"),
    "no status": (f"""echo '{{"kind": "ExecCredential", "apiVersion": "{V1}"}}'""", "neither a token nor a cert"),
    "empty": (f"echo '{credential()}'", "neither a token nor a certificate"),
    "half": (f"echo '{credential(clientCertificateData='c')}'", "a certificate or a key, but not both"),
    "endless": ("while :; do echo 0123456789012345678901234567890123456789; done", "printed more than 65536 bytes"),
    "endless errors": ("while :; do echo 0123456789 >&2; done", "printed more than 65536 bytes"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_plugin_that_fails_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("trioperator._kube.exec_plugin._OUTPUT_LIMIT", 65536)
    text, message = FAILURES[name]
    with pytest.raises(LoginError, match=message) as caught:
        run(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "'./login'" in str(caught.value)


@pytest.mark.parametrize("text", ["sleep 60", "sleep 60 & exit 0", "sleep 60 & wait"])
def test_a_plugin_that_hangs_is_killed_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("trioperator._kube.exec_plugin._TIMEOUT", 0.5)
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(LoginError, match=r"has not ended within 0\.5 s: waiting for you$"):
            run(tmp_path, f"exec 9> {tmp_path}/alive; echo waiting for you >&2; {text}")
        ready, _, _ = select.select([alive], [], [], 20)
        assert ready == [alive]  # at its end, as no process has it open for writing
        assert os.read(alive, 1) == b""
    finally:
        os.close(alive)


def test_a_plugin_that_hangs_ends_with_the_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    script(tmp_path, f"exec 9> {tmp_path}/alive; echo >&9; sleep 60 & wait")
    section = {"apiVersion": V1, "command": "./login", "interactiveMode": "Never"}
    program = f"""
import pathlib, sys, threading
from trioperator._kube.exec_plugin import parse_exec_plugin, run_exec_plugin
plugin = parse_exec_plugin({section}, folder=pathlib.Path({str(tmp_path)!r}))
threading.Thread(target=run_exec_plugin, args=(plugin, {{}}), daemon=True).start()
sys.stdin.read()
"""
    try:
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
            select.select([alive], [], [], 20)
            assert os.read(alive, 1) == b"\n"
            process.communicate(timeout=20)
        ready, _, _ = select.select([alive], [], [], 20)
        assert ready == [alive]  # at its end, as no process has it open for writing
        assert os.read(alive, 1) == b""
    finally:
        os.close(alive)


def test_a_plugin_that_is_missing_is_named_with_its_hint(tmp_path: Path) -> None:
    with pytest.raises(LoginError, match=r"'nowhere' is not installed: it is not on \$PATH\. Install it\.$"):
        run(tmp_path, "", command="nowhere")
    with pytest.raises(LoginError, match=r"\$PATH\. Get it from our site: https://x$"):
        run(tmp_path, "", command="nowhere", installHint="Get it\nfrom our site: https://x\n")
    with pytest.raises(LoginError, match=r"'\./absent' is not installed: .*/absent does not exist"):
        run(tmp_path, "", command="./absent")


def test_a_plugin_that_cannot_be_executed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    with pytest.raises(LoginError, match=r"'\./data' cannot be run: Permission denied"):
        run(tmp_path, "", command="./data")


def test_secrets_are_in_no_message_and_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    output = credential(V1BETA1, token=SECRET)
    text = f"""echo '{output}'; echo "got $PASSWORD and {SECRET} $PIN" >&2"""
    env = [{"name": "PASSWORD", "value": "s3cret"}, {"name": "PIN", "value": "11"}]
    for more in ("", "; exit 1", "; sleep 60 > /dev/null 2>&1 & kill -9 $$"):
        with pytest.raises(LoginError, match=r"got … and … 11$") as caught:
            run(tmp_path, text + more, env=env)
        assert "s3cret" not in str(caught.value)
        assert SECRET not in str(caught.value)
    assert "s3cret" not in caplog.text


def test_the_end_of_long_errors_is_shown(tmp_path: Path) -> None:
    with pytest.raises(LoginError) as caught:
        run(tmp_path, "for i in $(seq 1000); do echo error $i >&2; done; exit 1")
    assert str(caught.value).endswith("error 999 error 1000")
    assert len(str(caught.value)) < 400


BROKEN: dict[str, tuple[Any, str]] = {
    "text": ("login", "exec is not a mapping"),
    "version": ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, r"v1alpha1', which is not supported: use cl"),
    "no version": ({"apiVersion": None}, "apiVersion is None"),
    "command": ({"command": ""}, "command is missing"),
    "args": ({"args": [1]}, "args is not a list of strings"),
    "env": ({"env": {"A": "b"}}, "env is not a list"),
    "env item": ({"env": [{"name": "A"}]}, "env has an item without a name and a value"),
    "no mode": ({"interactiveMode": None}, "interactiveMode is None: it must be Never"),
    "mode": ({"interactiveMode": "Sometimes"}, "interactiveMode is 'Sometimes'"),
    "interactive": ({"interactiveMode": "Always"}, "an operator has no terminal: configure the plugin without"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_invalid_section_is_an_error(tmp_path: Path, name: str) -> None:
    section, message = BROKEN[name]
    if isinstance(section, dict):
        section = {"apiVersion": V1, "command": "x", "interactiveMode": "Never", **section}
    with pytest.raises(ConfigError, match=message):
        parse_exec_plugin(section, folder=tmp_path)


class TestServer:
    """Clients whose kubeconfig has a plugin, and the embedded API server over TCP and TLS."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        return Cluster(tokens={f"token-{number}": User(name=f"user-{number}") for number in (1, 2, 3)})

    async def test_a_token_that_expires_is_replaced_by_the_plugin(
        self, nursery: trio.Nursery, cluster: Cluster, tmp_path: Path
    ) -> None:
        text = f"""
            echo x >> {tmp_path}/calls; number=$(wc -l < {tmp_path}/calls | tr -d ' ')
            expires=$(date -u -d '+1 second' +%Y-%m-%dT%H:%M:%S.%NZ)
            printf '{{"kind": "ExecCredential", "apiVersion": "{V1}",
                "status": {{"token": "token-%s", "expirationTimestamp": "%s"}}}}' $number $expires
        """
        url = await nursery.start(functools.partial(serve_cluster, cluster, anonymous=False))
        path = write_kubeconfig(tmp_path, cluster, url, text)
        async with open_client(lambda: load_connection([path]), settings=OperatorSettings()) as client:
            await client.get("/api/v1/namespaces")
            await client.get("/api/v1/namespaces")
            await trio.sleep(1.1)
            await client.get("/api/v1/namespaces")
        assert [record.user for record in cluster.requests] == ["user-1", "user-1", "user-2"]

    async def test_a_token_that_is_rejected_is_replaced_by_the_plugin(
        self, nursery: trio.Nursery, cluster: Cluster, tmp_path: Path
    ) -> None:
        text = f"""
            echo x >> {tmp_path}/calls; number=$(wc -l < {tmp_path}/calls | tr -d ' ')
            printf '{{"kind": "ExecCredential", "apiVersion": "{V1}", "status": {{"token": "token-%s"}}}}' $((number-1))
        """
        url = await nursery.start(functools.partial(serve_cluster, cluster, anonymous=False))
        path = write_kubeconfig(tmp_path, cluster, url, text)
        async with (
            open_client(lambda: load_connection([path]), settings=OperatorSettings()) as client,
            trio.open_nursery() as requests,
        ):
            for _ in range(100):
                requests.start_soon(client.get, "/api/v1/namespaces")
        assert cluster.requests.count(status=401) == cluster.requests.count(user="user-1") == 100
        assert (tmp_path / "calls").read_text() == "x\nx\n"

    async def test_a_client_certificate_comes_from_the_plugin(
        self, nursery: trio.Nursery, cluster: Cluster, tmp_path: Path
    ) -> None:
        pytest.importorskip("trustme")
        certificate, key = cluster.ca.issue(User(name="anna"))
        status = {"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()}
        (tmp_path / "output").write_text(json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status}))
        url = await nursery.start(functools.partial(serve_cluster, cluster, tls=True, anonymous=False))
        path = write_kubeconfig(tmp_path, cluster, url, f"cat {tmp_path}/output")
        async with open_client(lambda: load_connection([path]), settings=OperatorSettings()) as client:
            await client.get("/api/v1/namespaces")
        assert [record.user for record in cluster.requests] == ["anna"]


def write_kubeconfig(tmp_path: Path, cluster: Cluster, url: str, text: str) -> Path:
    """Write a kubeconfig with a plugin."""
    script(tmp_path, text)
    config = cluster.kubeconfig(url)
    config["users"][0]["user"] = {"exec": {"apiVersion": V1, "command": "./login", "interactiveMode": "Never"}}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_a_program_in_the_current_directory_is_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    program = tmp_path / entry / "cloud-login"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{entry}:/usr/bin:/bin")
    with pytest.raises(LoginError, match=r"'cloud-login' is not installed: it is not on \$PATH"):
        run(tmp_path, "", command="cloud-login")
