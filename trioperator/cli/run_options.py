"""Options of ``trioperator run``, and the options of the operator that they stand for."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

from trioperator.cli.controls import CLIControls
from trioperator.cli.options import SourceOptions, option

# The priority of --dev, as in Kopf.
_DEV_PRIORITY: Final = 666


class LogFormatName(enum.StrEnum):
    """Names of the log formats on the command line."""

    PLAIN = "plain"
    FULL = "full"
    JSON = "json"


class RunOptions(SourceOptions, frozen=True, kw_only=True):
    """Options of ``trioperator run``."""

    modules: Annotated[
        list[str], option("-m --module NAME", "Import a module with handlers; repeatable.", env=("MODULES", "MODULE"))
    ] = []
    clusterwide: Annotated[
        bool,
        option(
            "-A --all-namespaces", "Watch all namespaces, which is the default.", env=("ALL_NAMESPACES", "CLUSTERWIDE")
        ),
    ] = False
    namespaces: Annotated[
        list[str],
        option(
            "-n --namespace PATTERN",
            "Watch the namespaces that match a name or glob, or with a leading ! those that do not; repeatable.",
            env=("NAMESPACES", "NAMESPACE"),
        ),
    ] = []
    standalone: Annotated[bool, option("--standalone", "Run without peering.")] = False
    dev: Annotated[bool, option("--dev", "Run with priority 666, so that operators of lower priority pause.")] = False
    priority: Annotated[int | None, option("-p --priority NUMBER", "Priority among peers; 0 by default.")] = None
    peering: Annotated[
        str | None, option("-P --peering NAME", "Use this peering object, and pause until it exists.")
    ] = None
    leader_elect: Annotated[
        bool, option("--leader-elect", "Of several replicas, let only the holder of a Lease handle objects.")
    ] = False
    lease: Annotated[
        str,
        option(
            "--lease [NAMESPACE/]NAME", "With --leader-elect: use this Lease; with --shards: Leases with this prefix."
        ),
    ] = "trioperator"
    shards: Annotated[
        int,
        option("--shards NUMBER", "Divide the objects into this number of shards, which all replicas share.", min=1),
    ] = 1
    liveness: Annotated[
        str | None,
        option(
            "-L --liveness URL",
            "Serve liveness probes at exactly this URL, such as http://0.0.0.0:8080/healthz.",
            env=("LIVENESS", "LIVENESS_ENDPOINT"),
        ),
    ] = None
    health: Annotated[
        str | None,
        option(
            "--health URL",
            "Serve /livez and /readyz below this URL, such as http://0.0.0.0:8081, in a thread of their own.",
        ),
    ] = None
    metrics: Annotated[
        str | None,
        option(
            "--metrics URL",
            "Serve metrics for Prometheus at this URL, such as http://0.0.0.0:8080; without a path, at /metrics.",
        ),
    ] = None
    tracing: Annotated[bool, option("--tracing", "Create spans for OpenTelemetry; your program sets up its SDK.")] = (
        False
    )
    live_view: Annotated[
        str | None,
        option(
            "--live-view URL",
            "Serve the live view at /debug below this URL on the loopback interface, such as"
            " http://127.0.0.1:8083. Requires the extra trioperator[live-view].",
        ),
    ] = None
    live_view_token: Annotated[
        str | None,
        option(
            "--live-view-token TOKEN", "Token for the live view and its actions. Safer in the environment variable."
        ),
    ] = None
    verbose: Annotated[bool, option("-v --verbose", "Log debug messages of the operator.")] = False
    debug: Annotated[bool, option("-d --debug", "Log debug messages of the operator, Trio and asyncio.")] = False
    quiet: Annotated[bool, option("-q --quiet", "Log only warnings and errors.")] = False
    format: Annotated[LogFormatName, option("--log-format", "Format of the logs.", case_sensitive=False)] = (
        LogFormatName.FULL
    )
    prefix: Annotated[
        bool | None,
        option(
            "--log-prefix/--no-log-prefix",
            "Start messages with the namespace and name of the object. On by default, except for json.",
        ),
    ] = None
    refkey: Annotated[
        str | None, option("--log-refkey KEY", "Key of the object reference in json logs: 'object' by default.")
    ] = None
    embedded: Annotated[bool, option("--embedded", "Run on an API server in this process instead of a cluster.")] = (
        False
    )
    port: Annotated[
        int,
        option("--embedded-port PORT", "With --embedded: listen on this port; 0 picks a free one.", min=0, max=65535),
    ] = 0
    manifests: Annotated[
        list[str],
        option("--apply FILE", "With --embedded: apply the manifests in a file, a directory or stdin (-); repeatable."),
    ] = []
    controllers: Annotated[
        str,
        option(
            "--controllers NAMES",
            "With --embedded: run these controllers, separated by commas, or all; none by default.",
        ),
    ] = ""
    kubeconfig: Annotated[
        str | None,
        option(
            "--kubeconfig FILE",
            "With --embedded: write its kubeconfig to this file and keep it; to a temporary file by default.",
        ),
    ] = None
    reload: Annotated[bool, option("--reload", "For development: restart the operator when its files change.")] = False

    @property
    def has_lease(self) -> bool:
        """Whether the replicas elect leaders, of all objects or of shards."""
        return self.leader_elect or self.shards > 1


def make_operator_options(options: RunOptions, controls: CLIControls) -> dict[str, Any]:
    """Return the options of :func:`trioperator.operator`: from the command line, and from the controls."""
    from trioperator.settings import OperatorSettings

    settings = controls.settings or OperatorSettings()
    if options.has_lease:
        settings = settings.copy()
        namespace, _, name = options.lease.rpartition("/")
        settings.leadership.enabled = True
        settings.leadership.shards = options.shards
        settings.leadership.name = name
        settings.leadership.namespace = namespace or None
    return {
        "settings": settings,
        "clusterwide": options.clusterwide,
        "namespaces": options.namespaces,
        "standalone": options.standalone or None,
        "priority": _DEV_PRIORITY if options.dev else options.priority,
        "peering_name": options.peering,
        "liveness_endpoint": options.liveness,
        "health_endpoint": options.health,
        "metrics_endpoint": options.metrics,
        "tracing": options.tracing,
        "live_view_endpoint": options.live_view,
        "live_view_token": options.live_view_token,
        "ready_flag": controls.ready_flag,
        "stop_flag": controls.stop_flag,
    }
