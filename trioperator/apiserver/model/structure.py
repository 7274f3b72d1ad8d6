"""Compiled structural schemas of custom resources: the data that kinds carry and ``custom`` works on. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from .status_causes import StatusCause

__all__ = ["Check", "Structure", "ValidationRule"]

Check: TypeAlias = Callable[[Any, str], StatusCause | None]  # of a value and its path

# A string, which is passed by, or the name of the old value. The library has no optional values for Python to hand in,
# so the old value comes in a list that may be empty.
_OLD: Final = re.compile(
    r"""('''|\"\"\")(?:\\.|.)*?\1 | '(?:\\.|[^'])*' | "(?:\\.|[^"])*" | (?<![\w.])oldSelf\b""", re.DOTALL | re.VERBOSE
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRule:
    """One rule; what is wrong with it, the check of the definition has said."""

    text: str
    message: str = ""
    message_expression: str = ""
    reason: str = "FieldValueInvalid"
    field_path: str = ""
    has_optional_old: bool = False

    @property
    def uses_old(self) -> bool:
        """Whether the rule compares with what was there before."""
        return any(match.group() == "oldSelf" for match in _OLD.finditer(self.text))

    @property
    def expression(self) -> str:
        """Return the rule as it is compiled."""
        if not self.has_optional_old:
            return self.text
        return _OLD.sub(lambda match: "oldSelf[?0]" if match.group() == "oldSelf" else match.group(), self.text)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Structure:
    """One node of a compiled schema."""

    types: tuple[str, ...] = ()
    properties: dict[str, Structure] = dataclasses.field(default_factory=dict)
    extra: Structure | bool = False  # additionalProperties
    items: Structure | None = None
    required: tuple[str, ...] = ()
    default: Any = None
    nullable: bool = False
    preserve: bool = False
    embedded: bool = False
    keys: tuple[str, ...] | None = None  # of list maps; () marks a set
    checks: tuple[Check, ...] = ()
    junctions: dict[str, list[Structure]] = dataclasses.field(default_factory=dict)
    rules: tuple[ValidationRule, ...] = ()
    # Whether anything below has defaults or anything to prune or to check: nodes without are passed by.
    defaults_below: bool = False
    trivial: bool = False
    rules_below: bool = False  # or here
    special_below: bool = False  # or here: lists with keys, or embedded resources
