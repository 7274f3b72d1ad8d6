"""The integration tests of kube-rs, from its crates."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from typing import Final

from tests.controlplane import ControlPlane
from tests.foreign.reports import Results, parse_cargo
from trioperator.cli import kube_apiserver

KUBE_RS: Final = "kube-rs"
_VERSION: Final = "4.2.0"
_CRATES: Final = ("kube", "kube-client", "kube-core", "kube-derive", "kube-runtime")
# Those with containers that run, and one that wants a client certificate in the kubeconfig.
_SKIPPED: Final = ("pod_can_exec", "can_get_pod_logs_and_evict", "openssl_tls_configuration")
_TIMEOUT: Final = 900  # seconds, of all tests together
_MANIFEST: Final = """
[package]
name = "foreign"
version = "0.1.0"
edition = "2024"
[lib]
path = "lib.rs"
[dependencies]
"""
# The published crates are tested beside each other, but do not say so: it would be a cycle.
_BESIDE: Final = """
[dev-dependencies.kube]
path = "../kube"
features = ["derive", "client", "ws", "runtime"]
"""


class KubeRs:
    """A workspace of the crates, whose tests are built once."""

    def __init__(self, home: pathlib.Path) -> None:
        self._home = home
        if (home / "Cargo.toml").exists():
            return
        fetched = home / "fetched"
        fetched.mkdir(parents=True, exist_ok=True)
        (fetched / "lib.rs").touch()
        dependency = f'kube = {{ version = "={_VERSION}", features = ["derive", "runtime"] }}\n'
        (fetched / "Cargo.toml").write_text(_MANIFEST + dependency + "[workspace]\n")
        packages = json.loads(_run_cargo(fetched, "metadata", "--format-version=1"))["packages"]
        for package in packages:
            if package["name"] in _CRATES:
                self._add(package["name"], pathlib.Path(package["manifest_path"]).parent)
        patches = "".join(f'{name} = {{ path = "{name}" }}\n' for name in _CRATES)
        text = f'[workspace]\nresolver = "2"\nmembers = {json.dumps(_CRATES)}\n[patch.crates-io]\n{patches}'
        (home / "Cargo.toml").write_text(text)

    def _add(self, name: str, sources: pathlib.Path) -> None:
        shutil.copytree(sources, self._home / name, dirs_exist_ok=True)
        manifest = self._home / name / "Cargo.toml"
        if name != "kube" and "[dev-dependencies.kube]" not in manifest.read_text():
            manifest.write_text(manifest.read_text() + _BESIDE)

    def run(self, assets: pathlib.Path, where: str) -> Results:
        """Run the tests beside a server with the programs in a folder, and with controllers."""
        command = ["test", "--lib", "--workspace", "--all-features", "--no-fail-fast"]
        _run_cargo(self._home, *command, "--no-run")
        folder = self._home / where
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        os.environ[kube_apiserver.CONTROLLERS] = "all"
        plane, log = ControlPlane(folder, assets), folder / "tests.log"
        skipped = [part for name in _SKIPPED for part in ("--skip", name)]
        try:
            plane.start(with_controllers=where == "real")  # those of the embedded server are in its process
            environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
            with log.open("wb") as file:
                subprocess.run(
                    ["cargo", *command, "--", "--ignored", *skipped],
                    cwd=self._home,
                    env=environment,
                    stdout=file,
                    stderr=file,
                    timeout=_TIMEOUT,
                    check=False,
                )
        finally:
            plane.stop()
        return parse_cargo(log.read_text(errors="replace"))


def _run_cargo(folder: pathlib.Path, *args: str) -> str:
    return subprocess.run(["cargo", *args], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
