"""What ``trioperator run`` does, step by step."""

from __future__ import annotations

import dataclasses
import functools

from trioperator.cli.failures import SUCCESS, report_failure
from trioperator.logs import LogFormat, configure, get_logger

__all__ = ["EmbeddedOptions", "LogOptions", "RunOptions", "run_operator"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Say what is logged, and how: ``format`` is the name of a :class:`LogFormat`."""

    verbose: bool = False
    debug: bool = False
    quiet: bool = False
    format: str = LogFormat.FULL.name
    prefix: bool | None = None
    refkey: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """Say on which port the embedded API server listens (0: any), what is applied to it, and which controllers run."""

    port: int = 0
    manifests: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Hold the options of ``trioperator run``."""

    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    clusterwide: bool = False
    namespaces: tuple[str, ...] = ()
    standalone: bool = False
    liveness: str | None = None
    embedded: EmbeddedOptions | None = None
    logs: LogOptions = LogOptions()


def run_operator(options: RunOptions) -> int:
    """Run an operator to its end, and give the exit code. Failures are in the logs."""
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
        _run(options)
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are told
        return report_failure(error, get_logger("trioperator.cli"))
    return SUCCESS


def _run(options: RunOptions) -> None:
    import trio

    from trioperator.app import operator
    from trioperator.cli.loading import load_all
    from trioperator.web.endpoint import parse_endpoint

    if options.liveness is not None:
        parse_endpoint(options.liveness)  # so that it is refused before anything is done
    run = functools.partial(
        operator,
        clusterwide=options.clusterwide,
        namespaces=options.namespaces,
        standalone=options.standalone or None,
        liveness_endpoint=options.liveness,
    )
    if options.embedded is None:
        load_all(options.files, options.modules)
        trio.run(run)
        return
    from trioperator.cli.embedded import run_embedded
    from trioperator.cli.manifests import load_manifests

    manifests = load_manifests(options.embedded.manifests)
    load_all(options.files, options.modules)
    embedded = options.embedded
    trio.run(functools.partial(run_embedded, run, manifests, port=embedded.port, controllers=embedded.controllers))
