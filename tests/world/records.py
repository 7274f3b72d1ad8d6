"""What a run has found so far, in a file: a run of all operators takes an hour, and may be interrupted."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any, Final

_NAME: Final = "verdicts.jsonl"


class Records:
    """The verdicts of a run, a line of JSON each. To *resume* one, those that it has found to be right are kept."""

    def __init__(self, folder: pathlib.Path, modes: Sequence[str], *, real: bool, resume: bool) -> None:
        self._path = folder / _NAME
        self._key: dict[str, Any] = {"modes": list(modes), "real": real}
        self._found: dict[str, Any] = {}
        if resume and self._path.exists():
            self._read()
        self._path.write_text("".join(f"{json.dumps(each)}\n" for each in self._found.values()))

    def _read(self) -> None:
        for line in self._path.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # it was being written when the run was killed
                continue
            if self._key.items() <= record.items() and not record["failed"]:
                self._found[record["name"]] = record

    def find(self, name: str) -> dict[str, Any] | None:
        """Return what an interrupted run has found about an operator: its commit and words."""
        return self._found.get(name)

    def add(self, name: str, **found: Any) -> None:
        """Add a verdict at the end of the file."""
        with self._path.open("a") as file:
            file.write(json.dumps({"name": name, **self._key, **found}) + "\n")
