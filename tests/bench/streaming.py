"""The first list of a large kind in pages, and as a stream: ``python -m tests.bench scale streaming``.

On a real API server if ``$KUBEBUILDER_ASSETS`` is set, as its memory and CPU time count, too; else on the embedded one.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.bench import scale
from tests.bench.api import MERGE_PATCH, ApiFailed, Connection, load_target
from tests.bench.figures import Figures
from tests.bench.processes import cpu_seconds, resident_mib
from tests.bench.servers import open_real

STREAM: Final = """
@on.startup()
def configure(settings, **_):
    settings.watching.initial_streaming = True
"""
EVENTS: Final = """
@on.event("loads")
async def see(name, **_):
    with open(JOURNAL, "a") as file:
        file.write(f"{name} {time.time()}\\n")
"""


class RealServer:
    """A real API server, with loads."""

    def __init__(self, kubeconfig: pathlib.Path, folder: pathlib.Path) -> None:
        self.kubeconfig = kubeconfig
        found = subprocess.run(["pgrep", "-f", f"kube-apiserver.*{folder}"], capture_output=True, text=True, check=True)
        self.pid = int(found.stdout.split()[0])

    def define(self, plural: str) -> None:
        """Define a kind, and wait until it is served."""
        connection = Connection(load_target(self.kubeconfig))
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        connection.call("POST", definitions, scale.make_definition(plural))
        path = f"/apis/scale.dev/v1/{plural}"
        deadline = time.monotonic() + 60
        while connection.request("GET", path)[0] != 200:
            if time.monotonic() > deadline:
                raise ApiFailed("the kind is not served")
            time.sleep(0.2)

    def do(self, what: str, plural: str = "loads", *, count: int) -> Any:
        """Create objects that look as if handled, where others are, or change some: as the embedded server does."""
        connection = Connection(load_target(self.kubeconfig))
        path = f"/apis/scale.dev/v1/namespaces/default/{plural}"
        if what == "create":
            found = connection.call("GET", path)["items"]
            kept = (
                {key: found[-1]["metadata"][key] for key in scale.KEPT & found[-1]["metadata"].keys()} if found else {}
            )
            made = (scale.make_load(plural, f"w{number}") for number in range(len(found), count))
            self.create(plural, ({**each, "metadata": each["metadata"] | kept} for each in made))
            return None
        changed = {}
        for number in range(count):
            changed[f"w{number}"] = time.time()
            body = json.dumps({"spec": {"size": time.time_ns()}}).encode()
            connection.request("PATCH", f"{path}/w{number}", body=body, content_type=MERGE_PATCH)
        return changed

    def create(self, plural: str, bodies: Iterable[dict[str, Any]]) -> None:
        """Create objects."""
        connection = Connection(load_target(self.kubeconfig))
        for body in bodies:
            connection.call("POST", f"/apis/scale.dev/v1/namespaces/default/{plural}", body)


@contextlib.contextmanager
def open_real_server(assets: pathlib.Path) -> Iterator[RealServer]:
    """Run a real API server in the block."""
    with tempfile.TemporaryDirectory(prefix="trioperator-scale-") as name:
        folder = pathlib.Path(name) / "server"
        with open_real(assets, folder=folder) as real:
            yield RealServer(real.kubeconfig, folder)


@contextlib.contextmanager
def _open(count: int) -> Iterator[scale.AnyServer]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets is None:
        with scale.open_server("loads") as embedded:
            embedded.do("create", count=count)
            yield embedded
        return
    with open_real_server(pathlib.Path(assets)) as server:
        server.define("loads")
        server.create("loads", (scale.make_load("loads", f"w{number}") for number in range(count)))
        yield server


def measure(figures: Figures, count: int) -> None:
    """Measure the first list, by pages and as a stream, twice each: also when the first and the last object came."""
    with _open(count) as server:
        for what, source in [("pages", EVENTS), ("a stream", STREAM + EVENTS)] * 2:
            before, began = cpu_seconds(server.pid), time.time()
            with scale.running(server, source) as operator:
                operator.wait_ready()
                times = sorted(operator.handled().values())
                cpu, served = cpu_seconds(operator.pid), cpu_seconds(server.pid) - before
                first, last = times[0] - began, times[-1] - began
                memory, peak, of_server = resident_mib(operator.pid), operator.peak_mib, resident_mib(server.pid)
                ours = f"{cpu:.1f} s CPU, {memory:.1f} MiB, {peak:.1f} at most"
                theirs = f"the server {served:.1f} s CPU, {of_server:.0f} MiB"
                came = f"the first after {first:.1f} s, the last after {last:.1f} s"
                figures.add(f"{len(times)} objects in {what}", f"{ours}; {theirs}; {came}")
