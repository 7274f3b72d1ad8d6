"""Daemons and timers against a real API server, with kubectl on the other side."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program

OPERATOR = """
import trioperator as kopf

@kopf.daemon('kopfexamples', labels={'only': 'ONLY'})
async def accompany(spec, stopped, logger, **_):
    logger.info("async daemon has begun with %s", spec['field'])
    await stopped.wait()
    logger.info("async daemon ends with %s: %s", spec['field'], stopped.reason)

@kopf.daemon('kopfexamples', labels={'only': 'ONLY'})
def accompany_in_thread(stopped, logger, patch, **_):
    logger.info("sync daemon has begun")
    stopped.wait()
    logger.info("sync daemon ends")
    patch.status['parting'] = 'words'

@kopf.timer('kopfexamples', interval=0.1, sharp=True, labels={'only': 'ONLY'})
async def beat(status, patch, logger, **_):
    patch.status['beats'] = status.get('beats', 0) + 1
"""


def test_daemons_and_timers_accompany_objects_through_restarts(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    source = OPERATOR.replace("ONLY", name)
    body = example(name)
    body["metadata"]["labels"] = {"only": name}

    first = start_operator(source)
    controlplane.apply(body)
    first.wait_for("async daemon has begun with value")
    first.wait_for("sync daemon has begun")
    until(lambda: controlplane.get("kex", name).get("status", {}).get("beats", 0) >= 5)
    assert controlplane.get("kex", name)["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
    assert first.stop(signal.SIGTERM) == 0
    assert "async daemon ends with value: DaemonStoppingReason.OPERATOR_EXITING" in first.output
    assert "sync daemon ends" in first.output
    assert "Traceback" not in first.output
    stored = controlplane.get("kex", name)
    assert stored["status"]["parting"] == "words"

    second = start_operator(source)
    second.wait_for("async daemon has begun with value")
    second.wait_for("sync daemon has begun")
    until(lambda: controlplane.get("kex", name)["status"]["beats"] > stored["status"]["beats"])
    controlplane.kubectl("patch", "kex", name, "--type=merge", "-p", '{"spec": {"field": "other"}}')
    controlplane.kubectl("delete", "kex", name, "--timeout=90s")
    second.wait_for("async daemon ends with other: DaemonStoppingReason.RESOURCE_DELETED")
    assert second.stop() == 0
    assert "Traceback" not in second.output


def test_an_object_that_is_deleted_meanwhile_is_released_by_the_next_operator(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    source = OPERATOR.replace("ONLY", name)
    body = example(name)
    body["metadata"]["labels"] = {"only": name}
    first = start_operator(source)
    controlplane.apply(body)
    first.wait_for("async daemon has begun")
    first.stop(signal.SIGKILL)
    controlplane.kubectl("delete", "kex", name, "--wait=false")
    second = start_operator(source)
    controlplane.kubectl("wait", "--for=delete", f"kex/{name}", "--timeout=90s")
    assert second.stop() == 0
    assert "daemon has begun" not in second.output
