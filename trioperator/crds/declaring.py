"""Declarations of kinds: decorators of classes, and annotations of fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec

from trioperator._handling.declaring.options import check_options
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry
from trioperator._model.custom_kind import Column, KindInfo, Rule, Scale, set_kind
from trioperator.crds import pydantic_models

T = TypeVar("T")

_RULES: Final = "__trioperator_rules__"
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class KindOptions(TypedDict, total=False):
    """Options of :func:`kind`."""

    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: Iterable[str]
    categories: Iterable[str]
    served: bool
    storage: bool
    deprecated: bool | str
    columns: Iterable[Column]
    scale: Scale | None
    status_subresource: bool
    registry: OperatorRegistry | None


def kind(api_version: str, /, **options: Unpack[KindOptions]) -> Callable[[type[T]], type[T]]:
    """Declare a class as one version of a custom kind.

    ::

        @trioperator.crds.kind("example.com/v1", short_names=["db"], columns=[Column("Size", ".spec.size")])
        class Database(msgspec.Struct):
            spec: DatabaseSpec
            status: DatabaseStatus | None = None

    The class is a ``msgspec.Struct``, a dataclass, an attrs class or a pydantic model. Its fields are the fields of the
    objects: usually ``spec`` and ``status``. A field ``metadata`` of the type ``trioperator.crds.ObjectMeta`` is for
    handlers, and not in the CRD. Classes with the same group and plural are versions of one kind.

    - ``kind``: name of the kind, in CamelCase; default: the name of the class
    - ``plural``, ``singular``: names in lower case; default: derived from the kind
    - ``namespaced``: whether objects are in namespaces; default: True
    - ``short_names``, ``categories``: names for kubectl, such as ``["db"]`` and ``["all"]``; default: none
    - ``served``: whether the API server serves the version; default: True
    - ``storage``: whether objects are stored in this version; required for exactly one of several versions
    - ``deprecated``: whether clients are warned about the version, or the text of the warning; default: False
    - ``columns``: what ``kubectl get`` shows besides the name, each a ``Column``; default: the age only
    - ``scale``: the scale subresource, a ``Scale``; default: none
    - ``status_subresource``: whether a field ``status`` is written separately; default: True
    - ``registry``: registry for the kind; default: the default one

    Raises TypeError or ValueError for wrong options. See docs/typed-kinds.md.
    """
    check_options("crds.kind", options, KindOptions)
    group, _, version = api_version.rpartition("/")
    if not (_GROUP.fullmatch(group) and _LABEL.fullmatch(version)):
        raise ValueError(f"crds.kind has the API version {api_version!r}: it must be like 'example.com/v1'.")

    def declare(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            raise TypeError(f"crds.kind declares a class, not {cls!r}.")
        set_kind(cls, _make_info(cls, group, version, options))
        registry = options.get("registry")
        (get_default_registry() if registry is None else registry).add_kind(cls)
        return cls

    return declare


def _make_info(cls: type, group: str, version: str, options: KindOptions) -> KindInfo:
    name = options.get("kind") or cls.__name__
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
        raise ValueError(f"crds.kind has the kind {name!r}: it must be a word such as 'Database'. Pass kind=....")
    for key in ("short_names", "categories"):
        if isinstance(options.get(key), str):
            raise TypeError(f"crds.kind has {key}={options.get(key)!r}: it must be a list of strings.")
    own: dict[str, Any] = {key: value for key, value in options.items() if key not in ("registry", "kind")}
    for key in ("short_names", "categories", "columns"):
        own[key] = tuple(own.get(key) or ())
    own["plural"] = own.get("plural") or _pluralize(name.lower())
    own["singular"] = own.get("singular") or name.lower()
    info = KindInfo(group=group, version=version, kind=name, **own)
    for label in (info.plural, info.singular, *info.short_names, *info.categories):
        if not _LABEL.fullmatch(label):
            raise ValueError(f"crds.kind has the name {label!r}: it must consist of lower-case letters and digits.")
    return info


def _pluralize(word: str) -> str:
    """Return the plural of an English word, by the rules of Kubernetes' code generators."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if re.search(r"[^aeiou]y$", word) else f"{word}s"


def rule(rule: str, *, message: str | None = None, **options: Any) -> Callable[[type[T]], type[T]]:
    """Add a CEL rule to a class, with the options of ``Rule``. In the rule, ``self`` is an object of the class.

    ::

        @trioperator.crds.rule("self.min <= self.max", message="min must not exceed max")
        class Range(msgspec.Struct):
            min: int
            max: int

    The API server rejects objects for which the rule is false, with *message*. See docs/typed-kinds.md.
    """
    added = Rule(rule=rule, message=message, **options)

    def declare(cls: type[T]) -> type[T]:
        setattr(cls, _RULES, (added, *rules_of(cls)))
        if pydantic_models.is_model(cls):
            pydantic_models.add_rules(cls, [dump_rule(rule) for rule in rules_of(cls)])
        return cls

    return declare


def rules_of(cls: type) -> tuple[Rule, ...]:
    """Return the CEL rules of a class and its base classes."""
    found: tuple[Rule, ...] = getattr(cls, _RULES, ())
    return found


def _extend(**extra: Any) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema={key.replace("_", "-"): value for key, value in extra.items()})


def rules(*rules: Rule) -> msgspec.Meta:
    """Annotate a field with CEL rules: ``Annotated[int, rules(Rule(rule="self % 2 == 1"))]``."""
    return _extend(x_kubernetes_validations=[dump_rule(rule) for rule in rules])


def dump_rule(rule: Rule) -> dict[str, Any]:
    """Return a rule as in a CRD."""
    fields = {
        "rule": rule.rule,
        "message": rule.message,
        "messageExpression": rule.message_expression,
        "reason": rule.reason,
        "fieldPath": rule.field_path,
        "optionalOldSelf": rule.optional_old_self,
    }
    return {key: value for key, value in fields.items() if value is not None}


def list_map(*keys: str) -> msgspec.Meta:
    """Annotate a list of objects that *keys* identify: server-side apply merges them, as it does a pod's containers.

    Raises TypeError without keys.
    """
    if not keys:
        raise TypeError("list_map() needs the names of the fields that identify an item.")
    return _extend(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=list(keys))


def list_set() -> msgspec.Meta:
    """Annotate a list of unique scalars, which server-side apply merges. Set types need no annotation."""
    return _extend(x_kubernetes_list_type="set")


def preserve_unknown_fields() -> msgspec.Meta:
    """Annotate an object whose unknown fields the API server keeps instead of dropping them."""
    return _extend(x_kubernetes_preserve_unknown_fields=True)


def embedded_resource() -> msgspec.Meta:
    """Annotate a dict that is a whole object with ``apiVersion``, ``kind`` and ``metadata``, such as a template."""
    return _extend(x_kubernetes_embedded_resource=True, x_kubernetes_preserve_unknown_fields=True)


def format_of(name: str) -> msgspec.Meta:
    """Annotate a string with a format that the API server checks, such as ``ipv4``, ``cidr``, ``uri`` or ``email``."""
    return _extend(format=name)
