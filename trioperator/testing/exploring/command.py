"""The command ``trioperator explore``: plays states of custom objects, and reports what the operator does wrong."""

from __future__ import annotations

import contextlib
import enum
import io
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trioperator._logs import configure
from trioperator.cli.options import SourceOptions, option, split_names, taking
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator.testing.exploring.explorer import SubjectReport
    from trioperator.testing.exploring.plays import Player
    from trioperator.testing.exploring.reports import Inputs, Report


class OutputFormat(enum.StrEnum):
    """Formats of the report."""

    TEXT = "text"
    JSON = "json"


class ExploreOptions(SourceOptions, frozen=True, kw_only=True):
    """Options of ``trioperator explore``."""

    crds: Annotated[list[str], option("--crds FILE", "Definitions of kinds: a file or a directory; repeatable.")] = []
    examples: Annotated[
        list[str],
        option("--from FILE", "Objects to vary (needed for kinds without a schema), and existing objects; repeatable."),
    ] = []
    setup: Annotated[list[str], option("--setup FILE", "A Python file with strategies and fakes; repeatable.")] = []
    statuses: Annotated[
        list[str],
        option(
            "--status KIND=CONDITION",
            "Set a condition on all objects of a kind that no controller handles; repeatable.",
        ),
    ] = []
    kinds: Annotated[list[str], option("--kind KIND", "Explore only this kind; repeatable.", env="KINDS")] = []
    seconds: Annotated[float, option("--seconds SECONDS", "Real time after which the search ends.", min=1)] = 60
    sequences: Annotated[int, option("--sequences NUMBER", "Sequences of states for each kind.", min=1)] = 100
    steps: Annotated[int, option("--steps NUMBER", "States in a sequence.", min=1)] = 5
    seed: Annotated[int, option("--seed NUMBER", "Seed of the sequences.", min=0)] = 0
    oracles: Annotated[str, option("--oracles NAMES", "Names of oracles, separated by commas; all by default.")] = ""
    ignore: Annotated[
        list[str],
        option("--ignore FIELD", 'Ignore differences in a kind or a field, such as "WebApp status.phase"; repeatable.'),
    ] = []
    faults: Annotated[
        str,
        option(
            "--faults NAMES", "Also inject faults: crash, blind, late, order, edit, drift, separated by commas; or all."
        ),
    ] = ""
    play: Annotated[str | None, option("--play JSON", "Play only this sequence: a list of states.")] = None
    format: Annotated[OutputFormat, option("--format", "Format of the report.")] = OutputFormat.TEXT
    write_tests: Annotated[str | None, option("--write-tests DIR", "Write a pytest file for each finding.")] = None


@taking(ExploreOptions, "EXPLORE")
def explore(context: typer.Context, options: ExploreOptions) -> None:
    """Find bugs by playing states of custom objects, without a cluster.

    Objects are created, changed and deleted in virtual time, on an embedded API server. Each finding is shown with the
    shortest sequence of states that reproduces it. The exit code is 1 if anything is found, and 2 if the operator
    cannot be explored.
    """
    options.check_sources()
    _check_directory(options.write_tests)
    report = _explore(options)
    _publish(report, options.format, options.write_tests)
    raise typer.Exit(1 if any(report.iterate_alarms()) else 0)


def _check_directory(path: str | None) -> None:
    """End the command before the search if tests cannot be written into the directory."""
    if path is not None:
        try:
            os.makedirs(path, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise typer.BadParameter(f"{error.strerror or error}: {path}", param_hint="--write-tests") from None


def _explore(options: ExploreOptions) -> Report:
    """Return the report of a search. Errors are reported, and end the command."""
    from trioperator.cli.failures import reporting_failures

    configure(quiet=True)
    with reporting_failures():
        _check_installed()
        from trioperator.testing.exploring.reports import Inputs

        names = ("files", "modules", "crds", "examples", "setup", "statuses")
        inputs = Inputs(seed=options.seed, **{name: getattr(options, name) for name in names})
        with _silenced():
            return _Search(inputs, options).run()


def _publish(report: Report, format: OutputFormat, directory: str | None) -> None:
    """Print a report, and write tests into a directory, if one is given."""
    from trioperator.testing.exploring.reports import render_json, render_text, write_tests

    with _writing("the report"):
        typer.echo(render_json(report) if format is OutputFormat.JSON else render_text(report))
    with _writing("the tests"):
        written = [] if directory is None else write_tests(report, directory)
    for path in written:
        typer.echo(f"Written: {path}", err=True)


@contextlib.contextmanager
def _writing(what: str) -> Iterator[None]:
    """End the command with a message if something cannot be written; quietly if nobody reads it any longer."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        with open(os.devnull, "wb") as nowhere:  # Python writes what is left in its buffer, when it exits
            os.dup2(nowhere.fileno(), 1)
        typer.echo(f"Cannot write {what}: {error.strerror}.", err=True)
        raise typer.Exit(2) from None


def _check_installed() -> None:
    """Raise ConfigError if hypothesis is missing, from which values are drawn."""
    try:
        import hypothesis  # noqa: F401 -- just to see whether it is there
    except ImportError:
        text = "This command needs hypothesis: install the extra `testing`, pip install 'trioperator[testing]'."
        raise ConfigError(text) from None


class _Search:
    """The exploration of all kinds, one after another."""

    def __init__(self, inputs: Inputs, options: ExploreOptions) -> None:
        self._inputs = inputs
        self._options = options
        self._progress = _Progress(options.seconds)
        self._reports: list[SubjectReport] = []

    def run(self) -> Report:
        """Explore the kinds, or only play one sequence. Raises ConfigError."""
        from trioperator.testing.exploring.app import FilesApp
        from trioperator.testing.exploring.checks import make_players
        from trioperator.testing.exploring.reports import Report

        inputs, start, play = self._inputs, time.monotonic(), self._options.play
        app = FilesApp([*inputs.setup, *inputs.files], inputs.modules)
        manifests = {"crds": inputs.crds, "examples": inputs.examples, "statuses": inputs.statuses}
        kinds = self._options.kinds
        players = make_players(app, **manifests, kinds=kinds, on_blocked=self._end_blocked)
        if play is not None and len(players) > 1:
            raise ConfigError("Several kinds are handled: choose the one to play with --kind.")
        for number, player in enumerate(players):
            left = self._options.seconds - (time.monotonic() - start)
            report = self._explore(player, left / (len(players) - number))
            self._reports.append(report)
            if report.is_interrupted:
                break
        self._progress.clear()
        return Report(inputs=inputs, subjects=self._reports, seconds=time.monotonic() - start)

    def _explore(self, player: Player, seconds: float) -> SubjectReport:
        from trioperator.testing.exploring.checks import check_names
        from trioperator.testing.exploring.explorer import Budget, Explorer
        from trioperator.testing.exploring.oracles import ORACLES
        from trioperator.testing.exploring.perturbations import FAULTS

        options = self._options
        explorer = Explorer(
            player,
            seed=self._inputs.seed,
            steps=options.steps,
            oracles=check_names("oracle", split_names(options.oracles), ORACLES),
            ignored=options.ignore,
            on_progress=self._progress.show,
        )
        faults = check_names("fault", split_names(options.faults), FAULTS)
        if options.play is not None:
            states = _parse_states(options.play)
            report = explorer.play(states)
            explorer.perturb([states], faults, Budget(sequences=1, seconds=seconds))
            return report
        explorer.run(Budget(sequences=options.sequences, seconds=seconds / 2 if faults else seconds))
        explorer.perturb(explorer.draw_short()[: options.sequences], faults, Budget(sequences=1, seconds=seconds / 2))
        return explorer.report

    def _end_blocked(self, place: str) -> None:
        """Report that the event loop is blocked for good, which only the end of the process ends."""
        self._progress.clear()
        message = f"The operator does not return, and blocks the event loop {place}: nothing else can run."
        os.write(2, f"{message}\n".encode())
        os._exit(2)


def _parse_states(text: str) -> list[Any]:
    """Return the states of a sequence. Raises ConfigError."""
    try:
        return msgspec.json.decode(text, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        example = '[{"spec": {"size": 1}}, {"spec": {"size": 2}}]'
        raise ConfigError(f"--play must be a list of states as JSON, such as {example}: {error}.") from None


class _Progress:
    """A line on the terminal about how far the search is."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._is_shown = sys.__stderr__ is not None and sys.__stderr__.isatty()

    def show(self, report: SubjectReport) -> None:
        """Show the line for a kind."""
        if self._is_shown:
            alarms = sum(not finding.is_information for finding in report.findings)
            left = max(0, self._end - time.monotonic())
            text = (
                f"{report.resource}: {report.states} states, {report.transitions} transitions, {alarms} findings,"
                f" {left:.0f} s left"
            )
            self._write(f"\r\x1b[K{text}")

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        """Write to the terminal, past what keeps handlers from that."""
        if sys.__stderr__ is not None:
            with contextlib.suppress(OSError):
                sys.__stderr__.write(text)
                sys.__stderr__.flush()


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Show neither what the operator logs in plays, nor what its handlers print."""
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], [logging.NullHandler()]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        root.handlers[:] = handlers
