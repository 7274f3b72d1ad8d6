"""Rules for the values of settings, and the base class of sections, which check them on assignment."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn, TypeVar, dataclass_transform

from trioperator._model.fields import FieldPath, parse_field
from trioperator.errors import ConfigError
from trioperator.settings.selectors import SelectorMapping, check_fields, check_labels, check_shards

T = TypeVar("T")


class Rule(NamedTuple):
    """Rule for the values of a setting: a description, a test, and a conversion of valid values."""

    expected: str
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any] | None = None

    def or_none(self) -> Rule:
        """Return the rule that also accepts None."""
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
    # Any other iterable, but no iterators. It may be infinite, so its delays are not checked.
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | Iterator)


# Qualified names: the API server rejects any other finalizer, on each object.
_QUALIFIED: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def _has_methods(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


# Names of namespaces and of most other objects: with any other, no request for it can succeed.
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_OBJECT: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
# Labels with a meaning for Kubernetes and its tools.
_RESERVED: Final = re.compile(r"([^/]+\.)?(kubernetes|k8s)\.io/")
# Names of resource kinds, as CRDs have them: "databases.example.com", and "secrets" in the core group.
_RESOURCE: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*")


def _is_field(value: Any) -> bool:
    if isinstance(value, str):
        return all(value.split("."))
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(key, str) and key for key in value)


def _are_owner_labels(value: Any) -> bool:
    names = [] if isinstance(value, str) or not isinstance(value, Collection) else value
    return names is value and all(isinstance(name, str) and name and not _RESERVED.match(name) for name in names)


def _is_digested_fields(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and _RESOURCE.fullmatch(name)
        and isinstance(fields, list | tuple)
        and all(map(_is_field, fields))
        for name, fields in value.items()
    )


def _with_secrets(value: Mapping[str, Iterable[Any]]) -> dict[str, tuple[FieldPath, ...]]:
    given = {name: tuple(parse_field(field) for field in fields) for name, fields in value.items()}
    return {"secrets": (("data",), ("stringData",)), **given}


BOOLEAN = Rule("True or False", lambda value: isinstance(value, bool))
TEXT = Rule("a non-empty string", lambda value: isinstance(value, str) and bool(value))
FIELD_MANAGER = Rule(
    "a printable string of at most 128 characters",
    lambda value: isinstance(value, str) and 0 < len(value) <= 128 and value.isprintable(),
)
OBJECT_NAME = Rule(
    "the name of an object, of lower-case letters, digits, '-' and '.'",
    lambda value: isinstance(value, str) and len(value) <= 253 and _OBJECT.fullmatch(value) is not None,
)
NAMESPACE = Rule(
    "the name of a namespace, of lower-case letters, digits and '-'",
    lambda value: isinstance(value, str) and len(value) <= 63 and _LABEL.fullmatch(value) is not None,
)
INTEGER = Rule("a whole number", _is_int)
COUNT = Rule("a whole number, 1 or more", lambda value: _is_int(value) and value >= 1)
SECONDS = Rule("a number of seconds, 0 or more", _is_duration)
TIMEOUT = Rule("a number of seconds, more than 0", lambda value: _is_duration(value) and value > 0)
DELAYS = Rule(
    "a number of seconds, or an iterable of them, 0 or more each, that can be iterated repeatedly",
    _is_delays,
    lambda value: (value,) if _is_number(value) else value,
)
FINALIZER = Rule(
    "a finalizer's name, such as my-operator.example.com/finalizer",
    lambda value: isinstance(value, str) and _QUALIFIED.fullmatch(value) is not None,
)
QUALIFIED_NAME = Rule(
    "a qualified name, such as my-operator or example.com/my-operator",
    lambda value: isinstance(value, str) and _QUALIFIED.fullmatch(value) is not None,
)
NAME_PREFIX = Rule(
    "a prefix of an object's name, such as my-operator-, of lower-case letters, digits, '-' and '.'",
    lambda value: isinstance(value, str) and re.fullmatch(r"[a-z0-9]([-a-z0-9]|\.(?![-.]))*", value) is not None,
)
EXECUTOR = Rule(
    "a concurrent.futures.ThreadPoolExecutor, whose size is used",
    lambda value: _is_int(getattr(value, "_max_workers", None)),
)
PROGRESS_STORAGE = Rule(
    "a progress storage, such as AnnotationsProgressStorage()", _has_methods("fetch", "store", "purge")
)
DIFFBASE_STORAGE = Rule(
    "a diff-base storage, such as AnnotationsDiffBaseStorage()", _has_methods("build", "fetch", "store")
)
DIGESTED_FIELDS = Rule(
    "a mapping of names of kinds to lists of their fields, such as {'databases.example.com': ['spec.password']}",
    _is_digested_fields,
    _with_secrets,
)
OWNER_LABELS = Rule(
    "a collection of names of labels such as ['team'], without Kubernetes' own ('*.kubernetes.io/', '*.k8s.io/')",
    _are_owner_labels,
    frozenset,
)


def _by_kinds(check: Callable[[str], None], example: str) -> Rule:
    return Rule(
        f"a mapping of kinds to selectors, such as {example}",
        lambda value: isinstance(value, Mapping),
        functools.partial(SelectorMapping, check=check),
    )


LABEL_SELECTORS = _by_kinds(check_labels, "{'pods': 'app=web'}")
FIELD_SELECTORS = _by_kinds(check_fields, "{'pods': 'status.phase!=Succeeded'}")
SHARD_SELECTORS = _by_kinds(check_shards, "{'pods': \"shardRange(object.metadata.uid, '0x…', '0x…')\"}")
WEBHOOK_SERVER = Rule(
    "a webhook server such as WebhookServer(), or an async generator function",
    lambda value: (callable(value) or hasattr(value, "__aenter__")) and not isinstance(value, type),
)


def setting(default: Any, rule: Rule, *, secret: bool = False) -> Any:
    """Declare a setting: a dataclass field with a default and a rule. A *secret* one is not in the ``repr()``."""
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata={"rule": rule})
    return dataclasses.field(default=default, repr=not secret, metadata={"rule": rule})


@dataclass_transform(kw_only_default=True)
def section(cls: type[T]) -> type[T]:
    """Make a class of settings a dataclass, with the methods of :class:`Section`: to make them for each takes long."""
    return dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)


class _Signature:
    """The signature of a class of settings, for those who ask for help: it is made then."""

    def __get__(self, instance: object, owner: Any) -> Any:
        import inspect

        if not dataclasses.is_dataclass(owner):
            raise AttributeError("The base class has no settings.")
        kind, settings = inspect.Parameter.KEYWORD_ONLY, dataclasses.fields(owner)
        return inspect.Signature(
            [inspect.Parameter(each.name, kind, default=_default(each), annotation=each.type) for each in settings]
        )


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


class Section:
    """Base class of groups of settings, which are dataclasses. Values are checked on assignment.

    Raises ConfigError for an invalid value, AttributeError for an unknown name.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # mutable, as the values are
    _path: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    if not TYPE_CHECKING:  # otherwise type checkers would accept any arguments
        __signature__ = _Signature()

        def __init__(self, **values: Any) -> None:
            for field in dataclasses.fields(self):
                setattr(self, field.name, values.pop(field.name) if field.name in values else _default(field))
            for name in values:
                self._raise_unknown(name)

    def __repr__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in dataclasses.fields(self))

    def __setattr__(self, name: str, value: Any) -> None:
        field = self.__dataclass_fields__.get(name)
        if field is None:
            if isinstance(getattr(type(self), name, None), property):
                object.__setattr__(self, name, value)
                return
            self._raise_unknown(name)
        rule: Rule = field.metadata["rule"]
        if not rule.accepts(value):
            raise ConfigError(f"{self._path}.{name} is {_quote(value)}, but it must be {rule.expected}.")
        if rule.convert is not None and value is not None:
            value = rule.convert(value)
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            self._raise_unknown(name)

    def _raise_unknown(self, name: str) -> NoReturn:
        import difflib  # seldom needed

        known = [known for known in dir(type(self)) if not known.startswith("_")]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"available are {', '.join(known)}."
        raise AttributeError(f"There is no setting {self._path}.{name}: {hint}", name=name, obj=self)


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
