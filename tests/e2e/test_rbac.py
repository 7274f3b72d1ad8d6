"""The roles that `trioperator rbac` prints, on a real API server: they are enough for an operator."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import os
import pathlib
import sys
from typing import Any

import pytest
import trio

import trioperator
from tests.controlplane import ControlPlane
from trioperator.kube.connection import load_connection

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
        [warning] = warnings
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
