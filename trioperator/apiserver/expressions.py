"""Match conditions: expressions in CEL, evaluated by the library of the language's makers where that is installed.

``pip install 'trioperator[cel]'`` brings it. Without it a configuration that has conditions is refused, for nothing
would be worse than conditions that are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["Conditions", "problem_of"]

_VARIABLES: Final = ("object", "oldObject", "request")
_MISSING: Final = "the embedded API server evaluates no match conditions without CEL: pip install 'trioperator[cel]'"


def _environment() -> Any:
    from cel_expr_python import cel

    return cel.NewEnv(variables=dict.fromkeys(_VARIABLES, cel.Type.DYN))


def problem_of(expression: str) -> str | None:
    """Say why the expression cannot be evaluated; None if it can."""
    try:
        environment = _environment()
    except ImportError:
        return _MISSING
    try:
        environment.compile(expression)
    except RuntimeError as error:
        return f"compilation failed: {_text_of(error)}"
    return None


def _text_of(error: RuntimeError) -> str:
    return str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")


class Conditions:
    """Compiled expressions, each of them compiled once."""

    def __init__(self) -> None:
        self._environment: Any = None
        self._compiled: dict[str, Any] = {}

    def are_met(
        self, conditions: Iterable[tuple[str, str]], request: Mapping[str, Any], *, ignores_failures: bool
    ) -> bool:
        """Tell whether all conditions hold for the request of a review.

        One that does not hold decides; else errors do, by the failure policy: they raise ValueError, or are as good as
        not met.
        """
        data = {"object": request["object"], "oldObject": request["oldObject"], "request": request}
        errors = []
        for _, expression in conditions:
            result = self._compile(expression).eval(data=data)
            if result.value() is False:
                return False
            if result.value() is not True:
                errors.append(f"expression '{expression}' resulted in error: {result.value()}")
        if errors and not ignores_failures:
            raise ValueError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return not errors

    def _compile(self, expression: str) -> Any:
        if self._environment is None:
            self._environment = _environment()
        compiled = self._compiled.get(expression)
        if compiled is None:
            compiled = self._compiled[expression] = self._environment.compile(expression)
        return compiled
