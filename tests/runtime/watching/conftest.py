"""Kinds that come and go, and what handlers see of their objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import trioperator
from tests.runtime.conftest import CRD, Bench, widget

on = trioperator.on


def crd(plural: str, kind: str, *, group: str = "later.example.com", **changes: Any) -> dict[str, Any]:
    """Make the definition of another kind."""
    made = copy.deepcopy(CRD)
    made["metadata"]["name"] = f"{plural}.{group}"
    made["spec"]["group"] = group
    made["spec"]["names"] = {"plural": plural, "singular": kind.lower(), "kind": kind, **changes}
    return made


def thing(kind: str, *, group: str = "later.example.com", version: str = "v1", name: str = "t") -> dict[str, Any]:
    return {**widget(name, kind=kind), "apiVersion": f"{group}/{version}"}


def watch(bench: Bench, *selector: Any, **options: Any) -> list[str]:
    """Register an event handler for a selector, and return what it has seen."""
    seen: list[str] = []

    @on.event(*selector, **options, registry=bench.registry)
    async def seen_one(resource: trioperator.Resource, name: str, type: Any, **_: Any) -> None:
        seen.append(f"{resource} {name}" + (" DELETED" if type == "DELETED" else ""))

    return seen


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [message for message in messages if text in message]


def labelled(name: str, **labels: str) -> dict[str, Any]:
    """Return a widget with labels."""
    made = widget(name)
    made["metadata"]["labels"] = labels
    return made
