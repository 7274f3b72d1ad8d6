"""``python -m tests.world.suite``: Kopf's own tests of its public behaviour, under Kopf and under ``trioperator.kopf``.

The files are those of a checkout of Kopf's repository, as for :mod:`tests.world`, with fixtures of our own in place of
Kopf's, which are made of its internals. Each test that Kopf passes must pass, but those in :data:`KNOWN`.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Final

from tests.world.sources import find_checkout

#: Files of the tests of Kopf that need nothing but public names and models of client libraries.
FILES: Final = (
    "hierarchies/conftest.py",
    "hierarchies/test_labelling.py",
    "hierarchies/test_name_harmonizing.py",
    "hierarchies/test_namespace_adjusting.py",
    "hierarchies/test_owner_referencing.py",
    "hierarchies/test_type_validation.py",
    "lifecycles/conftest.py",
    "lifecycles/test_global_defaults.py",
    "registries/test_default_registry.py",
    "settings/test_defaults.py",
    "test_filtering_helpers.py",
)
#: What fails, by the beginnings of the tests' names, and why.
KNOWN: Final = {
    "test_adopting[": "replaces functions in kopf._kits.hierarchies by mocks",
    "test_deprecated_batch_window_is_still_persisted": "batch_window has an effect, and is not deprecated",
}
_CONFTEST: Final = """
import importlib, os
if os.environ["WORLD_MODE"] == "bridge":
    import trioperator.kopf
    trioperator.kopf.install()
import kopf
import pytest

for name in ("pykube", "kubernetes", "kubernetes_asyncio"):
    globals()[name] = pytest.fixture(name=name)(lambda name=name: importlib.import_module(name))

@pytest.fixture(autouse=True)
def clear_default_registry():
    before = kopf.get_default_registry()
    kopf.set_default_registry(type(before)())
    yield kopf.get_default_registry()
    kopf.set_default_registry(before)
"""


def run(mode: str, folder: pathlib.Path) -> dict[str, bool]:
    """Run the tests in a folder, and return which have passed."""
    report = folder.with_name(f"{mode}.txt")
    options = [
        "-q",
        "-rA",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:trio",
        "-p",
        "no:trioperator",
        "-W",
        "ignore",
    ]
    command = [sys.executable, "-m", "pytest", str(folder), "--import-mode=importlib", *options]
    with report.open("w") as file:
        env = {**os.environ, "WORLD_MODE": mode}
        arguments = ["-o", "asyncio_mode=auto", f"--rootdir={folder}", "-c", os.devnull]
        subprocess.run([*command, *arguments], env=env, stdout=file, stderr=subprocess.STDOUT, check=False)
    return read_report(report.read_text())


def read_report(text: str) -> dict[str, bool]:
    """Return which tests have passed, by their names without folders, from the summary of pytest."""
    found: dict[str, bool] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASSED", "FAILED", "ERROR") and "::" in rest:
            name = rest.partition(" - ")[0]
            found[name.rpartition("/")[2]] = word == "PASSED"
    return found


def find_unexplained(failed: Iterable[str]) -> list[str]:
    """Return the names of the tests of which nothing is known."""
    return [name for name in failed if not name.partition("::")[2].startswith(tuple(KNOWN))]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        checkout = find_checkout("nolar/kopf", pathlib.Path(scratch))
        folder = pathlib.Path(scratch, "suite")
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / "tests" / name, folder / name)
        (folder / "conftest.py").write_text(_CONFTEST)
        kopf, bridge = run("kopf", folder), run("bridge", folder)
    expected = [name for name, passed in kopf.items() if passed]
    failed = [name for name in expected if not bridge.get(name)]
    unexplained = find_unexplained(failed)
    for beginning, why in KNOWN.items():
        count = sum(name.partition("::")[2].startswith(beginning) for name in failed)
        print(f"{count:4} {beginning:55} {why}")
    for name in unexplained:
        print(f"     {name}: fails")
    print(f"Kopf passes {len(expected)}, trioperator.kopf {len(expected) - len(failed)} of these.")
    sys.exit(bool(unexplained) or not expected)


if __name__ == "__main__":
    main()
