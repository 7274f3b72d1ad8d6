"""The values of YAML scalars, as the real server's YAML library resolves them: a mix of YAML 1.1 and Go. Pure."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from ..model.json_text import parse_float
from ..model.quoting import quote

_TAG: Final = "tag:yaml.org,2002:"
_NAMES: Final[Mapping[type, str]] = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}
_RESOLVABLE: Final = frozenset({"bool", "float", "int", "null", "timestamp"})
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


class ScalarError(ValueError):
    """Raised when a scalar does not fit its tag."""


class UnsupportedError(ValueError):
    """Raised when YAML can represent a value, but JSON cannot."""


def scalar_value(text: str, tag: str | None, *, is_plain: bool) -> Any:
    """Return the value of the scalar. Raises ScalarError, or UnsupportedError for infinities and NaN."""
    name = tag.removeprefix(_TAG) if tag and tag.startswith(_TAG) else tag or ""
    if name == "binary":
        return _decode_binary(text)
    if name not in _RESOLVABLE and (name or not is_plain):
        return text  # quoted, or of a tag that says nothing
    value = _resolve(text, has_dates=name in {"", "timestamp"})
    found = _NAMES[type(value)]
    if name == "float" and found == "int":
        value, found = float(value), "float"
    if name and name != found and not (name == "timestamp" and _DATE.fullmatch(text)):
        raise ScalarError(f"cannot decode !!{found} `{text}` as a !!{name}")
    if isinstance(value, float) or (found == "int" and value >= 2**63):
        return _json_number(float(value))
    return value


def _decode_binary(text: str) -> str:
    try:
        plain = text.replace("\r", "").replace("\n", "")
        return base64.b64decode(plain, validate=True).decode(errors="replace")
    except binascii.Error:
        raise ScalarError("!!binary value contains invalid base64 data") from None


def _resolve(text: str, *, has_dates: bool) -> Any:
    """Return the value of a plain scalar; dates stay strings."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _float(text)
    if text.isdecimal() and text.isascii() and text[0] != "0" and len(text) < _SHORT:
        return int(text)
    if text[0] not in "+-0123456789" or (has_dates and _DATE.fullmatch(text)):
        return text
    plain = text.replace("_", "")
    value = _integer(plain)
    return _float(plain, text) if value is None else value


def _integer(text: str) -> int | None:
    """Return the integer; None if it is none, or does not fit into 64 bits."""
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


def _json_number(value: float) -> float | int:
    if math.isnan(value):
        raise UnsupportedError("json: unsupported value: NaN")
    if math.isinf(value):
        raise UnsupportedError(f"json: unsupported value: {'+' if value > 0 else '-'}Inf")
    return parse_float(repr(value))


def key_string(text: str, tag: str | None, *, is_plain: bool) -> tuple[str, str]:
    """Return the key of a mapping as JSON has it, and as formatted in messages.

    Raises ScalarError or UnsupportedError.
    """
    if is_plain and tag is None and isinstance(_WORDS.get(text), float):
        key = text.lower().removeprefix("+")
        return key, key
    value = scalar_value(text, tag, is_plain=is_plain)
    if value is None:
        raise UnsupportedError("unsupported map key of type: %!s(<nil>), key: <nil>")
    if isinstance(value, str):
        return value, quote(value)
    key = str(value).lower()
    return key, key
