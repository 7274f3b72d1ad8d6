"""Validation errors of single fields, as ``details.causes`` of a ``Status`` lists them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec

__all__ = ["Cause", "invalid_value", "required", "unsupported"]


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """One reason why a field is not valid, in the terms of ``StatusCause``."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def invalid_value(field: str, value: object, text: str) -> Cause:
    """Make the most frequent cause: the value of the field is not valid."""
    return Cause(field, f"Invalid value: {msgspec.json.encode(value).decode()}: {text}")


def required(field: str, text: str = "") -> Cause:
    """Make the cause of a field that must be there."""
    return Cause(field, f"Required value: {text}" if text else "Required value", "FieldValueRequired")


def unsupported(field: str, value: object, choices: Iterable[str]) -> Cause:
    """Make the cause of a value that is none of the choices."""
    texts = ", ".join(f'"{choice}"' for choice in choices)
    text = f"Unsupported value: {msgspec.json.encode(value).decode()}: supported values: {texts}"
    return Cause(field, text, "FieldValueNotSupported")
