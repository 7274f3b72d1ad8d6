"""Search for a regular expression in linear time: a lazily built automaton. Pure.

Python's own engine tries alternatives one after the other, which takes exponential time for some expressions. Here all
of them are followed together, and what was found out for a set of states and a character is remembered.
"""

from __future__ import annotations

import time
from typing import Final, TypeAlias

from .pattern_syntax import Anchor, Chars, Choice, Node, Repeat, Sequence, UnsupportedPatternError, parse

__all__ = ["Allowance", "Automaton"]

_MAX_STEPS: Final = 5_000  # of a program
_MAX_MEMORY: Final = 20_000  # steps and characters that are remembered

_MATCH: Final = 0
_Step: TypeAlias = tuple[Chars, int] | tuple[Anchor, int] | tuple[int, ...] | None  # with what follows; or a split

_BEGIN, _NEWLINE, _WORD, _OTHER = range(4)  # what is before a position


class Allowance:
    """Work that all searches together may do: some at once, and then so much in a second of real time."""

    def __init__(self, at_once: float, *, per_second: float) -> None:
        self._at_once = self._left = at_once
        self._per_second = per_second
        self._time = time.monotonic()

    def take(self, work: float) -> bool:
        """Use up the allowance for the work. Returns False if not enough is left."""
        if work > self._left:
            now = time.monotonic()
            self._left = min(self._at_once, self._left + (now - self._time) * self._per_second)
            self._time = now
            if work > self._left:
                return False
        self._left -= work
        return True


# Steps beyond what is remembered, which take 3 µs each: an eighth of a second, and then a tenth of the time.
_steps: Final = Allowance(40_000, per_second=30_000)


class _State:
    """A set of steps, and what is before them; with the states that follow, by character."""

    __slots__ = ("before", "following", "steps")

    def __init__(self, steps: frozenset[int], before: int) -> None:
        self.steps = steps
        self.before = before
        self.following: dict[str, _State | None] = {}  # None: there is a match


class Automaton:
    """Compiled expression. Raises PatternError if it is invalid, UnsupportedPatternError if it is too complex."""

    def __init__(self, pattern: str) -> None:
        self._program: list[_Step] = [None]  # the step 0 is a match
        self._compiled = 0
        self._start = self._compile(parse(pattern), _MATCH)
        self._states: dict[tuple[frozenset[int], int], _State] = {}
        self._memory = 0

    # -- compilation ------------------------------------------------------------------------------------------------

    def _compile(self, node: Node, after: int) -> int:
        """Compile the node; return its first step. *after* is the step that follows."""
        self._compiled += 1
        if self._compiled > _MAX_STEPS:
            raise UnsupportedPatternError("it is too large")
        match node:
            case Chars():
                return self._add((node, after))
            case Anchor():
                return self._add((node, after))
            case Sequence():
                for part in reversed(node.parts):
                    after = self._compile(part, after)
                return after
            case Choice():
                return self._add(tuple(self._compile(part, after) for part in node.parts))
            case Repeat():
                return self._compile_repeat(node, after)

    def _compile_repeat(self, node: Repeat, after: int) -> int:
        count = node.low
        if node.high is None:
            start = loop = self._add(None)
            body = self._compile(node.node, loop)
            self._program[loop] = (body, after)
            if count:
                start, count = body, count - 1
        else:
            start = after
            for _ in range(node.high - node.low):
                start = self._add((self._compile(node.node, start), after))
        for _ in range(count):
            start = self._compile(node.node, start)
        return start

    def _add(self, step: _Step) -> int:
        self._program.append(step)
        return len(self._program) - 1

    # -- search -----------------------------------------------------------------------------------------------------

    def search(self, text: str) -> bool:
        """Return whether the text has a match. Raises UnsupportedPatternError if it takes too long to find out."""
        state = self._state(frozenset(), _BEGIN)
        for char in text:
            try:
                following = state.following[char]
            except KeyError:
                following = self._follow(state, char)
            if following is None:
                return True
            state = following
        return _MATCH in self._reached(state, "")

    def _state(self, steps: frozenset[int], before: int) -> _State:
        state = self._states.get((steps, before))
        if state is None:
            self._memory += len(steps) + 1
            if self._memory > _MAX_MEMORY:
                self._states.clear()
                self._memory = 0
            state = self._states[steps, before] = _State(steps, before)
        return state

    def _follow(self, state: _State, char: str) -> _State | None:
        """Return the state after the character, or None if there is a match before it."""
        reached = self._reached(state, char)
        following = None
        if _MATCH not in reached:
            steps = set()
            for at in reached:
                step = self._program[at]
                if step and isinstance(step[0], Chars) and step[0].fits(char):
                    steps.add(step[1])
            following = self._state(frozenset(steps), _kind(char))
        self._memory += 1
        state.following[char] = following
        return following

    def _reached(self, state: _State, char: str) -> set[int]:
        """Return the steps that are reached before the next character (empty at the end), from anywhere."""
        reached: set[int] = set()
        pending = [*state.steps, self._start]
        while pending:
            at = pending.pop()
            if at in reached:
                continue
            reached.add(at)
            step = self._program[at]
            if step is None or isinstance(step[0], Chars):
                continue
            if isinstance(step[0], Anchor):
                if _holds(step[0], state.before, char):
                    pending.append(step[1])
            else:
                pending += step  # a split
        if not _steps.take(len(reached)):
            raise UnsupportedPatternError("matching it takes too long")
        return reached


def _kind(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    return _WORD if char == "_" or (char.isascii() and char.isalnum()) else _OTHER


def _holds(anchor: Anchor, before: int, char: str) -> bool:
    """Return whether the anchor holds between what is before, and the character."""
    match anchor.kind:
        case "\\A":
            return before == _BEGIN
        case "\\z":
            return not char
        case "^":
            return before in {_BEGIN, _NEWLINE}
        case "$":
            return char in {"", "\n"}
    is_boundary = (before == _WORD) is not (bool(char) and _kind(char) == _WORD)
    return is_boundary is (anchor.kind == "\\b")
