"""Failures before an operator runs: one clear message each, and an exit code that shows whether it is a usage error."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import socket
import subprocess
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import pytest

from tests import forking
from tests.processes.conftest import environment, kubeconfig, starting

Result: TypeAlias = subprocess.CompletedProcess[str]


@dataclasses.dataclass(frozen=True)
class Case:
    """Call of the command, and how it ends: *traceback* is the file of the user's code where the traceback starts."""

    args: tuple[str, ...]
    code: int
    message: str
    traceback: str | None = None
    config: str = "good"
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


STARTUP = "import trioperator as kopf\n@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)\ndef begin(settings, **_):\n"
CREATE = "@kopf.on.create('kopfexamples')\ndef create(**_): ...\n"
FILES = {
    "good.py": f"{STARTUP}    settings.networking.error_backoffs = [0.1]\n{CREATE}",
    "syntax.py": "import trioperator\ndef f(:\n    pass\n",
    "crash.py": "def f():\n    return 1 / 0\n\nf()\n",
    "package/__init__.py": "",
    "package/broken.py": "x = {}['no such key']\n",
    "binary.py": "\x00\x01",
    "permanent.py": f"{STARTUP}    raise kopf.PermanentError('no license')\n{CREATE}",
    "arbitrary.py": f"{STARTUP}    x = 1\n    raise ValueError('no luck')\n{CREATE}",
    "settings.py": f"{STARTUP}    settings.posting.enable = False\n{CREATE}",
    "argument.py": "import trioperator as kopf\n@kopf.on.create('kopfexamples')\ndef create(spec, speck): ...\n",
    "option.py": "import trioperator as kopf\n@kopf.on.create('kopfexamples', lables={})\ndef create(**_): ...\n",
    "parentheses.py": "import trioperator as kopf\n@kopf.on.create\ndef create(**_): ...\n",
    "many.yaml": "apiVersion: v1\nkind: List\nitems: [1]\n",
}
RUN = ("run", "-A")
CASES = {
    "401": Case((*RUN, "good.py"), 1, "rejected the credentials", config="401"),  # it takes longest
    "no file": Case((*RUN, "nothing.py"), 2, "Cannot read the file nothing.py: No such file or directory."),
    "no module": Case((*RUN, "-m", "no_such_module"), 2, "Cannot import the module no_such_module"),
    "no option": Case((*RUN, "good.py", "--bogus"), 2, "No such option: --bogus"),
    "nothing to run": Case(("run",), 2, "pass files or modules (-m) with handlers"),
    "both scopes": Case((*RUN, "-n", "default", "good.py"), 2, "pass either -n or -A, not both"),
    "a variable": Case((*RUN, "good.py"), 2, "'xml' is not one of", variables={"TRIOPERATOR_RUN_LOG_FORMAT": "xml"}),
    "an endpoint": Case((*RUN, "-L", "localhost", "good.py"), 2, "localhost"),
    "a taken endpoint": Case((*RUN, "-L", "http://127.0.0.1:TAKEN/", "good.py"), 2, "port TAKEN of 127.0.0.1"),
    "bad manifests": Case(("run", "--embedded", "--apply=many.yaml", "good.py"), 2, "Document 1 of many.yaml"),
    "no kubeconfig": Case((*RUN, "good.py"), 2, "none (from $KUBECONFIG) does not exist", config="none"),
    "no YAML": Case((*RUN, "good.py"), 2, "broken", config="broken"),
    "no context": Case((*RUN, "good.py"), 2, "no-such-context", config="contextless"),
    "no cluster": Case((*RUN, "good.py"), 2, "no-such-cluster", config="clusterless"),
    "a bad certificate": Case((*RUN, "good.py"), 2, "certificate", config="certificate"),
    "nobody listens": Case((*RUN, "good.py"), 1, "Cannot connect to 127.0.0.1:1", config="unreachable"),
    "no name": Case((*RUN, "good.py"), 1, "no-such-host.invalid", config="nameless"),
    "no TLS": Case((*RUN, "good.py"), 1, "127.0.0.1", config="plain"),
    "403": Case((*RUN, "good.py"), 1, "HTTP 403", config="403"),
    "a syntax error": Case((*RUN, "syntax.py"), 2, "SyntaxError", "syntax.py"),
    "a crash": Case((*RUN, "crash.py"), 2, "ZeroDivisionError", "crash.py"),
    "a broken module": Case((*RUN, "-m", "package.broken"), 2, "KeyError", "package/broken.py"),
    "no source": Case((*RUN, "binary.py"), 2, "Cannot load the file binary.py", ""),
    "a permanent error": Case((*RUN, "permanent.py"), 1, "The startup handlers have failed: begin: no license"),
    "an arbitrary error": Case((*RUN, "arbitrary.py"), 1, "have failed: begin: ValueError: no luck", "arbitrary.py"),
    "a wrong setting": Case((*RUN, "settings.py"), 1, "did you mean 'enabled'?", "settings.py"),
    "a wrong argument": Case((*RUN, "argument.py"), 2, "requires arguments that do not exist: speck"),
    "a wrong decorator's option": Case((*RUN, "option.py"), 2, "on.create has no option lables", "option.py"),
    "no parentheses": Case((*RUN, "parentheses.py"), 2, "parentheses", "parentheses.py"),
}


@pytest.fixture(scope="module")
def taken() -> Iterator[str]:
    """Yield a port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a directory with all the files that have errors."""
    folder = tmp_path_factory.mktemp("failures")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def results(folder: pathlib.Path, taken: str, server_url: str) -> Mapping[str, Result]:
    """Return the results of all cases, which run a few at a time."""
    with contextlib.ExitStack() as stack:
        urls = {code: stack.enter_context(starting(folder, f"error={code}"))[1] for code in ("401", "403")}
        port = server_url.rpartition(":")[2]
        urls |= {
            "good": server_url,
            "unreachable": "http://127.0.0.1:1",
            "nameless": "https://no-such-host.invalid",
            "plain": f"https://127.0.0.1:{port}",
        }
        for name, url in urls.items():
            kubeconfig(folder / name, url, token="any")
        good = (folder / "good").read_text()
        (folder / "broken").write_text("a: [")
        (folder / "contextless").write_text(
            good.replace('"current-context": "test"', '"current-context": "no-such-context"')
        )
        (folder / "clusterless").write_text(good.replace('{"cluster": "test"', '{"cluster": "no-such-cluster"'))
        certificate = '{"certificate-authority-data": "bm90IGEgY2VydGlmaWNhdGU=", "server": "https:'
        (folder / "certificate").write_text(good.replace('{"server": "http:', certificate))

        def run(case: Case) -> Result:
            args = [arg.replace("TAKEN", taken) for arg in case.args]
            variables = environment(folder, KUBECONFIG=str(folder / case.config), **case.variables)
            return forking.run(args, env=variables, cwd=folder)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            return dict(zip(CASES, pool.map(run, CASES.values()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_one_clear_line(
    name: str, results: Mapping[str, Result], folder: pathlib.Path, taken: str
) -> None:
    case, result = CASES[name], results[name]
    output = result.stderr
    *_, error = (line for line in output.splitlines() if "[ERROR" in line or line.startswith("Error: "))
    assert case.message.replace("TAKEN", taken) in error
    assert result.returncode == case.code, output
    assert result.stdout == ""
    if case.traceback is None:
        assert "Traceback" not in output
        assert 'File "' not in output
    elif case.traceback:
        places = [line for line in output.splitlines() if line.lstrip().startswith('File "')]
        assert places[0].lstrip().startswith(f'File "{folder / case.traceback}", line'), output
        assert "ExceptionGroup" not in output
