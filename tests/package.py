"""The package as users get it: ``python -m tests.package DIST`` installs the wheel in DIST where nothing else is.

The wheel has all files of the package and nothing else, it needs no packages but those that it declares, and an
operator runs with it without the repository. All that the image needs is locked, and there are wheels of it.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from typing import Final

ROOT: Final = pathlib.Path(__file__).parents[1]
#: What a wheel has about itself.
INFO: Final = frozenset({"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"})

APP: Final = """
import os
import signal

import trioperator

@trioperator.on.create("configmaps")
def create_fn(name, logger, **_):
    logger.info("Handled %s with %s.", name, trioperator.__file__)
    os.kill(os.getpid(), signal.SIGTERM)
"""
OBJECT: Final = """
{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}}
"""


def find_differences(wheel: pathlib.Path) -> list[str]:
    """Return the files that the wheel lacks, with a minus, and those that it should not have, with a plus."""
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    info = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    expected = {f"{info}/{name}" for name in INFO}
    for path in (ROOT / "trioperator").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            expected.add(path.relative_to(ROOT).as_posix())
    return [f"-{name}" for name in sorted(expected - found)] + [f"+{name}" for name in sorted(found - expected)]


def run_operator(
    command: Sequence[str | pathlib.Path], folder: pathlib.Path, environ: Mapping[str, str] = os.environ
) -> str:
    """Run an operator on the embedded server, in a folder, until it has handled an object; return its log."""
    (folder / "app.py").write_text(APP)
    (folder / "one.json").write_text(OBJECT)
    result = subprocess.run(
        [*command, "run", "--embedded", "--apply=one.json", "app.py"],
        cwd=folder,
        env={key: value for key, value in environ.items() if not key.startswith(("TRIOPERATOR_", "KUBE"))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def check_lock(pip: Sequence[str], machine: str) -> None:
    """Resolve what the image installs, as it does: with hashes, and from wheels only. Raises CalledProcessError."""
    platforms = [f"--platform={each}_{machine}" for each in ("manylinux2014", "manylinux_2_28", "manylinux_2_34")]
    # pip compares Requires-Python with its own Python, which may be older than the image's; the lock is made for that.
    image = ["--python-version=3.13", "--ignore-requires-python", "--only-binary=:all:", *platforms, "--target=unused"]
    for name in ("requirements", "build-requirements"):
        source = ["--require-hashes", f"--requirement={ROOT}/deploy/{name}.txt"]
        subprocess.run([*pip, "install", "--dry-run", "--ignore-installed", *image, *source], check=True)


def main(dist: str) -> None:
    """Install the wheel in a new environment, and run an operator with it. Raises AssertionError."""
    [wheel] = pathlib.Path(dist).glob("*.whl")
    assert find_differences(wheel) == []
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        venv.create(folder / "venv", with_pip=True)
        pip = [str(folder / "venv/bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", str(wheel.resolve())], cwd=folder, env=environ, check=True)
        subprocess.run([*pip, "check"], cwd=folder, env=environ, check=True)
        for machine in ("x86_64", "aarch64"):
            check_lock(pip, machine)
        log = run_operator([folder / "venv/bin/trioperator"], folder, environ)
        assert f"Handled one with {folder}/venv/lib" in log, log
        help = subprocess.run([folder / "venv/bin/trioperator", "--help"], capture_output=True, text=True, check=True)
        for command in ("run", "cluster", "rbac", "manifests", "top"):
            assert command in help.stdout
            subprocess.run([folder / "venv/bin/trioperator", command, "--help"], capture_output=True, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
