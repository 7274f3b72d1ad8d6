"""Validation errors of single fields, as ``details.causes`` of a ``Status`` lists them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

import msgspec

# The real server reports all errors. An object of 3 MiB may have 100,000 of them, each with a long message.
_CAUSES_LIMIT: Final = 1_000
_SIZE_LIMIT: Final = 256 * 1024  # characters of all messages


@dataclasses.dataclass(frozen=True, slots=True)
class StatusCause:
    """Validation error of one field."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def first_causes(causes: Iterable[StatusCause]) -> list[StatusCause]:
    """Return the first of the errors: as many as a response may have. The others are not even looked for."""
    found = []
    size = 0
    for cause in causes:
        found.append(cause)
        size += len(cause.field) + len(cause.message)
        if len(found) == _CAUSES_LIMIT or size > _SIZE_LIMIT:
            break
    return found


def invalid_value(field: str, value: object, text: str) -> StatusCause:
    """Return the error of an invalid value."""
    return StatusCause(field, f"Invalid value: {msgspec.json.encode(value).decode()}: {text}")


def duplicate(field: str, value: object) -> StatusCause:
    """Return the error of a value that may occur only once."""
    return StatusCause(field, f"Duplicate value: {msgspec.json.encode(value).decode()}", "FieldValueDuplicate")


def forbidden(field: str, text: str) -> StatusCause:
    """Return the error of a field that may not be set."""
    return StatusCause(field, f"Forbidden: {text}", "FieldValueForbidden")


def required(field: str, text: str = "") -> StatusCause:
    """Return the error of a missing field."""
    return StatusCause(field, f"Required value: {text}" if text else "Required value", "FieldValueRequired")


def unsupported(field: str, value: object, choices: Iterable[str]) -> StatusCause:
    """Return the error of a value that is not one of the choices."""
    texts = ", ".join(f'"{choice}"' for choice in choices)
    text = f"Unsupported value: {msgspec.json.encode(value).decode()}: supported values: {texts}"
    return StatusCause(field, text, "FieldValueNotSupported")
