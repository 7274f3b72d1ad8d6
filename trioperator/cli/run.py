"""The command ``trioperator run``."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from trioperator._logs import LogFormat, configure, get_logger
from trioperator.cli.controls import CLIControls
from trioperator.cli.options import check_lease, check_scope, split_names, taking
from trioperator.cli.run_options import RunOptions, make_operator_options

if TYPE_CHECKING:
    from trioperator.cli.embedded import EmbeddedServer


@taking(RunOptions, "RUN")
def run(context: typer.Context, options: RunOptions) -> None:
    """Run an operator with the handlers in files and modules."""
    controls = context.find_object(CLIControls) or CLIControls()
    _check_usage(options, controls)
    check_lease(context, has_lease=options.has_lease)
    raise typer.Exit(run_operator(options, controls))


def _check_usage(options: RunOptions, controls: CLIControls) -> None:
    if not _has_handlers(controls):
        options.check_sources()
    check_scope(clusterwide=options.clusterwide, namespaces=options.namespaces)
    if options.embedded:
        return
    if options.kubeconfig is not None:
        text = "it requires --embedded, and is written. To choose a cluster, set the environment variable KUBECONFIG."
        raise typer.BadParameter(text, param_hint="'--kubeconfig'")
    needing = {"--apply": options.manifests, "--embedded-port": options.port, "--controllers": options.controllers}
    for name, value in needing.items():
        if value:
            raise typer.BadParameter("it requires --embedded.", param_hint=f"'{name}'")


def _has_handlers(controls: CLIControls) -> bool:
    """Return whether the program that runs the command has declared handlers itself: then, there need be no files."""
    from trioperator._handling.declaring.registry import get_default_registry

    return any(get_default_registry() if controls.registry is None else controls.registry)


def run_operator(options: RunOptions, controls: CLIControls) -> int:
    """Run an operator until it ends, and return the exit code. Failures are logged."""
    from trioperator.cli.failures import SUCCESS, report_failure

    configure(
        verbose=options.verbose,
        debug=options.debug,
        quiet=options.quiet,
        log_format=LogFormat[options.format.name],
        log_prefix=options.prefix,
        log_refkey=options.refkey,
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
    run_program = functools.partial(trio.run, clock=make_clock())
    run_one = controls.operate or operator
    operate: Callable[..., Awaitable[None]] = functools.partial(run_one, **make_operator_options(options, controls))
    load: Callable[[], None] | None = functools.partial(load_and_show, options)
    if options.reload:
        from trioperator.cli.file_changes import check_installed
        from trioperator.cli.reload import Reloader

        check_installed()
        operate, load = Reloader(operate, options, controls).run, None
    if not options.embedded:
        if load is not None:
            load()
        run_program(operate)
        return
    from trioperator.cli.embedded import run_embedded

    run = functools.partial(run_embedded, operate, _make_server(options), load=load, reloads=options.reload)
    run_program(functools.partial(run, ready_flag=controls.ready_flag))


def _make_server(options: RunOptions) -> EmbeddedServer:
    from trioperator.cli.embedded import EmbeddedServer
    from trioperator.cli.manifests import load_manifests

    return EmbeddedServer(
        manifests=load_manifests(options.manifests),
        port=options.port,
        kubeconfig=options.kubeconfig,
        controllers=split_names(options.controllers),
    )
