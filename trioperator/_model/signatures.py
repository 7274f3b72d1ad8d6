"""Signatures: those of users' functions, and those that show options one by one to ``help()`` and editors."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, ForwardRef, ParamSpec, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

# From Python 3.14 on, annotations are evaluated when they are read; some name what is imported for type checkers only.
_LENIENT: Final[dict[str, Any]] = {}
if sys.version_info >= (3, 14):
    import annotationlib

    _LENIENT["annotation_format"] = annotationlib.Format.FORWARDREF


def read_signature(fn: Callable[..., Any], *, follow_wrapped: bool = False) -> inspect.Signature:
    """Return the signature of a function, of the function itself by default; annotations may name what is not defined.

    Raises TypeError and ValueError for what has no readable signature.
    """
    return inspect.signature(fn, follow_wrapped=follow_wrapped, **_LENIENT)


def set_signature(fn: Callable[..., Any], signature: inspect.Signature) -> None:
    """Let :func:`inspect.signature`, and so ``help()``, return another signature of a function."""
    fn.__signature__ = signature  # type: ignore[attr-defined]  # unknown to typeshed


def copy_signature(wrapper: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Show the signature of *fn* as that of its wrapper, if it has one: not every callable has."""
    with contextlib.suppress(TypeError, ValueError):
        set_signature(wrapper, read_signature(fn))


def read_annotations(fn: Any) -> dict[str, Any]:
    """Return the annotations of a function; those that name what is not defined are strings or ForwardRefs."""
    if sys.version_info >= (3, 14) and callable(getattr(fn, "__annotate__", None)):
        return annotationlib.get_annotations(fn, format=annotationlib.Format.FORWARDREF)
    return dict(getattr(fn, "__annotations__", {}))


def shows(options: type) -> Callable[[F], F]:
    """Show each key of a TypedDict, with the default None, in the signature of a function that takes ``**options``.

    Type checkers read ``Unpack``, but ``help()`` shows only ``**options``.
    """

    def decorate(fn: F) -> F:
        _show(fn, options, {})
        return fn

    return decorate


def takes(options: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Show the fields of a Struct, all of which have defaults, in the signature of a function that takes ``**options``.

    The function makes the Struct of them, which raises TypeError for unknown ones. Type checkers and editors see the
    fields as keyword parameters, with their types and defaults: so the Struct is the only list of them.
    """

    def decorate(fn: Callable[..., T]) -> Callable[P, T]:
        defaults = options()  # type: ignore[call-arg]  # a ParamSpec cannot say that nothing is required
        _show(fn, type(defaults), {name: getattr(defaults, name) for name in defaults.__struct_fields__})
        return fn

    return decorate


def _show(fn: Callable[..., Any], options: type, defaults: dict[str, Any]) -> None:
    signature = inspect.signature(fn)
    *others, _ = signature.parameters.values()
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=annotation)
        for name, annotation in _annotations(options)
    ]
    set_signature(fn, signature.replace(parameters=[*others, *keywords]))


def _annotations(options: type) -> Iterator[tuple[str, Any]]:
    for cls in reversed(options.__mro__):
        for name, annotation in inspect.get_annotations(cls).items():
            yield name, annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
