"""Options of ``trioperator run`` as data, and the options of the operator that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from trioperator._logs import LogFormat
from trioperator.cli.controls import CLIControls

if TYPE_CHECKING:
    from trioperator._supervisor.app import OperatorOptions

# Of --dev, as in Kopf.
_DEV_PRIORITY: Final = 666


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the logs; ``format`` is the name of a :class:`LogFormat`."""

    verbose: bool = False
    debug: bool = False
    quiet: bool = False
    format: str = LogFormat.FULL.name
    prefix: bool | None = None
    refkey: str | None = None


class EmbeddedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the embedded API server: its port (0: any), the manifests to apply, the controllers to run.

    ``kubeconfig`` is the file to write and to keep.
    """

    port: int = 0
    manifests: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()
    kubeconfig: str | None = None


class CoordinationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of peering, leader election and shards; ``lease`` is ``[NAMESPACE/]NAME``, if there is an election."""

    standalone: bool = False
    dev: bool = False
    priority: int | None = None
    peering: str | None = None
    lease: str | None = None
    shards: int = 1


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator run``."""

    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    clusterwide: bool = False
    namespaces: tuple[str, ...] = ()
    coordination: CoordinationOptions = CoordinationOptions()
    liveness: str | None = None
    health: str | None = None
    metrics: str | None = None
    tracing: bool = False
    live_view: str | None = None
    live_view_token: str | None = None
    embedded: EmbeddedOptions | None = None
    reload: bool = False
    logs: LogOptions = LogOptions()


def make_operator_options(options: RunOptions, controls: CLIControls) -> OperatorOptions:
    """Return the options of the operator: those of the command line, and the controls."""
    from trioperator.settings import OperatorSettings

    settings, coordination = controls.settings or OperatorSettings(), options.coordination
    if coordination.lease is not None:
        settings = settings.copy()
        namespace, _, name = coordination.lease.rpartition("/")
        settings.leadership.enabled = True
        settings.leadership.shards = coordination.shards
        settings.leadership.name = name
        settings.leadership.namespace = namespace or None
    return {
        "settings": settings,
        "clusterwide": options.clusterwide,
        "namespaces": options.namespaces,
        "standalone": coordination.standalone or None,
        "priority": _DEV_PRIORITY if coordination.dev else coordination.priority,
        "peering_name": coordination.peering,
        "liveness_endpoint": options.liveness,
        "health_endpoint": options.health,
        "metrics_endpoint": options.metrics,
        "tracing": options.tracing,
        "live_view_endpoint": options.live_view,
        "live_view_token": options.live_view_token,
        "ready_flag": controls.ready_flag,
        "stop_flag": controls.stop_flag,
    }
