"""Operators with few rights on a real API server: what they cannot do, they say and do without, until they may."""

from __future__ import annotations

import json
import pathlib
import uuid
from collections.abc import Callable

import pytest
import yaml

from tests.controlplane import ControlPlane
from tests.coordination.peers import peering, peering_crd
from tests.e2e.test_life import LAST, example, some_name, until
from tests.program import Program

OPERATOR = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.leadership.lease_duration = 3
    settings.leadership.renew_deadline = 2
    settings.leadership.retry_period = 0.5

@trioperator.on.event("configmaps", field="metadata.name", value="RUN")
def see(logger, **_):
    logger.info("seen")

@trioperator.on.create("kopfexamples", field="spec.run", value="RUN")
def create(logger, **_):
    logger.info("created")
"""


class Robot:
    """A service account that is granted one right after the other."""

    def __init__(self, controlplane: ControlPlane, folder: pathlib.Path) -> None:
        self.name = f"robot-{uuid.uuid4().hex[:6]}"
        self._kubectl = controlplane.kubectl
        self._granted = 0
        self._kubectl("create", "serviceaccount", self.name)
        config = yaml.safe_load(controlplane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": self._kubectl("create", "token", self.name).strip()}
        self.kubeconfig = folder / "robot.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def grant(self, verbs: str, resources: str) -> None:
        """Grant verbs for resources, in the whole cluster."""
        self._granted += 1
        name = f"{self.name}-{self._granted}"
        self._kubectl("create", "clusterrole", name, f"--verb={verbs}", f"--resource={resources}")
        account = f"--serviceaccount=default:{self.name}"
        self._kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)


@pytest.fixture
def robot(controlplane: ControlPlane, tmp_path: pathlib.Path) -> Robot:
    return Robot(controlplane, tmp_path)


def configmap(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def warnings(operator: Program) -> list[str]:
    return [line for line in operator.output.splitlines() if "[WARNING" in line or "[ERROR" in line]


def test_missing_rights_are_warned_of_once_and_used_as_soon_as_they_are_granted(
    controlplane: ControlPlane, robot: Robot, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    robot.grant("list,watch", "configmaps")
    controlplane.apply(configmap(run), example(run, run=run))
    source, scope = OPERATOR.replace("RUN", run), ("-n", "default", "-n", "other-*", "--standalone")
    operator = start_operator(source, *scope, kubeconfig=robot.kubeconfig)
    operator.wait_for("seen")  # though the other kind cannot be listed
    missing = {
        "customresourcedefinitions": "settings.scanning.disabled",
        "namespaces": "The patterns other-* match nothing.",
        "kopfexamples": "Its handlers are not called until then.",
    }
    text = operator.wait_for('cannot list resource "kopfexamples"')
    for resource, consequence in missing.items():
        [line] = [line for line in warnings(operator) if f'cannot list resource "{resource}" in API group' in line]
        assert consequence in line
    for name in ("customresourcedefinitions", "namespaces"):
        assert f"{name} cannot be watched (HTTP 403)." in text
    assert "kopfexamples.v1.kopf.dev in the namespace default cannot be watched (HTTP 403)." in text
    robot.grant("list,watch", "kopfexamples.kopf.dev")
    operator.wait_for("Watching /apis/kopf.dev/v1/namespaces/default/kopfexamples begins.")
    operator.wait_for('cannot patch resource "kopfexamples"')
    operator.wait_for('cannot create resource "events"')
    assert LAST not in controlplane.get("kex", run)["metadata"].get("annotations", {})
    robot.grant("patch", "kopfexamples.kopf.dev,kopfexamples.kopf.dev/status")
    until(lambda: LAST in controlplane.get("kex", run)["metadata"].get("annotations", {}))
    assert operator.output.count("] created") == 1
    assert operator.stop() == 0
    controlplane.kubectl("delete", "kex", run)
    controlplane.kubectl("delete", "configmap", run)


def test_changes_are_found_by_lists_without_the_right_to_watch(
    controlplane: ControlPlane, robot: Robot, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    robot.grant("list,patch", "kopfexamples.kopf.dev,kopfexamples.kopf.dev/status")
    options = ("-n", "default", "--standalone")
    operator = start_operator(OPERATOR.replace("RUN", run), *options, kubeconfig=robot.kubeconfig)
    operator.wait_for('cannot watch resource "kopfexamples"')
    controlplane.apply(example(run, run=run))
    operator.wait_for("Creation is processed: 1 succeeded; 0 failed.")  # after five refusals, some seconds later
    until(lambda: LAST in controlplane.get("kex", run)["metadata"].get("annotations", {}))
    assert operator.stop() == 0
    controlplane.kubectl("delete", "kex", run)


def test_a_right_that_is_taken_away_is_named_and_comes_back(
    controlplane: ControlPlane, robot: Robot, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    source = OPERATOR.replace("RUN", run).replace(
        "settings.leadership", "settings.watching.server_timeout = 2; settings.leadership", 1
    )
    robot.grant("list,watch", "configmaps")
    robot.grant("list,watch,patch", "kopfexamples.kopf.dev,kopfexamples.kopf.dev/status")
    options = ("-n", "default", "--standalone")
    operator = start_operator(source, *options, kubeconfig=robot.kubeconfig)
    controlplane.kubectl("delete", "clusterrolebinding", f"{robot.name}-1")
    operator.wait_for("Watching /api/v1/namespaces/default/configmaps is interrupted")
    controlplane.apply(example(run, run=run))
    operator.wait_for("Creation is processed: 1 succeeded; 0 failed.")  # the other kind goes on
    controlplane.apply(configmap(run))
    robot.grant("list,watch", "configmaps")
    operator.wait_for("seen")
    assert operator.stop() == 0
    controlplane.kubectl("delete", "kex", run)
    controlplane.kubectl("delete", "configmap", run)


def test_an_operator_without_rights_for_leases_stands_by_until_it_has_them(
    controlplane: ControlPlane, robot: Robot, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    robot.grant("list,watch", "configmaps,customresourcedefinitions.apiextensions.k8s.io")
    robot.grant("list,watch,patch", "kopfexamples.kopf.dev,kopfexamples.kopf.dev/status")
    controlplane.apply(configmap(run))
    options = ("--standalone", "--leader-elect", f"--lease=default/{run}")
    operator = start_operator(OPERATOR.replace("RUN", run), *options, kubeconfig=robot.kubeconfig)
    operator.wait_for('resource "leases" in API group "coordination.k8s.io"')
    assert "seen" not in operator.output
    robot.grant("get,create,update", "leases.coordination.k8s.io")
    operator.wait_for("seen")
    holder = json.loads(controlplane.kubectl("get", "lease", run, "-o", "json"))["spec"]["holderIdentity"]
    assert holder in operator.output
    assert operator.stop() == 0
    until(lambda: not json.loads(controlplane.kubectl("get", "lease", run, "-o", "json"))["spec"]["holderIdentity"])
    controlplane.kubectl("delete", "configmap", run)


def test_an_operator_that_may_not_see_its_peers_says_so_and_pauses_until_it_may(
    controlplane: ControlPlane, robot: Robot, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    robot.grant("list,watch", "configmaps,customresourcedefinitions.apiextensions.k8s.io")
    controlplane.apply(peering_crd())
    controlplane.kubectl("wait", "--for=condition=Established", "crd/clusterkopfpeerings.kopf.dev", "--timeout=90s")
    controlplane.apply(peering(run))
    controlplane.apply(configmap(run))
    source = OPERATOR.replace("RUN", run)
    operator = start_operator(source, f"--peering={run}", kubeconfig=robot.kubeconfig, ready=False)
    operator.wait_for('cannot list resource "clusterkopfpeerings" in API group "kopf.dev"')
    assert [line for line in warnings(operator) if "Other operators are not noticed until then" in line]
    operator.wait_for(f"Pausing operations until the peering object '{run}' exists.")
    assert "seen" not in operator.output
    robot.grant("list,watch,patch", "clusterkopfpeerings.kopf.dev")
    operator.wait_for("Resuming operations.")
    operator.wait_for("seen")
    assert operator.stop() == 0
    controlplane.kubectl("delete", "configmap", run)
    controlplane.kubectl("delete", "clusterkopfpeering", run)
    controlplane.kubectl("delete", "crd", "clusterkopfpeerings.kopf.dev")  # others need no rights for it then


WEBHOOKS = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.admission.managed = "RUN.kopf.dev"
    settings.admission.server = trioperator.WebhookServer(addr="127.0.0.1")

@trioperator.on.validate("kopfexamples", labels={"run": "RUN"})
def check(**_):
    raise trioperator.AdmissionError("Never.")
"""


def test_an_operator_that_may_not_write_webhook_configurations_writes_them_as_soon_as_it_may(
    controlplane: ControlPlane, robot: Robot, start_operator: Callable[..., Program]
) -> None:
    run = some_name()
    robot.grant("list,watch", "customresourcedefinitions.apiextensions.k8s.io,kopfexamples.kopf.dev")
    options = ("-n", "default", "--standalone")
    operator = start_operator(WEBHOOKS.replace("RUN", run), *options, kubeconfig=robot.kubeconfig, ready=False)
    operator.wait_for('resource "validatingwebhookconfigurations" in API group "admissionregistration.k8s.io"')
    kinds = "validatingwebhookconfigurations.admissionregistration.k8s.io"
    robot.grant("get,create,patch", f"{kinds},mutatingwebhookconfigurations.admissionregistration.k8s.io")
    operator.wait_for(f"Created the ValidatingWebhookConfiguration '{run}.kopf.dev'")
    assert operator.stop() == 0
    controlplane.kubectl("delete", "validatingwebhookconfiguration", f"{run}.kopf.dev")
