"""Operators as users see them: to be awaited in a Trio program, or to be run as one."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import trio

from trioperator.errors import ConfigError
from trioperator.handling.lifecycles import Lifecycle, check_lifecycle
from trioperator.handling.registry import OperatorRegistry, get_default_registry
from trioperator.kube.connection import ConnectionInfo, load_connection
from trioperator.model.memo import Memo
from trioperator.model.namespaces import NamespacePattern
from trioperator.runtime.scope import Scope
from trioperator.settings import OperatorSettings
from trioperator.supervisor import Flag, Plan, supervise
from trioperator.web.endpoint import parse_endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ["operator", "run"]


async def operator(
    *,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    memo: Any = None,
    lifecycle: Lifecycle | None = None,
    clusterwide: bool = False,
    namespaces: Collection[NamespacePattern] = (),
    standalone: bool | None = None,
    liveness_endpoint: str | None = None,
    connection: ConnectionInfo | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    stop_flag: Flag | None = None,
    ready_flag: Flag | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run an operator until it is stopped or cancelled.

    ``await nursery.start(operator)`` comes back when everything that can be watched is. Signals are listened to
    in the main thread only: the first one stops in order, the second one at once.

    *registry* holds the handlers (default: those of the plain decorators); *settings* are this operator's own; *memo*
    is passed to all handlers, and copied for each object; *lifecycle* says in which order handlers are called; with
    neither *clusterwide* nor *namespaces* it handles the whole cluster. *connection* says where the API server is
    (default: as kubectl finds it, or the pod's service account); *transport* carries the requests in place of the
    network. *stop_flag* and *ready_flag* are events, of Trio or of threading. *standalone* is how an operator runs: the
    option is there for Kopf's sake.

    Raises ConfigError, LoginError, ActivityError or ApiError when it cannot start.
    """
    if clusterwide and namespaces:
        raise TypeError("An operator is either clusterwide or restricted to namespaces, not both.")
    if isinstance(namespaces, str | re.Pattern):  # else each of its letters would be a pattern
        raise TypeError(f"There can be several namespaces: give them as a list, such as [{namespaces!r}].")
    if liveness_endpoint is not None:
        parse_endpoint(liveness_endpoint)
    if lifecycle is not None:
        check_lifecycle(lifecycle)
    _check_memo(memo)
    settings = OperatorSettings() if settings is None else settings
    if standalone is not None:
        settings.peering.standalone = standalone

    def connect() -> ConnectionInfo:
        return load_connection() if connection is None else connection

    plan = Plan(
        registry=get_default_registry() if registry is None else registry,
        settings=settings,
        memo=Memo() if memo is None else memo,
        lifecycle=lifecycle,
        scope=Scope(clusterwide=not namespaces, namespaces=tuple(namespaces)),
        connect=connect,
        transport=transport,
        liveness_endpoint=liveness_endpoint,
        stop_flag=stop_flag,
        ready_flag=ready_flag,
    )
    await supervise(plan, task_status=task_status)


def _check_memo(memo: object) -> None:
    """Raise ConfigError where objects could not have copies of the memo."""
    try:
        copy.copy(memo)
    except Exception as error:
        raise ConfigError(
            f"The memo is copied for each object, and {memo!r} cannot be: {error!r}. Put it into a Memo, or give its"
            " class a __copy__()."
        ) from error


def run(**options: Any) -> None:
    """Run an operator as a program of its own: :func:`operator` with the same options, in a new Trio loop."""
    trio.run(lambda: operator(**options))
