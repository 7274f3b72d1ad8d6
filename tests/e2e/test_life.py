"""Operators against a real API server, with kubectl on the other side."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Callable
from typing import Any

from tests.controlplane import ControlPlane
from tests.program import Program

LAST = "trioperator.dev/last-handled-configuration"
OPERATOR = """
import trioperator as kopf

@kopf.on.create('kopfexamples')
def create_fn(spec, logger, **_):
    logger.info("created with %s", spec.get('field'))
    return {'field': spec.get('field')}

@kopf.on.update('kopfexamples')
def update_fn(diff, old, new, logger, **_):
    logger.info("updated: %r", tuple(diff))
    return len(diff)

@kopf.on.delete('kopfexamples')
async def delete_fn(name, logger, **_):
    logger.info("deleted %s", name)
"""


def example(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec or {"field": "value"},
    }


def some_name() -> str:
    return f"kex-{uuid.uuid4().hex[:8]}"


def until(check: Callable[[], Any], seconds: float = 90) -> Any:
    """Repeat the check until it is true, ever more rarely: most start kubectl."""
    started = time.monotonic()
    while not (result := check()):
        waited = time.monotonic() - started
        assert waited < seconds, "it did not come true"
        time.sleep(min(1, 0.1 + waited / 5))
    return result


def created(controlplane: ControlPlane, plural: str, name: str) -> bool:
    manifest = {"apiVersion": "example.com/v1", "kind": plural.capitalize(), "metadata": {"name": name}}
    return "created" in controlplane.kubectl("create", "-f", "-", input=json.dumps(manifest), check=False)


def test_an_object_is_created_updated_and_deleted_with_kubectl(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    operator, name = start_operator(OPERATOR), some_name()
    controlplane.apply(example(name, field="one"))
    until(lambda: controlplane.get("kex", name).get("status"))
    until(
        lambda: "trioperator.dev/last-handled-configuration" in controlplane.get("kex", name)["metadata"]["annotations"]
    )
    body = controlplane.get("kex", name)
    assert body["status"] == {"create_fn": {"field": "one"}}
    assert body["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
    essence = json.loads(body["metadata"]["annotations"][LAST])
    assert essence == {"spec": {"field": "one"}}

    controlplane.kubectl("patch", "kex", name, "--type=merge", "-p", '{"spec": {"field": "two"}}')
    operator.wait_for("('change', ('spec', 'field'), 'one', 'two')")
    until(lambda: controlplane.get("kex", name)["status"].get("update_fn") == 1)

    controlplane.kubectl("delete", "kex", name, "--timeout=90s")
    operator.wait_for(f"deleted {name}")
    assert operator.stop(signal.SIGINT) == 0
    assert "Traceback" not in operator.output


def test_what_one_object_costs_on_the_real_server(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    operator, name = start_operator(OPERATOR), some_name()
    controlplane.apply(example(name))
    operator.wait_for("Something has changed, but we are not interested")
    controlplane.kubectl("delete", "kex", name, "--timeout=90s")
    operator.wait_for("Deleted, really deleted")
    operator.stop()
    writes = [
        (request["verb"], request["objectRef"].get("subresource", ""))
        for request in controlplane.requests(name)
        if request.get("objectRef", {}).get("name") == name
    ]
    assert writes == [("patch", ""), ("patch", "status"), ("patch", ""), ("patch", "")]


def test_a_killed_operator_does_not_repeat_what_has_ended_and_counts_on(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    source = """
import trioperator as kopf

@kopf.on.create('kopfexamples')
def done(logger, **_):
    logger.info("done is called")

@kopf.on.create('kopfexamples')
def waiting(retry, logger, **_):
    logger.info("waiting is called, retry=%s", retry)
    raise kopf.TemporaryError("not yet", delay=3 if retry < 2 else 3600)
"""
    name = some_name()
    first = start_operator(source)
    controlplane.apply(example(name))
    first.wait_for("waiting is called, retry=1")
    until(
        lambda: '"retries":2' in json.dumps(controlplane.get("kex", name)["metadata"]["annotations"]).replace("\\", "")
    )
    first.stop(signal.SIGKILL)
    second = start_operator(source)
    second.wait_for("waiting is called, retry=2")
    assert "done is called" not in second.output
    assert second.stop() == 0
    controlplane.kubectl("delete", "kex", name, "--timeout=90s")


def test_an_operator_serves_a_kind_that_is_defined_later(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    plural = f"things{uuid.uuid4().hex[:6]}"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"kind": plural.capitalize(), "plural": plural, "singular": plural[:-1]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    operator = start_operator(
        f"import trioperator as kopf\n@kopf.on.create('example.com', 'v1', '{plural}')\ndef fn(name, logger, **_):\n"
        "    logger.info('made %s', name)\n"
    )
    assert plural in operator.output  # what cannot be served is named
    controlplane.apply(crd)
    controlplane.kubectl("wait", "--for=condition=Established", f"crd/{plural}.example.com", "--timeout=90s")
    until(lambda: created(controlplane, plural, "one"))
    operator.wait_for("made one")
    controlplane.kubectl("delete", "crd", f"{plural}.example.com", "--timeout=90s")
    controlplane.apply(crd)
    controlplane.kubectl("wait", "--for=condition=Established", f"crd/{plural}.example.com", "--timeout=90s")
    until(lambda: created(controlplane, plural, "two"))
    operator.wait_for("made two")
    assert operator.stop() == 0


def test_namespaces_are_created_and_deleted(controlplane: ControlPlane, start_operator: Callable[..., Program]) -> None:
    mark = uuid.uuid4().hex[:6]
    operator = start_operator(OPERATOR, "-n", f"team-{mark}-*,!team-{mark}-secret")
    for namespace in (f"team-{mark}-a", f"team-{mark}-secret"):
        controlplane.kubectl("create", "namespace", namespace)
        manifest = example("kex")
        manifest["metadata"]["namespace"] = namespace
        controlplane.apply(manifest)
    operator.wait_for(f"[team-{mark}-a/kex] Creation is processed")
    controlplane.kubectl("delete", "namespace", f"team-{mark}-a", f"team-{mark}-secret", "--timeout=120s")
    operator.wait_for("deleted kex")
    assert f"team-{mark}-secret/kex" not in operator.output
    assert operator.stop() == 0


def test_a_kopf_operator_is_replaced_in_place(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    manifest = example(name, field="value")
    manifest["metadata"]["annotations"] = {
        "kopf.zalando.org/last-handled-configuration": '{"spec":{"field":"value"}}\n',
    }
    manifest["metadata"]["finalizers"] = ["kopf.zalando.org/KopfFinalizerMarker"]
    controlplane.kubectl("create", "-f", "-", input=json.dumps(manifest))
    source = (
        OPERATOR
        + """
@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = 'kopf.zalando.org/KopfFinalizerMarker'
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix='kopf.zalando.org')
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix='kopf.zalando.org')

@kopf.on.resume('kopfexamples')
def resume_fn(name, logger, **_):
    logger.info("resumed %s", name)
"""
    )
    operator = start_operator(source)
    operator.wait_for(f"resumed {name}")
    assert f"[default/{name}] created" not in operator.output
    controlplane.kubectl("delete", "kex", name, "--timeout=90s")
    operator.wait_for(f"deleted {name}")
    assert operator.stop() == 0
