"""Daemons, their causes and their objects."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.runtime.harness import make_state
from trioperator._handling.arguments.cause import DaemonCause
from trioperator._handling.handlers.handler import DaemonHandler
from trioperator._logs import get_logger
from trioperator._model.resource import Selector
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.daemons.daemon import Daemon, ObjectDaemons


async def async_fn(**_: Any) -> None: ...


def sync_fn(**_: Any) -> None: ...


def make_body(version: int = 1, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec or {"size": 1}}


def make_cause(state: ObjectState) -> DaemonCause:
    assert state.body is not None
    return DaemonCause(
        resource=state.cache.kind.resource, raw=state.body, get_memo=state.get_memo, logger=get_logger("tests")
    )


def digest(body: Any) -> int:
    return hash(msgspec.json.encode(body["spec"]))


def make_daemons(*, digest_of: Any = digest) -> ObjectDaemons:
    """Return the daemons of an object, with a live view."""
    state = make_state(make_body())
    daemons = ObjectDaemons(state, digest_of)
    daemons.match(make_body())
    daemons.begin(make_cause(state))
    return daemons


def make_handler(fn: Any = async_fn, **options: Any) -> DaemonHandler:
    return DaemonHandler(fn=fn, **{"id": "daemon", "selector": Selector.parse("widgets"), "finalizer": True, **options})


def add(daemons: ObjectDaemons, key: str = "daemon", fn: Any = async_fn, **options: Any) -> Daemon:
    daemon = Daemon(daemons.state, make_handler(fn, id=key, **options), key, daemons)
    daemons.add(daemon, key)
    return daemon
