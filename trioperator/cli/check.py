"""The command ``trioperator check``: finds mistakes in an operator before it runs."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from trioperator._logs import configure
from trioperator.cli.controls import CLIControls
from trioperator.cli.options import SourceOptions, option, taking

if TYPE_CHECKING:
    from trioperator._handling.declaring.registry import OperatorRegistry
    from trioperator._tooling.checking import Difference, HandlerSummary, Problem, Source
    from trioperator.cli.loading import LoadingError

T = TypeVar("T", "Difference", "HandlerSummary", "Problem")


class OutputFormat(enum.StrEnum):
    """Formats of the output."""

    TEXT = "text"
    JSON = "json"


class CheckOptions(SourceOptions, frozen=True, kw_only=True):
    """Options of ``trioperator check``."""

    manifests: Annotated[
        list[str] | None,
        option(
            "--manifests FILE",
            "Check that all kinds are built in, or defined in a file, a directory or stdin (-); repeatable.",
        ),
    ] = None
    kopf: Annotated[
        bool,
        option("--kopf", "List the lines that differ for an operator that was written for Kopf. Nothing is imported."),
    ] = False
    format: Annotated[OutputFormat, option("--format", "Format of the output.")] = OutputFormat.TEXT


@taking(CheckOptions, "CHECK")
def check(context: typer.Context, options: CheckOptions) -> None:
    """Find mistakes in handlers without running them.

    All mistakes in the files and modules are reported at once. The exit code is 1 if there are any. With --kopf, it is
    1 if anything has to be changed before the operator runs with `python -m trioperator.kopf`.
    """
    options.check_sources()
    from trioperator._handling.declaring.registry import get_default_registry, set_default_registry
    from trioperator._tooling.checking import list_selectors
    from trioperator.cli.failures import reporting_failures

    configure(quiet=True)
    controls = context.find_object(CLIControls) or CLIControls()
    if controls.registry is not None:
        set_default_registry(controls.registry)
    with reporting_failures():
        if options.kopf:
            raise typer.Exit(_report_migration(options.files, options.modules, options.format))
        handlers, problems = _examine(options.files, options.modules, options.manifests)
    show = _print_json if options.format is OutputFormat.JSON else _print_text
    show(handlers, problems, list_selectors(get_default_registry()))
    raise typer.Exit(1 if problems else 0)


def _report_migration(files: Sequence[str], modules: Sequence[str], format: OutputFormat) -> int:
    """Print what differs from Kopf, and return the exit code. Raises ConfigError."""
    from trioperator._tooling.checking import Effect
    from trioperator.cli.migration import examine_migration, print_differences, print_differences_as_json

    differences = [_relate(difference) for difference in examine_migration(files, modules)]
    (print_differences_as_json if format is OutputFormat.JSON else print_differences)(differences)
    return 1 if any(each.effect is Effect.FAILS for each in differences) else 0


def _examine(
    files: Sequence[str], modules: Sequence[str], manifests: Sequence[str] | None
) -> tuple[list[HandlerSummary], list[Problem]]:
    """Return the handlers and the problems, both in the order of the sources.

    Raises ConfigError for files, modules and manifests that cannot be read.
    """
    import trio

    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator._tooling import checking
    from trioperator.cli.kinds import discover_kinds
    from trioperator.cli.manifests import find_declared, load_manifests
    from trioperator.cli.project import parse_sources

    definitions = None if manifests is None else load_manifests(manifests)
    failures, registry = list(_load(files, modules)), get_default_registry()
    sources = list(parse_sources(files, modules))
    problems = [problem for source in sources for problem in checking.find_kopf_problems(source)]
    problems += checking.find_kopf_annotations(sources)
    places = {(problem.file, problem.line) for problem in problems}  # where the imports fail for the same reason
    problems += [problem for problem in failures if (problem.file, problem.line) not in places]
    problems += checking.find_handler_problems(registry, sources)
    problems += checking.find_asyncio_calls(registry, sources)
    problems += checking.find_event_loop_problems(registry, sources)
    problems += checking.find_reconcile_problems(registry, sources)
    problems += _find_removals(registry, sources)
    if definitions is None:
        problems += checking.find_misspelled_kinds(registry, trio.run(discover_kinds, []))
    else:
        problems += checking.find_kind_problems(
            registry, trio.run(discover_kinds, [*definitions, *find_declared(definitions)])
        )
    handlers = list(checking.list_handlers(registry))
    if not handlers and not problems:
        text = "Nothing is handled: no decorator has registered a function."
        problems.append(checking.Problem(check="handlers", message=text, file=(*files, *modules)[0]))
    shown = (_relate(problem) for problem in dict.fromkeys(problems))
    return [_relate(handler) for handler in handlers], sorted(shown, key=lambda each: (each.file, each.line))


def _find_removals(registry: OperatorRegistry, sources: Sequence[Source]) -> Iterator[Problem]:
    """Yield the webhooks that replicas remove from each other, by the project's options or the assigned settings."""
    from trioperator._handling.reviews.webhook_configuration import describe_removal
    from trioperator._tooling.checking import problem_of
    from trioperator.cli.project import ELECTS, MANAGES, assigns
    from trioperator.cli.project_table import find_options

    options = [find_options(command) for command in ("run", "manifests", "bundle")]
    is_managed = any("managed" in each for each in options) or assigns(sources, *MANAGES)
    has_replicas = any(each.get("leader-elect") or each.get("shards", 1) > 1 for each in options)
    if is_managed and (has_replicas or assigns(sources, *ELECTS)):
        for handler in registry.admission_handlers():
            if text := describe_removal(handler, has_replicas=True):
                yield problem_of("webhooks", handler.fn, text)


# -- loading


def _load(files: Sequence[str], modules: Sequence[str]) -> Iterator[Problem]:
    """Load all files and modules, and yield a problem for each that cannot be loaded; the others still count."""
    from trioperator.cli.loading import LoadingError, load_file, load_module

    for index, path in enumerate(files):
        try:
            load_file(path, index=index)
        except LoadingError as error:
            yield _describe_failure(error, path)
    for name in modules:
        try:
            load_module(name)
        except LoadingError as error:
            yield _describe_failure(error, name)


def _describe_failure(error: LoadingError, source: str) -> Problem:
    """Return the problem at its place: the line of a syntax error, or the last line of the project that was reached."""
    from trioperator._tooling.checking import Problem
    from trioperator.cli.project import is_library

    file, line, cause = source, 0, error.__cause__
    if isinstance(cause, SyntaxError) and cause.filename:
        file, line = cause.filename, cause.lineno or 0
    else:
        traceback = None if cause is None else cause.__traceback__
        while traceback is not None:
            path = traceback.tb_frame.f_code.co_filename
            if not is_library(path):
                file, line = path, traceback.tb_lineno
            traceback = traceback.tb_next
    text = str(error)
    return Problem(check="import", message=text, file=os.path.abspath(file) if line else file, line=line)


def _relate(shown: T) -> T:
    """Return a problem or a handler with its path relative to the current directory, if the file is below it."""
    import msgspec

    near = os.path.relpath(shown.file) if os.path.isabs(shown.file) else shown.file
    return shown if near.startswith(os.pardir) else msgspec.structs.replace(shown, file=near)


# -- output


def _print_json(handlers: Sequence[HandlerSummary], problems: Sequence[Problem], selectors: Mapping[str, str]) -> None:
    import msgspec

    document = msgspec.json.encode({"handlers": handlers, "problems": problems, "selectors": selectors})
    typer.echo(msgspec.json.format(document, indent=2).decode())


def _print_text(handlers: Sequence[HandlerSummary], problems: Sequence[Problem], selectors: Mapping[str, str]) -> None:
    kinds: dict[str, list[HandlerSummary]] = {}
    for handler in handlers:
        kinds.setdefault(handler.kind or "operator", []).append(handler)
    wide = max((len(handler.id) for handler in handlers), default=0)
    for kind in kinds:
        received = f"  (received: {selectors[kind]})" if kind in selectors else ""
        typer.echo(f"{typer.style(kind, bold=True)}{received}")
        for each in kinds[kind]:
            typer.echo(f"  {each.decorator:<10}{each.id:<{wide}}  {_place(each)}")
    if handlers:
        typer.echo()
    for problem in problems:
        where, what = typer.style(_place(problem), bold=True), typer.style(f"[{problem.check}]", fg="yellow")
        typer.echo(f"{where}: {problem.message} {what}")
    figures = f"{_count(len(handlers), 'handler')}, {_count(len(problems), 'problem') if problems else 'no problems'}."
    typer.secho(figures, fg="red" if problems else "green")


def _place(shown: HandlerSummary | Problem) -> str:
    return f"{shown.file}:{shown.line}" if shown.line else shown.file


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
