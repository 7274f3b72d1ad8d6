"""Replicas on a real API server, with a network that is cut and with clocks that are wrong: leaders, and shards."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.controlplane import ControlPlane, free_ports
from tests.e2e.test_life import example, some_name, until
from tests.program import Program
from tests.proxy import Proxy, open_proxy

# Shorter times than by default, but long enough for a busy machine. The wall clock is wrong by SKEW seconds.
OPERATOR = """
import time
import trioperator

now = time.time
time.time = lambda: now() + SKEW

@trioperator.on.startup()
def configure(settings, **_):
    settings.leadership.lease_duration = 6
    settings.leadership.renew_deadline = 4
    settings.leadership.retry_period = 1

@trioperator.on.create("kopfexamples", labels={"run": "RUN"})
def create(name, **_):
    print(f"CREATED {name} ", end="", flush=True)  # in one piece: others print at the same time

@trioperator.timer("kopfexamples", labels={"run": "RUN"}, interval=1)
def tick(name, patch, **_):
    patch.status["writer"] = "NAME"
"""


WATCHER = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.leadership.retry_period = 1

@trioperator.on.event("kopfexamples", labels={"run": "RUN"})
def see(name, annotations, **_):
    print(f"SEEN {name} {annotations.get('at')} ", end="", flush=True)
"""


@pytest.fixture
def network(controlplane: ControlPlane, tmp_path: pathlib.Path) -> Iterator[tuple[Proxy, pathlib.Path]]:
    """Return a network that can be cut, and the kubeconfig of those who use it."""
    path = tmp_path / "cut.kubeconfig"
    with open_proxy(controlplane.folder / "operator.kubeconfig", path) as proxy:
        yield proxy, path


Start = Callable[..., Program]


def source(run: str, name: str, skew: int) -> str:
    return OPERATOR.replace("RUN", run).replace("NAME", name).replace("SKEW", str(skew))


def labelled(run: str, name: str) -> dict[str, Any]:
    found = example(f"{run}-{name}")
    found["metadata"]["labels"] = {"run": run}
    return found


def writers(controlplane: ControlPlane, run: str) -> collections.Counter[str]:
    found = json.loads(controlplane.kubectl("get", "kex", "-l", f"run={run}", "-o", "json"))["items"]
    return collections.Counter(obj.get("status", {}).get("writer", "") for obj in found)


def divides() -> bool:
    """Check whether the API server divides the objects."""
    return "ShardedListAndWatch=true" in os.environ.get("CONTROLPLANE_APISERVER_ARGS", "")


def count_received(port: int) -> int:
    """Return how many watch events a replica has received, but bookmarks."""
    metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    found = re.search(r'^trioperator_watch_events_total\{resource="kopfexamples[^}]*\} (\S+)$', metrics, re.MULTILINE)
    assert found, metrics
    return round(float(found[1]))


def delete(controlplane: ControlPlane, run: str) -> None:
    controlplane.kubectl("delete", "kex", "-l", f"run={run}", "--timeout=90s")
    leases = controlplane.kubectl("get", "leases", "-o", "name").split()
    for lease in leases:
        if run in lease:
            controlplane.kubectl("delete", lease)


def test_a_leader_without_a_network_is_replaced_whatever_the_clocks_show(
    controlplane: ControlPlane, start_operator: Start, network: tuple[Proxy, pathlib.Path]
) -> None:
    cut, kubeconfig = network
    run = some_name()
    options = ("--standalone", "--leader-elect", f"--lease=default/{run}")
    first = start_operator(source(run, "first", 300), *options, kubeconfig=kubeconfig)
    controlplane.apply(labelled(run, "x"))
    until(lambda: writers(controlplane, run) == {"first": 1})
    second = start_operator(source(run, "second", -300), *options)
    cut.cut()
    until(lambda: writers(controlplane, run) == {"second": 1})
    first.wait_for("The leadership is lost")
    cut.mend()
    first.wait_for("The leader is", count=1)
    assert "This operator is the leader" in second.output
    second.process.kill()
    until(lambda: writers(controlplane, run) == {"first": 1})
    assert first.output.count("CREATED") + second.output.count("CREATED") == 1
    delete(controlplane, run)
    assert first.stop() == 0


def test_replicas_share_all_objects_through_kills_joins_freezes_and_cuts(
    controlplane: ControlPlane, start_operator: Start, network: tuple[Proxy, pathlib.Path]
) -> None:
    cut, kubeconfig = network
    run = some_name()
    options = ("--standalone", "--shards=4", f"--lease=default/{run}")
    alive = {
        "a": start_operator(source(run, "a", 300), *options, kubeconfig=kubeconfig),
        "b": start_operator(source(run, "b", -300), *options),
        "c": start_operator(source(run, "c", 0), *options),
    }
    programs = list(alive.values())
    created = 0

    def create_some() -> None:
        nonlocal created
        controlplane.apply(*[labelled(run, str(created + number)) for number in range(20)])
        created += 20

    def shared_by(*names: str) -> bool:
        found = writers(controlplane, run)
        return found.total() == created and set(found) == set(names)

    create_some()
    until(lambda: shared_by("a", "b", "c"))
    alive["b"].process.kill()
    create_some()
    until(lambda: shared_by("a", "c"))
    cut.cut()
    until(lambda: shared_by("c"))
    alive["a"].wait_for("All shards are lost")
    create_some()
    cut.mend()
    alive["d"] = start_operator(source(run, "d", 0), *options)
    programs.append(alive["d"])
    until(lambda: shared_by("a", "c", "d"))
    alive["c"].process.send_signal(signal.SIGSTOP)
    until(lambda: shared_by("a", "d"))
    alive["c"].process.send_signal(signal.SIGCONT)
    alive["c"].wait_for("All shards are lost")
    until(lambda: shared_by("a", "c", "d"))
    assert alive["a"].stop() == 0
    create_some()
    until(lambda: shared_by("c", "d"))
    calls = collections.Counter(call for program in programs for call in re.findall(r"CREATED (\S+)", program.output))
    assert calls == collections.Counter(f"{run}-{number}" for number in range(created))
    uris = (request["requestURI"] for request in controlplane.requests(verb="watch"))
    watches = [uri for uri in uris if "/kopfexamples?" in uri and run in uri]
    if divides():
        assert all("shardSelector=shardRange" in uri for uri in watches), watches
    delete(controlplane, run)
    assert alive["c"].stop() == alive["d"].stop() == 0


def test_four_replicas_receive_nothing_of_each_other_where_the_server_divides_the_objects(
    controlplane: ControlPlane, start_operator: Start
) -> None:
    run, count = some_name(), 200
    ports = free_ports(4)
    options = ("--standalone", "--shards=8", f"--lease=default/{run}")
    controlplane.apply(*[labelled(run, str(number)) for number in range(count)])
    source = WATCHER.replace("RUN", run)
    replicas = [start_operator(source, *options, f"--metrics=http://127.0.0.1:{port}") for port in ports]
    for replica in replicas:
        replica.wait_for("with a share of 2")
    until(lambda: sum(replica.output.count("Releasing the shard") for replica in replicas) >= 6)
    controlplane.kubectl("annotate", "kex", "-l", f"run={run}", "at=first")
    until(lambda: sum(len(seen(replica, "first")) for replica in replicas) >= count)

    before = [count_received(port) for port in ports]
    controlplane.kubectl("annotate", "--overwrite", "kex", "-l", f"run={run}", "at=second")
    until(lambda: sum(len(seen(replica, "second")) for replica in replicas) >= count)
    received = [count_received(port) - was for port, was in zip(ports, before, strict=True)]
    handled = [len(seen(replica, "second")) for replica in replicas]
    assert sum(handled) == count
    assert min(handled) > 0
    assert received == (handled if divides() else [count] * 4)
    delete(controlplane, run)
    assert [replica.stop() for replica in replicas] == [0] * 4


def seen(replica: Program, at: str) -> list[str]:
    return re.findall(rf"SEEN (\S+) {at}\b", replica.output)
