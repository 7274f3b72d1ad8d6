"""Lifecycles: the order in which the handlers of one cause are called, and how many of them in one go.

A lifecycle is a sync function. It gets the handlers that are due, in the order of their declaration, and returns those
to be called next, in its own order; it is called again for the remaining ones. It may declare any of the cause's
keyword arguments, and ``state``: a mapping from handler ids to their progress.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from trioperator._handling import guard
from trioperator._handling.handlers.handler import Signature, is_async, signature_of
from trioperator._logs import Logger, get_logger
from trioperator.errors import UserCodeError


class HasId(Protocol):
    """Handler, as lifecycles see it."""

    @property
    def id(self) -> str: ...


class HasRetries(Protocol):
    """State of a handler, as lifecycles see it."""

    @property
    def retries(self) -> int: ...

    @property
    def subrefs(self) -> Sequence[str]: ...


H = TypeVar("H", bound=HasId)
State: TypeAlias = Mapping[str, HasRetries]


# Any subset of the keyword arguments may be declared, so the parameters cannot be typed.
Lifecycle: TypeAlias = Callable[..., Iterable[Any]]


def all_at_once(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call all handlers, in the order of their declaration. This is the default."""
    return handlers


def one_by_one(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call one handler after another, in the order of their declaration."""
    return handlers[:1]


def asap(handlers: Sequence[H], *, state: State, **_: Any) -> Sequence[H]:
    """Call one handler after another, the ones with the fewest attempts first. Those of sub-handlers count, too."""

    def count(handler: H) -> int:
        own = state[handler.id]
        return own.retries + sum(state[ref].retries for ref in own.subrefs if ref in state)

    return sorted(handlers, key=count)[:1]


def shuffled(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call all handlers, in a random order."""
    return random.sample(handlers, k=len(handlers))


def randomized(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Call one handler after another, in a random order."""
    return [random.choice(handlers)] if handlers else []


class _Default:
    lifecycle: Lifecycle | None = None


def get_default_lifecycle() -> Lifecycle:
    """Return the lifecycle of operators that are run without ``lifecycle=``."""
    return find_default_lifecycle() or all_at_once


def find_default_lifecycle() -> Lifecycle | None:
    """Return what ``set_default_lifecycle()`` has set, or None."""
    return _Default.lifecycle


def set_default_lifecycle(lifecycle: Lifecycle | None) -> None:
    """Set the lifecycle of operators that are run without ``lifecycle=``; None restores ``all_at_once``.

    It holds for all operators of the process. Replacing another one logs a warning.
    """
    if lifecycle is not None:
        check_lifecycle(lifecycle)
    if _Default.lifecycle is not None and lifecycle is not None and lifecycle is not _Default.lifecycle:
        get_logger("trioperator.lifecycles").warning(
            "The default lifecycle was already set to %s, and is now replaced by %s.",
            _name(_Default.lifecycle),
            _name(lifecycle),
        )
    _Default.lifecycle = lifecycle


def check_lifecycle(lifecycle: object) -> None:
    """Raise TypeError if *lifecycle* is not a sync function."""
    if not callable(lifecycle) or is_async(lifecycle):
        raise TypeError(f"A lifecycle must be a sync function of handlers, not {_name(lifecycle)}.")


def apply_lifecycle(
    lifecycle: Lifecycle, handlers: Sequence[H], *, state: State, kwargs: Mapping[str, Any], logger: Logger
) -> list[H]:
    """Return the *handlers* that *lifecycle* selects to be called next, each once.

    If it raises, return nothing; drop handlers that it was not offered. Log both.
    """
    if lifecycle is all_at_once:  # nearly always; inspecting a signature costs as much as calling a handler
        return list(handlers)
    own = _signature_of(lifecycle).pick({**kwargs, "state": state})
    try:
        chosen = guard.call("The lifecycle {}", _name(lifecycle), lambda: list(lifecycle(list(handlers), **own)))
    except UserCodeError as error:
        logger.error("%s", error, exc_info=error.__cause__)
        return []
    offered = [handler for handler in chosen if any(handler is other for other in handlers)]
    if len(offered) < len(chosen):
        foreign = ", ".join(str(handler) for handler in chosen if handler not in offered)
        logger.error(
            "The lifecycle %s has returned handlers that are not due: %s",
            _name(lifecycle),
            foreign,
        )
    return list({id(handler): handler for handler in offered}.values())


@functools.lru_cache(maxsize=64)
def _signature(lifecycle: Lifecycle) -> Signature:
    return signature_of(lifecycle, skip=1)


def _signature_of(lifecycle: Lifecycle) -> Signature:
    try:
        return _signature(lifecycle)
    except TypeError:  # not hashable, so not cached
        return _signature.__wrapped__(lifecycle)


def _name(lifecycle: object) -> str:
    return str(getattr(lifecycle, "__qualname__", None) or repr(lifecycle))
