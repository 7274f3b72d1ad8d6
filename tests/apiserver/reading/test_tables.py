"""Tests for :mod:`trioperator.apiserver.reading.tables`: columns and rows of tables."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
import yaml

from tests.apiserver.conftest import Target
from trioperator.apiserver.model.kinds import Catalog, Column, CustomTraits, Kind
from trioperator.apiserver.reading.tables import render_table

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def test_columns_have_types_and_priorities(target: Target) -> None:
    answer = await target.get("/apis/apps/v1/replicasets", accept=TABLE)
    found = [(c["name"], c["type"], c["format"], c["priority"]) for c in answer.content["columnDefinitions"]]
    counts = [(name, "integer", "", 0) for name in ("Desired", "Current", "Ready")]
    columns = [("Name", "string", "name", 0), *counts, ("Age", "string", "", 0)]
    assert [column for column in found if column in columns or not target.is_real] == columns


def custom_kind(*columns: Column) -> Kind:
    kind = Catalog().find("configmaps")
    assert kind is not None
    return dataclasses.replace(kind, custom=CustomTraits(columns=columns))


@pytest.mark.parametrize(
    ("type", "path", "cell"),
    [
        ("string", ".spec.text", "a"),
        ("string", ".spec.flag", "true"),
        ("string", ".spec.items[*]", "1,2"),
        ("string", ".spec.items", "[1,2]"),
        ("string", ".spec.none", ""),
        ("string", ".spec.missing", None),
        ("integer", ".spec.items[0]", 1),
        ("integer", ".spec.text", None),
        ("boolean", ".spec.flag", True),
        ("date", ".metadata.creationTimestamp", "5m"),
        ("date", ".spec.flag", None),
    ],
)
def test_cells_of_custom_columns_are_formatted_by_type(type: str, path: str, cell: Any) -> None:
    spec = {"text": "a", "flag": True, "items": [1, 2], "none": None}
    obj = {"metadata": {"name": "one", "creationTimestamp": "2020-01-01T00:00:00Z"}, "spec": spec}
    now = datetime.datetime(2020, 1, 1, 0, 5, tzinfo=datetime.UTC)
    table = render_table(custom_kind(Column(name="Shown", type=type, path=path)), [obj], meta={}, now=now)
    assert table["rows"][0]["cells"] == ["one", cell]
    (_, column) = table["columnDefinitions"]
    assert (column["name"], column["type"]) == ("Shown", type)
    assert column["description"].endswith(path)


async def test_rows_contain_only_known_forms_of_objects(target: Target) -> None:
    answer = await target.get(target.path("frees"), accept=TABLE, includeObject="Everything")
    assert (answer.code, answer.content["kind"]) == (400, "Status")
    text = "includeObject: Invalid value: \"Everything\": must be 'Metadata', 'Object', 'None', or empty"
    assert answer.message == f"Unable to convert to Table as requested: {text}"


async def test_errors_are_a_status_in_the_requested_format(target: Target) -> None:
    answer = await target.get(target.path("frees", "none"), accept=TABLE)
    assert (answer.code, answer.content["kind"]) == (404, "Status")
    answer = await target.get(target.path("frees", "none"), accept="application/yaml")
    assert answer.headers["Content-Type"] == "application/yaml"
    assert yaml.safe_load(answer.content)["reason"] == "NotFound"
