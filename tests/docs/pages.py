"""Pages of the documentation as tests read them: headings, and fenced blocks with the comments before them."""

from __future__ import annotations

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]

_FENCE = re.compile(
    r"^<!-- snippet(?P<directive>[^\n]*?)(?: -->|\n(?P<context>.*?)^-->)\n+(?=```)"
    r"|^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$"
    r"|^#+ (?P<heading>[^\n]+)$",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(
    r"`([\w/.-]+\.[a-z]+)`[^`]*(?:`[^`\n]+`[^`]*)?:\n\n(?:<!-- snippet.*?-->\n)?```[a-z]+\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_TIME = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    heading: str
    language: str
    text: str
    #: What the comment before the block says: ``<!-- snippet: directive -->``, or code between its lines.
    directive: str = ""
    context: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def read(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text()


def read_blocks(page: str, language: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page, of one language only if it is given."""
    text = read(page)
    blocks, heading, directive, context = [], "", "", ""
    for match in _FENCE.finditer(text):
        if match["heading"]:
            heading = match["heading"]
        elif match["text"] is None:
            directive, context = match["directive"].removeprefix(":").strip(), match["context"] or ""
        else:
            line = text.count("\n", 0, match.start()) + 1
            blocks.append(Block(page, line, heading, match["language"], match["text"], directive, context))
            directive = context = ""
    return [block for block in blocks if language in (None, block.language)]


def read_files(page: str) -> dict[str, str]:
    """Return the files of a page: the blocks whose paragraph before ends in a colon and begins with a file's name.

    A file may be shown several times: the last block is how it is in the end.
    """
    return dict(_FILE.findall(read(page)))


def read_commands(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page's consoles, in order, each with the output that is shown below it."""
    commands: list[tuple[str, str]] = []
    for block in read_blocks(page, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            commands.append((command, output))
    return commands


def without_times(log: str) -> str:
    """Return log lines without their times."""
    return _TIME.sub("", log)
