"""The operator under test. Each call of a handler that succeeds adds a line to the journal: what, which uid, which pid.

``SOAK_JOURNAL`` is the file. Handlers write the generation that they have seen into the status.
"""

from __future__ import annotations

import functools
import os
import random
import time
from typing import Any

import trio

import trioperator
from tests.bench.objects import GROUP, PLURAL, VERSION

RESOURCE = (GROUP, VERSION, PLURAL)
JOURNAL = os.open(os.environ["SOAK_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
PLANNED = "planned failure"


def note(what: str, uid: str | None) -> None:
    """Add a line to the journal, whole even if the process is killed."""
    os.write(JOURNAL, f"{what} {uid} {os.getpid()}\n".encode())


def fail_sometimes() -> None:
    """Raise now and then what handlers raise."""
    number = random.random()
    if number < 0.02:
        raise ValueError(PLANNED)
    if number < 0.06:
        raise trioperator.TemporaryError(PLANNED, delay=random.choice([0.1, 0.5, 2]))


@trioperator.on.startup()
def configure(settings: trioperator.OperatorSettings, **_: Any) -> None:
    """Set limits in proportion to the faults: nothing is silent for minutes here."""
    settings.networking.request_timeout = 15
    settings.networking.connect_timeout = 5
    settings.watching.inactivity_timeout = 30


@trioperator.on.create(*RESOURCE, backoff=0.5)
@trioperator.on.update(*RESOURCE, backoff=0.5)
async def first(meta: Any, patch: Any, **_: Any) -> None:
    """Write by a patch."""
    await trio.sleep(random.choice([0, 0.01, 0.2]))
    fail_sometimes()
    patch.status["first"] = meta["generation"]


@trioperator.on.create(*RESOURCE, backoff=0.5)
@trioperator.on.update(*RESOURCE, backoff=0.5)
def second(meta: Any, **_: Any) -> Any:
    """Write by the result, from a thread."""
    time.sleep(random.choice([0, 0.01, 0.1]))
    fail_sometimes()
    return {"generation": meta["generation"]}


@trioperator.on.create(*RESOURCE, backoff=0.5, on_change="cancel")
@trioperator.on.update(*RESOURCE, backoff=0.5, on_change="cancel")
async def third(meta: Any, **_: Any) -> None:
    """Write by functions in patches of sub-handlers."""

    async def part(id: str, patch: Any, **_: Any) -> None:
        await trio.sleep(random.choice([0, 0.01, 0.2]))
        fail_sometimes()
        patch.fns.append(lambda body: body.setdefault("status", {}).__setitem__(id, meta["generation"]))

    for id in ("part-a", "part-b"):
        trioperator.register(functools.partial(part, id), id=id, backoff=0.5)


@trioperator.on.delete(*RESOURCE, backoff=0.5)
async def delete(uid: str, **_: Any) -> None:
    """Note the deletion."""
    await trio.sleep(random.choice([0, 0.01, 0.2]))
    fail_sometimes()
    note("delete", uid)


@trioperator.daemon(*RESOURCE, labels={"daemon": "yes"})
async def accompany(uid: str, stopped: Any, **_: Any) -> None:
    """Note the beginning and the end."""
    note("spawn", uid)
    try:
        await stopped.wait()
    finally:
        note("end", uid)


@trioperator.timer(*RESOURCE, interval=10, labels={"timer": "yes"})
async def tick(uid: str, status: Any, patch: Any, **_: Any) -> None:
    """Count in the status."""
    note("tick", uid)
    patch.status["ticks"] = status.get("ticks", 0) + 1
