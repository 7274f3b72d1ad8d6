"""Connections: their fields, their secrets, and where they are found."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from trioperator.errors import ConfigError
from trioperator.kube.connection import ConnectionInfo, decode_pem, load_connection, load_service_account

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: a}}]
clusters: [{name: a, cluster: {server: "https://from-file:6443"}}]
"""


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("t0ken\n")
    (folder / "ca.crt").write_text(PEM)
    (folder / "namespace").write_text("home")
    return folder


@pytest.mark.parametrize("what", ["ca", "certificate", "private_key"])
def test_a_path_and_data_for_the_same_thing_are_refused(what: str) -> None:
    with pytest.raises(ConfigError, match=rf"Both {what}_path and {what}_data"):
        ConnectionInfo(server="https://x", **{f"{what}_path": "/x", f"{what}_data": PEM})  # type: ignore[arg-type]


def test_a_key_without_a_certificate_is_refused_and_so_is_the_opposite() -> None:
    with pytest.raises(ConfigError, match=r"without its certificate"):
        ConnectionInfo(server="https://x", private_key_data=PEM)
    with pytest.raises(ConfigError, match=r"without its private key"):
        ConnectionInfo(server="https://x", certificate_data=PEM)


def test_secrets_are_not_shown() -> None:
    info = ConnectionInfo(
        server="https://x",
        token="s3cret",
        password="s3cret",
        username="me",
        private_key_data="s3cret",
        certificate_data="s3cret",
        proxy_url="http://user:s3cret@proxy",
    )
    assert "s3cret" not in repr(info)
    assert "s3cret" not in f"{info}"
    assert "server='https://x'" in repr(info)
    assert "username='me'" in repr(info)


def test_fields_that_are_not_set_are_not_shown() -> None:
    assert repr(ConnectionInfo(server="https://x")) == "ConnectionInfo(server='https://x')"


def test_a_token_is_a_bearer_token_by_default() -> None:
    assert ConnectionInfo(server="s", token="abc").authorization() == "Bearer abc"
    assert ConnectionInfo(server="s", token="abc", scheme="Custom").authorization() == "Custom abc"


def test_a_user_and_a_password_are_basic_authorization() -> None:
    value = ConnectionInfo(server="s", username="ünser", password="p:w").authorization()
    assert value is not None
    scheme, _, pair = value.partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(pair).decode() == "ünser:p:w"


def test_without_credentials_there_is_no_authorization() -> None:
    assert ConnectionInfo(server="s").authorization() is None
    assert ConnectionInfo(server="s", scheme="Negotiate").authorization() == "Negotiate"


def test_a_token_file_wins_over_a_token_and_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    info = ConnectionInfo(server="s", token="old", token_file=path)
    assert info.authorization() == "Bearer one"
    path.write_text("two")
    assert info.authorization() == "Bearer two"
    path.unlink()
    assert info.authorization() == "Bearer old"


def test_an_unreadable_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.*No such file"):
        ConnectionInfo(server="s", token_file=tmp_path / "gone").authorization()


def test_a_token_cannot_smuggle_headers_in() -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectionInfo(server="s", token="s3cret\r\nX-Evil: 1").authorization()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [PEM, PEM.encode(), base64.b64encode(PEM.encode()), base64.encodebytes(PEM.encode() * 9).decode()]
)
def test_data_is_pem_or_base64_text_or_bytes(data: str | bytes) -> None:
    assert decode_pem(data, "x").startswith(PEM)


@pytest.mark.parametrize("data", ["", "???", "YWJj", b"\xff\xfe", base64.b64encode(b"\xff\xff").decode()])
def test_data_that_is_no_pem_is_refused(data: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"neither PEM"):
        decode_pem(data, "x")


def test_paths_come_before_the_environment(tmp_path: Path, pod: Path) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    info = load_connection([path], environ={"KUBECONFIG": "/nowhere"}, service_account=pod)
    assert info.server == "https://from-file:6443"


def test_paths_that_are_not_there_are_an_error(tmp_path: Path, pod: Path) -> None:
    with pytest.raises(ConfigError, match=r"no kubeconfig at .*absent"):
        load_connection([tmp_path / "absent"], environ={}, service_account=pod)


def test_the_environment_names_files(tmp_path: Path, pod: Path) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    info = load_connection(environ={"KUBECONFIG": f":{tmp_path}/absent::{path}"}, service_account=pod)
    assert info.server == "https://from-file:6443"


def test_the_home_folder_has_the_default_file(tmp_path: Path, pod: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(KUBECONFIG)
    info = load_connection(environ={"HOME": str(tmp_path)}, service_account=pod)
    assert info.server == "https://from-file:6443"


def test_in_a_pod_it_is_the_service_account(tmp_path: Path, pod: Path) -> None:
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    info = load_connection(environ=environ, service_account=pod)
    assert info.server == "https://10.0.0.1:6443"
    assert info.default_namespace == "home"
    assert info.ca_path == pod / "ca.crt"
    assert info.authorization() == "Bearer t0ken"
    assert set(info.paths) == {pod / "token", pod / "ca.crt"}


def test_the_service_account_works_with_ipv6_and_with_no_variables(pod: Path) -> None:
    info = load_service_account(pod, environ={"KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert info.server == "https://[fd00::1]:443"
    assert load_service_account(pod, environ={}).server == "https://kubernetes.default.svc:443"


def test_a_service_account_needs_a_token(pod: Path) -> None:
    (pod / "token").write_text(" \n")
    with pytest.raises(ConfigError, match=r"is empty"):
        load_service_account(pod, environ={})
    (pod / "token").unlink()
    with pytest.raises(ConfigError, match=r"Cannot read the service account's token"):
        load_service_account(pod, environ={})


def test_nothing_at_all_is_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no way to a cluster: there is no .*\.kube/config; and there is no service"):
        load_connection(environ={"HOME": str(tmp_path)}, service_account=tmp_path / "sa")
    with pytest.raises(ConfigError, match=r"\$KUBECONFIG names /nowhere, which is not there"):
        load_connection(environ={"KUBECONFIG": "/nowhere"}, service_account=tmp_path / "sa")


def test_a_context_is_not_looked_for_in_a_pod(tmp_path: Path, pod: Path) -> None:
    with pytest.raises(ConfigError):
        load_connection(context="prod", environ={"HOME": str(tmp_path)}, service_account=pod)
