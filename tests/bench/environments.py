"""Virtual environments of the frameworks: each has only one framework and its dependencies."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import venv

from tests.bench.processes import Framework

ROOT = pathlib.Path(__file__).resolve().parents[2]
KOPF = "1.45.2"
"""The release of Kopf that the goals refer to."""


def find_kopf(version: str = KOPF) -> Framework:
    """Install a release of Kopf from PyPI into an environment of its own, in the user's cache, unless it is there."""
    python = _ensure_venv(f"kopf-{version}", packages=[f"kopf=={version}"])
    return Framework(name="kopf", version=version, python=python, environment={})


def find_trioperator(*, own: bool = False) -> Framework:
    """Take the checkout under the current interpreter if it has all that it needs; else, or if *own*, install it.

    An installed checkout is re-installed each time: the figures must be those of the files as they are.
    """
    environment = {"PYTHONPATH": str(ROOT)}
    python = pathlib.Path(sys.executable)
    if own or not _can_import(python, environment):
        python = _ensure_venv("trioperator", packages=[str(ROOT)], again=True)
        environment = {}
    code = "from trioperator._version import __version__; print(__version__)"
    version = subprocess.run(
        [python, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return Framework(name="trioperator", version=version.stdout.strip(), python=python, environment=environment)


def find_peer(program: str) -> Framework:
    """Return a program that is the same operator in another language."""
    path = pathlib.Path(program).resolve()
    if not os.access(path, os.X_OK):
        raise SystemExit(f"$BENCH_PEER is no program: {path}")
    return Framework(name="peer", version=path.name, python=path, environment={}, program=path)


def _can_import(python: pathlib.Path, environment: dict[str, str]) -> bool:
    command = [
        str(python),
        "-c",
        "import trioperator._supervisor.app",
    ]  # this also compiles it: not part of what is measured
    done = subprocess.run(command, env={**os.environ, **environment}, cwd="/", capture_output=True, check=False)
    return done.returncode == 0


def _ensure_venv(name: str, *, packages: list[str], again: bool = False) -> pathlib.Path:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "trioperator-bench"
    folder = cache / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if complete.exists() and not again:
        return python
    if not complete.exists():
        print(f"Installing {name} into {folder}...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    subprocess.run([python, "-m", "compileall", "-q", str(folder / "lib")], check=False)
    complete.touch()
    return python
