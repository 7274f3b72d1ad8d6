"""Tests for :mod:`trioperator.testing.verdict`; what fails a test of an operator: see ``test_operator_runner.py``."""

from __future__ import annotations

import trio

from trioperator.apiserver import Cluster
from trioperator.testing import Call
from trioperator.testing.verdict import Expectations, describe_stuck, describe_tasks, find_system_tasks


def failure(handler: str, error: BaseException) -> Call:
    return Call(
        handler=handler, kind=None, namespace=None, name=None, kwargs={}, retry=0, started=0, error=error, final=True
    )


def test_each_handler_is_reported_once_with_its_first_error() -> None:
    failures = [failure("a", ValueError("first")), failure("a", ValueError("second")), failure("b", KeyError("x"))]
    first, second = Expectations().find_problems(failures)
    assert first.startswith("a has failed. If it should, call operator.expect_failures('a').")
    assert first.endswith("ValueError: first")
    assert second.startswith("b has failed")


def test_expected_failures_must_happen() -> None:
    expectations = Expectations()
    expectations.add()
    assert list(expectations.find_problems([])) == ["Failures were expected, but no handler has failed."]
    assert list(expectations.find_problems([failure("a", ValueError())])) == []
    expectations.add("b")
    assert list(expectations.find_problems([failure("a", ValueError())])) == ["b was expected to fail, but has not."]


async def test_system_tasks_are_found() -> None:
    before, ending = find_system_tasks(), trio.Event()
    task = trio.lowlevel.spawn_system_task(ending.wait, name="leak")
    assert find_system_tasks() - before == {task}
    assert describe_tasks([task]) == ["Tasks that were spawned outside of nurseries are still running: leak."]
    assert describe_tasks([]) == []
    ending.set()


async def test_objects_are_stuck_that_are_being_deleted_with_the_finalizer(cluster: Cluster) -> None:
    for name, finalizers in (("mine", ["x/f"]), ("other", ["y/f"]), ("alive", ["x/f"])):
        meta = {"name": name, "finalizers": finalizers}
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
        if name != "alive":
            await cluster.delete("configmaps", name)
    (text,) = describe_stuck(cluster, "x/f")
    assert text == "These are being deleted, but still have the operator's finalizer x/f: ConfigMap default/mine."
    assert describe_stuck(cluster, "z/f") == []
