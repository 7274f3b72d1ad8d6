"""The tutorial, step by step: on the embedded API server in virtual time, and with kubectl on a real one."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.controlplane import ControlPlane
from tests.docs.pages import Block, read, read_blocks
from tests.processes.conftest import environment
from tests.program import Program
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

PAGE = "docs/tutorial.md"
BLOCKS = [block for block in read_blocks(PAGE) if block.heading != "A cluster to play with"]
FILES = re.findall(r"`([a-z]+\.yaml)`[^`]*:\n\n```yaml\n", read(PAGE))
#: A volume that can be expanded, where no controller makes volumes.
VOLUMES = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: tutorial
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/no-provisioner
allowVolumeExpansion: true
---
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: tutorial-{number}}}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {{storage: 10Gi}}
  hostPath: {{path: /tmp/tutorial-{number}}}
  storageClassName: tutorial
---
"""


class Steps:
    """The blocks of the page, in order: files are saved, the operator is run again when its file changes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._files = iter(FILES)
        self._source = ""
        self._versions = 0

    def save_yaml(self, block: Block) -> None:
        (self.folder / next(self._files)).write_text(block.text)

    def save_python(self, block: Block) -> pathlib.Path:
        """Replace the operator's file, or add to it. Each version has a folder of its own."""
        self._source = block.text if block.text.startswith("import") else f"{self._source}\n\n{block.text}"
        self._versions += 1
        path = self.folder / f"version{self._versions}" / "ephemeral.py"
        path.parent.mkdir()
        path.write_text(self._source)
        return path

    def list_commands(self, block: Block) -> Iterator[tuple[list[str], str]]:
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield shlex.split(command), output

    def check_complete(self) -> None:
        assert next(self._files, None) is None
        assert self._versions == 5


def normalize(output: str) -> list[list[str]]:
    """Return a table without the widths of its columns."""
    return [line.split() for line in output.splitlines()]


class EmbeddedKubectl:
    """The commands of the page for a cluster in memory."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        self._cluster = cluster
        self._folder = folder

    async def run(self, words: list[str]) -> str:
        match words:
            case ["kubectl", "apply", "-f", name]:
                await self._cluster.apply(self._folder / name)
            case ["kubectl", "delete", "-f", "crd.yaml"]:
                await self._cluster.delete("customresourcedefinitions", "ephemeralvolumeclaims.example.com")
            case ["kubectl", "delete", kind, name]:
                await self._cluster.delete(kind, name)
                await self._cluster.wait_deleted(kind, name)
            case ["kubectl", "patch", kind, name, "--type=merge", patch]:
                await self._cluster.patch(kind, name, json.loads(patch.removeprefix("--patch=")))
            case ["kubectl", "label", kind, name, *labels]:
                pairs = [label.rstrip("-").partition("=") for label in labels]
                changes = {key: value if equals else None for key, equals, value in pairs}
                await self._cluster.patch(kind, name, {"metadata": {"labels": changes}})
            case ["kubectl", "get", "evc"]:
                return await self._table("evc", "NAME:.metadata.name,SIZE:.spec.size,CLAIM:.status.claim", missing="")
            case ["kubectl", "get", kind, "-o", columns]:
                return await self._table(kind, columns.removeprefix("custom-columns="))
            case other:
                pytest.fail(f"{other} is not known")
        return ""

    async def _table(self, kind: str, columns: str, missing: str = "<none>") -> str:
        pairs = [column.partition(":.")[::2] for column in columns.split(",")]
        rows = [" ".join(title for title, _ in pairs)]
        for obj in await self._cluster.list(kind):
            found = [_find(obj, path) for _, path in pairs]
            rows.append(" ".join(missing if value is None else _show(value) for value in found))
        return "\n".join(rows)


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _find(obj: Any, path: str) -> Any:
    for key in path.replace("[0]", ".0").split("."):
        obj = (obj or [None])[0] if key == "0" else (obj or {}).get(key)
    return obj


async def test_each_step_works_on_the_embedded_api_server(
    tmp_path: pathlib.Path, cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    steps, kubectl = Steps(tmp_path), EmbeddedKubectl(cluster, tmp_path)
    operator.expect_failures("create_fn")
    async with cluster.open_controllers("volumes", "pods"):
        for block in BLOCKS:
            if block.language == "yaml":
                steps.save_yaml(block)
            elif block.language == "python":
                if operator.is_running:
                    await operator.stop()
                await operator.start(str(steps.save_python(block)))
                await trio.sleep(1)
            elif block.language == "text":
                logged = {f"[{line.namespace}/{line.name}] {line.message}" for line in tuple(operator.logs)}
                assert [line for line in block.text.splitlines() if line not in logged] == [], logged
            else:
                for words, output in steps.list_commands(block):
                    if words[0] == "kubectl":
                        await follow_embedded(kubectl, words, output)
        steps.check_complete()


async def test_a_volume_that_shall_shrink_is_refused_as_the_page_says(
    tmp_path: pathlib.Path, cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    steps = Steps(tmp_path)
    sources = []
    for block in BLOCKS:
        if block.language == "yaml":
            steps.save_yaml(block)
        elif block.language == "python":
            sources.append(steps.save_python(block))
    resizing = next(path for path in sources if "resize_fn" in path.read_text())
    operator.expect_failures("resize_fn/spec.size")
    async with cluster.open_controllers("volumes"):
        await cluster.apply(tmp_path / "crd.yaml")
        await operator.start(str(resizing))
        await cluster.apply(tmp_path / FILES[1])
        await trio.sleep(10)
        for size in ("2Gi", "1Gi"):
            await cluster.patch("evc", "my-claim", {"spec": {"size": size}})
            await trio.sleep(130)
        found = await cluster.get("pvc", "my-claim")
    assert found["spec"]["resources"]["requests"] == found["status"]["capacity"] == {"storage": "2Gi"}
    failed = [call for call in operator.calls.select(handler="resize_fn/spec.size") if call.failed]
    assert len(failed) >= 2  # every minute
    assert "can not be less than status.capacity" in str(failed[0].error)


async def follow_embedded(kubectl: EmbeddedKubectl, words: list[str], output: str) -> None:
    """Run a command, and compare its output with the page's, when the operator has had time for what was before."""
    await trio.sleep(10 if output else 0)
    found = await kubectl.run(words)
    assert not output or normalize(found) == normalize(output), words
    await trio.sleep(1)


@pytest.mark.e2e
def test_each_step_works_on_a_real_api_server(tmp_path: pathlib.Path, controlplane: ControlPlane) -> None:
    steps = Steps(tmp_path)
    programs: list[Program] = []

    def kubectl(*words: str) -> str:
        command = [str(controlplane.assets / "kubectl"), f"--kubeconfig={controlplane.kubeconfig}", *words]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
        return result.stdout

    def run(path: pathlib.Path) -> Program:
        log = tmp_path / f"log{len(programs)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "trioperator", "run", "ephemeral.py"],
                cwd=path.parent,
                env=environment(tmp_path, KUBECONFIG=str(controlplane.kubeconfig)),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        programs.append(Program(process, log))
        programs[-1].wait_for("The operator is ready.")
        return programs[-1]

    volumes = VOLUMES + "".join(VOLUME.format(number=number) for number in range(3))
    controlplane.kubectl("apply", "-f", "-", input=volumes)
    try:
        for block in BLOCKS:
            if block.language == "yaml":
                steps.save_yaml(block)
            elif block.language == "python":
                if programs:
                    assert programs[-1].stop() == 0
                run(steps.save_python(block))
            elif block.language == "text":
                for line in block.text.splitlines():
                    programs[-1].wait_for(line)
            else:
                for words, output in steps.list_commands(block):
                    if words[0] == "kubectl":
                        follow(kubectl, words[1:], output)
        steps.check_complete()
        assert programs[-1].stop(signal.SIGINT) == 0
    finally:
        for program in programs:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait()
        controlplane.kubectl("delete", "-f", "-", "--wait=false", input=volumes)


def follow(kubectl: Callable[..., str], words: list[str], output: str) -> None:
    """Run a command until its output is as the page shows it."""
    deadline = time.monotonic() + 90
    while normalize(found := kubectl(*words)) != normalize(output) and output:
        assert time.monotonic() < deadline, f"{words}: {found}"
        time.sleep(0.5)
