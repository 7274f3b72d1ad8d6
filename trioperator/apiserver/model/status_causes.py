"""Validation errors of single fields, as ``details.causes`` of a ``Status`` lists them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec

__all__ = ["StatusCause", "invalid_value", "required", "unsupported"]


@dataclasses.dataclass(frozen=True, slots=True)
class StatusCause:
    """One reason why a field is not valid, in the terms of ``StatusCause``."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def invalid_value(field: str, value: object, text: str) -> StatusCause:
    """Make the most frequent cause: the value of the field is not valid."""
    return StatusCause(field, f"Invalid value: {msgspec.json.encode(value).decode()}: {text}")


def required(field: str, text: str = "") -> StatusCause:
    """Make the cause of a field that must be there."""
    return StatusCause(field, f"Required value: {text}" if text else "Required value", "FieldValueRequired")


def unsupported(field: str, value: object, choices: Iterable[str]) -> StatusCause:
    """Make the cause of a value that is none of the choices."""
    texts = ", ".join(f'"{choice}"' for choice in choices)
    text = f"Unsupported value: {msgspec.json.encode(value).decode()}: supported values: {texts}"
    return StatusCause(field, text, "FieldValueNotSupported")
