"""Loading the connection: from kubeconfig files, or from the service account of a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from trioperator._kube.connection import load_connection, load_service_account
from trioperator._kube.connection_info import ContextChoice
from trioperator.errors import ConfigError

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
    with pytest.raises(ConfigError, match=r"configured: there is no kubeconfig at .*/config; and there is no service"):
        load_connection(environ={"HOME": str(tmp_path)}, service_account=tmp_path / "sa")
    with pytest.raises(ConfigError, match=r"/nowhere \(from \$KUBECONFIG\) does not exist"):
        load_connection(environ={"KUBECONFIG": "/nowhere"}, service_account=tmp_path / "sa")
    with pytest.raises(ConfigError, match=r"configured: there is no kubeconfig at .*/config; and there is no service"):
        load_connection(environ={"KUBECONFIG": ":", "HOME": str(tmp_path)}, service_account=tmp_path / "sa")


def test_a_context_is_never_replaced_by_the_service_account(tmp_path: Path, pod: Path) -> None:
    with pytest.raises(ConfigError):
        load_connection(context="prod", environ={"HOME": str(tmp_path)}, service_account=pod)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("kind: Config\n", "defines no clusters, users or contexts"),
        ("clusters: []\nusers: null\n", "defines no clusters, users or contexts"),
    ],
)
def test_a_file_that_defines_nothing_is_not_called_absent(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    expected = (
        rf"^No cluster is configured: {path} \(from \$KUBECONFIG\) {problem};"
        r" and there is no service account in .*/sa\. Set \$KUBECONFIG; trioperator run --embedded needs no cluster\.$"
    )
    with pytest.raises(ConfigError, match=expected):
        load_connection(environ={"KUBECONFIG": f"{path}:/nowhere"}, service_account=tmp_path / "sa")
    with pytest.raises(ConfigError, match=f"^No cluster is configured: {path} {problem}.$"):
        load_connection([path], environ={}, service_account=tmp_path / "sa")


def test_a_file_that_defines_nothing_leaves_the_service_account(tmp_path: Path, pod: Path) -> None:
    path = tmp_path / "config"
    path.write_text("kind: Config\n")
    assert load_connection(environ={"KUBECONFIG": str(path)}, service_account=pod).token_file == pod / "token"


@pytest.mark.parametrize("content", [None, "", "kind: Config\n"])
def test_a_client_of_a_kubeconfig_never_moves_to_the_service_account(
    content: str | None, tmp_path: Path, pod: Path
) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    environ = {"KUBECONFIG": str(path)}
    with ContextChoice().applying():
        assert load_connection(environ=environ, service_account=pod).server == "https://from-file:6443"
        path.unlink()  # while the file is rewritten
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigError, match=r"^The context 'c', which was used before, is not in .*/config any more"):
            load_connection(environ=environ, service_account=pod)
        path.write_text(KUBECONFIG)
        assert load_connection(environ=environ, service_account=pod).server == "https://from-file:6443"


def test_a_chosen_context_without_a_file_does_not_mention_the_service_account(tmp_path: Path, pod: Path) -> None:
    with pytest.raises(ConfigError, match=r"^No context 'prod' is configured: there is no kubeconfig at .*/config\.$"):
        load_connection(context="prod", environ={"HOME": str(tmp_path)}, service_account=pod)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("contexts: [{name: c, context: {cluster: a}}]", "", "There is no context 'c' in .*; available: none"),
        ("cluster: a}}", "cluster: b}}", "context 'c' refers to the cluster 'b', which is not defined"),
        ("{cluster: a}", "{cluster: a, user: u}", "context 'c' refers to the user 'u', which is not defined"),
        ("{cluster: a}", "", "context 'c' has no cluster"),
        ("current-context: c", "", r"No current context is set in .*use-context NAME`; available: c"),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: a}}]",
            "",
            "No context is defined in .*set-context",
        ),
    ],
)
def test_a_file_that_is_incomplete_is_one_clear_line(
    tmp_path: Path, pod: Path, old: str, new: str, problem: str
) -> None:
    path = tmp_path / "config"
    assert old in KUBECONFIG
    path.write_text(KUBECONFIG.replace(old, new))
    with pytest.raises(ConfigError, match=problem) as caught:
        load_connection(environ={"KUBECONFIG": str(path)}, service_account=pod)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
