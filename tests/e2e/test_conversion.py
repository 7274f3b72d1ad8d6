"""Conversion handlers on a real control plane: three versions of a CRD, and the migration of stored objects."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.controlplane import ControlPlane
from tests.e2e.deployment import Deployed
from tests.program import Program

GROUP = "conversion.kopf.dev"
NAME = f"boxes.{GROUP}"
OPERATOR = f"""
import trioperator as kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1')
    settings.admission.managed_conversions = True

@kopf.on.convert('{GROUP}', 'boxes', from_='v1', to='v2')
def v1_to_v2(spec, patch, **_):
    width, _, height = spec['size'].partition('x')
    patch.spec.update(size=None, width=int(width), height=int(height))
    patch.meta.labels['converted'] = 'yes'

@kopf.on.convert('{GROUP}', 'boxes', from_='v2', to='v1')
async def v2_to_v1(body, spec, **_):
    if spec['width'] > 100:
        raise kopf.PermanentError('It is too wide for v1.')
    return {{**body, 'spec': {{'size': f"{{spec['width']}}x{{spec['height']}}"}}}}

@kopf.on.convert('{GROUP}', 'boxes', from_='v2', to='v3')
def v2_to_v3(spec, patch, **_):
    patch.spec.update(width=None, height=None, dimensions=[spec['width'], spec['height']])

@kopf.on.convert('{GROUP}', 'boxes', from_='v3', to='v2')
def v3_to_v2(spec, patch, **_):
    width, height = spec['dimensions']
    patch.spec.update(width=width, height=height, dimensions=None)

@kopf.on.event('{GROUP}', 'v3', 'boxes')
def seen(type, name, spec, logger, **_):
    logger.info(f"seen {{name}} {{spec.get('dimensions')}}")
"""
NUMBER = {"type": "integer"}
PROPERTIES: dict[str, Any] = {
    "v1": {"size": {"type": "string"}},
    "v2": {"width": NUMBER, "height": NUMBER},
    "v3": {"dimensions": {"type": "array", "items": NUMBER}},
}


def definition(*versions: str, storage: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Box", "plural": "boxes", "singular": "box"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == storage,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object", "properties": PROPERTIES[version]}},
                        }
                    },
                }
                for version in versions
            ],
        },
    }


def box(name: str, version: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Box",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


@pytest.fixture
def plane(controlplane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the control plane with boxes, and remove them without the webhook."""
    controlplane.apply(definition("v1", storage="v1"))
    controlplane.kubectl("wait", "--for=condition=Established", f"crd/{NAME}")
    yield controlplane
    controlplane.kubectl("patch", "crd", NAME, "--type=merge", "-p", '{"spec":{"conversion":null}}', check=False)
    controlplane.kubectl("delete", "crd", NAME, "--timeout=60s", check=False)


def wait_for(plane: ControlPlane, version: str, name: str) -> dict[str, Any]:
    """Return an object when the API server converts it: it takes up changes of a CRD with a delay."""
    deadline = time.monotonic() + 30
    while True:
        found = plane.kubectl("get", f"boxes.{version}.{GROUP}", name, "-o", "json", check=False)
        if found:
            obj: dict[str, Any] = json.loads(found)
            return obj
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_objects_are_converted_and_migrated_to_another_storage_version(
    plane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    plane.apply(box("old", "v1", size="3x4"))
    plane.apply(definition("v1", "v2", "v3", storage="v1"))
    operator = start_operator(OPERATOR)
    old = f"boxes.v3.{GROUP}/old"
    wait_for(plane, "v3", "old")
    plane.kubectl("wait", old, "--for=jsonpath={.spec.dimensions[0]}=3", "--timeout=90s")
    plane.kubectl("annotate", old, "seen=yes")  # it may have been seen before the API server converted it
    operator.wait_for("seen old [3, 4]")
    conversion = plane.get("crd", NAME)["spec"]["conversion"]
    assert conversion["strategy"] == "Webhook"

    # In both directions, with the metadata kept.
    plane.apply(box("new", "v3", dimensions=[5, 6]))
    for name, size in (("old", "3x4"), ("new", "5x6")):
        objects = {version: wait_for(plane, version, name) for version in PROPERTIES}
        width, height = map(int, size.split("x"))
        assert [obj["spec"] for obj in objects.values()] == [
            {"size": size},
            {"width": width, "height": height},
            {"dimensions": [width, height]},
        ]
        assert len({obj["metadata"]["uid"] for obj in objects.values()}) == 1
        assert objects["v3"]["metadata"]["labels"] == {"converted": "yes"}
    order = [item["metadata"]["name"] for item in plane.get(f"boxes.v3.{GROUP}")["items"]]
    assert order == ["new", "old"]

    # Failures are responses of the API server.
    wide = json.dumps(box("wide", "v3", dimensions=[500, 6]))
    with pytest.raises(AssertionError, match=r"conversion webhook for .* failed: Box default/wide cannot be converted"):
        plane.kubectl("create", "-f", "-", input=wide)

    # Another storage version: all objects are written, and the old version goes.
    plane.apply(definition("v1", "v2", "v3", storage="v3"))
    plane.kubectl("replace", "-f", "-", input=json.dumps(plane.get(f"boxes.v3.{GROUP}")))
    status = '{"status":{"storedVersions":["v3"]}}'
    plane.kubectl("patch", "crd", NAME, "--subresource=status", "--type=merge", "-p", status)
    plane.apply(definition("v2", "v3", storage="v3"))
    assert plane.get("crd", NAME)["spec"]["conversion"] == conversion  # which applying a manifest does not change
    assert wait_for(plane, "v2", "old")["spec"] == {"width": 3, "height": 4}
    assert operator.stop() == 0
    assert plane.get("crd", NAME)["spec"]["conversion"] == conversion
    assert wait_for(plane, "v3", "old")["spec"] == {"dimensions": [3, 4]}  # as it is stored: without the webhook


class Release:
    """A release of the operator with the manifests that are made for it, and its Service on this machine."""

    def __init__(self, plane: ControlPlane, folder: pathlib.Path, name: str) -> None:
        folder.mkdir()
        source = OPERATOR.replace("kopf.WebhookServer(addr='127.0.0.1')", "kopf.WebhookAutoServer()")
        (folder / "app.py").write_text(source)
        options = (f"--name={name}", "--managed-conversions", f"--ca-secret={name}/hooks-ca", "-A")
        command = [sys.executable, "-m", "trioperator", "manifests", "app.py", *options]
        made = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        self.deployed = Deployed(plane, folder, yaml.safe_load_all(made.stdout))
        self.deployed.redirect_webhooks(self.deployed.webhooks)
        plane.apply(*self.deployed.manifests)
        self._plane = plane
        self.program = self.deployed.start()
        self.program.wait_for("The operator is ready.")

    def count_writes(self) -> int:
        """Return the number of writes of the CRD."""
        sent = self._plane.requests(NAME, verb="patch")
        return len([e for e in sent if e["user"]["username"] == self.deployed.user and NAME in e["requestURI"]])


@pytest.fixture
def release(plane: ControlPlane, tmp_path: pathlib.Path) -> Iterator[Callable[[str], Release]]:
    """Start releases of the operator with what is made for them."""
    releases: list[Release] = []

    def start(name: str) -> Release:
        releases.append(Release(plane, tmp_path / name, name))
        return releases[-1]

    yield start
    for each in releases:
        each.deployed.close()
        plane.kubectl("delete", "namespace", each.deployed.namespace, "--wait=false")


def find_service(plane: ControlPlane) -> str | None:
    """Return the namespace of the Service that converts."""
    conversion = plane.get("crd", NAME)["spec"]["conversion"]
    name: str | None = conversion.get("webhook", {}).get("clientConfig", {}).get("service", {}).get("namespace")
    return name


def wait_for_service(plane: ControlPlane, *names: str) -> None:
    deadline = time.monotonic() + 30
    while find_service(plane) not in names:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_conversion_that_others_remove_comes_back_with_the_rights_of_the_manifests(
    plane: ControlPlane, release: Callable[[str], Release]
) -> None:
    plane.apply(definition("v1", "v2", "v3", storage="v1"))
    plane.apply(box("old", "v1", size="3x4"))
    one = release("converter")
    wait_for_service(plane, "converter")
    removal = ("patch", "crd", NAME, "--type=merge", "-p", '{"spec":{"conversion":null}}')
    plane.kubectl(*removal)
    wait_for_service(plane, "converter")
    plane.kubectl("replace", "-f", "-", input=json.dumps(definition("v1", "v2", "v3", storage="v1")))
    wait_for_service(plane, "converter")
    assert one.program.output.count("writing it again") == 2
    assert wait_for(plane, "v3", "old")["spec"] == {"dimensions": [3, 4]}

    # Another release has it then: the first one leaves it so, and both repair it.
    two = release("successor")
    wait_for_service(plane, "successor")
    before = [each.count_writes() for each in (one, two)]
    plane.kubectl(*removal)
    wait_for_service(plane, "converter", "successor")
    time.sleep(5)  # in which neither of them takes it from the other
    kept = plane.get("crd", NAME)
    after = [each.count_writes() for each in (one, two)]
    assert sum(after) - sum(before) <= 2
    assert wait_for(plane, "v2", "old")["spec"] == {"width": 3, "height": 4}
    assert [each.program.stop() for each in (one, two)] == [0, 0]
    assert plane.get("crd", NAME)["spec"] == kept["spec"]
    assert [each.deployed.forbidden() for each in (one, two)] == [[], []]
