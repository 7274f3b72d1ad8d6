"""Loading the connection: from kubeconfig files, or from the service account of a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from trioperator.errors import ConfigError
from trioperator.kube.connection import load_connection, load_service_account

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


def test_paths_come_before_the_environment(tmp_path: Path, pod: Path) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    info = load_connection([path], environ={"KUBECONFIG": "/nowhere"}, service_account=pod)
    assert info.server == "https://from-file:6443"


def test_absent_paths_are_an_error(tmp_path: Path, pod: Path) -> None:
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


def test_the_service_account_works_with_ipv6_and_without_variables(pod: Path) -> None:
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


def test_no_configuration_at_all_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No cluster is configured: there is no .*/config; and there is no service"):
        load_connection(environ={"HOME": str(tmp_path)}, service_account=tmp_path / "sa")
    with pytest.raises(ConfigError, match=r"/nowhere \(from \$KUBECONFIG\) does not exist"):
        load_connection(environ={"KUBECONFIG": "/nowhere"}, service_account=tmp_path / "sa")


def test_a_context_is_never_replaced_by_the_service_account(tmp_path: Path, pod: Path) -> None:
    with pytest.raises(ConfigError):
        load_connection(context="prod", environ={"HOME": str(tmp_path)}, service_account=pod)
