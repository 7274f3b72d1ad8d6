"""Kinds that classes declare, on a real API server: accepted without a warning, refusing what the classes refuse."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import Any

import trio

import trioperator
from tests.controlplane import ControlPlane
from tests.crds.classes import CASES, REGISTRY
from tests.crds.judging import assert_judged
from tests.program import Program
from trioperator import crds
from trioperator.cli.crds import dump_definitions
from trioperator.crds.comparison import compare_definitions


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


GROUP = "versions.kopf.dev"
NAME = f"boxes.{GROUP}"
CLASSES = f"""
import msgspec
import trioperator
from trioperator import crds


class Size(msgspec.Struct):
    width: int
    height: int = 1


class BoxSpec(msgspec.Struct):
    size: Size


@crds.kind('{GROUP}/v2', storage=True)
class Box(msgspec.Struct):
    spec: BoxSpec
    metadata: crds.ObjectMeta = crds.ObjectMeta()
"""
OLD_CLASSES = f"""

class OldBoxSpec(msgspec.Struct):
    size: str


@crds.kind('{GROUP}/v1', kind='Box')
class OldBox(msgspec.Struct):
    spec: OldBoxSpec
    metadata: crds.ObjectMeta = crds.ObjectMeta()
"""
OPERATOR = (
    CLASSES
    + OLD_CLASSES
    + """

@trioperator.on.startup()
def configure(settings):
    settings.admission.server = trioperator.WebhookServer(addr='127.0.0.1')
    settings.admission.managed_conversions = True


@trioperator.on.convert(Box, from_='v1', to='v2')
def up(body: OldBox) -> Box:
    width, _, height = body.spec.size.partition('x')
    return Box(BoxSpec(Size(int(width), int(height))), crds.ObjectMeta(labels={'converted': 'yes'}))


@trioperator.on.convert(Box, from_='v2', to='v1')
async def down(spec: BoxSpec) -> OldBox:
    return OldBox(OldBoxSpec(f'{spec.size.width}x{spec.size.height}'))


@trioperator.on.create(Box)
async def created(spec: BoxSpec, name, client, logger):
    old = await client.get(OldBox, name)
    sizes = [each.spec.size for each in await client.list(Box)]
    logger.info(f'{spec.size.width} times {spec.size.height} was {old.spec.size} in {sizes}')
"""
)


def make_definitions(source: str) -> list[dict[str, Any]]:
    """Return the definitions of the classes of a program."""
    registry, default = trioperator.OperatorRegistry(), trioperator.get_default_registry()
    trioperator.set_default_registry(registry)
    try:
        exec(compile(source, "boxes", "exec", dont_inherit=True), {"__name__": "boxes"})  # of this test
    finally:
        trioperator.set_default_registry(default)
    return crds.collect_definitions(registry)


def test_two_versions_are_served_converted_by_typed_handlers_and_checked(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    definitions = make_definitions(CLASSES + OLD_CLASSES)
    assert controlplane.complaints("apply", "-f", "-", input=dump_definitions(definitions)) == ""
    controlplane.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=90s")
    try:
        operator = start_operator(OPERATOR)
        box = {"apiVersion": f"{GROUP}/v1", "kind": "Box", "metadata": {"name": "one"}, "spec": {"size": "3x4"}}
        deadline = time.monotonic() + 60
        while not controlplane.kubectl("apply", "-f", "-", input=json.dumps(box), check=False):
            assert time.monotonic() < deadline  # the API server takes up the conversion with a delay
            time.sleep(0.1)
        operator.wait_for("3 times 4 was 3x4 in [Size(width=3, height=4)]")
        stored = controlplane.get(f"boxes.v2.{GROUP}", "one")
        assert (stored["spec"], stored["metadata"]["labels"]) == (
            {"size": {"width": 3, "height": 4}},
            {"converted": "yes"},
        )
        assert controlplane.get(f"boxes.v1.{GROUP}", "one")["spec"] == {"size": "3x4"}

        # Compared with what the cluster has, the classes change nothing; other classes break stored objects.
        served = controlplane.get("crd", NAME)
        assert compare_definitions([served], definitions) == []
        other = CLASSES.replace("width: int", "width: str").replace(
            "    spec: BoxSpec", "    spec: BoxSpec\n    owner: str"
        )
        assert compare_definitions([served], make_definitions(other)) == [
            f"{NAME}: v2.spec.size.width: the type changes from integer to string",
            f"{NAME}: v2.owner: the field is required now, and has no default",
            f"{NAME}: the version v1 is gone, which clients may use",
        ]
        assert operator.stop() == 0
    finally:
        controlplane.kubectl("patch", "crd", NAME, "--type=merge", "-p", '{"spec":{"conversion":null}}', check=False)
        controlplane.kubectl("delete", "crd", NAME, "--wait=false", check=False)
