"""Validation errors and rules that many fields share. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...model.metadata import check_key, check_label_value, label_problem
from ...model.status_causes import StatusCause, invalid_value, required, unsupported

Object = Mapping[str, Any]
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


def forbidden_field(path: str, text: str) -> StatusCause:
    return StatusCause(path, f"Forbidden: {text}", "FieldValueForbidden")


def duplicate(path: str, value: str) -> StatusCause:
    return StatusCause(path, f'Duplicate value: "{value}"', "FieldValueDuplicate")


def items(obj: Object, field: str, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list with their paths."""
    for at, item in enumerate(obj.get(field) or ()):
        yield f"{path}.{field}[{at}]" if path else f"{field}[{at}]", item


def named(path: str, name: str, seen: set[str]) -> Iterable[StatusCause]:
    """Check the name of an item: a DNS label, and unique."""
    if not name:
        yield required(f"{path}.name")
    elif problem := label_problem(name):
        yield invalid_value(f"{path}.name", name, problem)
    if name and name in seen:
        yield duplicate(f"{path}.name", name)
    seen.add(name)


def check_not_negative(obj: Object, path: str, *fields: str) -> Iterable[StatusCause]:
    for field in fields:
        if (value := obj.get(field)) is not None and value < 0:
            yield invalid_value(f"{path}.{field}", value, "must be greater than or equal to 0")


def check_choice(obj: Object, path: str, field: str, choices: Sequence[str]) -> Iterable[StatusCause]:
    value = obj.get(field)
    if value is not None and value not in choices:
        yield unsupported(f"{path}.{field}" if path else field, value, choices)


def check_port_number(path: str, number: Any) -> Iterable[StatusCause]:
    if isinstance(number, int) and not 0 < number < 65536:
        yield invalid_value(path, number, "must be between 1 and 65535, inclusive")


def check_port_name(path: str, name: str) -> Iterable[StatusCause]:
    if len(name) > 15:
        yield invalid_value(path, name, "must be no more than 15 bytes")
    if not re.fullmatch("[-a-z0-9]+", name):
        yield invalid_value(path, name, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    elif not re.search("[a-z]", name):
        yield invalid_value(path, name, "must contain at least one letter (a-z)")
    if "--" in name:
        yield invalid_value(path, name, "must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        yield invalid_value(path, name, "must not begin or end with a hyphen")


# -- label selectors -----------------------------------------------------------------------------------------------


def check_label_selector(selector: Object, path: str) -> Iterable[StatusCause]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield from check_key(f"{path}.matchLabels", key)
        yield from check_label_value(f"{path}.matchLabels", value)
    for where, term in items(selector, "matchExpressions", path):
        operator, values = term.get("operator") or "", term.get("values")
        if operator not in _OPERATORS:
            yield invalid_value(f"{where}.operator", operator, "not a valid selector operator")
        elif operator in {"In", "NotIn"} and not values:
            yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator not in {"In", "NotIn"} and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{where}.values", text)
        yield from check_key(f"{where}.key", term.get("key") or "")
        for at, value in enumerate(values or ()):
            yield from check_label_value(f"{where}.values[{at}]", value)
