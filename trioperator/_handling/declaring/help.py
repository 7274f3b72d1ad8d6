"""Help texts of options that many decorators share: written once, and shown by ``help()`` of each decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from trioperator._model.signatures import shows

F = TypeVar("F", bound=Callable[..., Any])

# Meanings of options by their names, in the order of the help. A decorator's own docstring takes precedence.
_TEXTS: Final[Mapping[str, str]] = {
    "on_change": 'what happens to a call in progress when the object is changed or deleted: ``"finish"``, or\n'
    '  ``"cancel"`` to cancel it at its next checkpoint and call it again; default: ``"finish"``',
    "initial_delay": "seconds before the first call, or a sync function of the keyword arguments that returns\n"
    "  them; default: 0",
    "subresource": 'subresource that is reviewed in place of the object, or ``"*"`` for both; default: the object',
    "persistent": "whether the webhook stays in the managed configuration when the operator exits; default: only\n"
    "  with leader election or shards, where other replicas serve it",
    "side_effects": "whether the function has side effects, other than in dry runs; default: False",
    "ignore_failures": "whether writes pass, with a warning, if the function denies them, fails or cannot be\n"
    "  reached; default: False",
    "namespace_selector match_conditions match_policy": "as in Kubernetes' webhook configurations; the\n"
    "  conditions are a dict from names to CEL expressions",
    "labels annotations": "dicts from keys to required values, ``PRESENT``, ``ABSENT`` or functions of the value",
    "when": "sync function of the keyword arguments, which returns whether the object matches",
    "field value": 'field such as ``"spec.size"``, and its required value as in ``labels``; default: ``PRESENT``',
    "old new": "required values of the field before and after the change, in place of ``value``",
    "errors": "how arbitrary exceptions are treated; default: ``ErrorsMode.TEMPORARY``, to retry after ``backoff``",
    "timeout": "seconds from the first attempt until the handler fails (async: is cancelled); default: no limit",
    "retries": "number of attempts until the handler fails; default: no limit",
    "backoff": "seconds until the retry after an exception; default: ``settings.execution.default_backoff``, 60",
    "id": "name in logs and stored progress, plus ``/<field>``; default: the function's qualified name",
    "param": "value of the argument ``param``",
    "registry": "registry for the handler; default: the default one",
    "rights": "what the function's own requests need, such as\n"
    '  ``["create,patch:jobs.batch"]`` (docs/permissions.md)',
    "group version kind plural singular shortcut category": "selectors by keyword",
}
_SELECTING: Final = """\
Positional arguments select resource kinds: ``"widgets"`` or ``"example.com", "v1", "widgets"`` (docs/selectors.md).
"""
_ARGUMENTS: Final = "The function is sync or async, and declares the arguments that it needs (docs/arguments.md)."
_RAISES: Final = """\
Raises TypeError or ValueError for wrong selectors and options. When started, the operator raises ConfigError if the
function requires unknown arguments."""


def explains(options: type) -> Callable[[F], F]:
    """Show the options in the signature of a decorator, and explain in its help those that its docstring does not."""

    def decorate(fn: F) -> F:
        if fn.__doc__ is not None:  # as it is with -OO
            fn.__doc__ = _complete(inspect.cleandoc(fn.__doc__), options.__annotations__.keys())
        return shows(options)(fn)

    return decorate


def _complete(own: str, options: Collection[str]) -> str:
    text, _, special = own.partition("\n\n- ")
    paragraphs = [text]
    if "registry" in options:  # sub-handlers have the arguments of their parents
        paragraphs.append(_SELECTING + _ARGUMENTS if "version" in options else _ARGUMENTS)
    lines = [f"- {special}"] if special else []
    for names, meaning in _TEXTS.items():
        shown = [f"``{name}``" for name in names.split() if name in options]
        if shown and shown[0] not in special:
            lines.append(f"- {', '.join(shown)}: {meaning}")
    paragraphs.append("\n".join(lines))
    if "Raises" not in text:
        paragraphs.append(_RAISES)
    return "\n\n".join(paragraphs)
