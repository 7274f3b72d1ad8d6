"""Dockerfiles, read as far as the tests need it: instructions, and what their builders leave out."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex

from typer.main import get_command

from trioperator.cli.root import app


@dataclasses.dataclass(frozen=True)
class Dockerfile:
    """The instructions of a Dockerfile, in order, each with its arguments as one string."""

    instructions: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Dockerfile:
        lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
        joined = re.sub(r"\\\n\s*", "", "".join(lines)).splitlines()
        return cls(tuple((line.split()[0], line.partition(" ")[2]) for line in joined if line.strip()))

    def select(self, name: str) -> list[str]:
        return [arguments for instruction, arguments in self.instructions if instruction == name]

    @property
    def final(self) -> Dockerfile:
        """The last stage, which is the image."""
        names = [name for name, _ in self.instructions]
        return Dockerfile(self.instructions[len(names) - 1 - names[::-1].index("FROM") :])

    @property
    def sources(self) -> list[str]:
        """What is copied out of the folder that the image is built from."""
        copies = [shlex.split(arguments) for arguments in self.select("COPY")]
        return [source for copy in copies if not copy[0].startswith("--from=") for source in copy[:-1]]

    def read_list(self, name: str) -> list[str]:
        """Return the strings of the only ENTRYPOINT or CMD, which must not need a shell."""
        [text] = self.select(name)
        found = json.loads(text)
        assert isinstance(found, list)
        return found


def is_ignored(path: str, rules: str) -> bool:
    """Return whether a .dockerignore leaves a file out: the last rule that matches decides."""
    parts = path.split("/")
    above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    ignored = False
    for rule in rules.splitlines():
        if rule and not rule.startswith("#"):
            pattern = re.escape(rule.removeprefix("!")).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
            if any(re.fullmatch(pattern, each) for each in above):
                ignored = not rule.startswith("!")
    return ignored


def parse_arguments(arguments: list[str]) -> dict[str, object]:
    """Return the options of `trioperator run` with these arguments, which is not run. Raises click.UsageError."""
    command = get_command(app).commands["run"]  # type: ignore[attr-defined]  # a group
    with command.make_context("run", arguments) as context:
        return dict(context.params)
