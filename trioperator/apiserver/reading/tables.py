"""Tables, as ``kubectl get`` requests them: columns and cells of built-in and custom kinds. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..custom.jsonpath import find_all
from ..model.kinds import Column, Kind
from .column_values import since
from .columns import Cell, builtin_columns

Object = Mapping[str, Any]


def render_table(
    kind: Kind,
    objects: Iterable[Object],
    *,
    meta: Object,
    now: datetime.datetime,
    include: str = "Metadata",
) -> dict[str, Any]:
    """Return the ``Table`` of the objects; *include* is what each row contains: Metadata, Object or None."""
    columns = columns_of(kind)
    rows = []
    for obj in objects:
        row: dict[str, Any] = {"cells": [cell(obj, now) for _, cell in columns]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = partial_metadata(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(meta),
        "columnDefinitions": [_definition(column) for column, _ in columns],
        "rows": rows,
    }


def partial_metadata(obj: Object) -> dict[str, Any]:
    """Return the ``PartialObjectMetadata`` of the object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def columns_of(kind: Kind) -> Sequence[tuple[Column, Cell]]:
    """Return the columns of the kind, with the functions that compute their cells."""
    if kind.custom is None:
        return builtin_columns(kind.resource)
    name = Column(name="Name", type="string", format="name", description="Name of the object.", path="")
    columns: list[tuple[Column, Cell]] = [(name, lambda obj, now: obj["metadata"]["name"])]
    for column in kind.custom.columns:
        text = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
        columns.append((dataclasses.replace(column, description=text), _custom_cell(column)))
    return columns


def _custom_cell(column: Column) -> Cell:
    def cell(obj: Object, now: datetime.datetime) -> Any:
        found = find_all(obj, column.path)
        if not found:
            return None
        value = found[0]
        if column.type == "date":
            return since(value, now) if isinstance(value, str) else None
        if column.type in {"integer", "number", "boolean"}:
            return value if isinstance(value, (int, float)) else None
        if len(found) > 1:
            return ",".join(_format(item) for item in found)
        return _format(value)

    return cell


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        import msgspec

        return msgspec.json.encode(value).decode()
    return "" if value is None else str(value)
