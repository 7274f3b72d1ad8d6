"""The API server of a run: a real one started here, one that is given, or the embedded one in a process of its own.

Each is a context manager that leaves nothing behind, and yields an :class:`ApiServer`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from tests.bench.api import USER_AGENT, Connection, load_target

ROOT = pathlib.Path(__file__).resolve().parents[2]
_SCRIPT = ROOT.parent / "shared" / "controlplane" / "controlplane"
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, users: [operator]}, {level: None}]
"""
_TOKENS = "admin-token,admin,admin,system:masters\noperator-token,operator,operator,system:masters\n"


class ServerFailed(Exception):
    """Raised when there is no API server to measure on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """A running API server."""

    kind: str
    kubeconfig: pathlib.Path
    operator_kubeconfig: pathlib.Path
    read_requests: Callable[[], collections.Counter[str]] | None
    """Count the operator's requests so far, by verb; None where the server does not count them."""
    lives_on: bool = False


def find_assets(*, build: bool = True) -> pathlib.Path | None:
    """Find the folder with etcd and kube-apiserver.

    It is ``$KUBEBUILDER_ASSETS``, or what the control plane's script beside the checkout builds.
    """
    if given := os.environ.get("KUBEBUILDER_ASSETS"):
        return pathlib.Path(given)
    if not _SCRIPT.exists():
        return None
    done = subprocess.run([_SCRIPT, "build" if build else "assets"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{_SCRIPT} build has failed, so there is no real API server:\n{done.stderr[-500:]}", file=sys.stderr)
        return None
    return pathlib.Path(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def open_given(kubeconfig: pathlib.Path) -> Iterator[ApiServer]:
    """Use a cluster that is there; requests cannot be counted on it."""
    yield ApiServer(
        kind="given", kubeconfig=kubeconfig, operator_kubeconfig=kubeconfig, read_requests=None, lives_on=True
    )


@contextlib.contextmanager
def open_real(assets: pathlib.Path, *, folder: pathlib.Path, timeout: float = 90.0) -> Iterator[ApiServer]:
    """Start etcd and kube-apiserver on free ports of the loopback, with all data in *folder*.

    No controller manager runs: the benchmark needs none, and it would compete for the CPU.
    """
    folder.mkdir(parents=True)
    etcd_port, peer_port, port = free_ports(3)
    with contextlib.ExitStack() as stack:
        etcd = [str(assets / "etcd"), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error"]
        for kind in ("listen-client-urls", "advertise-client-urls"):
            etcd += [f"--{kind}", f"http://127.0.0.1:{etcd_port}"]
        etcd += ["--listen-peer-urls", f"http://127.0.0.1:{peer_port}"]
        stack.enter_context(_running(etcd, folder / "etcd.log"))
        server = _apiserver_command(assets, folder=folder, etcd_port=etcd_port, port=port)
        process = stack.enter_context(_running(server, folder / "kube-apiserver.log"))
        certificate = folder / "certs" / "apiserver.crt"
        _wait_for(certificate.exists, process, folder / "kube-apiserver.log", timeout=timeout)
        files = {}
        for user in ("admin", "operator"):
            files[user] = folder / f"{user}.kubeconfig"
            url = f"https://127.0.0.1:{port}"
            _write_kubeconfig(files[user], url=url, token=f"{user}-token", authority=certificate)
        target = load_target(files["admin"])
        _wait_for(lambda: _is_ready(Connection(target)), process, folder / "kube-apiserver.log", timeout=timeout)
        yield ApiServer(
            kind="kube-apiserver",
            kubeconfig=files["admin"],
            operator_kubeconfig=files["operator"],
            read_requests=_AuditLog(folder / "audit.log").read,
        )


def _apiserver_command(assets: pathlib.Path, *, folder: pathlib.Path, etcd_port: int, port: int) -> list[str]:
    key, public = folder / "sa.key", folder / "sa.pub"
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ServerFailed("openssl is needed for the API server's keys, and is not on PATH")
    subprocess.run([openssl, "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    subprocess.run([openssl, "rsa", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    (folder / "audit.yaml").write_text(_AUDIT_POLICY)
    (folder / "tokens.csv").write_text(_TOKENS)
    options = {
        "etcd-servers": f"http://127.0.0.1:{etcd_port}",
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder / "certs",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": public,
        "service-account-signing-key-file": key,
        "service-cluster-ip-range": "10.0.0.0/24",
        "authorization-mode": "RBAC",
        "token-auth-file": folder / "tokens.csv",
        "disable-admission-plugins": "ServiceAccount",
        "audit-policy-file": folder / "audit.yaml",
        "audit-log-path": folder / "audit.log",
    }
    more = os.environ.get("CONTROLPLANE_APISERVER_ARGS", "").split()
    return [str(assets / "kube-apiserver"), *(f"--{name}={value}" for name, value in options.items()), *more]


def _write_kubeconfig(path: pathlib.Path, *, url: str, token: str, authority: pathlib.Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [{"name": "bench", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench", "namespace": "default"}}],
    }
    path.write_text(json.dumps(config))


def _is_ready(connection: Connection) -> bool:
    try:
        return connection.request("GET", "/readyz") == (200, b"ok")
    except OSError:
        return False
    finally:
        connection.close()


class _AuditLog:
    """Counts of the requests in an audit log that holds the operator's only."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._offset = 0
        self._seen: set[str] = set()
        self._counts: collections.Counter[str] = collections.Counter()

    def read(self) -> collections.Counter[str]:
        """Count requests by verb, and under ``rejected`` those with a status code of 400 or above."""
        if not self._path.exists():
            return self._counts.copy()
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            entry = json.loads(line)
            if entry["auditID"] in self._seen:  # a watch is there twice: begun and ended
                continue
            self._seen.add(entry["auditID"])
            self._counts[entry["verb"]] += 1
            if (entry.get("responseStatus") or {}).get("code", 200) >= 400:
                self._counts["rejected"] += 1
        return self._counts.copy()


@contextlib.contextmanager
def open_embedded(
    *, folder: pathlib.Path, timeout: float = 30.0, module: str = "tests.bench.embedded"
) -> Iterator[ApiServer]:
    """Start trioperator's own API server in another process: a *module* that takes the same arguments."""
    folder.mkdir(parents=True)
    kubeconfig, requests = folder / "kubeconfig", folder / "requests"
    command = [sys.executable, "-m", module, str(kubeconfig), str(requests)]
    with _running(command, folder / "apiserver.log") as process:
        _wait_for(kubeconfig.exists, process, folder / "apiserver.log", timeout=timeout)

        def read_requests() -> collections.Counter[str]:
            lines = (line.split(maxsplit=1) for line in requests.read_text().splitlines())
            return collections.Counter(verb for verb, agent in lines if agent != USER_AGENT)

        yield ApiServer(
            kind="embedded", kubeconfig=kubeconfig, operator_kubeconfig=kubeconfig, read_requests=read_requests
        )


@contextlib.contextmanager
def _running(command: list[str], log: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a session of its own, so that Ctrl-C reaches only the benchmark, and end it in any case."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], log: pathlib.Path, *, timeout: float
) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServerFailed(f"the API server did not come up:\n{log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
