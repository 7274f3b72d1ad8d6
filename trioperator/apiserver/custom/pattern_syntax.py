"""Parser of RE2's regular expressions, with the error messages of Go's. Pure.

https://github.com/google/re2/wiki/Syntax describes them. Captures, greediness and names do not matter to a search that
only finds out whether there is a match.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Final, Literal, TypeAlias

__all__ = [
    "Anchor",
    "Chars",
    "Choice",
    "Node",
    "PatternError",
    "Repeat",
    "Sequence",
    "UnsupportedPatternError",
    "parse",
]

_MAX_REPEAT: Final = 1000
_MAX_LENGTH: Final = 10_000  # of an expression
_MAX_DEPTH: Final = 50  # of groups

Ranges: TypeAlias = tuple[tuple[int, int], ...]


class PatternError(ValueError):
    """Raised when an expression is invalid, with Go's message."""

    def __init__(self, problem: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


class UnsupportedPatternError(ValueError):
    """Raised when an expression is too large or too complex to be evaluated here, or matching it takes too long."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chars:
    """One character of a class: in one of the ranges or of the Unicode categories, or in none of them."""

    ranges: Ranges = ()
    categories: tuple[tuple[str, bool], ...] = ()  # each with whether it is negated
    is_negated: bool = False
    folds_case: bool = False

    def fits(self, char: str) -> bool:
        """Return whether the character is in the class."""
        forms = {char, char.lower(), char.upper()} if self.folds_case else {char}
        return any(self._has(form) for form in forms if len(form) == 1) is not self.is_negated

    def _has(self, char: str) -> bool:
        code = ord(char)
        return any(low <= code <= high for low, high in self.ranges) or any(
            unicodedata.category(char).startswith(name) is not is_negated for name, is_negated in self.categories
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Anchor:
    """An assertion, by its name in RE2; ``^`` and ``$`` are those of a line (flag m)."""

    kind: Literal["^", "$", "\\A", "\\z", "\\b", "\\B"]


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """Nodes one after the other."""

    parts: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives."""

    parts: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """A node, repeated."""

    node: Node
    low: int
    high: int | None
    is_counted: bool = False


Node: TypeAlias = Chars | Anchor | Sequence | Choice | Repeat

_ALL: Final = ((0, 0x10FFFF),)
_DIGITS: Final = ((48, 57),)
_WORD: Final = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final = ((9, 10), (12, 13), (32, 32))
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGITS,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_PERL: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_COUNT: Final = re.compile(r"\{([0-9]+)(?:(,)([0-9]+)?)?\}")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_NAMED: Final = re.compile(r"\(\?P?<([^>]*)>")
_ESCAPED_CODE: Final = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([1-7][0-7]{1,2}|0[0-7]{0,2}))")
_CATEGORY: Final = re.compile(r"\\([pP])(?:\{(\^?)([^}]*)\}|(.))", re.DOTALL)
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)([^]:]*):\]")
_MINORS: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES: Final = frozenset(major + minor for major, minors in _MINORS.items() for minor in ("", *minors))


def parse(text: str) -> Node:
    """Parse the expression. Raises PatternError, and UnsupportedPatternError if it is valid but not supported."""
    if len(text) > _MAX_LENGTH:
        raise UnsupportedPatternError(f"it is longer than {_MAX_LENGTH} characters")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags: frozenset[str] = frozenset()

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise PatternError("unexpected )", self._text)
        return node

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match the pattern here, and advance behind it."""
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _choice(self) -> Node:
        """Parse alternatives up to the end of the group; its flags end with it."""
        flags, parts = self._flags, [self._sequence()]
        while self._text.startswith("|", self._at):
            self._at += 1
            parts.append(self._sequence())
        self._flags = flags
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        operator = ""  # the last repetition, if nothing follows it yet
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            start = self._at
            repeat = self._repetition()
            if repeat is None:
                operator = ""
                parts += self._atoms()
                continue
            shown = self._text[start : self._at]
            if operator:
                raise PatternError("invalid nested repetition operator", operator + shown)
            if not parts:
                raise PatternError("missing argument to repetition operator", shown)
            low, high, is_counted = repeat
            parts[-1] = node = Repeat(parts[-1], low, high, is_counted)
            if is_counted and not _is_repeatable(node, _MAX_REPEAT):
                raise PatternError("invalid repeat count", shown)
            operator = shown
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repetition(self) -> tuple[int, int | None, bool] | None:
        """Parse a repetition operator, if there is one: return the limits, and whether it is counted."""
        known = {"*": (0, None, False), "+": (1, None, False), "?": (0, 1, False)}.get(self._text[self._at])
        if known is not None:
            self._at += 1
        elif (match := self._match(_COUNT)) is not None:
            low, comma, high = match.groups()
            limits = [int(number[:5]) for number in (low, high or low)]
            if limits[0] > limits[1] or limits[1] > _MAX_REPEAT:
                raise PatternError("invalid repeat count", match.group())
            known = (limits[0], None if comma and high is None else limits[1], True)
        if known is not None and self._text.startswith("?", self._at):
            self._at += 1
        return known

    def _atoms(self) -> list[Node]:
        """Parse what is not a repetition: usually one node."""
        char = self._text[self._at]
        if char == "(":
            return self._group()
        if char == "[":
            return [self._class()]
        if char == "\\":
            if (match := self._match(_QUOTED)) is not None:
                return [self._literal(ord(quoted)) for quoted in match[1]]
            return [self._escape()]
        self._at += 1
        if char == ".":
            return [Chars(_ALL if "s" in self._flags else ((10, 10),), is_negated="s" not in self._flags)]
        if char in "^$":
            if "m" in self._flags:
                return [Anchor("^" if char == "^" else "$")]
            return [Anchor("\\A" if char == "^" else "\\z")]
        return [self._literal(ord(char))]

    def _literal(self, code: int) -> Chars:
        return Chars(((code, code),), folds_case="i" in self._flags)

    # -- groups -----------------------------------------------------------------------------------------------------

    def _group(self) -> list[Node]:
        start, outer = self._at, self._flags
        if self._text.startswith("(?", start):
            if (match := self._match(_FLAGS)) is not None and (match.group() not in {"(?)"}):
                self._flags = self._flags.union(match[1]).difference((match[2] or "").lstrip("-"))
                if match[3] == ")":
                    return []
            elif (match := self._match(_NAMED)) is not None:
                if not re.fullmatch(r"\w+", match[1]):
                    raise PatternError("invalid named capture", match.group())
            elif self._text.startswith(("(?<", "(?P<"), start):
                raise PatternError("invalid named capture", self._text[start:])
            else:
                raise PatternError("invalid or unsupported Perl syntax", self._text[start : start + 3])
        else:
            self._at += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnsupportedPatternError(f"its groups are nested more than {_MAX_DEPTH} deep")
        node = self._choice()
        self._depth -= 1
        self._flags = outer
        if not self._text.startswith(")", self._at):
            raise PatternError("missing closing )", self._text)
        self._at += 1
        return [node]

    # -- escapes and classes ----------------------------------------------------------------------------------------

    def _escape(self) -> Node:
        after = self._text[self._at + 1 : self._at + 2]
        match after:
            case "A" | "z" | "b" | "B":
                self._at += 2
                return Anchor(f"\\{after}")  # type: ignore[arg-type]  # one of the four
        known = self._set_escape()
        if known is not None:
            return known
        return self._literal(self._code())

    def _set_escape(self) -> Chars | None:
        """Parse an escape that stands for a set of characters, if there is one."""
        after, folds_case = self._text[self._at + 1 : self._at + 2], "i" in self._flags
        if after.lower() in _PERL:
            self._at += 2
            return Chars(_PERL[after.lower()], is_negated=after.isupper(), folds_case=folds_case)
        if (match := self._match(_CATEGORY)) is None:
            return None
        name = match[3] if match[4] is None else match[4]
        is_negated = (match[1] == "P") is not bool(match[2])
        if name == "Any":
            return Chars(_ALL, is_negated=is_negated)
        if name in _CATEGORIES:
            return Chars(categories=((name, False),), is_negated=is_negated, folds_case=folds_case)
        if len(name) < 3 or not name.isalpha():
            raise PatternError("invalid character class range", match.group())
        raise UnsupportedPatternError(f"it has the Unicode class {match.group()}")

    def _code(self) -> int:
        """Parse an escape that stands for one character."""
        if (match := self._match(_ESCAPED_CODE)) is not None:
            digits, base = (match[3], 8) if match[3] else (match[1] or match[2], 16)
            if len(digits) <= 8 and int(digits, base) <= 0x10FFFF:
                return int(digits, base)
            raise PatternError("invalid escape sequence", match.group().removesuffix("}"))
        after = self._text[self._at + 1 : self._at + 2]
        if not after:
            raise PatternError("trailing backslash at end of expression", "")
        self._at += 2
        if after in _CONTROLS:
            return _CONTROLS[after]
        if after.isascii() and not after.isalnum():
            return ord(after)
        raise PatternError("invalid escape sequence", f"\\{after}")

    def _class(self) -> Chars:
        start = self._at
        self._at += 1
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        is_first = True
        while is_first or not self._text.startswith("]", self._at):
            is_first = False
            if self._at >= len(self._text):
                raise PatternError("missing closing ]", self._text[start:])
            known = self._class_set()
            if known is None:
                ranges.append(self._range(start))
            else:
                ranges += _complement(known.ranges) if known.is_negated and known.ranges else known.ranges
                categories += ((name, known.is_negated) for name, _ in known.categories)
        self._at += 1
        return Chars(tuple(ranges), tuple(categories), is_negated, folds_case="i" in self._flags)

    def _class_set(self) -> Chars | None:
        """Parse a set of characters within a class, if there is one."""
        if (match := self._match(_POSIX_CLASS)) is not None:
            if match[2] not in _POSIX:
                raise PatternError("invalid character class range", match.group())
            return Chars(_POSIX[match[2]], is_negated=bool(match[1]))
        return self._set_escape() if self._text.startswith("\\", self._at) else None

    def _range(self, start: int) -> tuple[int, int]:
        """Parse one character or a range of a class that starts at *start*."""
        begin = self._at
        low = high = self._class_char(start)
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
            self._at += 1
            high = self._class_char(start)
            if high < low:
                raise PatternError("invalid character class range", self._text[begin : self._at])
        return low, high

    def _class_char(self, start: int) -> int:
        if self._at >= len(self._text):
            raise PatternError("missing closing ]", self._text[start:])
        if self._text[self._at] == "\\":
            return self._code()
        self._at += 1
        return ord(self._text[self._at - 1])


def _is_repeatable(node: Node, limit: int) -> bool:
    """Return whether all nested counts together stay within the limit."""
    match node:
        case Repeat():
            count = node.high if node.high is not None else node.low
            if node.is_counted and count:
                if count > limit:
                    return False
                limit //= count
            return _is_repeatable(node.node, limit)
        case Sequence() | Choice():
            return all(_is_repeatable(part, limit) for part in node.parts)
    return True


def _complement(ranges: Ranges) -> list[tuple[int, int]]:
    """Return the ranges between the sorted ranges."""
    edges = [-1, *(edge for pair in ranges for edge in pair), 0x110000]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [(low + 1, high - 1) for low, high in pairs if low + 1 <= high - 1]
