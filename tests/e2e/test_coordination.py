"""Several operators on a real API server: replicas with a leader, and peers."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

from tests.controlplane import ControlPlane
from tests.coordination.peers import peering, peering_crd
from tests.e2e.test_life import example, some_name, until
from tests.program import Program

OPERATOR = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.leadership.lease_duration = 3
    settings.leadership.renew_deadline = 2
    settings.leadership.retry_period = 0.5

@trioperator.timer("kopfexamples", field="spec.run", value="RUN", interval=0.2)
def tick(patch, retry, logger, **_):
    logger.info("ticking")
    patch.status["writer"] = "NAME"
"""


def source(run: str, name: str) -> str:
    return OPERATOR.replace("RUN", run).replace("NAME", name)


def test_replicas_take_over_from_leaders_that_are_killed_suspended_or_stopped(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    options = ("--standalone", "--leader-elect", f"--lease=default/{run}")
    replicas = {name: start_operator(source(run, name), *options, ready=False) for name in ("a", "b", "c")}
    controlplane.apply(example(run, run=run))

    def writer() -> str:
        return str(controlplane.get("kex", run).get("status", {}).get("writer", ""))

    def holder() -> Program:
        lease = json.loads(controlplane.kubectl("get", "lease", run, "-o", "json"))["spec"]
        log = f"This operator is the leader: {lease['holderIdentity']} holds"
        (leader,) = [program for program in replicas.values() if log in program.output]
        return leader

    first = str(until(writer))
    assert holder() is replicas[first]
    replicas.pop(first).process.kill()
    second = str(until(lambda: writer() if writer() != first else ""))

    replicas[second].process.send_signal(signal.SIGSTOP)
    third = str(until(lambda: writer() if writer() not in (first, second) else ""))
    written = len(replicas[third].output)
    replicas[second].process.send_signal(signal.SIGCONT)
    replicas[second].wait_for("The leadership is lost")
    until(lambda: len(replicas[third].output) > written)
    assert writer() == third
    assert replicas[second].process.poll() is None

    assert replicas.pop(third).stop() == 0
    until(lambda: writer() == second)
    controlplane.kubectl("delete", "kex", run, "--timeout=90s")


def test_an_operator_pauses_while_one_with_a_higher_priority_runs(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    controlplane.apply(peering_crd())
    controlplane.kubectl("wait", "--for=condition=Established", "crd/clusterkopfpeerings.kopf.dev", "--timeout=90s")
    controlplane.apply(peering(run))
    controlplane.apply(example(run, run=run))
    low = start_operator(source(run, "low"), f"--peering={run}")
    low.wait_for("ticking")
    high = start_operator(source(run, "high"), f"--peering={run}", "--priority=10")
    high.wait_for("ticking")
    low.wait_for("Pausing operations in favour of")
    assert high.stop() == 0
    low.wait_for("Resuming operations.")
    ticks = low.output.count("ticking")
    low.wait_for("ticking", count=ticks + 2)
    controlplane.kubectl("delete", "kex", run, "--timeout=90s")
    assert low.stop() == 0
    found = json.loads(controlplane.kubectl("get", "clusterkopfpeering", run, "-o", "json"))
    assert not found.get("status")
    controlplane.kubectl("delete", "clusterkopfpeering", run)
    controlplane.kubectl("delete", "crd", "clusterkopfpeerings.kopf.dev")  # others need no rights for it then
