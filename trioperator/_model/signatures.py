"""Signatures that show options one by one, as ``help()`` and editors take them from ``inspect.signature()``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ForwardRef, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def shows(options: type, **defaults: object) -> Callable[[F], F]:
    """Show each key of a TypedDict in the signature of a function that takes it by ``**options``.

    Type checkers read ``Unpack``, but ``help()`` shows only ``**options``. Defaults are None where not given here.
    """

    def decorate(fn: F) -> F:
        signature = inspect.signature(fn)
        *others, _ = signature.parameters.values()
        keywords = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation,
            )
            for name, annotation in options.__annotations__.items()
        ]
        fn.__signature__ = signature.replace(parameters=[*others, *keywords])  # type: ignore[attr-defined]
        return fn

    return decorate
