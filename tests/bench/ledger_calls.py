"""``python -m tests.bench.ledger_calls``: instructions that the ledger takes for each operation of the benchmark.

An operator goes another way each time, so that the difference between two of them tells little of what is two per cent
of it. Here the ledger is called as it is for an object that is created, updated and deleted in a storm, and for a watch
event, under callgrind, which repeats itself to the third digit.
"""

from __future__ import annotations

import gc
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import trio

from trioperator._concurrency.clock import make_clock
from trioperator._handling.handlers.handler import Reason
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.reconciler.incoming import Incoming

_OBJECTS: Final = 50
_ROUNDS: Final = 500


class _Fields:
    """What the ledger looks at of a state, an event or a cause."""

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)


_Operation: TypeAlias = Callable[[Any, str], None]


def make_operations() -> dict[str, _Operation]:
    """Return the calls of an operation for a state and the target of its requests."""
    ledger = Ledger()
    ledger.now()
    ledger.found_after = float("inf")  # in a storm, nearly no fields are found
    pending: Any = {}
    incoming = Incoming(ledger, pending, lambda _: False, lambda _: False)
    began = trio.current_time()
    creation, update = (_make_cause(reason) for reason in (Reason.CREATE, Reason.UPDATE))
    added, modified, deleted = (
        [_Fields(type=type, version=12345, previous=None)] for type in ("ADDED", "MODIFIED", "DELETED")
    )

    def reconcile(state: Any, target: str, events: Sequence[Any], cause: Any, handler: str, *, writes: bool) -> None:
        state.events = events
        run = incoming.begin(state)
        state.events = ()
        if events:
            incoming.note_event(state, events[0], before=None)
        if cause is not None:
            incoming.note_update(cause)
        if handler:
            ledger.called(handler, began, "succeeded")
        if writes:
            ledger.requested("PATCH", target, 200)
        ledger.end(run)

    def create(state: Any, target: str) -> None:
        reconcile(state, target, added, None, "", writes=True)  # adds the finalizer
        incoming.note_newer(state)
        reconcile(state, target, (), creation, "create", writes=True)

    def delete(state: Any, target: str) -> None:
        reconcile(state, target, modified, creation, "delete", writes=True)
        reconcile(state, target, deleted, None, "", writes=False)

    return {
        "none": lambda state, target: None,
        "create": create,
        "update": lambda state, target: reconcile(state, target, modified, update, "update", writes=True),
        "delete": delete,
        "event": lambda state, target: reconcile(state, target, modified, None, "event", writes=False),
    }


def _make_cause(reason: Reason) -> Any:
    return _Fields(reason=reason)


async def call_all(dump: Callable[[], None]) -> None:
    """Make all calls, twice: the first time is for what is done only once. Calls *dump* before and after the others."""
    states = [
        _Fields(uid=f"uid-{number:032d}", subject=("widgets", "default", str(number)), body={}, initial=False)
        for number in range(_OBJECTS)
    ]
    path = "/apis/bench.example.com/v1/namespaces/default/widgets"
    targets = [f"{path}/widget-{number}?fieldManager=trioperator" for number in range(_OBJECTS)]
    operations = make_operations()
    for operation in operations.values():
        for number in range(_ROUNDS):
            operation(states[number % _OBJECTS], targets[number % _OBJECTS])
    for operation in operations.values():
        dump()
        for number in range(_ROUNDS):
            operation(states[number % _OBJECTS], targets[number % _OBJECTS])
        dump()


def _dump() -> None:
    subprocess.run(["vgdb", f"--pid={os.getpid()}", "dump"], check=True, capture_output=True)


def _count(folder: pathlib.Path, number: int) -> int:
    """Return the instructions of a dump."""
    text = (folder / f"out.{number}").read_text()
    found = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def main(arguments: list[str]) -> int:
    """Count and print."""
    if arguments == ["--counted"]:
        gc.disable()
        trio.run(call_all, _dump, clock=make_clock())
        return 0
    if shutil.which("vgdb") is None:
        sys.exit("valgrind is needed, whose tool callgrind counts")
    with tempfile.TemporaryDirectory(prefix="trioperator-bench-") as name:
        folder = pathlib.Path(name)
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'out'}"]
        command = [*valgrind, sys.executable, "-m", __spec__.name, "--counted"]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, check=True, capture_output=True)
        counts = [_count(folder, number) for number in range(2, 11, 2)]
    for operation, count in zip(("create", "update", "delete", "event"), counts[1:], strict=True):
        print(f"{operation:<10}{(count - counts[0]) / _ROUNDS / 1000:>10.1f} thousand instructions")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
