"""The quickstart, followed word by word from an empty folder: on the embedded API server, and on a real one."""

from __future__ import annotations

import base64
import html
import json
import pathlib
import re
import shlex
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import httpx
import pytest
import yaml

from tests.controlplane import ControlPlane
from tests.docs.pages import read, read_blocks, read_commands, read_files, without_times
from tests.processes.conftest import environment
from tests.program import Program

PAGE = "docs/quickstart.md"
COMMANDS = read_commands(PAGE)
[EMBEDDED, REMOTE] = [command for command, _ in COMMANDS if command.startswith("trioperator run")]
KUBECTL = [(command, output) for command, output in COMMANDS if command.startswith("kubectl")]
LOGS = [line for block in read_blocks(PAGE, "text") for line in without_times(block.text).splitlines()]

Run: TypeAlias = Callable[[str], Program]
Kubectl: TypeAlias = Callable[[str], str]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with the files of the page."""
    files = read_files(PAGE)
    assert list(files) == ["crd.yaml", "hello.yaml", "main.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def run(folder: pathlib.Path) -> Iterator[Run]:
    """Yield a function that starts a command of the page in the folder. Afterwards, the processes are killed."""
    programs: list[Program] = []

    def run(command: str, **variables: str) -> Program:
        log = folder / f"log{len(programs)}"
        words = [sys.executable, "-m", *shlex.split(command)]
        with log.open("wb") as file:
            given = environment(folder, **variables)
            process = subprocess.Popen(words, cwd=folder, env=given, stdout=file, stderr=subprocess.STDOUT)
        programs.append(Program(process, log))
        return programs[-1]

    yield run
    for program in programs:
        program.process.kill()
        program.process.wait()


def eventually(expected: str, ask: Callable[[], str]) -> None:
    """Ask again until the output is as the page shows it: what operators do needs a moment."""
    deadline = time.monotonic() + 60
    while (found := ask()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def follow(commands: list[tuple[str, str]], kubectl: Kubectl) -> None:
    """Run commands, and compare their output with the page's."""
    for command, output in commands:
        if output:
            eventually(output, lambda command=command: kubectl(command))  # type: ignore[misc]  # a bound argument
        else:
            kubectl(command)


class HTTP:
    """Stand-in of kubectl, as far as the page needs it: where there is none, the test shows all else."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        [cluster], [user] = config["clusters"], config["users"]
        cluster, user = cluster["cluster"], user["user"]
        authority = cluster["certificate-authority-data"]
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        headers = {"Authorization": f"Bearer {user['token']}"}
        self._client = httpx.Client(base_url=cluster["server"], headers=headers, verify=context, timeout=60)

    def __call__(self, command: str) -> str:
        match shlex.split(command):
            case ["kubectl", "get", "greetings"]:
                return self._table(self._send("GET", "", accept="application/json;as=Table;v=v1;g=meta.k8s.io"))
            case ["kubectl", "patch", "greeting", name, "--type=merge", patch]:
                self._send("PATCH", f"/{name}", json.loads(patch.removeprefix("--patch=")))
            case ["kubectl", "delete", "greeting", name]:
                self._send("DELETE", f"/{name}")
            case other:
                pytest.fail(f"{other} is not known")
        return ""

    def _send(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> Any:
        headers = {"Content-Type": "application/merge-patch+json", "Accept": accept}
        url = f"/apis/example.com/v1/namespaces/default/greetings{path}"
        response = self._client.request(method, url, json=body, headers=headers)
        response.raise_for_status()
        return response.json()

    @staticmethod
    def _table(table: Any) -> str:
        rows = [[column["name"].upper() for column in table["columnDefinitions"]]]
        rows += [[str(cell) for cell in row["cells"]] for row in table["rows"]]
        widths = [max(map(len, column)) + 3 for column in zip(*rows, strict=True)]
        lines = ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "".join(f"{line.rstrip()}\n" for line in lines)

    def close(self) -> None:
        self._client.close()


def follow_embedded(run: Run, make_kubectl: Callable[[pathlib.Path], Kubectl]) -> None:
    program = run(EMBEDDED)
    program.wait_for(LOGS[2])
    [found] = re.findall(r"kubectl --kubeconfig=(\S+)", program.output)
    promised = next(command for command, _ in COMMANDS if command.startswith("export"))
    pattern = re.escape(promised).replace("…", r"\w+").replace("/tmp", re.escape(tempfile.gettempdir()))
    assert re.fullmatch(pattern, f"export KUBECONFIG={found}")
    steps = [command for command, _ in KUBECTL]
    follow(KUBECTL[: steps.index("kubectl delete greeting hello") + 1], make_kubectl(pathlib.Path(found)))
    program.wait_for(LOGS[-1])
    logged = without_times(program.output).splitlines()
    assert [line for line in LOGS if line not in logged] == []
    assert program.stop(signal.SIGINT) == 0


def test_the_page_can_be_followed_on_the_embedded_api_server(run: Run) -> None:
    clients: list[HTTP] = []

    def connect(kubeconfig: pathlib.Path) -> Kubectl:
        clients.append(HTTP(kubeconfig))
        return clients[0]

    try:
        follow_embedded(run, connect)
    finally:
        for client in clients:
            client.close()


def test_the_picture_of_the_terminal_shows_what_the_page_says() -> None:
    """It is made by docs/site/pictures.py."""
    picture = html.unescape(read("docs/images/start.svg")).replace("\xa0", " ")
    assert [line for line in LOGS[:3] if line not in picture] == []


@pytest.mark.e2e
def test_the_page_can_be_followed_with_kubectl(run: Run, folder: pathlib.Path, controlplane: ControlPlane) -> None:
    def connect(kubeconfig: pathlib.Path) -> Kubectl:
        words = [str(controlplane.assets / "kubectl"), f"--kubeconfig={kubeconfig}"]

        def kubectl(command: str) -> str:
            given = [*words, *shlex.split(command)[1:]]
            result = subprocess.run(given, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
            return result.stdout

        return kubectl

    follow_embedded(run, connect)

    steps = [command for command, _ in KUBECTL]
    at = steps.index("kubectl apply -f crd.yaml")
    kubectl = connect(controlplane.kubeconfig)
    follow(KUBECTL[at : at + 1], kubectl)
    kubectl("kubectl wait --for=condition=Established crd/greetings.example.com --timeout=90s")
    program = run(REMOTE, KUBECONFIG=str(controlplane.kubeconfig))  # type: ignore[call-arg]  # variables
    program.wait_for("The operator is ready.")
    follow(KUBECTL[at + 1 :], kubectl)
    kubectl("kubectl delete -f hello.yaml")
    program.wait_for("Deletion is processed: 1 succeeded; 0 failed.")
    assert program.stop(signal.SIGINT) == 0
    kubectl("kubectl delete -f crd.yaml")
