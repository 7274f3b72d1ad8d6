"""A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager, with temporary data."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import socket
import ssl
import subprocess
import time
import urllib.request
from typing import Any

import trustme
import yaml

HOW = (
    "set KUBEBUILDER_ASSETS to the folder with etcd, kube-apiserver, kube-controller-manager and kubectl"
    " (`setup-envtest use -p path` downloads them)"
)
EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class ControlPlane:
    """A running control plane, with its kubeconfig and kubectl."""

    def __init__(self, folder: pathlib.Path, assets: pathlib.Path) -> None:
        self.folder = folder
        self.assets = assets
        self.kubeconfig = folder / "kubeconfig"
        self.clients = trustme.CA()  # of client certificates
        #: The same CA as a file: of the certificate with which the API server calls admission webhooks.
        self.webhook_client_authority = folder / "clients.crt"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._server = ""

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:
        result = subprocess.run(
            [self.assets / "kubectl", f"--kubeconfig={self.kubeconfig}", *args],
            input=input,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and result.returncode:
            raise AssertionError(f"kubectl {' '.join(args)} has failed: {result.stderr}")
        return result.stdout

    def complaints(self, *args: str, input: str | None = None) -> str:
        """Return the warnings that kubectl prints."""
        command = [str(self.assets / "kubectl"), f"--kubeconfig={self.kubeconfig}", *args]
        result = subprocess.run(command, input=input, capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, result.stderr
        return str(result.stderr)

    def get(self, *args: str) -> Any:
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def apply(self, *manifests: Any) -> None:
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def requests(self, text: str = "", **wanted: str) -> list[dict[str, Any]]:
        """List the requests of operators and of service accounts, as the server's audit log has them.

        Of a long log, only the records with the *text* are decoded.
        """
        lines = (self.folder / "audit.log").read_text().splitlines()
        events = [json.loads(line) for line in lines if text in line]
        return [event for event in events if all(event.get(key) == value for key, value in wanted.items())]

    def start(self, *, with_controllers: bool = True) -> None:
        etcd, peer, secure, manager = free_ports(4)
        folder = self.folder
        run = subprocess.run
        run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
        run(
            ["openssl", "rsa", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub"],
            check=True,
            capture_output=True,
        )
        (folder / "tokens.csv").write_text(
            "admin-token,admin,admin,system:masters\noperator-token,operator,operator,system:masters\n"
        )
        (folder / "audit.yaml").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived"],
                    "rules": [
                        {"level": "Metadata", "users": ["operator"]},
                        {"level": "Metadata", "userGroups": ["system:serviceaccounts", "certified"]},
                        {"level": "None"},
                    ],
                }
            )
        )
        self.clients.cert_pem.write_to_path(folder / "clients.crt")
        self._spawn(
            "etcd",
            f"--data-dir={folder}/etcd",
            "--unsafe-no-fsync",
            "--log-level=error",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
        )
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--cert-dir={folder}/certs",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/sa.pub",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--client-ca-file={folder}/clients.crt",
            f"--token-auth-file={folder}/tokens.csv",
            "--disable-admission-plugins=ServiceAccount",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as some distributions have it
            f"--audit-policy-file={folder}/audit.yaml",
            f"--audit-log-path={folder}/audit.log",
            f"--admission-control-config-file={self._write_admission_configuration()}",
            *os.environ.get("CONTROLPLANE_APISERVER_ARGS", "").split(),  # such as gates of what is alpha
        )
        server = self._server = f"https://127.0.0.1:{secure}"
        self.wait_ready()
        authority = base64.b64encode((folder / "certs" / "apiserver.crt").read_bytes()).decode()
        for user in ("admin", "operator"):
            path = self.kubeconfig if user == "admin" else folder / "operator.kubeconfig"
            path.write_text(yaml.safe_dump(_kubeconfig(server, authority, user)))
        if with_controllers:
            self._start_controllers(manager)

    def _start_controllers(self, port: int) -> None:
        folder = self.folder
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={folder}/sa.key",
            "--leader-elect=false",
            "--horizontal-pod-autoscaler-sync-period=1s",  # after 15 s, tests would not see what autoscalers do
            "--node-monitor-grace-period=24h",  # no kubelet renews what tests call a node
            f"--secure-port={port}",
            f"--cert-dir={folder}/kcm-certs",
        )
        deadline = time.monotonic() + 60
        while "default" not in self.kubectl("get", "serviceaccounts", "-o", "name", check=False):
            assert time.monotonic() < deadline, "the controller manager does not work"
            time.sleep(0.2)

    def _write_admission_configuration(self) -> pathlib.Path:
        """Write which certificate the API server shows to webhooks; it is that of the user `api-server`."""
        made = self.clients.issue_cert("api-server.test", common_name="api-server")
        made.private_key_and_cert_chain_pem.write_to_path(str(self.folder / "webhook-client.pem"))
        user = {key: str(self.folder / "webhook-client.pem") for key in ("client-certificate", "client-key")}
        kubeconfig = self.folder / "webhooks.kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]})
        )
        version = "apiserver.config.k8s.io/v1"
        configuration = {
            "apiVersion": version,
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(kubeconfig),
        }
        names = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
        plugins = [{"name": name, "configuration": configuration} for name in names]
        path = self.folder / "admission.yaml"
        path.write_text(yaml.safe_dump({"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": plugins}))
        return path

    def read_kubeconfig(self) -> Any:
        """Return the cluster in the kubeconfig: its `server` and the CA."""
        return yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()  # nobody wants its data
            process.wait()

    def stop_apiserver(self) -> None:
        """Kill the API server; :meth:`start_apiserver` starts it again."""
        process = self._processes["kube-apiserver"]
        process.kill()  # it would wait for its watches for a minute
        process.wait()

    def start_apiserver(self) -> None:
        """Start the API server again that has been stopped, and wait until it is ready."""
        self._spawn("kube-apiserver", *self._processes["kube-apiserver"].args[1:])  # type: ignore[index]  # a list
        self.wait_ready()

    def _spawn(self, name: str, *args: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(self.assets / name), *args]
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_ready(self) -> None:
        """Wait until the API server is ready."""
        # The server's certificate is its own, and is read when it is there.
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(f"{self._server}/readyz", headers={"Authorization": "Bearer admin-token"})
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(request, context=trusting, timeout=2) as response:
                    if response.status == 200:
                        return
            except OSError:
                pass
            assert time.monotonic() < deadline, (self.folder / "kube-apiserver.log").read_text()[-2000:]
            running = self._processes["kube-apiserver"].poll() is None
            assert running, (self.folder / "kube-apiserver.log").read_text()[-2000:]
            time.sleep(0.2)


def _kubeconfig(server: str, authority: str, user: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": f"{user}-token"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
    }
