"""Handlers in parts on a real control plane: killed amid their work, and rejected by admission control."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Callable
from typing import Any

from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program

OPERATOR = """
import os
import time

import trioperator as kopf

@kopf.on.create('kopfexamples')
def parent(spec, name, logger, **_):
    logger.info("%s begins", name)
    for item in spec['items']:

        @kopf.subhandler(id=item)
        def child(item=item, **_):
            logger.info("%s makes %s", name, item)
            if item == 'second' and not os.path.exists(MARK):
                time.sleep(3600)
            return item
"""


def records(body: dict[str, Any]) -> dict[str, Any]:
    annotations = body["metadata"].get("annotations") or {}
    return {key: json.loads(value) for key, value in annotations.items() if key.startswith("trioperator.dev/parent")}


def test_an_operator_that_is_killed_amid_sub_handlers_does_not_repeat_those_that_have_ended(
    controlplane: ControlPlane, start_operator: Callable[..., Program], tmp_path: Any
) -> None:
    mark, name = tmp_path / "mark", some_name()
    source = OPERATOR.replace("MARK", repr(str(mark)))
    operator = start_operator(source)
    controlplane.apply(example(name, items=["first", "second", "third"]))
    operator.wait_for(f"{name} makes second")
    until(lambda: "trioperator.dev/parent.first" in records(controlplane.get("kex", name)))
    stored = records(controlplane.get("kex", name))
    assert stored["trioperator.dev/parent.first"]["success"] is True
    assert stored["trioperator.dev/parent"]["subrefs"] == ["parent/first", "parent/second", "parent/third"]
    operator.process.kill()
    assert operator.process.wait(60) == -signal.SIGKILL
    assert f"{name} makes third" not in operator.output

    mark.touch()
    operator = start_operator(source)
    operator.wait_for(f"[default/{name}] Creation is processed")
    assert f"{name} makes first" not in operator.output
    for item in ("second", "third"):
        assert operator.output.count(f"{name} makes {item}") == 1
    until(lambda: not records(controlplane.get("kex", name)))
    assert controlplane.get("kex", name)["status"] == {f"parent/{item}": item for item in ("first", "second", "third")}
    assert operator.stop() == 0


def test_what_an_admission_policy_forbids_is_dropped_and_the_rest_is_stored(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    policy, name = f"no-evil-{uuid.uuid4().hex[:6]}", some_name()
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": policy}}
    rule = {"apiGroups": ["kopf.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["kopfexamples"]}
    controlplane.apply(
        {
            **group,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [
                    {"expression": "!has(object.spec.evil)", "message": "no evil here", "reason": "Forbidden"}
                ],
            },
        }
    )
    binding = {"policyName": policy, "validationActions": ["Deny"]}
    controlplane.apply({**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    try:
        controlplane.apply(example(f"{name}-probe"))

        def is_rejected() -> bool:
            patch = json.dumps({"spec": {"evil": uuid.uuid4().hex}})
            return not controlplane.kubectl("patch", "kex", f"{name}-probe", "--type=merge", "-p", patch, check=False)

        until(is_rejected)
        operator = start_operator(
            "import trioperator as kopf\n"
            f"@kopf.on.create('kopfexamples', when=lambda name, **_: name == '{name}')\n"
            "async def bad(patch, **_):\n    patch.spec['evil'] = 'yes'\n"
            f"@kopf.on.create('kopfexamples', when=lambda name, **_: name == '{name}')\n"
            "async def good(patch, **_):\n    patch.spec['kind'] = 'yes'\n"
        )
        controlplane.apply(example(name))
        operator.wait_for(f"[default/{name}] Handling cycle is finished")
        until(lambda: controlplane.get("kex", name)["spec"].get("kind") == "yes")
        assert "evil" not in controlplane.get("kex", name)["spec"]
        assert "the changes by Handler 'bad' are dropped: HTTP 403" in operator.output
        assert operator.output.count("is invoked") == 2
        assert operator.stop() == 0
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            controlplane.kubectl("delete", kind, policy, check=False)
