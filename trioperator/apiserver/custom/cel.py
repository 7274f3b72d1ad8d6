"""CEL expressions with the functions of Kubernetes, evaluated by the official CEL library.

``pip install 'trioperator[cel]'`` installs it. Without it, webhooks with match conditions are rejected, as ignoring
conditions silently would be worse.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .cel_library import declarations

_VARIABLES: Final = ("object", "oldObject", "request")
_MISSING: Final = "the embedded API server evaluates no match conditions without CEL: pip install 'trioperator[cel]'"
_CONVERSION: Final = re.compile(r"^cannot convert (\w+) to (u?int|double|bool|bytes|string|timestamp|duration)$")
_REASONS: Final = {
    "Iteration budget exceeded": "operation cancelled: actual cost limit exceeded",
    "divide by zero": "division by zero",
}
_EXTENSIONS: Final = ("lists", "optional", "sets", "strings", "two-var-comprehensions")


class Expression:
    """Compiled expression."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    @property
    def result_type(self) -> str:
        """The static type of the result: BOOL, STRING, ..., or DYN."""
        return str(self._compiled.return_type().name())

    def evaluate(self, data: Mapping[str, Any]) -> Any:
        """Return the result. Raises ValueError if the evaluation fails, or would be too expensive."""
        try:
            result = self._compiled.eval(data=data)
        except RuntimeError as error:
            raise ValueError(_reason_of(str(error).removesuffix(" [INTERNAL]"))) from None
        value = result.plain_value()
        if result.type().name() == "ERROR":
            raise ValueError(_reason_of(str(value)))
        return value


def _reason_of(text: str) -> str:
    """Return the error message of the real server, for the most frequent errors."""
    text = text.partition(": ")[2] or text  # without the code
    if text.startswith("Key not found in map : "):
        return "no such key: " + text.removeprefix("Key not found in map : ").strip('"')
    if text.startswith("Index error: index="):
        return "index out of bounds: " + text.removeprefix("Index error: index=").partition(" ")[0]
    if text.startswith("No matching overloads found"):
        return "no such overload"
    text = _CONVERSION.sub(r"type conversion error from '\1' to '\2'", text)
    return _REASONS.get(text, text)


def is_installed() -> bool:
    """Return whether the CEL library is installed."""
    return importlib.util.find_spec("cel_expr_python") is not None


@functools.lru_cache(maxsize=4096)
def compile_expression(text: str, variables: tuple[str, ...]) -> Expression:
    """Compile the expression. Raises ValueError if it is invalid, or requires features that the library lacks."""
    try:
        return Expression(_environment(variables).compile(text))
    except RuntimeError as error:
        problem = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise ValueError(f"compilation failed: {problem}") from None


@functools.cache
def _environment(variables: tuple[str, ...]) -> Any:
    from cel_expr_python import cel

    return new_environment(dict.fromkeys(variables, cel.Type.DYN))


def new_environment(variables: Mapping[str, Any], *, descriptor_pool: Any = None) -> Any:
    """Return an environment of the CEL library, in which the variables have these types."""
    from cel_expr_python import cel

    extensions = "".join(f"- name: {name}\n" for name in _EXTENSIONS)
    return cel.NewEnv(
        descriptor_pool=descriptor_pool,
        config=cel.NewEnvConfigFromYaml(f"extensions:\n{extensions}"),
        variables=variables,
        functions=declarations(cel),
    )


def problem_of(expression: str) -> str | None:
    """Return why the match condition cannot be compiled, or None."""
    if not is_installed():
        return _MISSING
    try:
        compile_expression(expression, _VARIABLES)
    except ValueError as error:
        return str(error)
    return None


class Conditions:
    """Match conditions of webhooks."""

    def are_met(
        self, conditions: Iterable[tuple[str, str]], request: Mapping[str, Any], *, ignores_failures: bool
    ) -> bool:
        """Return whether the request of a review meets all conditions.

        It is False if one is not met. Otherwise errors count by the failure policy: they raise ValueError, or the
        conditions are not met.
        """
        data = {"object": request["object"], "oldObject": request["oldObject"], "request": request}
        errors = []
        for _, expression in conditions:
            try:
                result = compile_expression(expression, _VARIABLES).evaluate(data)
            except ValueError as error:
                result = error
            if result is False:
                return False
            if result is not True:
                errors.append(f"expression '{expression}' resulted in error: {result}")
        if errors and not ignores_failures:
            raise ValueError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return not errors
