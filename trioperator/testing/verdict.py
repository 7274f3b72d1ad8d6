"""The verdict at the end of a test: what an operator has left behind, and which failures were not expected."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator
from typing import Final

import msgspec
import trio

from trioperator._handling.guard import trim
from trioperator.apiserver import Cluster
from trioperator.testing.records import Call, Write

# Kinds by which the API server finds webhooks, and their resources.
_REGISTRATIONS: Final = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


class Expectations:
    """Failures of handlers that a test expects: by the ids of handlers, or by types of errors."""

    def __init__(self) -> None:
        self._any = False
        self._expected: list[str | type[BaseException]] = []

    def add(self, *expected: str | type[BaseException]) -> None:
        """Expect these failures, or any failure without arguments."""
        self._any = self._any or not expected
        self._expected += expected

    def find_problems(self, failures: Collection[Call]) -> Iterator[str]:
        """Yield which failures were not expected, with their tracebacks, and which expected ones are missing."""
        reported: set[str] = set()
        for call in failures:
            if call.denied or self._any or any(_fits(call, expected) for expected in self._expected):
                continue
            if str(call) in reported:
                continue
            reported.add(str(call))
            assert call.error is not None
            shown = traceback.format_exception(type(call.error), call.error, trim(call.error.__traceback__))
            lines = "".join(shown).rstrip()
            yield f"{call} has failed. If it should, call operator.expect_failures({call.handler!r}).\n{lines}"
        for expected in self._expected:
            if not any(_fits(call, expected) for call in failures):
                name = expected if isinstance(expected, str) else expected.__name__
                yield f"{name} was expected to fail, but has not."
        if self._any and not self._expected and not failures:
            yield "Failures were expected, but no handler has failed."


def _fits(call: Call, expected: str | type[BaseException]) -> bool:
    return call.handler == expected if isinstance(expected, str) else isinstance(call.error, expected)


def find_system_tasks() -> set[trio.lowlevel.Task]:
    """Return the tasks of the current run that have no parent in the program, such as system tasks."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return {task for nursery in root.child_nurseries for task in nursery.child_tasks}


def describe_tasks(tasks: Collection[trio.lowlevel.Task]) -> list[str]:
    """Return that these tasks have leaked, if there are any."""
    names = sorted(task.name for task in tasks)
    return [f"Tasks that were spawned outside of nurseries are still running: {', '.join(names)}."] if names else []


def describe_stuck(cluster: Cluster, finalizer: str | None) -> list[str]:
    """Return that objects are being deleted, but are kept by the operator's finalizer, if there are any."""
    stuck = [
        f"{obj['kind']} {meta.get('namespace', '')}/{meta['name']}"
        for obj in cluster.objects()
        if (meta := obj["metadata"]).get("deletionTimestamp") and finalizer in meta.get("finalizers", ())
    ]
    if not stuck:
        return []
    return [f"These are being deleted, but still have the operator's finalizer {finalizer}: {', '.join(stuck)}."]


def find_registrations(cluster: Cluster) -> set[tuple[str, bytes]]:
    """Return the paths and contents of the objects by which the API server finds webhooks."""
    found = set()
    for obj in cluster.objects(_REGISTRATIONS):
        content = {field: value for field, value in obj.items() if field not in {"metadata", "status"}}
        path = f"/apis/{obj['apiVersion']}/{_REGISTRATIONS[obj['kind']]}/{obj['metadata']['name']}"
        found.add((path, msgspec.json.encode(content, order="deterministic")))
    return found


def list_writes(text: str, writes: list[Write]) -> str:
    """Return the text of an error, with the first of these writes."""
    lines = [f"  {write} {write.body.decode(errors='replace')[:500]}" for write in writes[:10]]
    return "\n".join([f"{text} {len(writes)} times:", *lines])
