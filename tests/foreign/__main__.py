"""``python -m tests.foreign``: test suites that others wrote, on the embedded API server, by test.

The suites of controller-runtime and of Kubernetes and some operators come as Go modules, those of kube-rs in its
crates, those of client libraries for Python in their packages; all start the server through ``trioperator cluster
assets``. With ``$KUBEBUILDER_ASSETS``, each is also run on a real server, and only what passes there has to pass here.
``python -m tests.foreign client cache`` runs some; the reports are in build/foreign.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

from tests.controlplane import ControlPlane
from tests.foreign.go import run_go
from tests.foreign.kubernetes import ACCEPTANCE, Kubernetes
from tests.foreign.kubernetes import SUITES as KUBERNETES_SUITES
from tests.foreign.operators import OPERATORS, run_operator
from tests.foreign.reports import HEAD, Comparison, Results, parse_ginkgo, parse_junit, share
from tests.foreign.rust import KUBE_RS, KubeRs
from trioperator.cli.assets import write_assets
from trioperator.cli.kube_apiserver import CONTROLLERS

ROOT = pathlib.Path(__file__).parents[2] / "build" / "foreign"
MODULE, VERSION = "sigs.k8s.io/controller-runtime", "v0.25.2"
#: Those that start a server, except two: client/apiutil downloads programs of its own, and the files that
#: internal/testing/controlplane starts are not executable in a module.
GO_SUITES = [
    *(
        "client",
        "cache",
        "manager",
        "builder",
        "controller",
        "controller/controllerutil",
        "handler",
        "source",
        "webhook",
    ),
    *("cluster", "envtest", "internal/controller", "internal/recorder", "manager/internal/integration"),
    *("metrics/filters", "webhook/admission"),
]
PYTHON_SUITES = [
    *("kubernetes.dynamic.test_client", "kubernetes.dynamic.test_discovery"),
    *("kubernetes_asyncio.dynamic.client_test", "kubernetes_asyncio.dynamic.discovery_test"),
    *("kr8s.tests.test_api", "kr8s.tests.test_auth", "kr8s.tests.test_io", "kr8s.tests.test_objects"),
]
PATIENCE = 40  # seconds, of one test: some wait for kubelets for ever
TIMEOUT = 600  # seconds, of one suite
SHARE = 0.99
ACCEPTED = 0.97  # of kubectl's suite: some of its functions are about Events of controllers and descriptions


class GoSuites:
    """The suites of controller-runtime, built once."""

    def __init__(self) -> None:
        self._home = ROOT / "go"
        self._home.mkdir(parents=True, exist_ok=True)
        if not (self._home / "go.mod").exists():
            run_go(self._home, "mod", "init", "foreign")
        run_go(self._home, "get", "-t", f"{MODULE}/pkg/...@{VERSION}")
        self._sources = pathlib.Path(run_go(self._home, "list", "-m", "-f", "{{.Dir}}", MODULE).strip())

    def run(self, suite: str, assets: pathlib.Path, where: str) -> Results | None:
        """Run a suite with the programs in a folder; return None if it did not run to its end."""
        name = suite.replace("/", "_")
        program, report = self._home / f"{name}.test", ROOT / f"{name}.{where}.json"
        if not program.exists():
            run_go(self._home, "test", "-c", "-vet=off", "-o", str(program), f"{MODULE}/pkg/{suite}")
        report.unlink(missing_ok=True)
        options = ["--ginkgo.no-color", f"--ginkgo.timeout={TIMEOUT}s", f"--ginkgo.json-report={report}"]
        _run([str(program), *options], report, self._sources / "pkg" / suite, {"KUBEBUILDER_ASSETS": str(assets)})
        return parse_ginkgo(json.loads(report.read_text())) if report.exists() else None


def run_python(suite: str, kubeconfig: pathlib.Path, where: str) -> Results | None:
    """Run the tests in a module of a package; return None if they did not run to their end."""
    report = ROOT / f"{suite}.{where}.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "tests.foreign.e2e_base", f"--rootdir={ROOT}", "-c", os.devnull, f"--junit-xml={report}"]
    options += [f"--timeout={PATIENCE}", "--override-ini=asyncio_mode=auto"]
    command = [sys.executable, "-m", "pytest", *options, "--pyargs", suite]
    _run(command, report, ROOT.parents[1], {"KUBECONFIG": str(kubeconfig)})
    return parse_junit(report.read_text()) if report.exists() else None


def _run(command: list[str], report: pathlib.Path, folder: pathlib.Path, variables: Mapping[str, str]) -> None:
    with report.with_suffix(".log").open("wb") as log:
        try:
            environment = os.environ | variables
            subprocess.run(
                command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=2 * TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            log.write(b"\nstopped: it took too long\n")


def run_go_suites(wanted: list[str], real: pathlib.Path | None) -> Iterator[Comparison]:
    """Run the wanted suites of controller-runtime."""
    if not wanted:
        return
    suites, embedded = GoSuites(), write_assets(ROOT / "assets")
    for suite in wanted:
        results = suites.run(suite, embedded, "embedded")
        yield Comparison(suite, results, suites.run(suite, real, "real") if real else None)


def run_kubernetes_suites(wanted: list[str], real: pathlib.Path | None) -> Iterator[Comparison]:
    """Run the wanted suites of Kubernetes itself."""
    if not wanted:
        return
    kubernetes, embedded = Kubernetes(ROOT / "kubernetes"), write_assets(ROOT / "assets")
    for suite in wanted:
        results = kubernetes.run(suite, embedded, "embedded")
        yield Comparison(suite, results, kubernetes.run(suite, real, "real") if real else None)


def run_operators(wanted: list[str], real: pathlib.Path | None) -> Iterator[Comparison]:
    """Run the wanted operators."""
    home = ROOT / "operators"
    for suite in wanted:
        results = run_operator(suite, home, write_assets(ROOT / "assets"), "embedded")
        yield Comparison(suite, results, run_operator(suite, home, real, "real") if real else None)


def run_rust_suites(wanted: list[str], real: pathlib.Path | None) -> Iterator[Comparison]:
    """Run the tests of kube-rs, if they are wanted."""
    for suite in wanted:
        suites = KubeRs(ROOT / "rust")
        results = suites.run(write_assets(ROOT / "assets"), "embedded")
        yield Comparison(suite, results, suites.run(real, "real") if real else None)


def create_system_pod(kubeconfig: pathlib.Path) -> None:
    """Create a Pod in kube-system: suites that were written for clusters with nodes expect some."""
    from kubernetes import client, config

    pod = {"metadata": {"name": "system"}, "spec": {"containers": [{"name": "pause", "image": "pause"}]}}
    client.CoreV1Api(config.new_client_from_config(str(kubeconfig))).create_namespaced_pod("kube-system", pod)


def run_python_suites(wanted: list[str], real: pathlib.Path | None) -> Iterator[Comparison]:
    """Run the wanted suites of client libraries, all of them on the same servers, with controllers."""
    if not wanted:
        return
    os.environ[CONTROLLERS] = "all"
    results: dict[str, dict[str, Results | None]] = {suite: {} for suite in wanted}
    for where, assets in (("embedded", write_assets(ROOT / "assets")), ("real", real)):
        if assets is None:
            continue
        folder = ROOT / f"plane.{where}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plane = ControlPlane(folder, assets)
        try:
            plane.start(with_controllers=where == "real")  # those of the embedded server are in its process
            create_system_pod(plane.kubeconfig)
            for suite in wanted:
                results[suite][where] = run_python(suite, plane.kubeconfig, where)
        finally:
            plane.stop()
    for suite, found in results.items():
        yield Comparison(suite, found.get("embedded"), found.get("real"))


def main() -> None:
    """Run the suites, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.foreign")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="these only")
    suites = {
        run_go_suites: GO_SUITES,
        run_operators: OPERATORS,
        run_kubernetes_suites: KUBERNETES_SUITES,
        run_rust_suites: [KUBE_RS],
        run_python_suites: PYTHON_SUITES,
    }
    known = [name for names in suites.values() for name in names]
    wanted = parser.parse_args().suites or known
    if unknown := set(wanted).difference(known):
        parser.error(f"no such suites: {', '.join(sorted(unknown))}")
    given = os.environ.get("KUBEBUILDER_ASSETS")
    real = pathlib.Path(given) if given else None
    if shutil.which("go") is None and not set(wanted).issubset([*PYTHON_SUITES, KUBE_RS]):
        parser.error(
            "all suites but those of kube-rs and of Python's client libraries need Go: install it, or name these"
        )
    if shutil.which("cargo") is None and KUBE_RS in wanted:
        parser.error(f"{KUBE_RS} needs Rust: install it, or name the other suites")
    ROOT.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    comparisons = []
    for run, names in suites.items():
        for comparison in run([suite for suite in wanted if suite in names], real):
            comparisons.append(comparison)
            print(comparison.row, *(f"  missing: {name}" for name in comparison.missing), sep="\n", flush=True)
    found = share(comparisons)
    print(f"{found:.1%} of what {'passes on the real server' if real else 'was run'} passes")
    accepted = [comparison for comparison in comparisons if comparison.suite == ACCEPTANCE]
    others = [comparison for comparison in comparisons if comparison.suite != ACCEPTANCE]
    is_enough = (not others or share(others) >= SHARE) and (not accepted or share(accepted) >= ACCEPTED)
    sys.exit(not is_enough)


if __name__ == "__main__":
    main()
