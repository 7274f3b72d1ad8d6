"""Definitions and objects, as an API server judges them."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from tests.crds.classes import Case
from trioperator import crds
from trioperator._model.custom_kind import get_kind
from trioperator.errors import ApiError

_names = itertools.count()


def make_object(cls: type, spec: dict[str, Any]) -> dict[str, Any]:
    info = get_kind(cls)
    metadata = {"name": f"x-{next(_names)}"} | ({"namespace": "default"} if info.namespaced else {})
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata, "spec": spec}


async def assert_judged(case: Case, create: Callable[[dict[str, Any]], Any]) -> None:
    for spec in case.accepted:
        created = await create(make_object(case.cls, spec))
        crds.decode(case.cls, created)
    for spec in (*case.refused, *case.denied):
        assert await find_status(create(make_object(case.cls, spec))) == 422, spec


async def find_status(request: Awaitable[Any]) -> int | None:
    """Return the status with which the API server refuses a request; None if it does not."""
    try:
        await request
    except ApiError as error:
        return error.status
    return None
