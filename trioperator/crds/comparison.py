"""Changes of definitions that break stored objects, or clients that read and write them.

The new definition must accept whatever the old one accepts: then stored objects stay valid, and clients can go on. What
the old one rejects does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
# Limits that narrow a type where they rise, and where they fall.
_LOWER: Final = ("minimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
# Constraints that narrow a type where they appear or change.
_EXACT: Final = (
    "pattern",
    "format",
    "multipleOf",
    "x-kubernetes-embedded-resource",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
)
# Wider types, by the narrower ones that they contain.
_WIDER: Final = {"integer": ("number", _INT_OR_STRING), "string": (_INT_OR_STRING,)}


def compare_definitions(old: Iterable[JsonObject], new: Iterable[JsonObject]) -> list[str]:
    """Return the changes from *old* to *new* definitions that break objects or clients, one line each.

    Each line begins with the name of the definition. New definitions break nothing.
    """
    by_name = {str(definition["metadata"]["name"]): definition for definition in new}
    found: list[str] = []
    for definition in sorted(old, key=lambda each: str(each["metadata"]["name"])):
        name = str(definition["metadata"]["name"])
        if name not in by_name:
            found.append(f"{name}: the definition is gone, and all objects with it")
        else:
            found += [f"{name}: {change}" for change in find_breaking_changes(definition, by_name[name])]
    return found


def find_breaking_changes(old: JsonObject, new: JsonObject) -> Iterator[str]:
    """Yield the changes from one definition to another that break objects or clients, one line each."""
    yield from _compare_names(old["spec"], new["spec"])
    old_versions, new_versions = (_versions(definition) for definition in (old, new))
    for name, version in old_versions.items():
        yield from _compare_versions(name, version, new_versions.get(name))
    yield from _compare_storage(old, new, old_versions, new_versions)


def _versions(definition: JsonObject) -> dict[str, JsonObject]:
    return {str(version["name"]): version for version in definition["spec"]["versions"]}


def _compare_names(old: JsonObject, new: JsonObject) -> Iterator[str]:
    if old.get("scope") != new.get("scope"):
        yield f"the scope changes from {old.get('scope')} to {new.get('scope')}, which the API server refuses"
    before, after = old["names"], new["names"]
    for key in ("kind", "singular"):
        default = str(before["kind"]).lower() if key == "singular" else None
        if before.get(key, default) != after.get(key, default):
            yield f"the {key} changes from {before.get(key, default)} to {after.get(key, default)}"
    for key, shown in (("shortNames", "short name"), ("categories", "category")):
        for name in sorted(set(before.get(key) or ()) - set(after.get(key) or ())):
            yield f"the {shown} {name} is gone"


def _compare_versions(name: str, old: JsonObject, new: JsonObject | None) -> Iterator[str]:
    if new is None:
        if old.get("served") or old.get("storage"):
            yield f"the version {name} is gone" + (
                ", in which objects are stored" if old.get("storage") else ", which clients may use"
            )
        return
    if old.get("served") and not new.get("served"):
        yield f"the version {name} is no longer served"
    before, after = old.get("subresources") or {}, new.get("subresources") or {}
    for subresource in ("status", "scale"):
        if (subresource in before) != (subresource in after):
            fate = "is gone" if subresource in before else "is new"
            if subresource in before or subresource == "status":  # what wrote the status with the object does no more
                yield f"{name}: the subresource {subresource} {fate}"
    if "scale" in before and "scale" in after and before["scale"] != after["scale"]:
        yield f"{name}: the paths of the subresource scale change"
    yield from _compare_schemas(name, _schema(old), _schema(new))


def _schema(version: JsonObject) -> JsonObject:
    found: JsonObject = (version.get("schema") or {}).get("openAPIV3Schema") or {_PRESERVE: True}
    return found


def _compare_storage(
    old: JsonObject, new: JsonObject, before: Mapping[str, JsonObject], after: Mapping[str, JsonObject]
) -> Iterator[str]:
    """Yield a change of the storage version without a conversion: objects would be relabelled, and not converted."""
    stored = [[name for name, version in versions.items() if version.get("storage")] for versions in (before, after)]
    if stored[0] == stored[1]:
        return
    strategy = (new["spec"].get("conversion") or old["spec"].get("conversion") or {}).get("strategy")
    if strategy != "Webhook":
        yield (
            f"the storage version changes from {', '.join(stored[0])} to {', '.join(stored[1])} without a conversion:"
            " objects are relabelled only"
        )


def _compare_schemas(where: str, old: JsonObject, new: JsonObject) -> Iterator[str]:
    """Yield what the new schema of a field rejects although the old one accepts it; *where* is the field's path."""
    if _is_open(new):
        return
    if _is_open(old):
        yield f"{where}: values of any type were accepted, and are {_type(new)} now"
        return
    if _type(old) != _type(new) and _type(new) not in _WIDER.get(_type(old), ()):
        yield f"{where}: the type changes from {_type(old)} to {_type(new)}"
        return
    if old.get("nullable") and not new.get("nullable"):
        yield f"{where}: null is no longer accepted"
    yield from _compare_values(where, old, new)
    yield from _compare_fields(where, old, new)
    if isinstance(old.get("items"), Mapping):
        yield from _compare_schemas(f"{where}[]", old["items"], new.get("items") or {_PRESERVE: True})


def _is_open(schema: JsonObject) -> bool:
    """Return whether a schema accepts values of any type."""
    return not schema.get("type") and not schema.get(_INT_OR_STRING)


def _type(schema: JsonObject) -> str:
    return _INT_OR_STRING if schema.get(_INT_OR_STRING) else str(schema.get("type"))


def _compare_values(where: str, old: JsonObject, new: JsonObject) -> Iterator[str]:
    """Yield constraints on values that are narrower than before."""
    if "enum" in new:
        gone = [value for value in old.get("enum", ()) if value not in new["enum"]]
        if gone:
            yield f"{where}: {', '.join(map(repr, gone))} is no longer accepted"
        elif "enum" not in old:
            yield f"{where}: only {', '.join(map(repr, new['enum']))} are accepted now"
    for keys, sign in ((_LOWER, 1), (_UPPER, -1)):
        for key in keys:
            yield from _compare_limit(where, key, sign, old=old, new=new)
    for key in _EXACT:
        if key in new and new[key] != old.get(key) and not _is_multiple(key, old, new):
            yield f"{where}: {key} is {new[key]!r} now" + (f", and was {old[key]!r}" if key in old else "")
    old_rules, new_rules = (_rules(schema) for schema in (old, new))
    for rule in new_rules:
        if rule not in old_rules:
            yield f"{where}: the rule {rule!r} is new, and stored objects may break it"
    for key in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys"):
        default = "atomic" if key.endswith("type") else None
        if old.get(key, default) != new.get(key, default) and new.get(key, default) not in ("atomic", None):
            yield f"{where}: {key} changes from {old.get(key, default)!r} to {new.get(key, default)!r}"


def _compare_limit(where: str, key: str, sign: int, *, old: JsonObject, new: JsonObject) -> Iterator[str]:
    """Yield a limit that is narrower than before: *sign* is 1 if that means higher."""
    exclusive = f"exclusive{key.capitalize()}"
    if key not in new:
        return
    limits = [(sign * schema[key], bool(schema.get(exclusive))) for schema in (old, new) if key in schema]
    if len(limits) < 2:
        if not (key.startswith("min") and key != "minimum" and new[key] == 0):
            yield f"{where}: {key} is {new[key]} now"
    elif limits[1] > limits[0]:
        yield f"{where}: {key} changes from {old[key]} to {new[key]}" + (", exclusive" if new.get(exclusive) else "")


def _is_multiple(key: str, old: JsonObject, new: JsonObject) -> bool:
    """Return whether all multiples of the old number are multiples of the new one."""
    return key == "multipleOf" and key in old and bool(new[key]) and old[key] % new[key] == 0


def _rules(schema: JsonObject) -> Sequence[str]:
    return [str(rule.get("rule")) for rule in schema.get("x-kubernetes-validations") or ()]


def _compare_fields(where: str, old: JsonObject, new: JsonObject) -> Iterator[str]:
    """Yield the fields that are gone, or that are required now."""
    before, after = old.get("properties") or {}, new.get("properties") or {}
    rest = new.get("additionalProperties")
    for name in sorted(before):
        path = f"{where}.{name}"
        if name in after:
            yield from _compare_schemas(path, before[name], after[name])
            if "default" in before[name] and "default" not in after[name]:
                yield f"{path}: the default {before[name]['default']!r} is gone"
        elif isinstance(rest, Mapping):
            yield from _compare_schemas(path, before[name], rest)
        elif not new.get(_PRESERVE):
            yield f"{path}: the field is gone, and the API server drops it from stored objects"
    for name in sorted(set(new.get("required") or ()) - set(old.get("required") or ())):
        if "default" not in after.get(name, {}):
            yield f"{where}.{name}: the field is required now, and has no default"
    values = old.get("additionalProperties")
    if isinstance(values, Mapping) and isinstance(rest, Mapping):
        yield from _compare_schemas(f"{where}{{}}", values, rest)
    elif (values or old.get(_PRESERVE)) and not (rest or new.get(_PRESERVE)):
        yield f"{where}: fields of any name were accepted, and are dropped now"
    if old.get(_PRESERVE) and isinstance(rest, Mapping) and not new.get(_PRESERVE) and not _is_open(rest):
        yield f"{where}: values of any type were accepted, and are {_type(rest)} now"
