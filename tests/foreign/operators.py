"""Operators that others wrote, in Go: their CRDs are served, and one controller of each does its work."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.controlplane import ControlPlane
from tests.foreign.go import run_go
from tests.foreign.reports import Results
from trioperator.cli import kube_apiserver

Object = Mapping[str, Any]

_PATIENCE: Final = "60s"  # for each expectation


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator: its module, the package of its program, and what it does with an object.

    Each expectation is named; it is a condition and the object that shall meet it, as for ``kubectl wait --for``.
    """

    module: str
    version: str
    package: str  # "": the program in the source
    crds: str  # a folder of the module
    objects: Sequence[Object]
    expected: Mapping[str, tuple[str, str]]
    changes: Sequence[tuple[Sequence[str], str, tuple[str, str]]] = ()  # a command of kubectl, and what follows
    source: str = ""


def _meta(name: str) -> Object:
    return {"name": name, "namespace": "default"}


_CERTIFICATES: Final = "cert-manager.io/v1"
_CERT_MANAGER: Final = Operator(
    module="github.com/cert-manager/cert-manager",
    version="v1.21.2",
    package="",
    source="cert_manager.go",
    crds="deploy/crds",
    objects=[
        {
            "apiVersion": _CERTIFICATES,
            "kind": "Issuer",
            "metadata": _meta("own"),
            "spec": {"selfSigned": {}},
        },
        {
            "apiVersion": _CERTIFICATES,
            "kind": "Certificate",
            "metadata": _meta("web"),
            "spec": {"secretName": "web-tls", "dnsNames": ["example.com"], "issuerRef": {"name": "own"}},
        },
    ],
    expected={
        "a ready issuer": ("condition=Ready", "issuer/own"),
        "a ready certificate": ("condition=Ready", "certificate/web"),
        "its request": ("condition=Approved", "certificaterequest/web-1"),
        "its Secret": ("jsonpath={.type}=kubernetes.io/tls", "secret/web-tls"),
    },
    changes=[
        (
            ("delete", "secret/web-tls"),
            "a new Secret after its deletion",
            ("jsonpath={.status.revision}=2", "certificate/web"),
        ),
    ],
)
_MONITORING: Final = "monitoring.coreos.com/v1"
_PROMETHEUS_OPERATOR: Final = Operator(
    module="github.com/prometheus-operator/prometheus-operator",
    version="v0.85.0",
    package="cmd/operator",
    crds="example/prometheus-operator-crd",
    objects=[
        {
            "apiVersion": _MONITORING,
            "kind": "Prometheus",
            "metadata": _meta("own"),
            "spec": {"replicas": 1, "serviceMonitorSelector": {}},
        },
        {
            "apiVersion": _MONITORING,
            "kind": "ServiceMonitor",
            "metadata": _meta("web"),
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "endpoints": [{"port": "metrics"}]},
        },
    ],
    expected={
        "a reconciled Prometheus": ("condition=Reconciled", "prometheus/own"),
        "its StatefulSet": ("jsonpath={.spec.replicas}=1", "statefulset/prometheus-own"),
        "its configuration": ("jsonpath={.metadata.ownerReferences[0].kind}=Prometheus", "secret/prometheus-own"),
        "its Service": ("jsonpath={.spec.clusterIP}=None", "service/prometheus-operated"),
    },
    changes=[
        (
            ("patch", "prometheus/own", "--type=merge", '--patch={"spec": {"replicas": 2}}'),
            "more replicas",
            ("jsonpath={.spec.replicas}=2", "statefulset/prometheus-own"),
        ),
    ],
)
OPERATORS: Final[Mapping[str, Operator]] = {
    "operators.cert-manager": _CERT_MANAGER,
    "operators.prometheus-operator": _PROMETHEUS_OPERATOR,
}


def run_operator(suite: str, home: pathlib.Path, assets: pathlib.Path, where: str) -> Results:
    """Run an operator beside a server with the programs in a folder, and with controllers."""
    operator = OPERATORS[suite]
    program, sources = _build(operator, home / suite)
    folder = home / f"{suite}.{where}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ[kube_apiserver.CONTROLLERS] = "all"
    plane = ControlPlane(folder, assets)
    try:
        plane.start(with_controllers=where == "real")  # those of the embedded server are in its process
        plane.kubectl("apply", "--server-side", "-f", str(sources / operator.crds))
        plane.kubectl("wait", "--for=condition=Established", "crds", "--all")
        with (folder / "operator.log").open("wb") as log:
            environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
            process = subprocess.Popen([program], env=environment, stdout=log, stderr=log)
            try:
                return _judge(operator, plane)
            finally:
                process.terminate()
                process.wait()
    finally:
        plane.stop()


def _build(operator: Operator, home: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Build the program; return it, and the sources of its module."""
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "go.mod").exists():
        run_go(home, "mod", "init", "foreign")
    program = home / "program"
    run_go(home, "get", f"{operator.module}@{operator.version}")
    if operator.source:
        shutil.copy(pathlib.Path(__file__).with_name(operator.source), home / "main.go")
        run_go(home, "mod", "tidy")
    package = f"{operator.module}/{operator.package}" if operator.package else "."
    if not program.exists():
        if operator.package:
            run_go(home, "get", f"{package}@{operator.version}")
        run_go(home, "build", "-ldflags=-s -w", "-o", str(program), package)
    return program, pathlib.Path(run_go(home, "list", "-m", "-f", "{{.Dir}}", operator.module).strip())


def _judge(operator: Operator, plane: ControlPlane) -> Results:
    results: dict[str, bool] = {}
    plane.apply(*operator.objects)
    for name, (condition, obj) in operator.expected.items():
        results[name] = _is_met(plane, condition, obj)
    for command, name, (condition, obj) in operator.changes:
        plane.kubectl(*command, check=False)
        results[name] = _is_met(plane, condition, obj)
    return results


def _is_met(plane: ControlPlane, condition: str, obj: str) -> bool:
    command = [str(plane.assets / "kubectl"), f"--kubeconfig={plane.kubeconfig}", "wait"]
    done = subprocess.run([*command, f"--for={condition}", f"--timeout={_PATIENCE}", obj], check=False)
    return done.returncode == 0
