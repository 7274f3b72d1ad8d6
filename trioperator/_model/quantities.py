"""Quantities of Kubernetes, such as ``500m`` and ``1Gi``: their numbers and canonical forms, and as values. Pure.

The embedded API server and typed kinds share this. Invalid strings raise :class:`ValueError` with the message of the
real server.
"""

from __future__ import annotations

import decimal
import enum
import functools
import re
from typing import Any, Final

# As in the definitions that controller-gen makes.
PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]++)([eEinumkKMGTP]*[-+]?[0-9]*)")
_FORMAT_TEXT: Final = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_LIMIT: Final = 2**63 - 1
_EXACT: Final = decimal.Context(prec=100)  # exponents have three digits: the real server hangs on nine


class QuantityFormat(enum.Enum):
    """How quantities are written: with the suffix that they were written with, or another one of its sort."""

    BINARY = "Ki, Mi, Gi"
    DECIMAL = "m, k, M, G"
    EXPONENT = "e3, e6"


def canonical_quantity(text: str) -> str:
    """Return the quantity in canonical form, without fractions: ``0.5`` becomes ``500m``."""
    return format_quantity(*parse_quantity(text))


def quantity_value(text: str) -> decimal.Decimal:
    """Return the number of the quantity."""
    return parse_quantity(text)[0]


def format_quantity(value: decimal.Decimal, format: QuantityFormat) -> str:
    """Return the number as a quantity in canonical form. A binary suffix must not take anything of its precision."""
    if format is QuantityFormat.BINARY and abs(value) >= 1024 and value == value.to_integral_value():
        return _binary(value)
    return _decimal(value, is_exponent=format is QuantityFormat.EXPONENT)


def parse_quantity(text: str) -> tuple[decimal.Decimal, QuantityFormat]:
    """Return the number of the quantity, and how it is written."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"quantities must match the regular expression '{_FORMAT_TEXT}'")
    digits, suffix = match.groups()
    try:
        number = decimal.Decimal(digits)
    except decimal.InvalidOperation:
        raise ValueError("unable to parse numeric part of quantity") from None
    if suffix in _BINARY:
        return _EXACT.multiply(number, decimal.Decimal(1024 ** _BINARY[suffix])), QuantityFormat.BINARY
    if suffix in _DECIMAL:
        return _EXACT.scaleb(number, _DECIMAL[suffix]), QuantityFormat.DECIMAL
    if re.fullmatch(r"[eE][-+]?[0-9]{1,3}", suffix):
        return _EXACT.scaleb(number, int(suffix[1:])), QuantityFormat.EXPONENT
    raise ValueError("unable to parse quantity's suffix")


def _limited(value: decimal.Decimal, places: str) -> decimal.Decimal:
    """Round away from zero, and limit the number, as the API does."""
    return max(min(value, decimal.Decimal(_LIMIT)), decimal.Decimal(-_LIMIT)).quantize(
        decimal.Decimal(places), rounding=decimal.ROUND_UP, context=_EXACT
    )


def _binary(value: decimal.Decimal) -> str:
    number, power = int(_limited(value, "1")), 0
    while number and number % 1024 == 0 and power < 6:
        number, power = number // 1024, power + 1
    suffix = next((suffix for suffix, own in _BINARY.items() if own == power), "")
    return f"{number}{suffix}"


def _decimal(value: decimal.Decimal, *, is_exponent: bool = False) -> str:
    number, power = int(_EXACT.scaleb(_limited(value, "1e-9"), 9)), -9
    if number == 0:
        return "0"
    while number % 1000 == 0 and power < 18:
        number, power = number // 1000, power + 3
    if is_exponent:
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIXES[power]}"


@functools.total_ordering
class Quantity:
    """An amount of CPU, memory, storage or anything else, as Kubernetes writes it: ``500m``, ``2``, ``1Gi``.

    ::

        class DatabaseSpec(msgspec.Struct):
            storage: crds.Quantity = crds.Quantity("1Gi")

        if spec.storage > crds.Quantity("1Ti"): ...

    Quantities are equal if their numbers are: ``1Gi`` and ``1024Mi``. ``str()`` and JSON have the canonical form,
    ``value`` is the exact number. Sums and differences are written as the first of the two, unless that is 0. They are
    immutable.

    Raises ValueError for what is no quantity, TypeError for floats, which are not exact.
    """

    __slots__ = ("_format", "_text", "_value")

    def __init__(self, amount: str | int | decimal.Decimal) -> None:
        if isinstance(amount, bool) or not isinstance(amount, str | int | decimal.Decimal):
            raise TypeError(f"A quantity is a string such as '500m' or '1Gi', or an integer, not {amount!r}.")
        try:
            value, style = parse_quantity(f"{amount:f}" if isinstance(amount, decimal.Decimal) else str(amount))
        except ValueError as error:
            raise ValueError(f"{amount!r} is no quantity, such as '500m' or '1Gi': {error}") from None
        self._set(value, style)

    def _set(self, value: decimal.Decimal, style: QuantityFormat) -> None:
        self._format = style
        self._text = format_quantity(value, style)
        self._value = parse_quantity(self._text)[0]  # rounded, and within the limits of the API

    @property
    def value(self) -> decimal.Decimal:
        """The number, in units: cores, bytes."""
        return self._value

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({self._text!r})"

    def __bool__(self) -> bool:
        return bool(self._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self._value < other._value if isinstance(other, Quantity) else NotImplemented

    def __add__(self, other: Quantity) -> Quantity:
        return self._combine(other, self._value + other._value) if isinstance(other, Quantity) else NotImplemented

    def __sub__(self, other: Quantity) -> Quantity:
        return self._combine(other, self._value - other._value) if isinstance(other, Quantity) else NotImplemented

    def __mul__(self, factor: int) -> Quantity:
        return self._combine(self, self._value * factor) if isinstance(factor, int) else NotImplemented

    __rmul__ = __mul__

    def _combine(self, other: Quantity, value: decimal.Decimal) -> Quantity:
        found = object.__new__(Quantity)
        found._set(value, self._format if self else other._format)
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Return how pydantic reads and writes quantities."""
        from pydantic_core import core_schema

        def read(value: Any) -> Quantity:
            try:
                return value if isinstance(value, Quantity) else cls(value)
            except TypeError as error:
                raise ValueError(error) from None  # as pydantic wants it

        amounts: list[Any] = [core_schema.int_schema(strict=True), core_schema.str_schema(pattern=PATTERN)]
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_after_validator_function(cls, core_schema.union_schema(amounts)),
            python_schema=core_schema.no_info_plain_validator_function(read),
            serialization=core_schema.to_string_ser_schema(),
        )
