"""Write the schemas of the built-in kinds: see README.md."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile

from tests.controlplane import HOW, ControlPlane
from trioperator.apiserver import kind_schemas

from .gather import gather, pack


def main() -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        sys.exit(f"There are no programs of a control plane: {HOW}.")
    with tempfile.TemporaryDirectory() as folder:
        controlplane = ControlPlane(pathlib.Path(folder), pathlib.Path(assets))
        try:
            controlplane.start()
            packed = pack(gather(lambda path: json.loads(controlplane.kubectl("get", "--raw", path))))
        finally:
            controlplane.stop()
    kind_schemas.DATA.write_bytes(packed)
    sys.stdout.write(f"{kind_schemas.DATA}: {len(packed)} bytes\n")


main()
