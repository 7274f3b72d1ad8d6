"""kubectl, as tests run it on a server."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import trio

ASSETS = os.environ.get("KUBEBUILDER_ASSETS")
KUBECTL = shutil.which("kubectl", path=f"{ASSETS}{os.pathsep}{os.environ['PATH']}" if ASSETS else None)


class Kubectl:
    """kubectl with the cluster's kubeconfig."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self._kubeconfig = kubeconfig

    async def __call__(self, *args: str, text: str = "", edit: str = "") -> str:
        """Run a command; return its output, or fail with it."""
        assert KUBECTL is not None
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "HOME": str(self._kubeconfig.parent)}
        if edit:
            environment["KUBE_EDITOR"] = edit
        with trio.fail_after(60):
            result = await trio.run_process(
                [KUBECTL, *args],
                stdin=text.encode(),
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                env=environment,
                check=False,
            )
        output = result.stdout.decode()
        assert result.returncode == 0, output
        return output
