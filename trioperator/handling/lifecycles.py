"""Lifecycles: in which order, and in which groups, the handlers of one cause are called.

A lifecycle is a function that gets the handlers that are due, in the order of their declaration, and gives those to be
called next, in its own order; then it is asked again for what is left. It may take any of the cause's keyword
arguments, and ``state``: a mapping from handler ids to what is known of their progress.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from trioperator.errors import UserCodeError
from trioperator.handling import guard
from trioperator.handling.handler import Signature, is_async, signature_of
from trioperator.logs import Logger, get_logger

__all__ = [
    "Lifecycle",
    "all_at_once",
    "apply_lifecycle",
    "asap",
    "check_lifecycle",
    "get_default_lifecycle",
    "one_by_one",
    "randomized",
    "set_default_lifecycle",
    "shuffled",
]


class HasId(Protocol):
    """Be a handler, as far as lifecycles know it."""

    @property
    def id(self) -> str: ...


class HasRetries(Protocol):
    """Be the state of a handler, as far as the lifecycles here know it."""

    @property
    def retries(self) -> int: ...


H = TypeVar("H", bound=HasId)
State: TypeAlias = Mapping[str, HasRetries]


# It may take any of the arguments by name, so its type says no more than what comes out.
Lifecycle: TypeAlias = Callable[..., Iterable[Any]]


def all_at_once(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call all handlers, in the order of their declaration. This is the default."""
    return handlers


def one_by_one(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call one handler after another, in the order of their declaration."""
    return handlers[:1]


def asap(handlers: Sequence[H], *, state: State, **_: Any) -> Sequence[H]:
    """Call one handler after another: those first that were tried least often."""
    return sorted(handlers, key=lambda handler: state[handler.id].retries)[:1]


def shuffled(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call all handlers, in a random order."""
    return random.sample(handlers, k=len(handlers))


def randomized(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call one handler after another, each time a random one."""
    return [random.choice(handlers)] if handlers else []


class _Default:
    lifecycle: Lifecycle | None = None


def get_default_lifecycle() -> Lifecycle:
    """Give the lifecycle of operators that are given no other."""
    return all_at_once if _Default.lifecycle is None else _Default.lifecycle


def set_default_lifecycle(lifecycle: Lifecycle | None) -> None:
    """Set the lifecycle of operators that are given no other; None is back to the default, ``all_at_once``.

    Warns where another one was set before: the last one counts, for all operators of the process.
    """
    if lifecycle is not None:
        check_lifecycle(lifecycle)
    if _Default.lifecycle is not None and lifecycle is not None and lifecycle is not _Default.lifecycle:
        get_logger("trioperator.lifecycles").warning(
            "The default lifecycle was %s already, and is %s from now on.", _name(_Default.lifecycle), _name(lifecycle)
        )
    _Default.lifecycle = lifecycle


def check_lifecycle(lifecycle: object) -> None:
    """Make sure that a lifecycle is one. Raises TypeError."""
    if not callable(lifecycle) or is_async(lifecycle):
        raise TypeError(f"A lifecycle has to be a plain function of handlers, and {_name(lifecycle)} is none.")


def apply_lifecycle(
    lifecycle: Lifecycle, handlers: Sequence[H], *, state: State, kwargs: Mapping[str, Any], logger: Logger
) -> list[H]:
    """Have *lifecycle* choose from *handlers* those to be called next, each once.

    What was not offered to it is not called. A lifecycle that fails has chosen nothing. Both are logged.
    """
    if lifecycle is all_at_once:  # as nearly always; reading a signature takes as long as calling a handler
        return list(handlers)
    own = _signature(lifecycle).pick({**kwargs, "state": state})
    try:
        chosen = guard.call("The lifecycle {}", _name(lifecycle), lambda: list(lifecycle(list(handlers), **own)))
    except UserCodeError as error:
        logger.error("%s", error, exc_info=error.__cause__)
        return []
    offered = [handler for handler in chosen if any(handler is other for other in handlers)]
    if len(offered) < len(chosen):
        foreign = ", ".join(str(handler) for handler in chosen if handler not in offered)
        logger.error("The lifecycle %s has chosen what is not due, and is not called: %s", _name(lifecycle), foreign)
    return list({id(handler): handler for handler in offered}.values())


@functools.lru_cache(maxsize=64)
def _signature(lifecycle: Lifecycle) -> Signature:
    return signature_of(lifecycle, skip=1)


def _name(lifecycle: object) -> str:
    return str(getattr(lifecycle, "__qualname__", None) or repr(lifecycle))
