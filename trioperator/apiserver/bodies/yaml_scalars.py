"""The values of YAML scalars, as the real server's YAML library resolves them: a mix of YAML 1.1 and Go. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from ..model.json_text import parse_float

_RESOLVABLE: Final = frozenset({f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "int", "null")})
_WORDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_DATE: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([Tt ].*)?", re.DOTALL | re.ASCII)
_INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SHORT: Final = 19  # decimal digits that always fit into 64 bits: fewer than this
_DIGITS_LIMIT: Final = 70  # of an integer in any base


def scalar_value(text: str, tag: str | None, *, is_plain: bool) -> Any:
    """Return the value of the scalar: a string if it is quoted, or of another tag. Raises ValueError for infinities."""
    if tag not in _RESOLVABLE and (tag or not is_plain):
        return text
    value = _resolve(text)
    if isinstance(value, float) or (type(value) is int and value >= 2**63):
        if not math.isfinite(value):
            raise ValueError(f"json: unsupported value: {text}")
        return parse_float(repr(float(value)))
    return value


def _resolve(text: str) -> Any:
    """Return the value of a plain scalar; dates stay strings."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _float(text)
    if text.isdecimal() and text.isascii() and text[0] != "0" and len(text) < _SHORT:
        return int(text)
    if text[0] not in "+-0123456789" or _DATE.fullmatch(text):
        return text
    plain = text.replace("_", "")
    value = _integer(plain)
    return _float(plain, text) if value is None else value


def _integer(text: str) -> int | None:
    """Return the integer; None if the text is not one, or does not fit into 64 bits."""
    match = _INTEGER.fullmatch(text) if len(text) <= _DIGITS_LIMIT else None
    if match is None:
        return None
    sign, *digits = match.groups()
    base, number = next((base, number) for base, number in zip((16, 2, 8, 10), digits, strict=True) if number)
    value = int(f"{sign}{number}", base)
    return value if -(2**63) <= value < 2**64 else None


def _float(text: str, shown: str = "") -> float | str:
    """Return the finite float, or else the text."""
    value = float(text) if _FLOAT.fullmatch(text) else math.inf
    return value if math.isfinite(value) else shown or text


def key_of(value: Any) -> str:
    """Return the key of an object as JSON has it. Raises ValueError if the value can be none."""
    if value is None or isinstance(value, (dict, list)):
        raise ValueError("invalid map key: it is null, a map or a list")
    return value if isinstance(value, str) else str(value).lower()
