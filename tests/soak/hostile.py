"""``python -m tests.soak hostile``: what an operator keeps of objects that are as large as the API server lets them be.

Anybody who may create an object decides how much memory its decoded JSON takes: a list of empty lists takes 25 times
its text. An operator with handlers of changes, a daemon and a timer gets ten such objects of 1.2 MB. Shown is the
memory of its process before they come, when all of them are handled and nothing but the daemons and the timers is
left, and its peak. The API server is a process of its own. An operator that waits for it looks idle, though it holds
more: a real server takes 10 s for each write of an object of deep lists. So what the operator writes has to be stored.

What is kept is JSON. The rest of the difference is free memory, in areas of which something else takes a little. With
``--malloc``, the operator runs with ``PYTHONMALLOC=malloc``, and returns that to the system.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

import trio

from tests.bench import embedded
from tests.bench.api import Connection, load_target
from tests.bench.objects import COLLECTION, GROUP, KIND, PLURAL, VERSION, prepare
from tests.bench.processes import cpu_seconds, resident_mib
from tests.bench.servers import ApiServer, find_assets, open_embedded, open_real
from tests.program import Program
from tests.soak.attack import peak_mib
from trioperator.apiserver.model import json_text, nesting

_OBJECTS: Final = 10
# An operator is idle when it has used less than so many seconds of CPU in so many seconds.
_IDLE: Final = (0.2, 5.0)
_OPERATOR: Final = f"""
import trioperator

KIND = ("{GROUP}", "{VERSION}", "{PLURAL}")

@trioperator.on.create(*KIND)
@trioperator.on.update(*KIND)
async def change(spec, logger, **_):
    logger.info("handled %d items", len(spec["items"]))

@trioperator.daemon(*KIND)
async def watch(spec, logger, stopped, **_):
    logger.info("the daemon sees %d items", len(spec["items"]))
    await stopped.wait()

@trioperator.timer(*KIND, interval=60)
async def tick(spec, status, patch, **_):
    if status.get("items") != len(spec["items"]):
        patch.status["items"] = len(spec["items"])
"""


def _nest(levels: int) -> Any:
    nested: Any = []
    for _ in range(levels):
        nested = [nested]
    return nested


SHAPES: Final[dict[str, Any]] = {
    "wide": [[]] * 400_000,
    "deep": [_nest(150)] * 3_940,
    "keys": [{f"k{number % 1000}": 0} for number in range(120_000)],
    "small": [],
}


@contextlib.contextmanager
def operating(server: ApiServer, folder: pathlib.Path, **variables: str) -> Iterator[Program]:
    """Run the operator, with more environment *variables*."""
    file, log = folder / "app.py", folder / "operator.log"
    file.write_text(_OPERATOR)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "trioperator", "run", "-A", "--standalone", str(file)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables, "KUBECONFIG": str(server.operator_kubeconfig)},
        )
    try:
        yield Program(process, log)
    finally:
        process.kill()
        process.wait()


def wait_stored(connection: Connection) -> None:
    """Wait until the API server has stored everything that the operator writes to the objects."""
    while not all(map(_is_stored, connection.call("GET", COLLECTION)["items"])):
        time.sleep(_IDLE[1])


def _is_stored(body: dict[str, Any]) -> bool:
    is_handled = any("last-handled" in name for name in body["metadata"].get("annotations", ()))
    return is_handled and body.get("status", {}).get("items") == len(body["spec"]["items"])


def wait_idle(pid: int) -> None:
    """Wait until a process has nothing more to do."""
    most, period = _IDLE
    used = -most
    while (now := cpu_seconds(pid)) - used > most:
        used = now
        time.sleep(period)


def measure(server: ApiServer, folder: pathlib.Path, shape: str, **variables: str) -> None:
    """Let ten objects of a shape come, and print what that takes."""
    prepare(server.kubeconfig)
    connection = Connection(load_target(server.kubeconfig))
    with operating(server, folder, **variables) as program:
        program.wait_for("The operator is ready.")
        pid = program.process.pid
        before, began = resident_mib(pid), cpu_seconds(pid)
        for number in range(_OBJECTS):
            body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": {"name": f"{shape}-{number}"}}
            connection.call("POST", COLLECTION, {**body, "spec": {"items": SHAPES[shape]}})
        program.wait_for("the daemon sees", count=_OBJECTS)
        program.wait_for("handled", count=_OBJECTS)
        wait_stored(connection)
        wait_idle(pid)
        kept, spent = resident_mib(pid) - before, cpu_seconds(pid) - began
        peak = peak_mib(pid)
        print(f"{shape} on {server.kind}: {before:.0f} MiB, +{kept:.0f} idle, peak {peak}, {spent:.1f} s", flush=True)


def main(arguments: list[str]) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak hostile", description=__doc__)
    parser.add_argument("--server", choices=["real", "embedded"], default="embedded", help="(default: %(default)s)")
    parser.add_argument(
        "--malloc", action="store_true", help="let the operator return memory: see docs/decisions/client.md"
    )
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)} (default: all)")
    options = parser.parse_args(arguments)
    variables = {"PYTHONMALLOC": "malloc"} if options.malloc else {}
    for shape in options.shapes or SHAPES:
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder, contextlib.ExitStack() as stack:
            path = pathlib.Path(folder)
            if options.server == "embedded":
                server = stack.enter_context(open_embedded(folder=path / "server", module="tests.soak.hostile"))
            elif (assets := find_assets()) is not None:
                server = stack.enter_context(open_real(assets, folder=path / "server"))
            else:
                sys.exit("set KUBEBUILDER_ASSETS")
            measure(server, path, shape, **variables)
    return 0


def serve(kubeconfig: pathlib.Path, requests: pathlib.Path) -> None:
    """Serve an embedded cluster that takes objects as large and as hostile as the real server does."""
    for module in (nesting, json_text):
        vars(module)["VALUES_LIMIT"] = 10**9
    vars(nesting)["_PATHS_LIMIT"] = 10**9
    trio.run(embedded.serve, kubeconfig, requests)


if __name__ == "__main__":
    serve(*map(pathlib.Path, sys.argv[1:]))
