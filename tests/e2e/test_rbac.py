"""The roles that `trioperator rbac` prints, on a real API server: they are enough for an operator."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import logging
import os
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import trio
import yaml

import trioperator
from tests.controlplane import ControlPlane
from tests.e2e.test_life import example
from tests.program import Program
from trioperator._kube.connection import load_connection

APP = """
import trioperator

seen = []

def declare(**options):
    @trioperator.on.create("kopf.dev", "v1", "kopfexamples", id="handle", **options)
    @trioperator.on.delete("kopf.dev", "v1", "kopfexamples", id="handle", **options)
    async def handle(reason, **_):
        seen.append(str(reason))
        return str(reason)

    @trioperator.index("configmaps", **options)
    def names(name, **_):
        return name

declare()
"""


@pytest.mark.parametrize(
    ("pattern", "option"),
    [("scope-exact", "--scanning"), ("scope-gl?b", "--scanning"), ("scope-few", "--no-scanning")],
)
async def test_an_operator_runs_with_the_roles_that_are_printed(
    pattern: str, option: str, controlplane: ControlPlane, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, namespace = tmp_path / "app.py", pattern.replace("?", "o")
    operators = namespace.replace("scope", "operators")
    app.write_text(APP)
    for each in (namespace, operators):
        controlplane.kubectl("create", "namespace", each)
    controlplane.kubectl("create", "serviceaccount", "robot", f"--namespace={operators}")
    options = ("-n", pattern, option, "--leader-elect", f"--service-account={operators}/robot", f"--name={operators}")
    printed = await trio.run_process(
        [sys.executable, "-m", "trioperator", "rbac", *options, str(app)],
        env={**os.environ, "KUBECONFIG": str(controlplane.kubeconfig)},
        capture_stdout=True,
    )
    controlplane.kubectl("apply", "-f", "-", input=printed.stdout.decode())
    token = controlplane.kubectl("create", "token", "robot", f"--namespace={operators}").strip()
    seen = await live(controlplane, app, namespace=namespace, pattern=pattern, token=token)
    assert seen == ["create", "delete"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    if option == "--scanning":
        assert warnings == []
    else:  # it scans nevertheless: there is no setting against it
        warning, summary = warnings
        assert "customresourcedefinitions cannot be watched (HTTP 403)" in summary
        assert 'cannot list resource "customresourcedefinitions" in API group "apiextensions.k8s.io"' in warning


async def live(controlplane: ControlPlane, app: pathlib.Path, *, namespace: str, pattern: str, token: str) -> list[str]:
    """Run the operator of a file with a token while an object comes and goes; return what it has handled."""
    registry, settings, stop = trioperator.OperatorRegistry(), trioperator.OperatorSettings(), trio.Event()
    module = load(app)
    module.declare(registry=registry)
    settings.leadership.enabled = True
    settings.leadership.namespace = namespace.replace("scope", "operators")
    connection = dataclasses.replace(load_connection([controlplane.kubeconfig]), token=token)

    async def operate(*, task_status: trio.TaskStatus[None]) -> None:
        await trioperator.operator(
            registry=registry,
            settings=settings,
            namespaces=[pattern],
            connection=connection,
            stop_flag=stop,
            task_status=task_status,
        )

    example = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "a", "namespace": namespace}}
    one = ("kopfexamples", "a", f"--namespace={namespace}")
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            await nursery.start(operate)
            controlplane.apply(example)
            wait = ("wait", "--for=jsonpath={.status.handle}=create", "--timeout=30s")
            await trio.to_thread.run_sync(lambda: controlplane.kubectl(*wait, "kopfexample/a", one[-1]))
            await trio.to_thread.run_sync(lambda: controlplane.kubectl("delete", *one, "--timeout=30s"))
            stop.set()
    seen: list[str] = module.seen
    return seen


def load(file: pathlib.Path) -> Any:
    """Import a file, without its handlers in the default registry."""
    before = trioperator.get_default_registry()
    trioperator.set_default_registry(trioperator.OperatorRegistry())
    try:
        spec = importlib.util.spec_from_file_location("app_with_roles", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        trioperator.set_default_registry(before)
    return module


WEBHOOKS = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.admission.server = trioperator.WebhookServer(addr="127.0.0.1", ca_secret="NAME/ca")
    settings.admission.managed = "NAME.example.com"

@trioperator.on.validate("kopfexamples", id="check")
def check(spec, **_):
    if spec.get("field") == "NAME":
        raise trioperator.AdmissionError("Not this one.")
"""


def test_an_operator_with_webhooks_runs_with_the_roles_that_are_printed(
    controlplane: ControlPlane, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    name, app = f"hooks-{uuid.uuid4().hex[:6]}", tmp_path / "hooks.py"
    app.write_text(WEBHOOKS.replace("NAME", name))
    controlplane.kubectl("create", "namespace", name)
    controlplane.kubectl("create", "serviceaccount", "robot", f"--namespace={name}")
    options = (f"--managed={name}.example.com", f"--ca-secret={name}/ca", f"--service-account={name}/robot")
    printed = subprocess.run(
        [sys.executable, "-m", "trioperator", "rbac", "-A", "--standalone", f"--name={name}", *options, str(app)],
        env={**os.environ, "KUBECONFIG": str(controlplane.kubeconfig)},
        capture_output=True,
        text=True,
        check=True,
    )
    controlplane.kubectl("apply", "-f", "-", input=printed.stdout)
    config = yaml.safe_load(controlplane.kubeconfig.read_text())
    token = controlplane.kubectl("create", "token", "robot", f"--namespace={name}").strip()
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "robot.kubeconfig").write_text(yaml.safe_dump(config))
    operator = start_operator(app.read_text(), "--standalone", kubeconfig=tmp_path / "robot.kubeconfig")
    manifest = json.dumps(example(name, field=name))
    denied = controlplane.kubectl("create", "-f", "-", "--dry-run=server", input=manifest, check=False)
    assert denied == ""
    assert operator.stop() == 0
    assert "created" in controlplane.kubectl("create", "-f", "-", "--dry-run=server", input=manifest)
    assert [line for line in operator.output.splitlines() if "Forbidden" in line] == []
    user = f"system:serviceaccount:{name}:robot"
    used = {
        (request["verb"], request["objectRef"]["resource"])
        for request in controlplane.requests()
        if request["user"]["username"] == user and "objectRef" in request
    }
    assert {("create", "validatingwebhookconfigurations"), ("patch", "validatingwebhookconfigurations")} < used
    assert {("create", "secrets"), ("get", "secrets")} < used


REPLICA = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.admission.server = trioperator.WebhookServer(addr="127.0.0.1", ca_secret="NAME/ca")
    settings.admission.managed = "NAME.example.com"
    settings.leadership.lease_duration, settings.leadership.renew_deadline, settings.leadership.retry_period = 6, 4, 1

@trioperator.on.validate("kopfexamples", id="check")
def check(spec, **_):
    if spec.get("field") == "NAME":
        raise trioperator.AdmissionError("Not this one.")
"""


def test_a_standby_that_stops_leaves_the_webhooks_to_the_leader(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = f"replicas-{uuid.uuid4().hex[:6]}"
    controlplane.kubectl("create", "namespace", name)
    source, options = REPLICA.replace("NAME", name), ("--standalone", "--leader-elect", f"--lease={name}/it")
    leader = start_operator(source, *options)
    standby = start_operator(source, *options, ready=False)
    standby.wait_for("Serving admission webhooks")
    standby.wait_for("Updated the ValidatingWebhookConfiguration")
    assert standby.stop() == 0
    assert "Removed" not in standby.output
    stored = controlplane.get("validatingwebhookconfiguration", f"{name}.example.com")
    assert [hook["name"] for hook in stored["webhooks"]] == [f"check.{name}.example.com"]
    leader.wait_for("was changed by others: writing it again")  # with its own address
    leader.wait_for("Updated the ValidatingWebhookConfiguration")
    manifest = json.dumps(example(name, field=name))
    assert controlplane.kubectl("create", "-f", "-", "--dry-run=server", input=manifest, check=False) == ""
    assert leader.stop() == 0
    controlplane.kubectl("delete", "validatingwebhookconfiguration", f"{name}.example.com")
