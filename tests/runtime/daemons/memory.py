"""``python -m tests.runtime.daemons.memory``: print how many MiB ten hostile objects of 1.2 MB take while all is idle.

Each has a daemon that has looked at it and a handler that waits for its retry; one has a change that is to be stored.
Run it with ``PYTHONMALLOC=malloc``, so that it can be told what is free from what is kept.
"""

from __future__ import annotations

import ctypes
import gc
import pathlib
import re
import sys

import msgspec
import trio

from tests.runtime.daemons.making import digest, make_body, make_cause
from tests.runtime.harness import WIDGETS, Queue
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._kube.objects import parse_object
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.daemons.daemon import ObjectDaemons


def measure() -> float:
    """Return the memory that this process has in use, in MiB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    found = re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def use(daemons: ObjectDaemons) -> None:
    """Look at the object as a daemon does."""
    assert daemons.cause is not None
    assert len(daemons.cause.kwargs["spec"]["items"]) == 400_000
    assert len(daemons.cause.kwargs["body"]["spec"]) == 1


async def main() -> None:
    """Keep the objects as an operator does, and print what they take."""
    cache = ObjectCache(Kind(WIDGETS, KindHandlers()), Queue(), memo=None, consistency_timeout=5)
    raw = msgspec.json.encode(make_body(items=[[]] * 400_000))
    before = measure()
    kept = []
    for number in range(10):
        uid = f'"uid":"{number}"'.encode()
        cache.observe("ADDED", parse_object(raw.replace(b'"uid":"u"', uid)))
    for state in cache:
        for event in state.take_events():
            state.advance(event)
        daemons = ObjectDaemons(state, digest)
        assert state.body is not None
        daemons.match(state.body)
        daemons.begin(make_cause(state))
        use(daemons)
        if state.uid == "0":
            daemons.contributed({"status": {"phase": "x"}}, opaque=False)
        kept.append(daemons)
        await trio.sleep(0.01)
    sys.stdout.write(f"{measure() - before}\n")


if __name__ == "__main__":
    trio.run(main)
