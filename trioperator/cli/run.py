"""The command ``trioperator run``."""

from __future__ import annotations

import enum
import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeAlias

import typer

from trioperator._logs import LogFormat, configure, get_logger
from trioperator.cli.controls import CLIControls
from trioperator.cli.options import declare_option, split_names
from trioperator.cli.run_options import (
    CoordinationOptions,
    EmbeddedOptions,
    LogOptions,
    RunOptions,
    make_operator_options,
)


class LogFormatName(enum.StrEnum):
    """Names of the log formats on the command line."""

    PLAIN = "plain"
    FULL = "full"
    JSON = "json"


_option: Final = functools.partial(declare_option, "RUN")

Files: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="FILES", help="Python files with handlers.", show_default=False)
]
Modules: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "-m", "--module", env=("MODULES", "MODULE"), metavar="NAME", help="Import a module with handlers; repeatable."
    ),
]
Clusterwide: TypeAlias = Annotated[
    bool, _option("-A", "--all-namespaces", env=("ALL_NAMESPACES", "CLUSTERWIDE"), help="Watch all namespaces.")
]
Namespaces: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "-n",
        "--namespace",
        env=("NAMESPACES", "NAMESPACE"),
        metavar="PATTERN",
        help="Watch the namespaces that match a name or glob, or with a leading ! those that do not; repeatable.",
    ),
]
Standalone: TypeAlias = Annotated[bool, _option("--standalone", env="STANDALONE", help="Run without peering.")]
Dev: TypeAlias = Annotated[
    bool, _option("--dev", env="DEV", help="Run with the priority 666, so that operators in the cluster pause.")
]
Priority: TypeAlias = Annotated[
    int | None,
    _option("-p", "--priority", env="PRIORITY", metavar="NUMBER", help="Priority among peers: 0 by default."),
]
PeeringName: TypeAlias = Annotated[
    str | None,
    _option("-P", "--peering", env="PEERING", metavar="NAME", help="Pause until the peering object NAME exists."),
]
LeaderElect: TypeAlias = Annotated[
    bool,
    _option("--leader-elect", env="LEADER_ELECT", help="Of several replicas, only the holder of a Lease is active."),
]
LeaseName: TypeAlias = Annotated[
    str,
    _option(
        "--lease",
        env="LEASE",
        metavar="[NAMESPACE/]NAME",
        help="With --leader-elect: use this Lease; with --shards: Leases whose names begin so.",
    ),
]
Shards: TypeAlias = Annotated[
    int,
    _option(
        "--shards",
        env="SHARDS",
        min=1,
        metavar="NUMBER",
        help="Divide the objects into this number of shards, which all replicas share.",
    ),
]
Liveness: TypeAlias = Annotated[
    str | None,
    _option(
        "-L",
        "--liveness",
        env=("LIVENESS", "LIVENESS_ENDPOINT"),
        metavar="URL",
        help="Serve liveness probes at this URL and at no other path, such as http://0.0.0.0:8080/healthz.",
    ),
]
Health: TypeAlias = Annotated[
    str | None,
    _option(
        "--health",
        env="HEALTH",
        metavar="URL",
        help="Serve /livez and /readyz below this URL, such as http://0.0.0.0:8081, in a thread of their own.",
    ),
]
Metrics: TypeAlias = Annotated[
    str | None,
    _option(
        "--metrics",
        env="METRICS",
        metavar="URL",
        help="Serve metrics for Prometheus at this URL; without a path, at /metrics. Such as http://0.0.0.0:8080.",
    ),
]
Tracing: TypeAlias = Annotated[
    bool, _option("--tracing", env="TRACING", help="Make spans for OpenTelemetry; set up its SDK in your program.")
]
LiveView: TypeAlias = Annotated[
    str | None,
    _option(
        "--live-view",
        env="LIVE_VIEW",
        metavar="URL",
        help="Serve the live view at /debug below this URL on the loopback interface, such as http://127.0.0.1:8083."
        " Needs the extra trioperator[live-view].",
    ),
]
LiveViewToken: TypeAlias = Annotated[
    str | None,
    _option(
        "--live-view-token",
        env="LIVE_VIEW_TOKEN",
        metavar="TOKEN",
        help="Token for the live view and its actions; rather set the environment variable.",
    ),
]
Verbose: TypeAlias = Annotated[
    bool, _option("-v", "--verbose", env="VERBOSE", help="Log debug messages of the operator.")
]
Debug: TypeAlias = Annotated[
    bool, _option("-d", "--debug", env="DEBUG", help="Log debug messages of the operator, Trio and asyncio.")
]
Quiet: TypeAlias = Annotated[bool, _option("-q", "--quiet", env="QUIET", help="Log only warnings and errors.")]
LogFormatOption: TypeAlias = Annotated[
    LogFormatName, _option("--log-format", env="LOG_FORMAT", case_sensitive=False, help="Format of the logs.")
]
LogPrefix: TypeAlias = Annotated[
    bool | None,
    _option(
        "--log-prefix/--no-log-prefix",
        env="LOG_PREFIX",
        help="Start messages with the namespace and name of the object. On by default, except for json.",
    ),
]
LogRefkey: TypeAlias = Annotated[
    str | None,
    _option(
        "--log-refkey",
        env="LOG_REFKEY",
        metavar="KEY",
        help="Key of the object reference in json logs: 'object' by default.",
    ),
]
Embedded: TypeAlias = Annotated[
    bool, _option("--embedded", env="EMBEDDED", help="Run against an API server in this process, not a cluster.")
]
EmbeddedPort: TypeAlias = Annotated[
    int,
    _option(
        "--embedded-port",
        env="EMBEDDED_PORT",
        min=0,
        max=65535,
        metavar="PORT",
        help="With --embedded: listen on this port; 0 picks a free one.",
    ),
]
Manifests: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "--apply",
        env="APPLY",
        metavar="FILE",
        help="With --embedded: apply the manifests in a file, a directory or stdin (-); repeatable.",
    ),
]
Controllers: TypeAlias = Annotated[
    str,
    _option(
        "--controllers",
        env="CONTROLLERS",
        metavar="NAMES",
        help="With --embedded: run these controllers, separated by commas, or all; none by default.",
    ),
]
Kubeconfig: TypeAlias = Annotated[
    str | None,
    _option(
        "--kubeconfig",
        env="KUBECONFIG",
        metavar="FILE",
        help="With --embedded: write its kubeconfig to this file and keep it; to a temporary file by default.",
    ),
]
Reload: TypeAlias = Annotated[
    bool, _option("--reload", env="RELOAD", help="For development: restart the operator when its files change.")
]


def run(
    context: typer.Context,
    files: Files = None,
    modules: Modules = None,
    clusterwide: Clusterwide = False,
    namespaces: Namespaces = None,
    standalone: Standalone = False,
    dev: Dev = False,
    priority: Priority = None,
    peering: PeeringName = None,
    leader_elect: LeaderElect = False,
    lease: LeaseName = "trioperator",
    shards: Shards = 1,
    liveness: Liveness = None,
    health: Health = None,
    metrics: Metrics = None,
    tracing: Tracing = False,
    live_view: LiveView = None,
    live_view_token: LiveViewToken = None,
    verbose: Verbose = False,
    debug: Debug = False,
    quiet: Quiet = False,
    format: LogFormatOption = LogFormatName.FULL,
    prefix: LogPrefix = None,
    refkey: LogRefkey = None,
    embedded: Embedded = False,
    port: EmbeddedPort = 0,
    manifests: Manifests = None,
    controllers: Controllers = "",
    kubeconfig: Kubeconfig = None,
    reload: Reload = False,
) -> None:
    """Run an operator with the handlers in files and modules."""
    options = RunOptions(
        files=tuple(files or ()),
        modules=tuple(modules or ()),
        clusterwide=clusterwide,
        namespaces=tuple(namespaces or ()),
        coordination=CoordinationOptions(
            standalone=standalone,
            dev=dev,
            priority=priority,
            peering=peering,
            lease=lease if leader_elect or shards > 1 else None,
            shards=shards,
        ),
        liveness=liveness,
        health=health,
        metrics=metrics,
        tracing=tracing,
        live_view=live_view,
        live_view_token=live_view_token,
        embedded=_embedded_options(embedded, kubeconfig, port=port, manifests=manifests, controllers=controllers),
        reload=reload,
        logs=LogOptions(verbose=verbose, debug=debug, quiet=quiet, format=format.name, prefix=prefix, refkey=refkey),
    )
    _check_usage(options)
    raise typer.Exit(run_operator(options, context.find_object(CLIControls) or CLIControls()))


def _embedded_options(
    embedded: bool, kubeconfig: str | None, *, port: int, manifests: list[str] | None, controllers: str
) -> EmbeddedOptions | None:
    if embedded:
        names = split_names(controllers)
        return EmbeddedOptions(port=port, manifests=tuple(manifests or ()), controllers=names, kubeconfig=kubeconfig)
    if kubeconfig is not None:
        text = "it requires --embedded, and is written. To choose a cluster, set the environment variable KUBECONFIG."
        raise typer.BadParameter(text, param_hint="'--kubeconfig'")
    given = {"--apply": manifests, "--embedded-port": port, "--controllers": controllers}
    for name, value in given.items():
        if value:
            raise typer.BadParameter("it requires --embedded.", param_hint=f"'{name}'")
    return None


def _check_usage(options: RunOptions) -> None:
    if not options.files and not options.modules:
        raise typer.BadParameter("pass files or modules (-m) with handlers.", param_hint="FILES")
    if options.clusterwide and options.namespaces:
        raise typer.BadParameter("pass either -n or -A, not both.", param_hint="'-n' / '-A'")


def run_operator(options: RunOptions, controls: CLIControls) -> int:
    """Run an operator until it ends, and return the exit code. Failures are logged."""
    from trioperator.cli.failures import SUCCESS, report_failure

    logs = options.logs
    configure(
        verbose=logs.verbose,
        debug=logs.debug,
        quiet=logs.quiet,
        log_format=LogFormat[logs.format],
        log_prefix=logs.prefix,
        log_refkey=logs.refkey,
    )
    try:
        _run(options, controls)
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        return report_failure(error, get_logger("trioperator.cli"))
    return SUCCESS


def load_and_show(options: RunOptions) -> None:
    """Load the files and modules, and show a summary of the operator on a terminal. Raises ConfigError."""
    from trioperator.cli.loading import load_all
    from trioperator.cli.summary import show_summary

    load_all(options.files, options.modules)
    show_summary(options)


def _run(options: RunOptions, controls: CLIControls) -> None:
    import trio

    from trioperator._concurrency.clock import make_clock
    from trioperator._handling.declaring.registry import set_default_registry
    from trioperator._http.endpoint import parse_endpoint
    from trioperator._http.listener import raise_file_limit
    from trioperator._supervisor.app import operator

    raise_file_limit()
    for endpoint in (options.liveness, options.health, options.metrics, options.live_view):
        if endpoint is not None:
            parse_endpoint(endpoint)  # fails before anything is loaded
    if controls.registry is not None:
        set_default_registry(controls.registry)
    run_program = controls.run or functools.partial(trio.run, clock=make_clock())
    run_one = controls.operate or operator
    operate: Callable[..., Awaitable[None]] = functools.partial(run_one, **make_operator_options(options, controls))
    load: Callable[[], None] | None = functools.partial(load_and_show, options)
    if options.reload:
        from trioperator.cli.file_changes import check_installed
        from trioperator.cli.reload import Reloader

        check_installed()
        operate, load = Reloader(operate, options, controls).run, None
    if options.embedded is None:
        if load is not None:
            load()
        run_program(operate)
        return
    run = _prepare_embedded(options.embedded)
    run_program(functools.partial(run, operate, load=load, reloads=options.reload, ready_flag=controls.ready_flag))


def _prepare_embedded(options: EmbeddedOptions) -> Callable[..., Awaitable[None]]:
    """Return what runs an operator on an embedded API server. Raises ConfigError for manifests that cannot be read."""
    from trioperator.cli.embedded import run_embedded
    from trioperator.cli.manifests import load_manifests

    return functools.partial(
        run_embedded,
        manifests=load_manifests(options.manifests),
        port=options.port,
        kubeconfig=options.kubeconfig,
        controllers=options.controllers,
    )
