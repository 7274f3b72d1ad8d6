"""What operators receive of a kind with many objects that no handler requires, counted by a proxy."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.bench.api import Connection, load_target
from tests.bench.processes import resident_mib
from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program
from tests.proxy import open_proxy

HANDLED: Final = 20
FOREIGN: Final = 1000
COLLECTION: Final = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"
# Neither has finalizers or records to look for.
READERS: Final = """
import trioperator

@trioperator.on.event("kopfexamples", labels={"run": "RUN"})
async def see(**_): ...

@trioperator.index("kopfexamples", labels={"run": "RUN"})
async def names(name, **_):
    return {None: name}
"""
WRITERS: Final = """
import trioperator

@trioperator.on.create("kopfexamples", labels={"run": "RUN"})
async def create(**_): ...

@trioperator.daemon("kopfexamples", labels={"run": "RUN"})
async def daemon(stopped, **_):
    await stopped.wait()

@trioperator.on.reconcile("configmaps", owns=[trioperator.Owned("kopfexamples", labels={"run": "RUN"})])
async def desire(**_):
    return []
"""

PATIENT: Final = 8  # seconds of silence, in place of the default of 75 to 86
WATCHER: Final = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.watching.inactivity_timeout = PATIENT

@trioperator.on.event("kopfexamples", labels={"run": "RUN"})
async def see(name, **_):
    print(f"SEEN {name} ", end="", flush=True)
"""


def fill(kubeconfig: pathlib.Path, prefix: str, count: int, run: str) -> None:
    """Create objects of 5 kB."""
    connection = Connection(load_target(kubeconfig))
    for number in range(count):
        made: dict[str, Any] = example(f"{prefix}-{number}", field="x" * 4600)
        made["metadata"]["labels"] = {"run": run}
        connection.call("POST", COLLECTION, made)
    connection.close()


@pytest.mark.parametrize("source", [READERS, WRITERS], ids=["readers", "writers"])
def test_of_objects_that_no_handler_requires_at_most_a_hundredth_is_received(
    source: str, controlplane: ControlPlane, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    run, other = some_name(), some_name()
    fill(controlplane.kubeconfig, run, HANDLED, run)
    kubeconfig = tmp_path / "proxied.kubeconfig"

    def is_prepared() -> bool:
        found = controlplane.get("kex", "-l", f"run={run}")["items"]
        return source is READERS or all(obj["metadata"].get("finalizers") for obj in found)

    def measure() -> tuple[int, float]:
        # What other tests leave to be cleaned up, such as CRDs, lets an operator read more at one time or another.
        first, second = measure_once(), measure_once()
        return min(first[0], second[0]), min(first[1], second[1])

    def measure_once() -> tuple[int, float]:
        with open_proxy(controlplane.folder / "operator.kubeconfig", kubeconfig) as proxy:
            operator = start_operator(source.replace("RUN", run), "--standalone", kubeconfig=kubeconfig)
            until(is_prepared)
            before = -1
            while before < proxy.received:
                before = proxy.received
                time.sleep(1)  # nothing has come meanwhile
            found = proxy.received, resident_mib(operator.process.pid)
            assert operator.stop() == 0
        return found

    try:
        measure_once()  # until finalizers and records are there
        received, memory = measure()
        fill(controlplane.kubeconfig, other, FOREIGN, other)
        more, memory_then = measure()
        assert more - received <= FOREIGN * 5000 / 100
        assert memory_then - memory <= 5
    finally:  # the operators of other tests would handle them
        for each in (run, other):
            controlplane.kubectl("delete", "kex", "-l", f"run={each}", "--wait=false")
        controlplane.kubectl(
            "patch",
            "kex",
            *[f"{run}-{number}" for number in range(HANDLED)],
            "--type=merge",
            "-p",
            '{"metadata":{"finalizers":null}}',
            check=False,
        )


def test_a_proxy_that_stalls_delays_a_change_until_its_silence_is_noticed(
    controlplane: ControlPlane, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    run, kubeconfig = some_name(), tmp_path / "proxied.kubeconfig"
    source = WATCHER.replace("RUN", run).replace("PATIENT", str(PATIENT))
    try:
        with open_proxy(controlplane.folder / "operator.kubeconfig", kubeconfig) as proxy:
            operator = start_operator(source, "--standalone", kubeconfig=kubeconfig)
            fill(controlplane.kubeconfig, f"{run}-before", 1, run)
            operator.wait_for(f"SEEN {run}-before-0")
            proxy.stall()
            time.sleep(1)  # until it does
            after = len(operator.output)
            fill(controlplane.kubeconfig, f"{run}-after", 1, run)
            operator.wait_for(f"SEEN {run}-after-0", seconds=PATIENT + 15, after=after)
            shown = operator.output[after:]
            assert operator.stop() == 0
        assert set(re.findall(r"\[(?!DEBUG)[A-Z]+ +\] (.*)", shown)) <= {
            f"[default/{run}-after-0] Handler 'see' succeeded."
        }
    finally:
        controlplane.kubectl("delete", "kex", "-l", f"run={run}", "--wait=false")
