"""The plan of an operator: its parts and options."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio

from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.lifecycles import Lifecycle
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.watching.scope import Scope
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

    from trioperator._endpoints.live_view.app import LiveViewApp
    from trioperator._telemetry.instruments import Instruments

Flag: TypeAlias = trio.Event | threading.Event


class Plan(msgspec.Struct, kw_only=True, eq=False):
    """Parts and options of an operator."""

    registry: OperatorRegistry
    settings: OperatorSettings
    memo: Any
    scope: Scope
    identity: str
    connection: ConnectionInfo | None = None
    lifecycle: Lifecycle | None = None
    transport: httpx.AsyncBaseTransport | None = None
    liveness_endpoint: str | None = None
    health_endpoint: str | None = None
    metrics_endpoint: str | None = None
    tracing: bool = False
    live_view_endpoint: str | None = None
    live_view_token: str | None = None
    live_view_app: LiveViewApp | None = None
    stop_flag: Flag | None = None
    ready_flag: Flag | None = None
    handle_signals: bool = True
    replace_webhook_server: Callable[[Any], Any] | None = None  # returns the server of tests
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    instruments: Callable[..., Instruments] | None = None  # of tests; by default, only if something is counted
