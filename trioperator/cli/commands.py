"""The command line: options, their help, and their environment variables. What they do is elsewhere.

Nothing heavy is imported here, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from trioperator._version import __version__

__all__ = ["app"]

app = typer.Typer(
    help="Run Kubernetes operators written in Python, on Trio.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)


class LogFormatName(enum.StrEnum):
    """Name the log formats as options do."""

    PLAIN = "plain"
    FULL = "full"
    JSON = "json"


class AuthorizationName(enum.StrEnum):
    """Name the ways of authorization as options do."""

    RBAC = "rbac"
    ALWAYS_ALLOW = "always-allow"


def _option(*names: str, env: str | tuple[str, ...], **options: Any) -> Any:
    """Declare an option of the command `run`, and the environment variables that stand in for it."""
    variables = [f"TRIOPERATOR_RUN_{name}" for name in ((env,) if isinstance(env, str) else env)]
    return typer.Option(*names, envvar=variables if len(variables) > 1 else variables[0], **options)


def _cluster_option(*names: str, env: str, **options: Any) -> Any:
    """Declare an option of the command `cluster`, and the environment variable that stands in for it."""
    return typer.Option(*names, envvar=f"TRIOPERATOR_CLUSTER_{env}", **options)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trioperator, version {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run Kubernetes operators written in Python, on Trio."""


def _split(names: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in names.split(","))))


@app.command()
def run(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="Python files with handlers.", show_default=False)
    ] = None,
    modules: Annotated[
        list[str] | None,
        _option(
            "-m",
            "--module",
            env=("MODULES", "MODULE"),
            metavar="NAME",
            help="A module with handlers, to be imported; repeatable.",
        ),
    ] = None,
    clusterwide: Annotated[
        bool, _option("-A", "--all-namespaces", env=("ALL_NAMESPACES", "CLUSTERWIDE"), help="Serve the whole cluster.")
    ] = False,
    namespaces: Annotated[
        list[str] | None,
        _option(
            "-n",
            "--namespace",
            env=("NAMESPACES", "NAMESPACE"),
            metavar="PATTERN",
            help="Serve the namespaces of this name or glob; with a leading ! all others; repeatable.",
        ),
    ] = None,
    standalone: Annotated[
        bool, _option("--standalone", env="STANDALONE", help="Heed no other operators. It is how operators run.")
    ] = False,
    liveness: Annotated[
        str | None,
        _option(
            "-L",
            "--liveness",
            env=("LIVENESS", "LIVENESS_ENDPOINT"),
            metavar="URL",
            help="Serve health probes there, as in http://0.0.0.0:8080/healthz.",
        ),
    ] = None,
    verbose: Annotated[
        bool, _option("-v", "--verbose", env="VERBOSE", help="Log what the operator does in detail.")
    ] = False,
    debug: Annotated[bool, _option("-d", "--debug", env="DEBUG", help="Log what the libraries do, too.")] = False,
    quiet: Annotated[bool, _option("-q", "--quiet", env="QUIET", help="Log only warnings and errors.")] = False,
    log_format: Annotated[
        LogFormatName, _option("--log-format", env="LOG_FORMAT", case_sensitive=False, help="The format of the logs.")
    ] = LogFormatName.FULL,
    log_prefix: Annotated[
        bool | None,
        _option(
            "--log-prefix/--no-log-prefix",
            env="LOG_PREFIX",
            help="Begin messages with the object that they are about, or do not. By default they do, but for json.",
        ),
    ] = None,
    log_refkey: Annotated[
        str | None,
        _option(
            "--log-refkey",
            env="LOG_REFKEY",
            metavar="KEY",
            help="Where json logs have the object: 'object' by default.",
        ),
    ] = None,
    embedded: Annotated[
        bool, _option("--embedded", env="EMBEDDED", help="Run on an API server in this process instead of a cluster.")
    ] = False,
    embedded_port: Annotated[
        int,
        _option("--embedded-port", env="EMBEDDED_PORT", min=0, max=65535, metavar="PORT", help="Its port; 0 is any."),
    ] = 0,
    manifests: Annotated[
        list[str] | None,
        _option(
            "--apply",
            env="APPLY",
            metavar="FILE",
            help="With --embedded: a file of manifests to be applied; repeatable.",
        ),
    ] = None,
    controllers: Annotated[
        str,
        _option(
            "--controllers",
            env="CONTROLLERS",
            metavar="NAMES",
            help="With --embedded: run these controllers, separated by commas, or all; none by default.",
        ),
    ] = "",
) -> None:
    """Run an operator with the handlers of files and modules."""
    if not files and not modules:
        raise typer.BadParameter("give files or modules (-m) with handlers.", param_hint="FILES")
    if clusterwide and namespaces:
        raise typer.BadParameter("give either -n or -A, not both.", param_hint="'-n' / '-A'")
    if not embedded and (manifests or embedded_port or controllers):
        hint = "'--apply'" if manifests else "'--embedded-port'" if embedded_port else "'--controllers'"
        raise typer.BadParameter("it needs --embedded.", param_hint=hint)

    from trioperator.cli.running import EmbeddedOptions, LogOptions, RunOptions, run_operator

    code = run_operator(
        RunOptions(
            files=tuple(files or ()),
            modules=tuple(modules or ()),
            clusterwide=clusterwide,
            namespaces=tuple(namespaces or ()),
            standalone=standalone,
            liveness=liveness,
            embedded=EmbeddedOptions(
                port=embedded_port, manifests=tuple(manifests or ()), controllers=_split(controllers)
            )
            if embedded
            else None,
            logs=LogOptions(
                verbose=verbose, debug=debug, quiet=quiet, format=log_format.name, prefix=log_prefix, refkey=log_refkey
            ),
        )
    )
    raise typer.Exit(code)


@app.command()
def cluster(
    host: Annotated[
        str, _cluster_option("--host", env="HOST", metavar="ADDRESS", help="The address that it listens on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, _cluster_option("--port", env="PORT", min=0, max=65535, metavar="PORT", help="Its port; 0 is any.")
    ] = 0,
    tls: Annotated[
        bool, _cluster_option("--tls/--no-tls", env="TLS", help="Serve by TLS with an authority of its own, or not.")
    ] = True,
    data: Annotated[
        str | None,
        _cluster_option("--data", env="DATA", metavar="FILE", help="Keep the objects in this file over restarts."),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        _cluster_option(
            "--kubeconfig",
            env="KUBECONFIG",
            metavar="FILE",
            help="Write the kubeconfig there, and leave it there; by default into a temporary folder.",
        ),
    ] = None,
    manifests: Annotated[
        list[str] | None,
        _cluster_option(
            "--apply",
            env="APPLY",
            metavar="FILE",
            help="Apply the manifests of a file, of a folder, or of the standard input (-); repeatable.",
        ),
    ] = None,
    authorization: Annotated[
        AuthorizationName,
        _cluster_option("--authorization", env="AUTHORIZATION", help="Who may do what: see roles, or let everybody."),
    ] = AuthorizationName.ALWAYS_ALLOW,
    controllers: Annotated[
        str,
        _cluster_option(
            "--controllers",
            env="CONTROLLERS",
            metavar="NAMES",
            help="Run these controllers, separated by commas, or all; none by default.",
        ),
    ] = "",
) -> None:
    """Serve a Kubernetes API of its own, for kubectl and for operators elsewhere, until it is stopped."""
    from trioperator.cli.serving import ClusterOptions, run_cluster

    options = ClusterOptions(
        host=host,
        port=port,
        tls=tls,
        data=data,
        kubeconfig=kubeconfig,
        manifests=tuple(manifests or ()),
        authorization=authorization.value,
        controllers=_split(controllers),
    )
    raise typer.Exit(run_cluster(options, tell=typer.echo))
