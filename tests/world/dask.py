"""``python -m tests.world.dask``: dask-kubernetes' own tests of its operator, under Kopf and with ``trioperator.kopf``.

They want kind, helm and containers: here, ``kubectl`` of ``$KUBEBUILDER_ASSETS`` talks to the embedded server, where
pods only seem to run. So some of them fail under Kopf, too; those that pass there must pass here.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Final

from tests.controlplane import HOW
from tests.world.sources import find_checkout
from tests.world.suite import read_report

#: Tests that races decide, also under Kopf, and why.
RACES: Final = {"test_object_dask_cluster": "takes a list for a dict, once the workers have Deployments"}
_TESTS: Final = "dask_kubernetes/operator/controller/tests"
_CRDS: Final = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"
# What takes the place of pytest-kind: its class and its option.
_KIND: Final = """
import os, pathlib, subprocess

class KindCluster:
    def __init__(self, name, image=None):
        self.kubeconfig_path = pathlib.Path(os.environ["WORLD_KUBECONFIG"])

    def kubectl(self, *args, **options):
        command = ["kubectl", f"--kubeconfig={self.kubeconfig_path}", *args]
        return subprocess.check_output(command, encoding="utf-8", timeout=60)

    def create(self, *args): pass
    def delete(self, *args): pass
    def load_docker_image(self, name): pass
    def port_forward(self, *args, **options): raise OSError("nothing runs in the pods")
"""
_PLUGIN: Final = """
import os

def pytest_addoption(parser):
    parser.addoption("--keep-cluster", action="store_true")

if os.environ["WORLD_MODE"] == "bridge":
    import trioperator.kopf
    trioperator.kopf.install()
"""


@contextlib.contextmanager
def serving(kubeconfig: pathlib.Path) -> Iterator[None]:
    """Serve a cluster with controllers in the block, from the time when it has written its kubeconfig."""
    command = [sys.executable, "-m", "trioperator", "cluster", "--kubeconfig", str(kubeconfig), "--controllers", "all"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not kubeconfig.exists():
            assert time.monotonic() < deadline, "the cluster is not served"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def prepare(folder: pathlib.Path, checkout: pathlib.Path) -> None:
    """Write what takes the place of the programs and packages that the tests want."""
    (folder / "bin").mkdir()
    (folder / "pytest_kind").mkdir()
    scripts = {"helm": "exit 0", "docker": "exit 0"}
    scripts["k8s-crd-resolver"] = f'exec cp "{checkout / _CRDS}/$(basename "$4")" "$5"'
    for name, text in scripts.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    (folder / "pytest_kind" / "__init__.py").touch()
    (folder / "pytest_kind" / "cluster.py").write_text(_KIND)
    (folder / "world_plugin.py").write_text(_PLUGIN)


def run(mode: str, folder: pathlib.Path, checkout: pathlib.Path, only: list[str] | None = None) -> dict[str, bool]:
    """Run the tests, or *only* some, and return which have passed."""
    kubeconfig, report = folder / f"{mode}.kubeconfig", folder / f"{mode}.txt"
    path = os.pathsep.join([str(folder / "bin"), os.environ["KUBEBUILDER_ASSETS"], os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": f"{folder}:{checkout}", "KUBECONFIG": str(kubeconfig)}
    env |= {"WORLD_KUBECONFIG": str(kubeconfig), "WORLD_MODE": mode}
    tests = only or [_TESTS]
    plugins = ["-p", "world_plugin", "-p", "no:trio", "-p", "no:trioperator", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *tests, *plugins, "--timeout=40", "-rA", "--tb=short", "-W", "ignore"]
    with serving(kubeconfig), report.open("w") as file:
        subprocess.run(command, env=env, cwd=checkout, stdout=file, stderr=subprocess.STDOUT, check=False)
    results = pathlib.Path("build", "world")
    results.mkdir(parents=True, exist_ok=True)
    (results / f"dask.{mode}.txt").write_text(report.read_text())
    return read_report(report.read_text())


def main() -> None:
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        sys.exit(f"It needs kubectl: {HOW}.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        checkout = find_checkout("dask/dask-kubernetes", folder)
        prepare(folder, checkout)
        kopf = run("kopf", folder, checkout)
        passed = [name for name, ok in kopf.items() if ok]
        only = [f"{_TESTS}/{name}" for name in passed]
        bridge = run("bridge", folder, checkout, only) if only else {}
    failed = [name for name in passed if not bridge.get(name)]
    for name in failed:
        print(f"     {name}: fails{f' ({RACES[short]})' if (short := name.rpartition('::')[2]) in RACES else ''}")
    print(
        f"Under Kopf, {len(passed)} of {len(kopf)} pass; of these, {len(passed) - len(failed)} with trioperator.kopf."
    )
    sys.exit(any(name.rpartition("::")[2] not in RACES for name in failed) or not passed)


if __name__ == "__main__":
    main()
