"""Admission handlers on a real control plane: kubectl is denied, warned, and its objects are changed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name
from tests.program import Program

OPERATOR = """
import trioperator as kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1')
    settings.admission.managed = 'e2e.kopf.dev'

@kopf.on.validate('kopfexamples', id='check')
def check(spec, warnings, dryrun, userinfo, **_):
    if spec.get('field') == 'evil':
        raise kopf.AdmissionError("Meh! I don't like it.", code=400)
    warnings.append(f"checked for {userinfo['username']}, dryrun={dryrun}")

@kopf.on.mutate('kopfexamples', id='Add_Label', operations=['CREATE'])
async def add(patch, **_):
    patch.meta.labels['added'] = 'yes'
    patch.spec['removed'] = None
"""


def create(controlplane: ControlPlane, name: str, *options: str, **spec: str) -> subprocess.CompletedProcess[str]:
    kubectl = [str(controlplane.assets / "kubectl"), f"--kubeconfig={controlplane.kubeconfig}"]
    manifest = json.dumps(example(name, **spec))
    command = [*kubectl, "create", "-f", "-", *options]
    return subprocess.run(command, input=manifest, capture_output=True, text=True, timeout=60, check=False)


def test_writes_by_kubectl_are_denied_warned_about_changed_and_tried(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    operator, name = start_operator(OPERATOR), some_name()
    denied = create(controlplane, name, field="evil")
    assert denied.returncode == 1
    assert 'admission webhook "check.e2e.kopf.dev" denied the request: Meh! I don\'t like it.' in denied.stderr

    tried = create(controlplane, name, "--dry-run=server", field="x")
    assert (tried.returncode, "Warning: checked for admin, dryrun=True" in tried.stderr) == (0, True)

    created = create(controlplane, name, field="x", removed="yes")
    assert (created.returncode, "Warning: checked for admin, dryrun=False" in created.stderr) == (0, True)
    body = controlplane.get("kex", name)
    assert (body["metadata"]["labels"], body["spec"]) == ({"added": "yes"}, {"field": "x"})

    configuration = controlplane.get("mutatingwebhookconfigurations", "e2e.kopf.dev")
    assert [hook["name"] for hook in configuration["webhooks"]] == ["add-label.e2e.kopf.dev"]
    generation = configuration["metadata"]["generation"]
    assert operator.stop() == 0
    for kind in ("mutating", "validating"):
        assert not controlplane.get(f"{kind}webhookconfigurations", "e2e.kopf.dev").get("webhooks")
    assert create(controlplane, some_name(), field="evil").returncode == 0
    assert generation == 1


def test_a_configuration_that_is_stored_already_is_not_written_again(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    source = (
        OPERATOR.replace("id='check'", "id='check', persistent=True")
        .replace("['CREATE']", "['CREATE'], persistent=True")
        .replace("kopf.WebhookServer(addr='127.0.0.1')", "serve")
        .replace("e2e.kopf.dev", "kept.kopf.dev")
    )
    source += """
import trio

async def serve(fn):
    yield {'service': {'namespace': 'default', 'name': 'nowhere'}}
    await trio.sleep_forever()
"""
    source = source.replace("'kopfexamples'", "'kopfexamples', namespace_selector={'matchLabels': {'no': 'where'}}")
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    try:
        versions = []
        for _ in range(2):
            operator = start_operator(source)
            assert operator.stop() == 0
            versions.append([controlplane.get(kind, "kept.kopf.dev")["metadata"]["resourceVersion"] for kind in kinds])
        assert versions[0] == versions[1]
    finally:
        for kind in kinds:
            controlplane.kubectl("delete", kind, "kept.kopf.dev", check=False)
