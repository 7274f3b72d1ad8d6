"""Failures on the way to children, and what is said of them on objects. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from trioperator._handling.handlers.outcome import describe_with_type
from trioperator._model.contention import Verdict
from trioperator.errors import (
    ApiError,
    ConfigError,
    ForeignChildError,
    TrioperatorError,
)

# Number of problems with children that a message names.
_MAX_NAMED: Final = 3
_WORD: Final = re.compile(r"[A-Z][A-Za-z]*")


class UnservedNamespaceError(TrioperatorError):
    """Raised where a desired child is in a namespace that the operator does not serve, or not yet."""


class LoopError(TrioperatorError):
    """Raised where a child is changed or deleted by others as often as it is applied; ``due`` is the next attempt.

    ``contended`` are the fields that others change, with their managers, as far as that is known.
    """

    def __init__(self, message: str, *, due: float, contended: Sequence[Verdict] = ()) -> None:
        super().__init__(message)
        self.due = due
        self.contended = tuple(contended)


class ChildrenError(TrioperatorError):
    """Raised where children cannot be applied or deleted: ``errors`` are the reasons, one for each."""

    def __init__(self, problems: Sequence[tuple[str, TrioperatorError]]) -> None:
        named = [f"{what}: {describe_with_type(error)}" for what, error in problems[:_MAX_NAMED]]
        more = len(problems) - len(named)
        super().__init__("; ".join(named) + (f"; and {more} more" if more else ""))
        self.errors = tuple(error for _, error in problems)

    @property
    def due(self) -> float:
        """When all that is wrong may be over, on Trio's clock; long ago if that is not known."""
        return min(error.due if isinstance(error, LoopError) else float("-inf") for error in self.errors)


def find_contended(errors: Iterable[BaseException | None]) -> list[Verdict]:
    """Return the fields of children that others change repeatedly, as the errors of calls have them."""
    return [
        verdict
        for error in errors
        if isinstance(error, ChildrenError)
        for each in error.errors
        if isinstance(each, LoopError)
        for verdict in each.contended
    ]


def reason_of(error: BaseException) -> str:
    """Return why a call has failed, in one word for programs."""
    if isinstance(error, ChildrenError):
        return reason_of(error.errors[0])
    if isinstance(error, ApiError):
        return error.reason if _WORD.fullmatch(error.reason) else f"HTTP{error.status}"
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return "ReconcileFailed"


def name_error(error: BaseException) -> str:
    """Return the error of a call in a word, without its message."""
    return reason_of(error) if isinstance(error, ChildrenError) else type(error).__name__


_REASONS: Final[Sequence[tuple[type[BaseException], str]]] = (
    (ForeignChildError, "AlreadyExists"),
    (UnservedNamespaceError, "NamespaceNotServed"),
    (LoopError, "ChangedByOthers"),
    (ConfigError, "InvalidChildren"),
)
