"""``kopf.testing.KopfRunner`` after ``install()``, as in docs/kopf.md: in a process of its own."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from tests.kopf.test_running import MANIFESTS, OPERATOR
from tests.processes.conftest import environment

TEST = """
import pathlib
import sys
import time

import trioperator.kopf
trioperator.kopf.install()  # conftest.py would do that

import kopf
import kopf.testing

settings = kopf.OperatorSettings()
settings.watching.server_timeout = 10
with kopf.testing.KopfRunner(
    ["run", "--all-namespaces", "--verbose", "--standalone", "--embedded", "--apply=manifests.yaml", "app.py"],
    timeout=60, settings=settings,
) as runner:
    time.sleep(1)
assert runner.exception is None
assert runner.exit_code == 0, runner.output
assert "[default/s] Creating 7." in runner.output
assert "Cleaned up." in runner.output
assert sys.modules["kopf"] is kopf
"""


def test_the_runner_of_kopf_runs_operators_with_asyncio(tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text(OPERATOR)
    (tmp_path / "manifests.yaml").write_text(MANIFESTS)
    (tmp_path / "check.py").write_text(TEST)
    command = [sys.executable, "check.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
