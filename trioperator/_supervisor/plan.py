"""Options of an operator, and the plan that is made of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio

from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.lifecycles import Lifecycle
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._model.namespaces import NamespacePattern
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.watching.scope import Scope
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

    from trioperator._endpoints.live_view.app import LiveViewApp
    from trioperator._telemetry.instruments import Instruments

Flag: TypeAlias = trio.Event | threading.Event


class OperatorOptions(msgspec.Struct, kw_only=True, eq=False):
    """Options of :func:`trioperator.operator`, whose docstring explains them: the only list of types and defaults."""

    name: str | None = None
    registry: OperatorRegistry | None = None
    settings: OperatorSettings | None = None
    memo: Any = None
    lifecycle: Lifecycle | None = None
    clusterwide: bool = False
    namespaces: Collection[NamespacePattern] = ()
    namespace: NamespacePattern | None = None
    standalone: bool | None = None
    priority: int | None = None
    peering_name: str | None = None
    shards: int | None = None
    identity: str | None = None
    liveness_endpoint: str | None = None
    health_endpoint: str | None = None
    metrics_endpoint: str | None = None
    tracing: bool = False
    live_view_endpoint: str | None = None
    live_view_token: str | None = None
    live_view_app: LiveViewApp | None = None
    connection: ConnectionInfo | None = None
    transport: httpx.AsyncBaseTransport | None = None
    stop_flag: Flag | None = None
    ready_flag: Flag | None = None
    handle_signals: bool = True


class Plan(OperatorOptions, kw_only=True, eq=False):
    """Options of an operator that were checked, and what follows from them."""

    registry: OperatorRegistry  # type: ignore[mutable-override]  # these are never None here
    settings: OperatorSettings  # type: ignore[mutable-override]  # likewise
    identity: str  # type: ignore[mutable-override]  # likewise
    scope: Scope
    replace_webhook_server: Callable[[Any], Any] | None = None  # returns the server of tests
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    instruments: Callable[..., Instruments] | None = None  # of tests; by default, only if something is counted
