"""The Go tool."""

from __future__ import annotations

import os
import pathlib
import subprocess


def run_go(folder: pathlib.Path, *args: str) -> str:
    """Run the Go tool in the folder, and return what it prints. Raises CalledProcessError if it fails."""
    environment = os.environ | {"CGO_ENABLED": "0"}
    done = subprocess.run(["go", *args], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout
