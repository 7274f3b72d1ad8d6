"""Static types of CEL rules: what schemas say of ``self``, as messages for the type checker of the CEL library. Pure.

Rules are evaluated on plain values: these types only find wrong names and types when a definition is created.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.structure import ValidationRule
from .cel import new_environment
from .cel_values import escaped

Schema = Mapping[str, Any]

_SECONDS: Final = 0.3  # of CPU time for all rules of a schema; those beyond are not checked
_PACKAGE: Final = "schema"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ERROR: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_STRUCT: Final = re.compile(r" not found in struct '.*'$")
_MESSAGE_NAME: Final = re.compile(rf"\b{_PACKAGE}\.Object\d+\b")
# The real server compares numbers of different types.
_NUMBERS: Final = re.compile(r"overload for '_[<>]=?_' applied to '\((?:int|uint|double), (?:int|uint|double)\)'")
_RESERVED: Final = range(19_000, 20_000)  # numbers of fields that protobuf keeps for itself
_STRING: Final = {"type": "string"}
_META: Final = {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}}
_HEAD: Final = {"apiVersion": _STRING, "kind": _STRING, "metadata": _META}
_FILES: Final = ("duration", "struct", "timestamp")


@dataclasses.dataclass(frozen=True, slots=True)
class _Type:
    """Type of a value: in CEL, and as a field of a protobuf message, which is repeated in lists and maps."""

    cel: Any
    number: int
    message: str = ""
    shape: str = ""  # "list" or "map"


class RuleTypes:
    """Types of all values in the schema of a version."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._end = time.thread_time() + _SECONDS

    def problems_of(self, node: Schema, rule: ValidationRule) -> tuple[str, str]:
        """Return the errors of a rule of this part of the schema, and of its message expression, or empty strings."""
        problem = self._problem_of(node, rule, rule.text)
        message_problem = self._problem_of(node, rule, rule.message_expression, is_message=True)
        return problem, message_problem

    def _problem_of(self, node: Schema, rule: ValidationRule, text: str, *, is_message: bool = False) -> str:
        if not text or not _is_installed() or time.thread_time() > self._end:
            return ""
        environment, names = self._environment
        name = names.get(id(node))
        if name is None:
            return ""
        start = f"[{f'optional.of({name})' if rule.has_optional_old else name}].map(oldSelf, [{name}].map(self, "
        try:
            compiled = environment.compile(f"{start}{text}\n))")
        except RuntimeError as error:
            problem = "\n".join(_problems(text, str(error), len(start)))
            return problem and f"{'messageExpression ' * is_message}compilation failed: {problem}"
        result = str(compiled.return_type()).removeprefix("LIST<LIST<").removesuffix(">>")
        if result in {"STRING" if is_message else "BOOL", "DYN"}:
            return ""
        return "messageExpression must evaluate to a string" if is_message else "cel expression must evaluate to a bool"

    @functools.cached_property
    def _environment(self) -> tuple[Any, dict[int, str]]:
        """The environment in which each part of the schema is a variable, and the variables of the parts, by identity.

        There is only one, as a new one takes milliseconds: rules get ``self`` from a macro.
        """
        from google.protobuf import descriptor_pool

        types = _Types()
        types.declare(self._schema, is_root=True)
        pool = descriptor_pool.DescriptorPool()
        for content in (*map(_well_known, _FILES), types.file.SerializeToString()):
            pool.AddSerializedFile(content)
        names = {key: f"_{at}" for at, key in enumerate(types.of_node)}
        variables = {names[key]: found.cel for key, found in types.of_node.items()}
        return new_environment(variables, descriptor_pool=pool), names


def _problems(text: str, message: str, offset: int) -> Iterator[str]:
    """Yield the errors with the places in the rule, and in the words of the real server."""
    lines = text.split("\n")
    for line, column, problem in _ERROR.findall(message):
        if _NUMBERS.search(problem) or not problem.startswith(("undefined field", "found no matching overload")):
            continue
        at = int(column) - (offset if line == "1" else 0)
        shown = _MESSAGE_NAME.sub("object", _STRUCT.sub("", problem))
        yield f"ERROR: <input>:{line}:{at}: {shown}\n | {lines[int(line) - 1]}\n | {'.' * (at - 1)}^"


class _Types:
    """Types of the parts of a schema. ``file`` describes the messages of its objects."""

    def __init__(self) -> None:
        from cel_expr_python import cel
        from google.protobuf import descriptor_pb2

        self._cel = cel.Type
        field = descriptor_pb2.FieldDescriptorProto
        self._message = field.TYPE_MESSAGE
        self._labels = (field.LABEL_OPTIONAL, field.LABEL_REPEATED)
        self._text = _Type(cel.Type.STRING, field.TYPE_STRING)
        self._any = _Type(cel.Type.DYN, self._message, ".google.protobuf.Value")
        time_type = _Type(cel.Type.TIMESTAMP, self._message, ".google.protobuf.Timestamp")
        self._formats = {
            "byte": _Type(cel.Type.BYTES, field.TYPE_BYTES),
            "date": time_type,
            "date-time": time_type,
            "duration": _Type(cel.Type.DURATION, self._message, ".google.protobuf.Duration"),
        }
        self._scalars = {
            "boolean": _Type(cel.Type.BOOL, field.TYPE_BOOL),
            "integer": _Type(cel.Type.INT, field.TYPE_INT64),
            "number": _Type(cel.Type.DOUBLE, field.TYPE_DOUBLE),
        }
        self.of_node: dict[int, _Type] = {}
        self.file = descriptor_pb2.FileDescriptorProto(name="schema.proto", package=_PACKAGE, syntax="proto3")
        self.file.dependency.extend(f"google/protobuf/{name}.proto" for name in _FILES)

    def declare(self, node: Schema, *, is_root: bool = False) -> _Type | None:
        """Return the type of a part; None if expressions have no access to it, as its schema says too little."""
        found = self._declare(node, is_root=is_root)
        if found is not None and node.get("x-kubernetes-validations"):
            self.of_node[id(node)] = found
        return found

    def _declare(self, node: Schema, *, is_root: bool) -> _Type | None:
        if node.get("x-kubernetes-int-or-string"):
            return self._any
        match node.get("type"):
            case "object":
                return self._declare_object(node, has_head=is_root or bool(node.get("x-kubernetes-embedded-resource")))
            case "array" if isinstance(items := node.get("items"), Mapping):
                return self._in_list(self.declare(items))
            case "string":
                return self._formats.get(node.get("format") or "", self._text)
            case kind:
                return self._scalars.get(kind or "")

    def _declare_object(self, node: Schema, *, has_head: bool) -> _Type | None:
        if isinstance(values := node.get("additionalProperties"), Mapping):
            return self._in_map(self.declare(values))
        message = self.file.message_type.add(name=f"Object{len(self.file.message_type)}")
        properties = {**(node.get("properties") or {}), **(_HEAD if has_head else {})}
        for name, sub in properties.items():
            found = self.declare(sub)
            if found is not None and _IDENTIFIER.fullmatch(escaped(name)):
                self._add_field(message, escaped(name), found)
        name = f"{_PACKAGE}.{message.name}"
        return _Type(self._cel(name), self._message, f".{name}")

    def _in_list(self, item: _Type | None) -> _Type | None:
        if item is None:
            return None
        cel = self._cel.List(item.cel)
        if item.shape:  # there are no fields of lists in lists: as fields, their items have any type
            return _Type(cel, self._message, ".google.protobuf.ListValue")
        return _Type(cel, item.number, item.message, "list")

    def _in_map(self, value: _Type | None) -> _Type | None:
        if value is None:
            return None
        cel = self._cel.Map(self._cel.STRING, value.cel)
        if value.shape:
            return _Type(cel, self._message, ".google.protobuf.Struct")
        return _Type(cel, value.number, value.message, "map")

    def _add_field(self, message: Any, name: str, found: _Type) -> None:
        number = len(message.field) + 1
        number += len(_RESERVED) * (number >= _RESERVED.start)
        # Names in JSON, which are not used, may not be equal but for underscores and case.
        field = message.field.add(
            name=name, number=number, json_name=f"f{number}", label=self._labels[bool(found.shape)]
        )
        if found.shape == "map":
            entry_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"  # protobuf's rule
            if entry_name[0].isdigit() or any(entry.name == entry_name for entry in message.nested_type):
                field.label = self._labels[0]
                _set_type(field, self._any)
                return
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            _set_type(entry.field.add(name="key", number=1, label=self._labels[0]), self._text)
            _set_type(entry.field.add(name="value", number=2, label=self._labels[0]), found)
            found = _Type(found.cel, self._message, f".{_PACKAGE}.{message.name}.{entry.name}")
        _set_type(field, found)


def _set_type(field: Any, found: _Type) -> None:
    field.type = found.number
    if found.message:
        field.type_name = found.message


def _is_installed() -> bool:
    try:
        importlib.import_module("google.protobuf")
    except ImportError:
        return False
    return True


@functools.cache
def _well_known(name: str) -> bytes:
    """Return the description of a file of protobuf's own messages."""
    module = importlib.import_module(f"google.protobuf.{name}_pb2")
    return bytes(module.DESCRIPTOR.serialized_pb)
