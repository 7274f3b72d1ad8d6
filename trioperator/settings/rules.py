"""What settings may be: rules for values, in words and as tests, and sections that go by them on assignment."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn

from trioperator.errors import ConfigError

__all__ = [
    "ANYTHING",
    "BOOLEAN",
    "COUNT",
    "CYCLES",
    "DELAYS",
    "DIFFBASE_STORAGE",
    "EXECUTOR",
    "FINALIZER",
    "INTEGER",
    "PROGRESS_STORAGE",
    "SECONDS",
    "TEXT",
    "TIMEOUT",
    "Rule",
    "Section",
    "setting",
]


class Rule(NamedTuple):
    """Tell what values a setting takes, in words and as a test, and what a good one is turned into."""

    expected: str
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any] | None = None

    def or_none(self) -> Rule:
        """Give the rule that takes None, too."""
        return Rule(f"{self.expected}, or None", lambda value: value is None or self.accepts(value), self.convert)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_duration(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_delays(value: Any) -> bool:
    if _is_duration(value):
        return True
    if isinstance(value, list | tuple):
        return all(_is_duration(delay) for delay in value)
    # Whatever else can be iterated more than once: it may be infinite, so that its delays are not looked at.
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | Iterator)


# A qualified name is all that the API server takes, and it would refuse each object one by one.
_QUALIFIED: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def _has_methods(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


BOOLEAN = Rule("True or False", lambda value: isinstance(value, bool))
TEXT = Rule("a text that is not empty", lambda value: isinstance(value, str) and bool(value))
INTEGER = Rule("a whole number", _is_int)
COUNT = Rule("a whole number, 1 or more", lambda value: _is_int(value) and value >= 1)
CYCLES = Rule("a whole number, 0 or more", lambda value: _is_int(value) and value >= 0)
SECONDS = Rule("a number of seconds, 0 or more", _is_duration)
TIMEOUT = Rule("a number of seconds, more than 0", lambda value: _is_duration(value) and value > 0)
DELAYS = Rule(
    "a number of seconds or several, 0 or more each, which can be iterated again and again",
    _is_delays,
    lambda value: (value,) if _is_number(value) else value,
)
FINALIZER = Rule(
    "a finalizer's name, such as my-operator.example.com/finalizer",
    lambda value: isinstance(value, str) and _QUALIFIED.fullmatch(value) is not None,
)
EXECUTOR = Rule(
    "a concurrent.futures.ThreadPoolExecutor: its size is what is taken",
    lambda value: _is_int(getattr(value, "_max_workers", None)),
)
PROGRESS_STORAGE = Rule(
    "a progress storage, such as AnnotationsProgressStorage()", _has_methods("fetch", "store", "purge")
)
DIFFBASE_STORAGE = Rule(
    "a diff-base storage, such as AnnotationsDiffBaseStorage()", _has_methods("build", "fetch", "store")
)
ANYTHING = Rule("anything", lambda value: True)


def setting(default: Any, rule: Rule) -> Any:
    """Declare a setting of a section: a field of a dataclass that takes what the rule takes."""
    return dataclasses.field(default=default, metadata={"rule": rule})


class Section:
    """Be a group of settings, a dataclass: check each value on assignment.

    Raises ConfigError for a value that the setting's rule does not take, AttributeError for a name that is none.
    """

    __slots__ = ()
    _path: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __setattr__(self, name: str, value: Any) -> None:
        field = self.__dataclass_fields__.get(name)
        if field is None:
            if isinstance(getattr(type(self), name, None), property):
                object.__setattr__(self, name, value)
                return
            self._refuse_name(name)
        rule: Rule = field.metadata["rule"]
        if not rule.accepts(value):
            raise ConfigError(f"{self._path}.{name} is {_quote(value)}, but it has to be {rule.expected}.")
        if rule.convert is not None and value is not None:
            value = rule.convert(value)
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # else any name would look like a good one to type checkers

        def __getattr__(self, name: str) -> NoReturn:
            self._refuse_name(name)

    def _refuse_name(self, name: str) -> NoReturn:
        known = [known for known in dir(type(self)) if not known.startswith("_")]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
        raise AttributeError(f"There is no setting {self._path}.{name}: {hint}", name=name, obj=self)


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
