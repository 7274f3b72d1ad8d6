"""The guard around users' code: whatever it raises becomes an error that the operator expects. Pure.

Handlers are called by :mod:`.invoke`, which makes an outcome of what they raise. All other functions of users are sync,
and are called by :func:`call`: filters, selectors, lifecycles, delays, storages, functions of patches.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from trioperator.errors import TrioperatorError, UserCodeError

P = ParamSpec("P")
T = TypeVar("T")

# Packages whose frames are cut from the beginning of users' tracebacks.
_FRAMEWORK_PACKAGES: Final = frozenset({"trioperator", "trio", "outcome"})


def call(what: str, subject: object, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of the user's. Raises UserCodeError where it fails, from the error that it has raised.

    The error names *what* has failed: a string with a placeholder for the *subject*. The traceback of its cause begins
    in the user's code. Only what ends the process passes.
    """
    try:
        return fn(*args, **kwargs)
    except (GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # asyncio's cancellation among them, which is no Exception
        error.__traceback__ = trim(error.__traceback__)
        raise UserCodeError(name_of(what, subject), error) from error


def package_of(traceback: types.TracebackType) -> str:
    """Return the top-level package of a traceback entry's code."""
    name: str = traceback.tb_frame.f_globals.get("__name__", "")
    return name.partition(".")[0]


def trim(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback without the framework's frames at its beginning, or as it is if it has no others."""
    rest = traceback
    while rest is not None and package_of(rest) in _FRAMEWORK_PACKAGES:
        rest = rest.tb_next
    return traceback if rest is None else rest  # without the user's frames, the call itself has failed


def trim_error(error: BaseException) -> types.TracebackType | None:
    """Return the traceback of an error that a handler has raised, from its first frame on.

    Of the framework's own errors, it ends where the user's code has called the framework: the message says what was
    wrong, and how the framework has found that out does not matter.
    """
    traceback = trim(error.__traceback__)
    if not isinstance(error, TrioperatorError):
        return traceback
    entries: list[types.TracebackType] = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    users = [number for number, entry in enumerate(entries) if package_of(entry) not in _FRAMEWORK_PACKAGES]
    shown = None
    for entry in reversed(entries[: users[-1] + 1] if users else entries):
        shown = types.TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown


def forget_frames(error: BaseException | None) -> None:
    """Take the tracebacks off an error that is kept, and off those that have led to it: frames hold all that they used.

    Handlers that get an error as an argument would hold it in their frames, and so each error the one before, forever.
    """
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        left += [each.__cause__, each.__context__, *(each.exceptions if isinstance(each, BaseExceptionGroup) else ())]


def name_of(what: str, subject: object) -> str:
    """Return *what* with the subject in place of the placeholder; with its class if it cannot be shown."""
    try:
        return what.format(subject)
    except Exception:  # noqa: BLE001 -- the subject may be the user's, too
        return what.format(type(subject))


class _GuardedStorage:
    """A storage of the user's, whose methods are called by the guard."""

    __slots__ = ("storage",)

    def __init__(self, storage: object) -> None:
        self.storage = storage

    def __getattr__(self, name: str) -> Any:
        return functools.partial(call, "The storage {!r}", self.storage, getattr(self.storage, name))

    def clear(self, *, essence: Any) -> Any:
        """Return what is left of an essence: all of it if the storage returns None, as some do that store nothing."""
        cleared = self.__getattr__("clear")(essence=essence)
        return essence if cleared is None else cleared


def guarded(storage: T) -> T:
    """Return a storage whose methods raise UserCodeError where they fail; our own storages as they are."""
    return storage if _is_own(storage) else cast(T, _GuardedStorage(storage))


def _is_own(storage: object) -> bool:
    """Check whether a storage, and all storages that it combines, are from this package."""
    own = type(storage).__module__.partition(".")[0] == "trioperator"
    return own and all(_is_own(inner) for inner in getattr(storage, "storages", ()))


def unguarded(storage: T) -> T:
    """Return the storage itself, where it is guarded."""
    return cast(T, storage.storage) if isinstance(storage, _GuardedStorage) else storage
