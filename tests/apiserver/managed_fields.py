"""Managed fields as tests compare them."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Answer


def entries(answer: Answer) -> list[dict[str, Any]]:
    """Return the entries without times and constant fields."""
    assert answer.code in {200, 201}, answer.content
    found = answer.content["metadata"].get("managedFields", [])
    assert all(entry["fieldsType"] == "FieldsV1" for entry in found)
    return [{key: value for key, value in entry.items() if key not in {"fieldsType", "time"}} for entry in found]


def managers(answer: Answer) -> dict[str, Any]:
    """Return the sets of fields by the names of their managers, with the subresource if there is one."""
    return {
        "/".join(part for part in (entry["manager"], entry.get("subresource", "")) if part): entry["fieldsV1"]
        for entry in entries(answer)
    }


def data(*names: str, whole: bool = False) -> dict[str, Any]:
    """Return the set of fields of the data of a ConfigMap."""
    return {"f:data": {**({".": {}} if whole else {}), **{f"f:{name}": {} for name in names}}}
