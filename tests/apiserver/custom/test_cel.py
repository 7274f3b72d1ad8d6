"""Compilation and evaluation of CEL expressions, with the messages of the real server."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.custom.cel import compile_expression


def evaluate(text: str, value: Any = None) -> Any:
    """Evaluate the expression with the value as ``self``."""
    return compile_expression(text, ("self",)).evaluate({"self": value})


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ("self.x", {}, "no such key: x"),
        ("self[3]", [1], "index out of bounds: 3"),
        ("1 / self", 0, "division by zero"),
        ("self + 'x'", 1, "no such overload"),
        ("int(self)", "x", "type conversion error from 'string' to 'int'"),
        ("quantity('1.5').asInteger()", None, "cannot convert value to integer"),
    ],
)
def test_errors_have_the_messages_of_the_real_server(text: str, value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        evaluate(text, value)


def test_an_invalid_expression_does_not_compile() -> None:
    with pytest.raises(ValueError, match="compilation failed: ERROR: <input>:1:1: undeclared reference to 'nobody'"):
        compile_expression("nobody", ("self",))


def test_an_expression_that_takes_too_long_is_cancelled() -> None:
    text = "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))"
    with pytest.raises(ValueError, match="operation cancelled: actual cost limit exceeded"):
        evaluate(text, [1] * 200)
