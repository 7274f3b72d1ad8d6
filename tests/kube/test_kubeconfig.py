"""Kubeconfig files: merged as kubectl does, and every mistake reported."""

from __future__ import annotations

import base64
import datetime
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.kubeconfig import load_kubeconfig
from trioperator.errors import ConfigError, LoginError

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()


def config(*, cluster: Any = None, user: Any = None, context: Any = None, **top: Any) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://host:6443"} if cluster is None else cluster}],
        "users": [{"name": "u", "user": {} if user is None else user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **(context or {})}}],
        **top,
    }


def load(tmp_path: Path, value: Any, *, context: str | None = None) -> ConnectionInfo:
    path = tmp_path / "config"
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    info = load_kubeconfig([path], context=context)
    assert info is not None
    return info


def test_the_current_context_is_used(tmp_path: Path) -> None:
    info = load(tmp_path, config(user={"token": "t"}, context={"namespace": "ns"}))
    assert info == ConnectionInfo(server="https://host:6443", token="t", default_namespace="ns")
    assert info.origin == f"context 'c' of {tmp_path / 'config'}, as user 'u'"


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    value = config()
    value["clusters"].append({"name": "k2", "cluster": {"server": "https://second"}})
    value["contexts"].append({"name": "c2", "context": {"cluster": "k2"}})
    assert load(tmp_path, value, context="c2").server == "https://second"


def test_absent_and_empty_files_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "hollow").write_text("kind: Config\nclusters: []\nusers: null\ncontexts: []\ncurrent-context: ''\n")
    assert load_kubeconfig([tmp_path / "absent", tmp_path / "empty", tmp_path / "hollow"]) is None


def test_the_first_value_wins_over_several_files(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "k", "cluster": {"server": "https://first"}}],
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            }
        )
    )
    second.write_text(yaml.safe_dump(config(user={"token": "second"})))
    info = load_kubeconfig([first, second])
    assert info is not None
    # The context and the cluster are the first file's, the user and current-context are only in the second.
    assert (info.server, info.token) == ("https://first", "second")
    # Entries are not merged within: what the first file says of a name is all there is.
    first.write_text(yaml.safe_dump({"users": [{"name": "u", "user": {"username": "me"}}], "current-context": "x"}))
    with pytest.raises(ConfigError, match=r"no context 'x'.*available: c"):
        load_kubeconfig([first, second])
    info = load_kubeconfig([first, second], context="c")
    assert info is not None
    assert (info.username, info.token) == ("me", None)


def test_within_one_file_the_first_of_a_name_wins_too(tmp_path: Path) -> None:
    value = config()
    value["clusters"].append({"name": "k", "cluster": {"server": "https://late"}})
    assert load(tmp_path, value).server == "https://host:6443"


def test_paths_are_relative_to_the_file_that_contains_them(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "pki").mkdir(parents=True)
    two.mkdir()
    (one / "pki" / "ca.pem").write_text(PEM)
    for name in ("cert.pem", "key.pem", "token"):
        (two / name).write_text(PEM)
    cluster = {"server": "https://h", "certificate-authority": "pki/ca.pem"}
    user = {"client-certificate": "cert.pem", "client-key": str(two / "key.pem"), "tokenFile": "./token"}
    (one / "config").write_text(yaml.safe_dump({"clusters": [{"name": "k", "cluster": cluster}]}))
    (two / "config").write_text(yaml.safe_dump(config(user=user)))
    info = load_kubeconfig([one / "config", two / "config"])
    assert info is not None
    assert info.ca_path == one / "pki" / "ca.pem"
    assert info.certificate_path == two / "cert.pem"
    assert info.private_key_path == two / "key.pem"
    assert info.token_file == two / "token"


def test_data_wins_over_paths(tmp_path: Path) -> None:
    cluster = {"server": "https://h", "certificate-authority": "absent", "certificate-authority-data": DATA}
    user = {
        "client-certificate": "absent",
        "client-certificate-data": DATA,
        "client-key": "absent",
        "client-key-data": DATA,
    }
    info = load(tmp_path, config(cluster=cluster, user=user))
    assert (info.ca_data, info.certificate_data, info.private_key_data) == (PEM, PEM, PEM)
    assert (info.ca_path, info.certificate_path, info.private_key_path) == (None, None, None)


def test_all_fields_of_a_cluster_are_used(tmp_path: Path) -> None:
    cluster = {
        "server": "https://h",
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://proxy:3128",
        "tls-server-name": "other",
    }
    info = load(tmp_path, config(cluster=cluster, user={"username": "me", "password": "pw"}))
    assert info == ConnectionInfo(
        server="https://h",
        insecure=True,
        proxy_url="http://proxy:3128",
        tls_server_name="other",
        username="me",
        password="pw",
    )


def test_a_server_without_a_scheme_gets_one(tmp_path: Path) -> None:
    assert load(tmp_path, config(cluster={"server": "host:8080"})).server == "http://host:8080"
    cluster = {"server": "host:6443", "certificate-authority-data": DATA}
    assert load(tmp_path, config(cluster=cluster)).server == "https://host:6443"


def test_json_is_yaml(tmp_path: Path) -> None:
    assert load(tmp_path, json.dumps(config())).server == "https://host:6443"


def test_an_auth_providers_token_is_used(tmp_path: Path) -> None:
    user = {"auth-provider": {"name": "gcp", "config": {"access-token": "t"}}}
    assert load(tmp_path, config(user=user)).token == "t"


@pytest.mark.parametrize(
    ("provider", "way_out"),
    [
        ("gcp", "gke-gcloud-auth-plugin"),
        ("azure", "kubelogin"),
        ("oidc", "OIDC"),
        ("own", "replace it by an exec plugin"),
    ],
)
def test_an_auth_provider_without_a_token_is_refused_with_the_way_out(
    tmp_path: Path, provider: str, way_out: str
) -> None:
    with pytest.raises(ConfigError, match=rf"config: user 'u' uses the auth-provider '{provider}', .*{way_out}"):
        load(tmp_path, config(user={"auth-provider": {"name": provider}}))


def plugin(tmp_path: Path, output: str, **section: Any) -> dict[str, Any]:
    """Return a user whose exec plugin prints *output*, and leaves ``$KUBERNETES_EXEC_INFO`` in a file."""
    path = tmp_path / "login"
    path.write_text(f"#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info\necho '{output}'\n")
    path.chmod(0o700)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "./login", "interactiveMode": "IfAvailable", **section}}


CREDENTIAL = """{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
    "status": {"token": "from-plugin", "expirationTimestamp": "2030-01-01T00:00:00Z"}}"""


def test_an_exec_plugin_is_run(tmp_path: Path) -> None:
    info = load(tmp_path, config(user=plugin(tmp_path, CREDENTIAL)))
    expiration = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    assert info == ConnectionInfo(server="https://host:6443", token="from-plugin", expiration=expiration)


def test_an_exec_plugin_is_not_run_if_there_are_other_credentials(tmp_path: Path) -> None:
    assert load(tmp_path, config(user={**plugin(tmp_path, CREDENTIAL), "token": "t"})).token == "t"
    assert not (tmp_path / "info").exists()


def test_an_exec_plugin_gets_the_cluster_with_its_extension(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}
    cluster = {
        "server": "host:6443",
        "certificate-authority-data": DATA,
        "extensions": [{"name": "other", "extension": 1}, extension],
    }
    load(tmp_path, config(cluster=cluster, user=plugin(tmp_path, CREDENTIAL, provideClusterInfo=True)))
    info = json.loads((tmp_path / "info").read_text())
    expected = {"server": "https://host:6443", "certificate-authority-data": DATA, "config": {"audience": "us"}}
    assert info["spec"]["cluster"] == expected


def test_errors_of_exec_plugins_name_the_file_and_the_user(tmp_path: Path) -> None:
    with pytest.raises(LoginError, match=r"/config: user 'u': The exec plugin '\./login' did not print"):
        load(tmp_path, config(user=plugin(tmp_path, "nonsense")))
    with pytest.raises(ConfigError, match=r"/config: user 'u': exec\.apiVersion is 'v1'"):
        load(tmp_path, config(user=plugin(tmp_path, "", apiVersion="v1")))


BROKEN = {
    "yaml": ("clusters: [", r"not valid YAML: .*\(line \d, column \d"),
    "tab": ("a:\n\t- b", r"not valid YAML: .*line 2"),
    "control": ("a: \x00", "not valid YAML"),
    "text": ("just a text", "the top level is not a mapping"),
    "list": ("- 1", "the top level is not a mapping"),
    "kind": ("kind: Deployment", "not a kubeconfig but a Deployment"),
    "date": ("a: 2024-99-99", "not valid YAML"),
    "clusters": (config(clusters={}), "clusters is not a list"),
    "name": (config(users=[{"user": {}}]), r"users\[0\] has no name"),
    "name-type": (config(contexts=[{"name": 1}]), r"contexts\[0\] has no name"),
    "entry": (config(clusters=["k"]), r"clusters\[0\] has no name"),
    "entry-type": (config(clusters=[{"name": "k", "cluster": []}]), r"clusters\[0\].cluster is not a mapping"),
    "context": (config(**{"current-context": "other"}), "no context 'other' in .*config; available: c"),
    "current": (config(**{"current-context": ["c"]}), "current-context of the file must be a string, not list"),
    "no-current": (config(**{"current-context": None}), "No current context is set"),
    "cluster": (config(clusters=None), "context 'c' refers to the cluster 'k', which is not defined"),
    "no-cluster": (config(context={"cluster": ""}), "context 'c' has no cluster"),
    "user": (config(users=None), "context 'c' refers to the user 'u', which is not defined"),
    "server": (config(cluster={}), "cluster 'k' has no server"),
    "token": (config(user={"token": 123}), "token of user 'u' must be a string, not int: put it in quotes"),
    "flag": (
        config(cluster={"server": "https://h", "insecure-skip-tls-verify": "yes"}),
        "insecure-skip-tls-verify of cluster 'k' must be true or false",
    ),
    "base64": (
        config(user={"client-certificate-data": "?"}),
        "client-certificate-data of user 'u' is not base64-encoded PEM",
    ),
    "file": (config(user={"tokenFile": "gone"}), r"tokenFile of user 'u' refers to .*gone, which is not a file"),
    "ca": (
        config(cluster={"server": "https://h", "certificate-authority": "gone"}),
        r"certificate-authority of cluster 'k' refers to .*gone",
    ),
    "both": (
        config(cluster={"server": "https://h", "certificate-authority-data": DATA, "insecure-skip-tls-verify": True}),
        "both a certificate authority and insecure-skip-tls-verify",
    ),
    "no-key": (config(user={"client-certificate-data": DATA}), "user 'u'.*without its private key"),
    "impersonation": (config(user={"token": "t", "as": "admin"}), r"user 'u' uses impersonation \(as\)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_mistakes_are_reported_with_the_file(tmp_path: Path, name: str) -> None:
    value, message = BROKEN[name]
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, value)
    assert str(tmp_path / "config") in str(caught.value)


def test_a_binary_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ConfigError, match=r"binary: not a kubeconfig"):
        load_kubeconfig([path])
    with pytest.raises(ConfigError, match=r"cannot be read"):
        load_kubeconfig([tmp_path])


def test_a_secret_is_in_no_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, config(user={"client-certificate-data": "c2VjcmV0", "token": "s3cret"}))
    text = "".join(str(each) for each in (caught.value, caught.value.__cause__))
    assert "s3cret" not in text
    assert "c2VjcmV0" not in text
