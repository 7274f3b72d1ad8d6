"""What operators receive of a kind with many objects that no handler requires, counted by a proxy."""

from __future__ import annotations

import itertools
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.bench.api import Connection, load_target
from tests.bench.processes import resident_mib
from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name
from tests.program import Program
from tests.proxy import open_proxy

HANDLED: Final = 20
FOREIGN: Final = 1000
COLLECTION: Final = "/apis/kopf.dev/v1/namespaces/{}/kopfexamples"
READERS: Final = """
import trioperator

@trioperator.on.event("kopfexamples", labels={"run": "RUN"})
async def see(name, **_):
    print(f"SEEN {name} ", end="", flush=True)

@trioperator.index("kopfexamples", labels={"run": "RUN"})
async def names(name, **_):
    return {None: name}
"""
WRITERS: Final = """
import trioperator

@trioperator.on.create("kopfexamples", labels={"run": "RUN"})
async def create(name, **_):
    print(f"SEEN {name} ", end="", flush=True)

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


def fill(kubeconfig: pathlib.Path, prefix: str, count: int, run: str, namespace: str = "default") -> None:
    """Create objects of 5 kB."""
    connection = Connection(load_target(kubeconfig))
    for number in range(count):
        made: dict[str, Any] = example(f"{prefix}-{number}", field="x" * 4600)
        made["metadata"] |= {"labels": {"run": run}, "namespace": namespace}
        connection.call("POST", COLLECTION.format(namespace), made)
    connection.close()


@pytest.fixture
def namespace(controlplane: ControlPlane) -> Iterator[str]:
    """A namespace with objects of this test alone: those of others would be received, too, at one time or another."""
    name = some_name()
    controlplane.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kexes = controlplane.get("kex", f"--namespace={name}")["items"]
        held = [obj["metadata"]["name"] for obj in kexes if obj["metadata"].get("finalizers")]
        controlplane.kubectl("delete", "namespace", name, "--wait=false")
        bare = ["--type=merge", "-p", '{"metadata":{"finalizers":null}}']
        if held:
            controlplane.kubectl("patch", "kex", *held, f"--namespace={name}", *bare, check=False)


@pytest.mark.parametrize("source", [READERS, WRITERS], ids=["readers", "writers"])
def test_of_objects_that_no_handler_requires_at_most_a_hundredth_is_received(
    source: str,
    controlplane: ControlPlane,
    start_operator: Callable[..., Program],
    tmp_path: pathlib.Path,
    namespace: str,
) -> None:
    kubeconfig, marks = tmp_path / "proxied.kubeconfig", itertools.count()

    def measure() -> tuple[int, float]:
        # What other tests leave to be cleaned up, such as CRDs, lets an operator read more at one time or another.
        first, second = measure_once(), measure_once()
        return min(first[0], second[0]), min(first[1], second[1])

    def measure_once() -> tuple[int, float]:
        with open_proxy(controlplane.folder / "operator.kubeconfig", kubeconfig) as proxy:
            operator = start_operator(
                source.replace("RUN", "handled"), "--standalone", "-n", namespace, kubeconfig=kubeconfig
            )
            mark = f"mark-{next(marks)}"
            fill(controlplane.kubeconfig, mark, 1, "handled", namespace)
            operator.wait_for(f"SEEN {mark}-0")  # with it, all that was there before
            memory = resident_mib(operator.process.pid)
            assert operator.stop() == 0
            return proxy.received, memory

    fill(controlplane.kubeconfig, "handled", HANDLED, "handled", namespace)
    measure_once()  # until finalizers and records are there
    received, memory = measure()
    fill(controlplane.kubeconfig, "foreign", FOREIGN, "foreign", namespace)
    more, memory_then = measure()
    assert more - received <= FOREIGN * 5000 / 100
    assert memory_then - memory <= 5


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
