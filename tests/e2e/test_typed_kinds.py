"""Kinds that classes declare, on a real API server: accepted without a warning, refusing what the classes refuse."""

from __future__ import annotations

import functools

import trio

import trioperator
from tests.controlplane import ControlPlane
from tests.crds.classes import CASES, REGISTRY
from tests.crds.test_definitions import assert_judged
from trioperator import crds
from trioperator.cli.crds import dump_definitions


async def test_ten_kinds_refuse_what_their_classes_refuse(controlplane: ControlPlane) -> None:
    definitions = crds.collect_definitions(REGISTRY)
    warnings = controlplane.complaints("apply", "-f", "-", input=dump_definitions(definitions))
    assert warnings == ""
    names = [f"crd/{definition['metadata']['name']}" for definition in definitions]
    controlplane.kubectl("wait", "--for=condition=Established", *names, "--timeout=90s")
    for definition in controlplane.get("crds")["items"]:
        conditions = {each["type"]: each for each in definition["status"]["conditions"]}
        assert "NonStructuralSchema" not in conditions, conditions
    path = controlplane.folder / "operator.kubeconfig"
    with trio.fail_after(120):
        async with trioperator.open_client(kubeconfig=path) as client:
            for case in CASES:
                await assert_judged(case, functools.partial(client.create, owner=None))
