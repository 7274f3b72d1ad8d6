"""Field types: the part of schemas that ownership and merging depend on. Pure.

Objects are made of granular maps and lists, whose entries are fields of their own, and of leaves: plain values, and
maps and lists that are atomic. A list is atomic unless its schema says that it is a set or a map, a map is granular
unless its schema says that it is atomic. Without a schema, types are deduced from the values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..model.kind_schemas import Node, definition, definition_of, reference, resolve, schema_of
from ..model.kinds import Kind
from ..model.quoting import go_text
from .field_sets import Path, item_element, path_text, value_element

_RAW_EXTENSION: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_ATOMIC: Final[Node] = {"x-kubernetes-map-type": "atomic"}


class UntypedItemError(ValueError):
    """Raised when a list item has no identity: it lacks all map keys, or is not allowed in a set."""


class FieldType:
    """Type of a value, compiled lazily from its schema, as schemas may be recursive."""

    def __init__(self, schema: Node, *, is_loose: bool = False) -> None:
        if reference(schema) == _RAW_EXTENSION:
            schema = _ATOMIC
        self._schema = schema = resolve(schema)
        self._is_loose = is_loose or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.is_atomic = schema.get("x-kubernetes-map-type") == "atomic"  # of maps; for lists see keys
        self.keys = _list_keys(schema)  # of a list that is a map; () if it is a set, None if it is atomic
        self.default: Any = schema.get("default")

    @functools.cached_property
    def fields(self) -> dict[str, FieldType]:
        """Return the types of the declared fields."""
        return {name: self._below(schema) for name, schema in (self._schema.get("properties") or {}).items()}

    @functools.cached_property
    def extra(self) -> FieldType | None:
        """Return the type of undeclared fields, or None if they are not allowed."""
        schema = self._schema.get("additionalProperties")
        if isinstance(schema, Mapping):
            return self._below(schema)
        if schema is None:
            return DEDUCED if self._is_loose or not self._schema.get("properties") else None
        return DEDUCED if schema else None

    @functools.cached_property
    def item(self) -> FieldType:
        """Return the type of the items of a list."""
        schema = self._schema.get("items")
        return self._below(schema) if isinstance(schema, Mapping) else DEDUCED

    def field(self, name: str) -> FieldType:
        """Return the type of the field, whether it is declared or not."""
        return self.fields.get(name) or self.extra or DEDUCED

    def element(self, item: Any) -> str:
        """Return the path element of an item of a granular list. Raises UntypedItemError if it has none."""
        if self.keys:
            return self._keyed_element(item)
        if isinstance(item, dict):
            raise UntypedItemError("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise UntypedItemError("not supported: associative list with lists as elements")
        if item is None:
            raise UntypedItemError("associative list without keys has an element that's an explicit null")
        return value_element(item)

    def _keyed_element(self, item: Any) -> str:
        assert self.keys is not None
        if not isinstance(item, dict):
            kind = "a null element" if item is None else "non-map elements"
            raise UntypedItemError(f"associative list with keys may not have {kind}")
        found = {}
        for key in self.keys:
            if key in item:
                found[key] = item[key]
            elif (default := self._key_default(key)) is not None:
                found[key] = default
        if not found:
            shown = " ".join(f'"{key}"' for key in self.keys)
            text = f"associative list with keys has an element that omits all key fields [{shown}]"
            raise UntypedItemError(f"{text} (and doesn't have default values for any key fields)")
        return item_element(found)

    def _key_default(self, key: str) -> Any:
        declared = self.item.fields.get(key)
        return None if declared is None else declared.default

    @functools.cached_property
    def blank(self) -> dict[str, Any]:
        """Return an object with only the fields that are always present, as zero or null."""
        result: dict[str, Any] = {}
        required = self._schema.get("required") or ()
        for name, declared in self.fields.items():
            if declared.default == {}:
                result[name] = declared.blank
            elif declared.default in ("", 0):
                result[name] = declared.default
            elif name in required:
                result[name] = None
        return result

    def _below(self, schema: Node) -> FieldType:
        return FieldType(schema, is_loose=self._is_loose)

    # -- plain types ----------------------------------------------------------------------------------------------

    def type_problem(self, value: Any) -> str | None:
        """Return the error if the value does not have this type, or None. Null has any type."""
        if value is None:
            return None
        match self._schema.get("type"):
            case "object":
                return None if isinstance(value, dict) else f"expected map, got &{{{go_text(value)}}}"
            case "array":
                return None if isinstance(value, list) else f"expected list, got &{{{go_text(value)}}}"
            case "integer" | "number":
                is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
                return None if is_number else f"expected numeric (int or float), got {_go_type(value)}"
            case "boolean":
                return None if isinstance(value, bool) else f"expected boolean, got &{{{go_text(value)}}}"
            case "string" if self._schema.get("format", "") in {"", "byte"}:
                is_text = isinstance(value, str)
                return (
                    None if is_text else f"expected string, got &value.valueUnstructured{{Value:{_go_source(value)}}}"
                )
            case "string":
                is_scalar = not isinstance(value, (dict, list))
                return None if is_scalar else f"expected any scalar, got &{{{go_text(value)}}}"
        return None


def _list_keys(schema: Node) -> tuple[str, ...] | None:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return ()
        case "map":
            return tuple(schema.get("x-kubernetes-list-map-keys") or ())
        case None if schema.get("x-kubernetes-patch-strategy") in {"merge", "merge,retainKeys"}:
            key = schema.get("x-kubernetes-patch-merge-key")
            return (key,) if key else ()
    return None


DEDUCED: Final = FieldType({})


def type_of_kind(kind: Kind) -> FieldType:
    """Return the type of the whole objects of the kind."""
    name = definition_of(kind) if kind.custom is None else None
    return FieldType(schema_of(kind) or {}) if name is None else _type_of_definition(name)


@functools.cache  # for all clusters of the process: tests have many
def _type_of_definition(name: str) -> FieldType:
    return FieldType(definition(name))


# -- type checks ---------------------------------------------------------------------------------------------------


def typing_problems(node: FieldType, value: Any, path: Path = ()) -> Iterator[str]:
    """Yield the errors that prevent merging the value: wrong types, unknown fields, duplicate items."""
    problem = node.type_problem(value)
    if problem is not None:
        yield _at_path(path, problem)
    elif isinstance(value, dict):
        for name, item in value.items():
            below = node.fields.get(name) or node.extra
            if below is None:
                yield _at_path((*path, f"f:{name}"), "field not declared in schema")
                return
            yield from typing_problems(below, item, (*path, f"f:{name}"))
    elif isinstance(value, list):
        yield from _list_problems(node, value, path)


def _list_problems(node: FieldType, value: Iterable[Any], path: Path) -> Iterator[str]:
    seen = set[str]()
    for at, item in enumerate(value):
        if node.keys is None:
            element = f"i:{at}"
        else:
            try:
                element = node.element(item)
            except UntypedItemError as error:
                yield _at_path(path, f"element {at}: {error}")
                return
            if element in seen:
                yield _at_path(path, f"duplicate entries for key {path_text((element,))}")
            seen.add(element)
        yield from typing_problems(node.item, item, (*path, element))


def _at_path(path: Path, problem: str) -> str:
    return f"{path_text(path)}: {problem}" if path else problem


def _go_type(value: Any) -> str:
    names = {bool: "bool", str: "string", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def _go_source(value: Any) -> str:
    if isinstance(value, dict):
        items = ", ".join(f'"{key}":{_go_source(item)}' for key, item in value.items())
        return f"map[string]interface {{}}{{{items}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_source, value))}}}"
    return f'"{value}"' if isinstance(value, str) else "interface {}(nil)" if value is None else go_text(value)
