"""Parsing and matching of label and field selectors. Pure.

The grammar of label selectors is in the Kubernetes documentation: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``,
``a notin (b,c)``, ``a``, ``!a``, ``a>1``, ``a<1``, joined by commas, all of which must match.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from .errors import bad_request
from .go_numbers import parse_int64
from .metadata import check_key, check_label_value
from .quoting import quote
from .status_causes import StatusCause


@dataclasses.dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a label selector."""

    key: str
    operator: str  # exists, absent, in, notin, gt, lt
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Return whether the labels meet the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        try:
            number, limit = int(str(value)), int(next(iter(self.values)))
        except ValueError:
            return False
        return number > limit if self.operator == "gt" else number < limit


@dataclasses.dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all match; without any, everything is selected."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the labels of the object match."""
        labels = obj["metadata"].get("labels") or {}
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms (path, value, whether equal) that must all match."""

    terms: tuple[tuple[tuple[str, ...], str, bool], ...] = ()
    absent: Mapping[tuple[str, ...], str] = dataclasses.field(default_factory=dict)  # defaults of absent fields

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the fields of the object match; an absent field has its default, or is empty."""
        return all(
            ((_field(obj, path) or self.absent.get(path, "")) == value) is equal for path, value, equal in self.terms
        )

    def exact(self, field: tuple[str, ...]) -> str | None:
        """Return the value that the selector requires of the field, or None."""
        for path, value, equal in self.terms:
            if path == field and equal:
                return value
        return None


_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


def selector_of(obj: Mapping[str, Any]) -> LabelSelector:
    """Return the selector of ``matchLabels`` and ``matchExpressions``."""
    labels = obj.get("matchLabels") or {}
    requirements = [Requirement(key, "in", frozenset({value})) for key, value in labels.items()]
    for item in obj.get("matchExpressions") or ():
        values = frozenset(item.get("values") or ())
        requirements.append(Requirement(item["key"], _OPERATORS.get(item["operator"], "absent"), values))
    return LabelSelector(tuple(requirements))


def _field(obj: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_TOKEN: Final = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_SPECIAL: Final = frozenset({"=", "==", "!=", "!", "<", ">", "(", ")", ","})


def parse_labels(text: str) -> LabelSelector:
    """Parse a ``labelSelector``. Raises 400 if it is invalid."""
    if not text or text.isspace():
        return LabelSelector()
    parser = _Parser(_tokens(text))
    requirements = [parser.requirement()]
    while parser.peek() == ",":
        parser.take()
        requirements.append(parser.requirement())
    if parser.peek():
        raise _unparsable(f"found '{parser.peek()}', expected: ',' or 'end of string'")
    return LabelSelector(tuple(requirements))


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while match := _TOKEN.match(text, at):
        tokens.append(match[1])
        at = match.end()
    return tokens


class _Parser:
    __slots__ = ("_tokens",)

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens[::-1]

    def peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def take(self) -> str:
        return self._tokens.pop() if self._tokens else ""

    def requirement(self) -> Requirement:
        if self.peek() == "!":
            self.take()
            return Requirement(self._key(), "absent")
        key = self._key()
        match self.peek():
            case "" | ",":
                return Requirement(key, "exists")
            case "=" | "==":
                self.take()
                return _compare(key, "in", {self._value()})
            case "!=":
                self.take()
                return _compare(key, "notin", {self._value()})
            case ("<" | ">") as sign:
                self.take()
                value = self.take()
                if not _is_integer(value):
                    text = "for 'Gt', 'Lt' operators, the value must be an integer"
                    raise _unparsable(f"values[0]: Invalid value: {quote(value)}: {text}")
                return Requirement(key, "gt" if sign == ">" else "lt", frozenset({value}))
            case ("in" | "notin") as word:
                self.take()
                return _compare(key, word, self._values())
        raise _unparsable(f"found '{self.peek()}', expected: in, notin, =, ==, !=, gt, lt")

    def _key(self) -> str:
        key = self.take()
        if key in _SPECIAL or not key:
            raise _unparsable(f"found '{key}', expected: !, identifier, or 'end of string'")
        _raise_any(check_key("<nil>", key))
        return key

    def _value(self) -> str:
        if self.peek() in {"", ","}:
            return ""
        value = self.take()
        if value in _SPECIAL:
            raise _unparsable(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> set[str]:
        if self.take() != "(":
            raise _unparsable("expected: '('")
        values = set[str]()
        while True:
            token = self.take()
            if token in {",", ")"}:
                values.add("")
            elif token in _SPECIAL or not token:
                raise _unparsable(f"found '{token}', expected: ',', ')' or identifier")
            else:
                values.add(token)
                token = self.take()
            if token == ")":
                return values
            if token != ",":
                raise _unparsable(f"found '{token}', expected: ',' or ')'")
            if self.peek() == ")":
                self.take()
                values.add("")
                return values


def _compare(key: str, operator: str, values: Collection[str]) -> Requirement:
    """Return a requirement. Raises 400 for values that no label can have."""
    named = enumerate(sorted(values))
    _raise_any(cause for at, value in named for cause in check_label_value(f"values[{at}][{key}]", value))
    return Requirement(key, operator, frozenset(values))


def _raise_any(causes: Iterable[StatusCause]) -> None:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    if texts:
        raise _unparsable(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def _is_integer(text: str) -> bool:
    try:
        parse_int64(text)
    except ValueError:
        return False
    return True


def _unparsable(text: str) -> Exception:
    return bad_request(f"unable to parse requirement: {text}")


_TERM: Final = re.compile(r"(?:[^,\\]|\\.?)+", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in {"\\", ",", "="}:
        raise bad_request(f"invalid field selector: invalid escape sequence: {found[0]}")
    return found[1]


def parse_fields(text: str, supported: Callable[[str], bool] | Collection[str]) -> FieldSelector:
    """Parse a ``fieldSelector``. Raises 400 if it is invalid, or has fields that are not *supported*.

    Commas, equal signs and backslashes in values are escaped by a backslash.
    """
    check = supported if callable(supported) else supported.__contains__
    terms = []
    for term in _TERM.findall(text):
        if not term.strip():
            continue
        match = re.fullmatch(r"\s*([^=!]*)(==|!=|=)(.*)", term, re.DOTALL)
        if not match:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        name, operator, value = match.groups()
        if not check(name):
            raise bad_request(f"field label not supported: {name}")
        terms.append((tuple(name.split(".")), _ESCAPE.sub(_unescaped, value), operator != "!="))
    return FieldSelector(tuple(terms))
