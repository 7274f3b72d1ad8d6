"""CustomResourceDefinitions of classes: one for each kind, with a version for each class."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._model.crd import version_rank
from trioperator._model.custom_kind import Column, KindInfo, get_kind
from trioperator.crds.schema import make_schema
from trioperator.crds.structural import Schema, without_defaults
from trioperator.errors import ConfigError

_DOCS: Final = {
    "apiVersion": "The version of the schema of this object.",
    "kind": "The kind of this object.",
}
_STEP: Final = re.compile(r"\.([A-Za-z_][\w-]*)|\[\d+\]")
_PATH: Final = re.compile(rf"({_STEP.pattern})+")
# The fields of the metadata that columns show.
_METADATA: Final[Schema] = {
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "uid": {"type": "string"},
        "generation": {"type": "integer"},
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "deletionTimestamp": {"type": "string", "format": "date-time"},
    }
}


def collect_definitions(registry: OperatorRegistry) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of the kinds that classes declare, sorted by name.

    The result is deterministic. Raises ConfigError for classes that cannot be a valid definition: the message has the
    path of the field, or the options that contradict each other.
    """
    kinds: dict[tuple[str, str], list[type]] = {}
    for cls in registry.kinds():
        info = get_kind(cls)
        kinds.setdefault((info.group, info.plural), []).append(cls)
    definitions = [make_definition(classes) for classes in kinds.values()]
    return sorted(definitions, key=lambda definition: str(definition["metadata"]["name"]))


def make_definition(classes: Sequence[type]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of the versions of one kind. Raises ConfigError for wrong classes."""
    classes = sorted(classes, key=lambda cls: version_rank(get_kind(cls).version))
    stored = _find_stored(classes)
    info = get_kind(stored)
    _check_agreement(info, classes)
    name = f"{info.plural}.{info.group}"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": info.group,
            "names": _make_names(info),
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [_make_version(cls, stored=cls is stored) for cls in classes],
        },
    }


def _find_stored(classes: Sequence[type]) -> type:
    """Return the class of the version that objects are stored in."""
    if len(classes) == 1:
        return classes[0]
    stored = [cls for cls in classes if get_kind(cls).storage]
    if len(stored) != 1:
        versions = ", ".join(get_kind(cls).version for cls in (stored or classes))
        info = get_kind(classes[0])
        raise ConfigError(
            f"{info.plural}.{info.group} has {len(stored)} storage versions of {versions}: declare exactly one of its"
            " classes with storage=True."
        )
    return stored[0]


def _check_agreement(info: KindInfo, classes: Sequence[type]) -> None:
    """Raise ConfigError unless the versions agree on their names and scope. Optional names may be left out."""
    for cls in classes:
        other = get_kind(cls)
        for key in ("kind", "singular", "namespaced", "short_names", "categories"):
            ours, theirs = getattr(info, key), getattr(other, key)
            if theirs != ours and theirs != ():
                raise ConfigError(
                    f"{info} and {other} are versions of one kind, but have {key}={ours!r} and {key}={theirs!r}."
                )


def _make_names(info: KindInfo) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": info.kind,
        "listKind": f"{info.kind}List",
        "plural": info.plural,
        "singular": info.singular,
    }
    names |= {"shortNames": list(info.short_names)} if info.short_names else {}
    return names | ({"categories": list(info.categories)} if info.categories else {})


def _make_version(cls: type, *, stored: bool) -> dict[str, Any]:
    info = get_kind(cls)
    schema = _make_root(cls)
    version: dict[str, Any] = {
        "name": info.version,
        "served": info.served,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema},
    }
    if info.deprecated:
        version["deprecated"] = True
        if isinstance(info.deprecated, str):
            version["deprecationWarning"] = info.deprecated
    subresources: dict[str, Any] = {}
    if info.status_subresource and "status" in schema["properties"]:
        subresources["status"] = {}
    if info.scale is not None:
        subresources["scale"] = _make_scale(info, schema)
    version |= {"subresources": subresources} if subresources else {}
    columns = [_make_column(info, column, schema) for column in info.columns]
    if columns:
        age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
        given = {column["jsonPath"] for column in columns}
        version["additionalPrinterColumns"] = [*columns, *([] if age["jsonPath"] in given else [age])]
    return version


def _make_root(cls: type) -> Schema:
    """Return the schema of whole objects: that of the class, with the fields that all objects have."""
    name = cls.__qualname__.rpartition(".")[2]
    schema = make_schema(cls, name)
    fields = schema.get("properties")
    if fields is None:
        raise ConfigError(f"{name} has no fields: a kind is a class with fields, such as spec and status.")
    if "status" in fields:  # the operator writes it: what it leaves out is left out
        fields["status"] = without_defaults(fields["status"])
    own: Schema = {key: {"type": "string", "description": text} for key, text in _DOCS.items()}
    rest = {key: value for key, value in fields.items() if key not in (*_DOCS, "metadata")}
    required = [key for key in schema.pop("required", ()) if key in rest]
    schema["properties"] = own | {"metadata": {"type": "object"}} | rest
    return schema | ({"required": required} if required else {})


def _make_column(info: KindInfo, column: Column, schema: Schema) -> dict[str, Any]:
    found = _resolve(schema, column.path)
    kind: str | None = column.type
    if kind is None and found is not None:
        is_mixed = found.get("x-kubernetes-int-or-string")  # such as quantities
        kind = "date" if found.get("format") == "date-time" else "string" if is_mixed else found.get("type")
    if kind not in ("integer", "number", "string", "boolean", "date"):
        raise ConfigError(
            f"The column {column.name!r} of {info} shows {column.path}, which is no scalar field of the class: correct"
            " the path, or pass the type=... of what it selects."
        )
    made = {
        "name": column.name,
        "type": kind,
        "jsonPath": column.path,
        "format": column.format,
        "description": column.description,
        "priority": column.priority or None,
    }
    return {key: value for key, value in made.items() if value is not None}


def _make_scale(info: KindInfo, schema: Schema) -> dict[str, str]:
    scale = info.scale
    assert scale is not None
    paths = {
        "specReplicasPath": scale.spec,
        "statusReplicasPath": scale.status,
        "labelSelectorPath": scale.selector,
    }
    given = {key: path for key, path in paths.items() if path is not None}
    for key, path in given.items():
        wanted = "string" if key == "labelSelectorPath" else "integer"
        found = _resolve(schema, path)
        if found is None or found.get("type") != wanted:
            raise ConfigError(
                f"The scale of {info} has the path {path}: the class has no field of type {wanted} there."
            )
    return given


def _resolve(schema: Schema, path: str) -> Schema | None:
    """Return the schema of a field by a simple JSONPath; None for any other path."""
    found: Schema | None = schema
    if not _PATH.fullmatch(path):
        return None
    for step in _STEP.finditer(path):
        if found is None:
            return None
        name = step[1]
        if name == "metadata" and step.start() == 0:
            found = _METADATA
        else:
            found = found.get("items") if name is None else found.get("properties", {}).get(name)
    return found
