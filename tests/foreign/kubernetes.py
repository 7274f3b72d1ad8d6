"""Suites of Kubernetes itself, from its Go module: kubectl's acceptance suite, and the conformance tests."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from tests.controlplane import ControlPlane
from tests.foreign.go import run_go
from tests.foreign.reports import Results, parse_acceptance, parse_ginkgo
from trioperator.apiserver.controllers import CONTROLLERS
from trioperator.apiserver.reading.discovery import VERSION
from trioperator.cli import kube_apiserver

ACCEPTANCE: Final = "kubectl.acceptance"  # shell functions that call kubectl some thousand times
CONFORMANCE: Final = "conformance.api-machinery"
SUITES: Final = (ACCEPTANCE, CONFORMANCE)
_MODULE: Final = "k8s.io/kubernetes"
_TAG: Final = VERSION["gitVersion"]
_KUBECTL: Final = ("cmd/kubectl", "cmd/kubectl-convert")
_E2E: Final = "test/e2e"
_DRIVER: Final = pathlib.Path(__file__).with_name("acceptance.sh")
_TIMEOUT: Final = 3600  # seconds, of a suite
# Those that wait for Pods that run, webhooks and an aggregated API server among them.
_NEED_NODES: Final = re.compile(
    r"Aggregator |AdmissionWebhook|CustomResourceConversionWebhook|CustomResourceFieldSelectors"
    r"|OrderedNamespaceDeletion|all pods are removed"
)
_LISTED: Final = re.compile(r"\.go:\d+: (\[sig-api-machinery\] .*?) \[Conformance\]")
_AT_ONCE: Final = 3  # tests, which mostly wait
_PATIENCE: Final = 150  # seconds, of a test
_COMPACTION: Final = 900  # seconds, of the test that waits until the history of a list is gone
# Each test waits for the certificate of the cluster in its namespace, which neither of the servers publishes here.
_PUBLISH: Final = """
"$0" --kubeconfig "$1" get namespaces -o name --watch | while read -r name; do
  "$0" --kubeconfig "$1" create configmap kube-root-ca.crt --namespace "${name#*/}" --from-literal=ca.crt= 2>/dev/null
done
"""


class Kubernetes:
    """The Go module in the version that the embedded server claims to be: its sources, its programs and its suites."""

    def __init__(self, home: pathlib.Path) -> None:
        self._home = home
        home.mkdir(parents=True, exist_ok=True)
        (home / "go.mod").unlink(missing_ok=True)  # that of an earlier run would be changed by the download
        module = json.loads(self._go("mod", "download", "-json", f"{_MODULE}@{_TAG}"))
        self._sources = pathlib.Path(module["Dir"])
        # Its own go.mod has its parts in folders, which are not in the module: they are modules of their own.
        text = pathlib.Path(module["GoMod"]).read_text()
        parts = re.findall(r"^\s+(k8s\.io/\S+) => \./staging/", text, re.MULTILINE)
        replaced = (f"replace {part} => {part} {_TAG.replace('v1.', 'v0.', 1)}" for part in parts)
        (home / "go.mod").write_text("\n".join(["module foreign", f"require {_MODULE} {_TAG}", *replaced, ""]))
        imports = (f'import _ "{_MODULE}/{package}"\n' for package in (*_KUBECTL, _E2E))
        (home / "tools.go").write_text("//go:build tools\n\npackage tools\n\n" + "".join(imports))
        self._go("mod", "tidy")

    def _go(self, *args: str) -> str:
        return run_go(self._home, *args)

    def run(self, suite: str, assets: pathlib.Path, where: str) -> Results | None:
        """Run a suite with the programs in a folder, and with controllers; return None if it did not run to its end."""
        folder = self._home / f"{suite}.{where}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # There are no nodes beside the real server, so the embedded one must not play them.
        os.environ[kube_apiserver.CONTROLLERS] = " ".join({*CONTROLLERS} - {"pods"})
        plane = ControlPlane(folder, assets)
        run = self._accept if suite == ACCEPTANCE else self._conform
        try:
            plane.start(with_controllers=where == "real")  # those of the embedded server are in its process
            return run(plane, folder)
        except subprocess.TimeoutExpired:
            return None
        finally:
            plane.stop()

    def _accept(self, plane: ControlPlane, folder: pathlib.Path) -> Results:
        sources, log = folder / "sources", folder / "suite.log"
        shutil.copytree(self._sources, sources)  # to which it writes
        subprocess.run(["chmod", "-R", "u+w", str(sources)], check=True)
        programs = (f"{_MODULE}/{package}" for package in _KUBECTL)
        flags = f"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion={_TAG}"
        self._go("build", flags, "-o", f"{sources / '_output' / 'bin'}/", *programs)
        certificates = str(plane.folder / "certs")  # where its own server would have them
        _run(["bash", str(_DRIVER), str(sources)], log, {"TMPDIR": certificates, "KUBECONFIG": str(plane.kubeconfig)})
        return parse_acceptance(log.read_text(errors="replace"))

    def _conform(self, plane: ControlPlane, folder: pathlib.Path) -> Results:
        ready = {"type": "Ready", "status": "True"}  # it starts only if some node is
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}, "status": {"conditions": [ready]}}
        plane.kubectl("create", "-f", "-", input=json.dumps(node))
        program = self._home / "e2e.test"
        if not program.exists():
            self._go("test", "-c", "-vet=off", "-ldflags=-s -w", "-o", str(program), f"{_MODULE}/{_E2E}")
        listed = subprocess.run([str(program), "--list-tests"], check=True, stdout=subprocess.PIPE, text=True).stdout
        names = [name for name in dict.fromkeys(_LISTED.findall(listed)) if not _NEED_NODES.search(name)]
        publisher = subprocess.Popen(
            ["bash", "-c", _PUBLISH, str(plane.assets / "kubectl"), str(plane.kubeconfig)], start_new_session=True
        )
        results: dict[str, bool] = {}
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for found in pool.map(partial(_test, program, plane.kubeconfig, folder), names):
                    results |= found
        finally:
            os.killpg(publisher.pid, signal.SIGKILL)
        return results


def _test(program: pathlib.Path, kubeconfig: pathlib.Path, folder: pathlib.Path, name: str) -> Results:
    """Run one conformance test in a process of its own, so that it cannot keep the others from being run."""
    report = folder / f"{re.sub(r'[^A-Za-z]+', '-', name)}.json"
    patience = _COMPACTION if "compacted" in name else _PATIENCE
    command = [
        *(str(program), "--provider=skeleton", f"--kubeconfig={kubeconfig}", "--ginkgo.no-color"),
        *(rf"--ginkgo.focus={re.escape(name)}.*\[Conformance\]", f"--ginkgo.timeout={patience}s"),
        f"--ginkgo.json-report={report}",
    ]
    _run(command, report.with_suffix(".log"), {})
    return parse_ginkgo(json.loads(report.read_text())) if report.exists() else {name: False}


def _run(command: list[str], log: pathlib.Path, variables: dict[str, str]) -> None:
    with log.open("wb") as file:
        subprocess.run(
            command,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=_TIMEOUT,
            check=False,
        )
