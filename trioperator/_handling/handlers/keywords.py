"""Which keyword arguments a function may use, as far as its code tells that."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable
from typing import Any, Final

from trioperator._handling.handlers.handler import signature_of

# Functions that may read all local variables.
_PRYING: Final = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"})


def may_use(name: str, fn: Callable[..., Any]) -> bool:
    """Check whether a function may use a keyword argument: it names it, or looks into its ``**kwargs``.

    Most functions have ``**kwargs`` or ``**_`` only to accept what they do not need.
    """
    signature = signature_of(fn)
    return name in signature.names or (signature.takes_all and _reads_keywords(fn))


def _reads_keywords(fn: Callable[..., Any]) -> bool:
    """Check whether a function may use its ``**kwargs``. A callable without code may."""
    plain = fn.__func__ if isinstance(fn, types.MethodType) else fn
    code = getattr(plain, "__code__", None)
    if code is None or not code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    has_args = bool(code.co_flags & inspect.CO_VARARGS)
    variable = code.co_varnames[code.co_argcount + code.co_kwonlyargcount + has_args]
    if variable in code.co_cellvars or not _PRYING.isdisjoint(code.co_names):
        return True
    return any(_names(instruction.argval, variable) for instruction in dis.get_instructions(code))


def _names(value: object, variable: str) -> bool:
    return value == variable or (isinstance(value, tuple) and variable in value)
