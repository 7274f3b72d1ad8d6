"""The migration at the end of docs/kopf.md: its operators, one after the other, on one cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import httpx
import pytest

from tests.docs.pages import read_blocks
from tests.processes.conftest import Program, environment, kubeconfig, starting

BLOCKS: Final = [block for block in read_blocks("docs/kopf.md") if block.heading == "A migration"]
WRITTEN, MOVED, NATIVE = (block.text for block in BLOCKS if block.language == "python")
DELETE, TIMER = (WRITTEN.index(text) for text in ("@kopf.on.delete", "@kopf.timer"))
MIXED: Final = WRITTEN[:DELETE] + WRITTEN[TIMER:] + MOVED
BRIDGE: Final = ("-m", "trioperator.kopf", "run")
KOPF: Final = ("-m", "kopf", "run")
# The operators of the steps: what runs them, and their source.
STEPS: Final = [(BRIDGE, WRITTEN), (BRIDGE, MIXED), (("-m", "trioperator", "run"), NATIVE)]


class Objects:
    """Client for the objects of the test, in the namespace ``default``."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def apply(self, name: str, text: str) -> None:
        body = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": {"text": text}}
        path, headers = self._path("kopfexamples", name), {"Content-Type": "application/apply-patch+yaml"}
        self._client.patch(f"{path}?fieldManager=test&force=true", json=body, headers=headers).raise_for_status()

    def delete(self, name: str) -> None:
        self._client.delete(self._path("kopfexamples", name)).raise_for_status()

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        response = self._client.get(self._path(kind, name))
        found: dict[str, Any] = response.json()
        return None if response.status_code == 404 else found

    @staticmethod
    def _path(kind: str, name: str) -> str:
        group = "/api/v1" if kind == "configmaps" else "/apis/kopf.dev/v1"
        return f"{group}/namespaces/default/{kind}/{name}"


@contextlib.contextmanager
def running(home: pathlib.Path, command: Sequence[str], source: str) -> Iterator[Program]:
    """Run an operator in the block, and stop it in order."""
    (home / "pages.py").write_text(source)
    env = environment(home, KUBECONFIG=str(home / "kubeconfig"), PYTHONWARNINGS="ignore")
    args = [sys.executable, *command, "pages.py", "--namespace=default", "--standalone"]
    with (home / "log").open("wb") as log, subprocess.Popen(args, cwd=home, env=env, stderr=log) as process:
        try:
            program = Program(process, home / "log")
            yield program
            assert program.stop() == 0, program.output
        finally:
            process.kill()


@pytest.fixture
def objects(tmp_path: pathlib.Path) -> Iterator[Objects]:
    """Yield a client of a cluster of its own."""
    with starting(tmp_path) as (_, url), httpx.Client(base_url=url, timeout=60) as client:
        client.headers["Authorization"] = "Bearer operator-token"
        kubeconfig(tmp_path / "kubeconfig", url, token="operator-token")
        yield Objects(client)


def test_each_step_takes_over_from_the_one_before(tmp_path: pathlib.Path, objects: Objects) -> None:
    has_kopf = importlib.util.find_spec("kopf") is not None and importlib.util.find_spec("pykube") is not None
    steps = [(KOPF, WRITTEN), *STEPS, (BRIDGE, WRITTEN), (KOPF, WRITTEN)] if has_kopf else [*STEPS, (BRIDGE, WRITTEN)]
    objects.apply("lasting", "text of step 0")
    for number, (command, source) in enumerate(steps):
        with running(tmp_path, command, source) as operator:
            play(objects, operator, number)
        published = operator.output.count("Published ")
        assert published == (3 if number == 0 else 2), operator.output  # nothing is handled again
        assert "failed with" not in operator.output
        assert ("Withdrew passing on Trio." in operator.output) == (source in (MIXED, NATIVE))


def play(objects: Objects, operator: Program, number: int) -> None:
    """Create, change and delete objects, and wait for what the operator has to do."""
    objects.apply("passing", f"passing in step {number}")
    operator.wait_for(f"Published passing in step {number}.")
    if number == 0:
        operator.wait_for("Published text of step 0.")
    objects.apply("lasting", f"text of step {number + 1}")
    operator.wait_for(f"Published text of step {number + 1}.")
    page = objects.get("configmaps", "page-lasting")
    assert page is not None
    assert page["data"] == {"text": f"text of step {number + 1}"}
    assert [owner["name"] for owner in page["metadata"]["ownerReferences"]] == ["lasting"]
    objects.delete("passing")
    operator.wait_for("Withdrew passing")
    gone_by = time.monotonic() + 60
    while objects.get("kopfexamples", "passing") is not None:  # else, the next step would change what is being deleted
        assert time.monotonic() < gone_by, operator.output
        time.sleep(0.05)
    found = objects.get("kopfexamples", "lasting")
    assert found is not None
    assert found["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    checks = found["status"].get("checks", 0)
    deadline = time.monotonic() + 60
    while (objects.get("kopfexamples", "lasting") or {})["status"].get("checks", 0) <= checks:
        assert time.monotonic() < deadline, operator.output
        time.sleep(0.05)


def test_the_check_of_the_first_step_says_what_the_page_shows(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pages.py").write_text(WRITTEN)
    args = [sys.executable, "-m", "trioperator", "check", "--kopf", "pages.py"]
    done = subprocess.run(args, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=True)
    [shown] = [block.text for block in BLOCKS if "check --kopf" in block.text]
    assert shown == f"$ trioperator check --kopf pages.py\n{done.stdout}"


def test_the_native_operator_passes_the_check(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pages.py").write_text(NATIVE)
    args = [sys.executable, "-m", "trioperator", "check", "pages.py"]
    done = subprocess.run(args, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    [shown] = [block.text for block in BLOCKS if "trioperator check pages.py" in block.text]
    assert shown == f"$ trioperator check pages.py\n{done.stdout}"
