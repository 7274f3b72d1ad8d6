"""Compiled structural schemas of custom resources: the data that kinds carry and ``custom`` works on. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from .status_causes import StatusCause

Check: TypeAlias = Callable[[Any, str], StatusCause | None]  # of a value and its path

# A string literal, which is skipped, or the name of the old value. The CEL library accepts no optional values from
# Python, so the old value is passed in a list that may be empty.
_OLD: Final = re.compile(
    r"""('''|\"\"\")(?:\\.|.)*?\1 | '(?:\\.|[^'])*' | "(?:\\.|[^"])*" | (?<![\w.])oldSelf\b""", re.DOTALL | re.VERBOSE
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRule:
    """One CEL validation rule (``x-kubernetes-validations``) of a schema."""

    text: str
    message: str = ""
    message_expression: str = ""
    reason: str = "FieldValueInvalid"
    field_path: str = ""
    has_optional_old: bool = False

    @property
    def uses_old(self) -> bool:
        """Whether the rule refers to the old value."""
        return any(match.group() == "oldSelf" for match in _OLD.finditer(self.text))

    @property
    def expression(self) -> str:
        """The CEL expression to compile."""
        if not self.has_optional_old:
            return self.text
        return _OLD.sub(lambda match: "oldSelf[?0]" if match.group() == "oldSelf" else match.group(), self.text)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Structure:
    """Node of a compiled schema."""

    types: tuple[str, ...] = ()
    properties: dict[str, Structure] = dataclasses.field(default_factory=dict)
    extra: Structure | bool = False  # additionalProperties
    items: Structure | None = None
    required: tuple[str, ...] = ()
    default: Any = None
    defaulted: dict[str, Structure] = dataclasses.field(default_factory=dict)  # properties with defaults
    nullable: bool = False
    preserve: bool = False
    embedded: bool = False
    keys: tuple[str, ...] | None = None  # of map lists; () for sets
    checks: tuple[Check, ...] = ()
    junctions: dict[str, list[Structure]] = dataclasses.field(default_factory=dict)
    rules: tuple[ValidationRule, ...] = ()
    # Whether anything below has defaults, or is to be pruned or validated: otherwise the subtree is skipped.
    defaults_below: bool = False
    trivial: bool = False
    rules_below: bool = False  # or here
    keys_below: bool = False  # or here
    embedded_below: bool = False  # or here
