"""Options of ``on.validate``, ``on.mutate`` and ``on.convert``, and their validation. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, Required

from trioperator._handling.declaring.options import EventOptions, IdentityOptions, SelectorOptions
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.handler import HandlerFn
from trioperator._handling.handlers.typed import wants_types
from trioperator._handling.reviews.admission import DEFAULT_TIMEOUT, OPERATIONS, Operation
from trioperator._model.custom_kind import find_kind, get_kind
from trioperator._model.resource import Selector


class ValidateOptions(EventOptions, total=False):
    """Options of ``validate``."""

    operation: Operation | None
    operations: Collection[Operation] | None
    subresource: str | None
    persistent: bool | None
    side_effects: bool | None
    ignore_failures: bool | None
    timeout: int | None
    namespace_selector: Mapping[str, Any] | None
    match_conditions: Mapping[str, str] | None
    match_policy: Literal["Equivalent", "Exact"] | None


class MutateOptions(ValidateOptions, total=False):
    """Options of ``mutate``: with ``reinvocation_policy="IfNeeded"``, it may be called again after other webhooks."""

    reinvocation_policy: Literal["Never", "IfNeeded"] | None


class ConvertOptions(IdentityOptions, total=False):
    """Options of ``convert``: objects of the version ``from_`` are converted to the version ``to``."""

    from_: Required[str]
    to: Required[str]
    group: str | None
    kind: str | None
    plural: str | None
    singular: str | None
    shortcut: str | None
    category: str | None


def parse_admission_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the options that only admission handlers have."""
    parsed: dict[str, Any] = {"operations": _parse_operations(name, options), "subresource": options.get("subresource")}
    if not isinstance(parsed["subresource"], str | None):
        raise TypeError(f"{name} has subresource={parsed['subresource']!r}: it must be a string such as 'status'.")
    for key in ("persistent", "side_effects", "ignore_failures"):
        if not isinstance(options.get(key), bool | None):
            raise TypeError(f"{name} has {key}={options[key]!r}: it must be True or False.")
        parsed[key] = options.get(key) if key == "persistent" else bool(options.get(key))
    timeout = DEFAULT_TIMEOUT if options.get("timeout") is None else options["timeout"]
    if isinstance(timeout, bool) or not isinstance(timeout, int) or not 1 <= timeout <= 30:
        raise ValueError(f"{name} has timeout={timeout!r}: it must be a whole number of seconds from 1 to 30.")
    parsed["review_timeout"] = timeout
    for key in ("namespace_selector", "match_conditions"):
        if not isinstance(options.get(key), Mapping | None):
            raise TypeError(f"{name} has {key}={options[key]!r}: it must be a mapping.")
        parsed[key] = dict(options.get(key) or {})
    for key, known in (("match_policy", ("Equivalent", "Exact")), ("reinvocation_policy", ("Never", "IfNeeded"))):
        wanted = options.get(key)
        if wanted not in (None, *known):
            raise ValueError(f"{name} has {key}={wanted!r}: it must be {known[0]!r} or {known[1]!r}.")
        parsed[key] = wanted or known[0]
    return parsed


def _parse_operations(name: str, options: Mapping[str, Any]) -> frozenset[str]:
    one, several = options.get("operation"), options.get("operations")
    if one is not None and several is not None:
        raise TypeError(f"{name} has both operation=... and operations=...: use one or the other.")
    wanted = [one] if one is not None else [several] if isinstance(several, str) else list(several or ())
    for operation in wanted:
        if operation not in OPERATIONS and operation != "*":
            raise ValueError(f"{name} has the operation {operation!r}: known ones are {', '.join(sorted(OPERATIONS))}.")
    return frozenset() if "*" in wanted else frozenset(wanted)


def find_version(registry: OperatorRegistry, selector: tuple[Any, ...], version: str, *, fn: HandlerFn) -> type | None:
    """Return the class of the version that objects are converted from, where a class selects the kind.

    Raises TypeError if there is none, and the function has arguments of classes.
    """
    info = find_kind(selector[0]) if len(selector) == 1 else None
    if info is None:
        return None
    if info.version == version:
        found: type = selector[0]
        return found
    key = (info.group, info.plural, version)
    model = next((cls for cls in registry.kinds() if get_kind(cls).key == key), None)
    if model is None and wants_types(fn):
        raise TypeError(
            f"on.convert has from_={version!r} and a function with typed arguments, but no class declares"
            f" {info.plural}.{version}.{info.group}: declare it first."
        )
    return model


def parse_conversion_options(name: str, selector: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the selector and the versions of a conversion handler."""
    for key in ("from_", "to"):
        if not isinstance(options.get(key), str) or not options[key] or "/" in options[key]:
            raise TypeError(f"{name} has {key}={options.get(key)!r}: it must be a version such as 'v1'.")
    if options["from_"] == options["to"]:
        raise ValueError(f"{name} has the version {options['to']!r} in both from_=... and to=....")
    keywords = {key: options[key] for key in SelectorOptions.__annotations__ if key in options}
    if len(selector) == 1 and (info := find_kind(selector[0])) is not None:  # any version stands for all of them
        selector = (info.group, None, info.plural)
    parsed = Selector.parse(*selector, **keywords)
    if parsed.version is not None:
        raise TypeError(f"{name} selects the version {parsed.version!r}: pass versions as from_=... and to=... only.")
    return {"selector": parsed, "from_version": options["from_"], "to_version": options["to"]}
