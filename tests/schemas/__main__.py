"""Write the schemas of the built-in kinds: see README.md."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tests.controlplane import HOW, ControlPlane
from trioperator.apiserver.model import kind_schemas

from .gather import gather, pack
from .sources import pointers


def main() -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        sys.exit(f"No control plane binaries: {HOW}.")
    with tempfile.TemporaryDirectory() as folder:
        controlplane = ControlPlane(pathlib.Path(folder), pathlib.Path(assets))
        try:
            controlplane.start()
            data = gather(lambda path: json.loads(controlplane.kubectl("get", "--raw", path)))
            version = json.loads(controlplane.kubectl("get", "--raw", "/version"))["gitVersion"]
        finally:
            controlplane.stop()
    modules = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    data["pointers"] = pointers(data["definitions"], pathlib.Path(modules), version.replace("v1.", "v0."))
    if not data["pointers"]:
        sys.exit(f"The Go modules of Kubernetes {version} are not in {modules}: see README.md.")
    packed = pack(data)
    kind_schemas.DATA.write_bytes(packed)
    sys.stdout.write(f"{kind_schemas.DATA}: {len(packed)} bytes\n")


main()
