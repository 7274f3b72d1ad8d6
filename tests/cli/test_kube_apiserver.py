"""Tests for :mod:`trioperator.cli.kube_apiserver`."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
import trustme

from tests.controlplane import free_ports
from trioperator.cli.kube_apiserver import Flags, main, make_context, parse_flags, read_users
from trioperator.errors import ConfigError

# What envtest and kube-api-test pass, each in its style.
ENVTEST = (
    "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir=/tmp/c"
    " --client-ca-file=/tmp/c/ca.crt --disable-admission-plugins=ServiceAccount --etcd-servers=http://127.0.0.1:5"
    " --secure-port=6 --service-account-issuer=https://127.0.0.1:6/ --service-account-key-file=/tmp/c/sa.crt"
    " --service-account-signing-key-file=/tmp/c/sa.key --service-cluster-ip-range=10.0.0.0/24"
)
KUBE_API_TEST = (
    "--cert-dir /tmp/c --secure-port 6 --etcd-servers http://0.0.0.0:5 --authorization-mode RBAC"
    " --service-account-issuer https://localhost --service-account-signing-key-file /tmp/c/apiserver.key"
    " --disable-admission-plugins ServiceAccount --client-ca-file /tmp/c/ca.crt"
    " --service-cluster-ip-range 10.0.0.0/24 --allow-privileged"
)


class TestFlags:
    @pytest.mark.parametrize("line", [ENVTEST, KUBE_API_TEST])
    def test_the_flags_of_test_environments_are_all_known(self, line: str) -> None:
        assert parse_flags(line.split()) == Flags(
            secure_port=6, cert_dir="/tmp/c", client_ca_file="/tmp/c/ca.crt", authorization_mode="RBAC"
        )

    def test_the_last_value_counts(self) -> None:
        assert parse_flags(["--secure-port=1", "-secure_port", "2"]).secure_port == 2

    def test_a_switch_takes_no_value_of_its_own(self) -> None:
        assert parse_flags(["--anonymous-auth", "--secure-port", "3", "--anonymous-auth=false"]) == Flags(
            secure_port=3, anonymous_auth=False
        )

    def test_unknown_flags_are_named_once(self) -> None:
        args = ["--x=1", "--feature-gates", "A=true", "--x", "2", "word", "--secure-port=3"]
        assert parse_flags(args) == Flags(secure_port=3, ignored=("x", "feature-gates"))

    def test_a_wrong_value_is_an_error_that_names_the_flag(self) -> None:
        with pytest.raises(ConfigError, match="secure-port"):
            parse_flags(["--secure-port=many"])

    @pytest.mark.parametrize(
        ("modes", "expected"), [("AlwaysAllow", "always-allow"), ("RBAC", "rbac"), ("Node,RBAC", "rbac")]
    )
    def test_authorization_modes(self, modes: str, expected: str) -> None:
        assert Flags(authorization_mode=modes).authorization == expected


class TestFiles:
    def test_the_users_of_a_token_file(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "tokens.csv"
        path.write_text('a,ann,1,"system:masters,b"\nc,cid,2\n\nbroken\n')
        users = read_users(str(path))
        assert [(token, user.name, user.uid, user.groups) for token, user in users.items()] == [
            ("a", "ann", "1", ("system:masters", "b")),
            ("c", "cid", "2", ()),
        ]

    def test_a_certificate_is_made_once(self, tmp_path: pathlib.Path) -> None:
        flags = Flags(cert_dir=str(tmp_path / "new"))
        make_context(flags)
        certificate, key = tmp_path / "new" / "apiserver.crt", tmp_path / "new" / "apiserver.key"
        made = certificate.read_bytes()
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        make_context(flags)
        assert certificate.read_bytes() == made

    @pytest.mark.parametrize("flag", ["client-ca-file", "tls-cert-file"])
    def test_a_missing_file_is_an_error_that_names_the_flag(self, tmp_path: pathlib.Path, flag: str) -> None:
        flags = parse_flags([f"--cert-dir={tmp_path}", f"--{flag}={tmp_path}/none"])
        with pytest.raises(ConfigError, match=flag):
            make_context(flags)

    def test_a_missing_token_file_is_an_error_that_names_the_flag(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(ConfigError, match="token-auth-file"):
            read_users(str(tmp_path / "none"))

    def test_it_ends_with_one_line_for_a_wrong_flag(
        self, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([f"--cert-dir={tmp_path}", f"--client-ca-file={tmp_path}/none", "--odd"]) == 2
        stderr = capsys.readouterr().err
        assert "flags without an effect on the embedded server: --odd" in stderr
        assert "--client-ca-file" in stderr
        assert "Traceback" not in stderr


class Served:
    """A running kube-apiserver in the way of envtest."""

    def __init__(self, folder: pathlib.Path, clients: trustme.CA) -> None:
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        clients.cert_pem.write_to_path(str(folder / "clients.crt"))
        (folder / "tokens.csv").write_text("admin-token,admin,admin,system:masters\nann-token,ann,ann\n")
        self.folder, self._clients = folder, clients
        self.command = [
            *(
                sys.executable,
                "-m",
                "trioperator.cli.kube_apiserver",
                f"--cert-dir={folder}",
                "--authorization-mode=RBAC",
            ),
            *(f"--secure-port={port}", f"--client-ca-file={folder}/clients.crt"),
            f"--token-auth-file={folder}/tokens.csv",
        ]

    @contextlib.contextmanager
    def running(self, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(self.command, env=os.environ | variables) as process:
            try:
                self.wait_ready()
                yield process
            finally:
                process.kill()

    def wait_ready(self) -> None:
        transport = httpx.HTTPTransport(verify=False, retries=9)  # with backoff, until it listens
        with httpx.Client(transport=transport, timeout=60) as client:
            assert client.get(f"{self.url}/readyz").text == "ok"

    def client(self, *, token: str = "", certificate: tuple[str, str] | None = None) -> httpx.Client:
        trusting = ssl.create_default_context(cafile=self.folder / "apiserver.crt")
        if certificate is not None:
            issued = self._clients.issue_cert("c.test", common_name=certificate[0], organization_name=certificate[1])
            issued.private_key_and_cert_chain_pem.write_to_path(str(self.folder / "client.pem"))
            trusting.load_cert_chain(self.folder / "client.pem")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, verify=trusting, headers=headers)


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Served:
    return Served(tmp_path, trustme.CA())


class TestServing:
    def test_it_is_ready_for_anybody_and_knows_certificates_and_tokens_until_sigterm(self, served: Served) -> None:
        path = "/api/v1/namespaces/default"
        with served.running() as process:
            with served.client(certificate=("admin", "system:masters")) as client:
                assert client.get(path).status_code == 200
            with served.client(token="admin-token") as client:
                assert client.get(path).status_code == 200
                services = client.get(f"{path}/services").json()["items"]
                assert [(item["metadata"]["name"], item["spec"]["clusterIP"]) for item in services] == [
                    ("kubernetes", "10.0.0.1")
                ]
            with served.client(token="ann-token") as client:
                assert client.get(path).status_code == 403
            with served.client() as client:
                assert client.get("/healthz").status_code == 200
                assert client.get(path).status_code == 403
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0

    @pytest.mark.parametrize(("controllers", "expected"), [("", 200), ("garbage-collector", 404)])
    def test_garbage_is_collected_by_a_controller_only(self, served: Served, controllers: str, expected: int) -> None:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "0b9b1c86-0000-0000-0000-000000000000"}
        body = {"metadata": {"name": "a", "ownerReferences": [owner]}}
        path = "/api/v1/namespaces/default/configmaps"
        with (
            served.running(TRIOPERATOR_CLUSTER_CONTROLLERS=controllers),
            served.client(token="admin-token") as client,
            client.stream("GET", f"{path}?watch=1", timeout=60) as watch,
        ):
            assert client.post(path, json=body).status_code == 201
            lines = watch.iter_lines()
            assert '"ADDED"' in next(lines)
            if controllers:
                assert '"DELETED"' in next(lines)
            assert client.get(f"{path}/a").status_code == expected
