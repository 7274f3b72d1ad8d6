"""The page of the first project, followed word by word from an empty folder: with the wheel, and on a real cluster.

There are no images and no nodes: the operator of the Deployment is a process of the test's virtual environment, with
the arguments, the environment and the service account of its container. The Service of its webhooks is a port.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from tests.controlplane import ControlPlane, free_ports
from tests.docs.pages import ROOT, read
from tests.e2e.deployment import Deployed
from tests.program import Program

PAGE: Final = "docs/first-project.md"
CRD: Final = "greetings.demo.example.com"
_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE: Final = re.compile(r".*`([\w/.-]+\.\w+)`:$")
#: What this machine cannot do.
_SKIPPED: Final = ("docker build ", "docker push ")
#: There is no registry here: everything is installed already, next to the virtual environment.
_OFFLINE: Final = "--quiet --no-index --no-deps --no-build-isolation --disable-pip-version-check"


@dataclasses.dataclass(frozen=True)
class Step:
    """A block of the page, and the paragraph before it."""

    intro: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that the block is for, which the paragraph ends with."""
        found = _FILE.match(self.intro)
        assert found is not None, self
        return found[1]

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """The commands of a console, each with the output that is shown below it."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def read_steps() -> Iterator[Step]:
    """Yield the blocks of the page, in order."""
    *parts, _ = _FENCE.split(re.sub(r"<!--.*?-->\n", "", read(PAGE)))
    for prose, language, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        yield Step(" ".join(prose.strip().rpartition("\n\n")[2].split()), language, text)


def merge(source: str, block: str) -> str:
    """Return a module with the classes and functions of a block in place of its own, and with those that are new.

    A block that has anything else is the whole module.
    """
    parts = dict(split(block))
    if not all(isinstance(key, str) for key in parts):
        return block
    return "\n\n".join({**dict(split(source)), **parts}.values())


def split(source: str) -> Iterator[tuple[str | int, str]]:
    """Yield the statements of a module: classes and functions by their names, everything else by its line."""
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        name = node.name if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else first
        yield name, "".join(lines[first - 1 : node.end_lineno])


class Shell:
    """A terminal in which the commands of the page are typed, and what they start."""

    def __init__(self, folder: pathlib.Path, controlplane: ControlPlane) -> None:
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TRIOPERATOR_", "KUBE"))
        }
        self.folder = folder
        self.environ = {**kept, "HOME": str(folder), "PATH": f"{controlplane.assets}{os.pathsep}{kept['PATH']}"}
        self.environ |= {"COLUMNS": "120", "KUBECONFIG": str(controlplane.kubeconfig)}
        self.programs: list[Program] = []
        self._read = 0  # of the log of the last program
        self._controlplane = controlplane
        self._port = free_ports(1)[0]
        self.deployed: list[Deployed] = []

    def type(self, command: str, output: str) -> None:
        """Run a command of the page, and compare what it prints with what the page shows."""
        match command.split():
            case _ if command.startswith(_SKIPPED):
                pass
            case ["mkdir", name, "&&", "cd", _]:
                (self.folder / name).mkdir()
                self.folder /= name
            case ["cd", name]:
                self.folder /= name
            case ["python3", "-m", "venv", name, "&&", ".", activate]:
                self._make_environment(self.folder / name)
                self.environ["PATH"] = f"{(self.folder / activate).parent}{os.pathsep}{self.environ['PATH']}"
            case ["export", variable]:
                self._export(*variable.split("="))
            case ["unset", "KUBECONFIG"]:
                self.environ["KUBECONFIG"] = str(self._controlplane.kubeconfig)
            case ["trioperator", "run", *_]:
                self._start(command)
            case ["kubectl", "apply", "--server-side", "-k", folder]:
                self._deploy(folder)
            case ["kubectl", "--namespace", _, "rollout", "status", _]:
                self._roll_out()
            case ["trioperator", "crds", "--migrate"]:
                assert self._run(command).stdout.endswith(output)  # it may have to wait before
            case ["kubectl", *_]:
                self._await(command, output)
            case _:
                command = command.replace("pip wheel", f"pip wheel {_OFFLINE}")
                found = self._run(command.replace("pip install", f"pip install --no-compile {_OFFLINE}"))
                assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"
                assert found.stdout == output or not (output or command.startswith("trioperator crds")), found.stdout

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-o", "pipefail", "-c", command]
        return subprocess.run(
            words, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=120, check=False
        )

    def _await(self, command: str, output: str) -> None:
        """Repeat a command until it succeeds and prints what the page shows: what is changed needs a moment."""
        deadline = time.monotonic() + 60
        while True:
            found = self._run(command)
            if found.returncode == 0 and (not output or read_table(found.stdout) == read_table(output)):
                return
            assert time.monotonic() < deadline, f"{command}: {found.stdout}{found.stderr}"
            time.sleep(0.2)

    def _make_environment(self, folder: pathlib.Path) -> None:
        """Make a virtual environment that finds what is installed for the tests, except trioperator itself."""
        has_pip = importlib.util.find_spec("pip") is not None
        venv.create(folder, symlinks=True, with_pip=not has_pip)
        [site] = folder.glob("lib/python*/site-packages")
        paths = sysconfig.get_paths()
        (site / "shared.pth").write_text("\n".join(dict.fromkeys([paths["purelib"], paths["platlib"]])))
        for name in ("pip", "pytest"):
            script = folder / "bin" / name
            script.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m {name} "$@"\n')
            script.chmod(0o755)

    def _export(self, name: str, shown: str) -> None:
        [found] = re.findall(r"kubectl --kubeconfig=(\S+)", self.programs[-1].output)
        temporary = re.escape(tempfile.gettempdir())
        assert re.fullmatch(re.escape(shown).replace("…", r"\w+").replace("/tmp", temporary), found)
        self.environ[name] = found

    def _start(self, command: str) -> None:
        log = self.folder.parent / "log.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environ,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.programs.append(Program(process, log))

    def follow_log(self, lines: str) -> None:
        """Wait until the running operator has logged what the page shows, in this order."""
        for line in lines.splitlines():
            output = self.programs[-1].wait_for(line, after=self._read)
            self._read = output.index(line, self._read) + len(line)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        assert self.programs[-1].stop(signal.SIGINT) == 0

    def edit(self, step: Step) -> None:
        """Save a file that the page shows, as a whole or its classes and functions."""
        path, made = self.folder / step.file, self.folder.parent / "edited"
        old = path.read_text() if path.exists() else ""
        made.write_text(merge(old, step.text) if step.language == "python" else step.text)
        made.replace(path)  # in one step, as otherwise an empty file may be loaded

    def _deploy(self, folder: str) -> None:
        """Apply the manifests, with a port of this machine in place of the Service of the webhooks."""
        built = self._run(f"kubectl kustomize {folder}").stdout
        deployed = Deployed(self._controlplane, self.folder.parent, list(yaml.safe_load_all(built)))
        self.deployed.append(deployed)
        deployed.redirect_webhooks(self._port)
        (self.folder.parent / "applied.yaml").write_text(yaml.safe_dump_all(deployed.manifests))
        self._await("kubectl apply --server-side -f ../applied.yaml", "")

    def _roll_out(self) -> None:
        """Replace the pod, as the strategy of the Deployment demands: first the old one stops."""
        deployed = self.deployed[-1]
        assert deployed.deployment["spec"]["strategy"] == {"type": "Recreate"}
        if len(self.deployed) > 1:
            assert self.programs[-1].stop() == 0
        workdir = self.folder.parent / "empty"
        workdir.mkdir(exist_ok=True)
        command = [str(self.folder.parent / ".venv" / "bin" / "trioperator"), "run"]
        log = self.folder.parent / f"log{len(self.deployed)}.txt"
        self.programs.append(deployed.start(command, environ=self.environ, workdir=workdir, log=log))
        self.programs[-1].wait_for("The operator is ready.")

    def close(self) -> None:
        """Kill what still runs, and delete what was deployed."""
        for program in self.programs:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait()
        for deployed in self.deployed[-1:]:
            deployed.close()
            kubectl = self._controlplane.kubectl
            kubectl("patch", "crd", CRD, "--type=merge", "-p", '{"spec": {"conversion": null}}', check=False)
            kubectl("delete", f"crd/{CRD}", f"namespace/{deployed.namespace}", "--wait=false", check=False)


def read_table(output: str) -> list[list[str]]:
    """Return the words of each line, without ages."""
    rows = [line.split() for line in output.splitlines()]
    has_age = bool(rows) and rows[0][-1:] == ["AGE"]
    return [row[:-1] if has_age else row for row in rows]


@pytest.fixture
def shell(tmp_path: pathlib.Path, controlplane: ControlPlane) -> Iterator[Shell]:
    (tmp_path / "trioperator").symlink_to(ROOT)  # the checkout, next to which the page begins
    shell = Shell(tmp_path, controlplane)
    with contextlib.closing(shell):
        yield shell


def test_a_project_goes_from_an_empty_folder_to_production_and_to_a_new_version(
    shell: Shell, controlplane: ControlPlane
) -> None:
    for step in read_steps():
        if "Ctrl-C" in step.intro:
            shell.interrupt()
        if step.language == "console":
            for command, output in step.commands:
                shell.type(command, output)
        elif step.language == "text":
            shell.follow_log(step.text)
        else:
            shell.edit(step)
    assert shell.programs[-1].stop() == 0

    # It was the wheel, and not the checkout.
    [installed] = (shell.folder.parent / ".venv").glob("lib/python*/site-packages/trioperator/__init__.py")
    assert installed.is_file()
    # Nothing was forbidden, and nothing that the log calls an error.
    assert shell.deployed[0].forbidden() == []
    for program in shell.programs[1:]:
        assert '"severity": "error"' not in program.output
        assert "forbidden" not in program.output
    definition = controlplane.get("crd", CRD)
    assert definition["status"]["storedVersions"] == ["v2"]
    service = definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert service["name"] == "greeting-operator-webhooks"
