"""Reports: what was found, as text, as JSON, and as tests."""

from __future__ import annotations

import os
import pathlib
import pprint
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from trioperator.testing.exploring.explorer import SubjectReport
from trioperator.testing.exploring.findings import Finding

_ORIGIN: Final = "Found by `trioperator explore`."
_PAGE: Final = "docs/exploring.md"
# The most frequent causes of the findings of each oracle and each fault.
_HINTS: Final = {
    "path": "an update handler is missing, or obsolete children are not deleted",
    "revert": "an update handler is missing, or obsolete children are not deleted",
    "wedge": "a remembered error, or steps that wait for an earlier step that fails",
    "quiet": "a time or a random value in a child or in the status, or two handlers that undo each other's changes",
    "release": "children without an owner, or a deletion handler that fails",
    "effects": "a child is deleted and created instead of applied, or a field is given up before others have it",
    "cost": "a requeue after a second, or writes that trigger the handler itself",
    "honesty": "the condition is set when the children are applied, not when they are ready",
    "handlers": "a state that the handler does not expect: handle it, or let the schema reject it",
    "crash": "names that differ in the next attempt, steps that are not repeated, or what is only in memory",
    "blind": "event handlers, which miss what happens meanwhile, or what is only in memory",
    "late": "an index or cache that is read right after a write",
    "order": "two handlers that write the same field, or read what the other one writes",
    "edit": "a handler that writes from an old copy of the object",
    "drift": "the handler stores what it has applied, and does not look at the children",
}


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """The explored operator, as on the command line."""

    files: Sequence[str] = ()
    modules: Sequence[str] = ()
    crds: Sequence[str] = ()
    examples: Sequence[str] = ()
    setup: Sequence[str] = ()
    statuses: Sequence[str] = ()
    seed: int = 0

    def make_command(self, report: SubjectReport, finding: Finding) -> str:
        """Return the command that plays only what a finding needs."""
        words = ["trioperator", "explore", *self.files]
        for option, values in (
            ("-m", self.modules),
            ("--crds", self.crds),
            ("--from", self.examples),
            ("--setup", self.setup),
            ("--status", self.statuses),
        ):
            words += [word for value in values for word in (option, value)]
        words += [word for cause in finding.ignored for word in ("--ignore", cause)]
        words += ["--faults", finding.fault] if finding.fault else []
        words += ["--kind", report.resource, "--play", msgspec.json.encode(finding.states).decode()]
        return shlex.join(words)


class Report(msgspec.Struct, kw_only=True):
    """The findings for all kinds."""

    inputs: Inputs
    subjects: list[SubjectReport]
    seconds: float

    def iterate_alarms(self) -> Iterator[tuple[SubjectReport, Finding]]:
        """Yield the findings that are not only information."""
        for subject in self.subjects:
            yield from ((subject, finding) for finding in subject.findings if not finding.is_information)


def render_json(report: Report) -> str:
    """Return the report as JSON, for programs."""
    subjects = [
        {
            **{
                name: getattr(each, name)
                for name in ("resource", "states", "sequences", "transitions", "rejected", "perturbed")
            },
            "stopped": each.stopped,
            "withoutEffect": each.without_effect,
            "findings": [
                {
                    "oracle": finding.oracle,
                    "fault": finding.fault or None,
                    "summary": finding.summary,
                    "details": finding.lines,
                    "also": finding.also,
                    "information": finding.is_information,
                    "count": finding.count,
                    "states": finding.states,
                    "command": report.inputs.make_command(each, finding),
                }
                for finding in each.findings
            ],
        }
        for each in report.subjects
    ]
    document = msgspec.json.encode({"seed": report.inputs.seed, "subjects": subjects})
    return msgspec.json.format(document, indent=2).decode()


def render_text(report: Report) -> str:
    """Return the report for people."""
    lines: list[str] = []
    number = 0
    for subject in report.subjects:
        for finding in subject.findings:
            number += not finding.is_information
            head = "information" if finding.is_information else f"{number}. {finding.oracle}"
            lines += [f"{head}: {finding.summary}", *_describe(report, subject, finding), ""]
        if subject.without_effect:
            fields = ", ".join(subject.without_effect)
            lines += [f"information: these fields of {subject.resource} have never changed anything: {fields}.", ""]
    lines += [_summarize(subject) for subject in report.subjects]
    alarms = len(list(report.iterate_alarms()))
    found = f"{alarms} finding{'s' * (alarms != 1)}" if alarms else "no findings"
    lines.append(f"{found} in {report.seconds:.1f} s, with the seed {report.inputs.seed}.")
    return _make_printable("\n".join(lines))


def _describe(report: Report, subject: SubjectReport, finding: Finding) -> Iterator[str]:
    yield f"   {subject.kind}:"
    for index, state in enumerate(finding.states, 1):
        yield f"     {index}. {msgspec.json.encode(state).decode()}"
    yield from (f"   {line}" for line in finding.lines)
    if finding.count > 1:
        yield f"   seen {finding.count} times"
    yield from (f"   also shows as {line}" for line in finding.also)
    if not finding.is_information:
        section = finding.fault or finding.oracle
        yield f"   Typical causes: {_HINTS[section]} ({_PAGE}#{section})."
        yield f"   To play it again: {report.inputs.make_command(subject, finding)}"


def _summarize(subject: SubjectReport) -> str:
    stopped = f", stopped {subject.stopped}" if subject.stopped else ""
    perturbed = f", {subject.perturbed} perturbed plays" if subject.perturbed else ""
    rejected = f", {subject.rejected} rejected by the API server" if subject.rejected else ""
    return (
        f"{subject.resource}: {subject.states} states in {subject.sequences} sequences, {subject.transitions}"
        f" transitions{perturbed}{rejected}{stopped}"
    )


def write_tests(report: Report, directory: str) -> list[str]:
    """Write a pytest file for each finding, which fails for that alone; return the paths."""
    target = pathlib.Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for subject, finding in report.iterate_alarms():
        stem = re.sub(r"\W+", "_", f"{subject.kind}_{finding.oracle}".lower())
        path, number = target / f"test_{stem}.py", 1
        while str(path) in written or not _may_overwrite(path):
            number += 1
            path = target / f"test_{stem}_{number}.py"
        path.write_text(_render_test(report.inputs, subject, finding, stem=stem, directory=target), encoding="utf-8")
        written.append(str(path))
    return written


def _may_overwrite(path: pathlib.Path) -> bool:
    """Return whether a path is free, or has a test that was written before, without changes to its docstring."""
    return not path.exists() or _ORIGIN in path.read_text(encoding="utf-8", errors="replace")


def _render_test(
    inputs: Inputs, subject: SubjectReport, finding: Finding, *, stem: str, directory: pathlib.Path
) -> str:
    def locate(paths: Sequence[str]) -> str:
        """Return the paths as expressions, from the directory of the test."""
        return "".join(f"HERE / {os.path.relpath(path, directory)!r}, " for path in paths)

    notes = "\n".join(map(_quote, finding.lines))
    arguments = [f"    STATES,\n    {locate([*inputs.setup, *inputs.files])}".rstrip() + "\n"]
    arguments += [f"    modules={list(inputs.modules)!r},\n"] if inputs.modules else []
    arguments += [f"    kind={subject.resource!r},\n"]
    arguments += [f"    {name}=[{locate(paths).rstrip(', ')}],\n" for name, paths in
                  (("crds", inputs.crds), ("examples", inputs.examples)) if paths]  # fmt: skip
    arguments += [f"    statuses={list(inputs.statuses)!r},\n"] if inputs.statuses else []
    arguments += [f"    oracles=[{finding.oracle!r}],\n"]
    arguments += [f"    ignore={finding.ignored!r},\n"] if finding.ignored else []
    arguments += [f"    faults=[{finding.fault!r}],\n"] if finding.fault else []
    body = "".join(f"    {line}" for line in "".join(arguments).splitlines(keepends=True))
    states = pprint.pformat(finding.states, width=100, sort_dicts=False)
    return (
        f'"""{_quote(finding.summary)} {_ORIGIN}\n\n{notes}\n"""\n\n'
        f"import pathlib\n\nfrom trioperator.testing import check_states\n\nHERE = pathlib.Path(__file__).parent\n"
        f"STATES = {states}\n\n\ndef test_{stem}() -> None:\n    check_states(\n{body}    )\n"
    )


def _quote(text: str) -> str:
    """Return a text as a part of a docstring: messages of errors and tasks may contain what would end it."""
    return _make_printable(text).replace("\\", "/").replace('"""', "'''")


def _make_printable(text: str) -> str:
    """Return a text without what controls terminals: it quotes values that were drawn from all characters."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
