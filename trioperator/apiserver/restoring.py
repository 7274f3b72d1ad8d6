"""Checks of objects that a data file has, before they are served again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .custom.definitions import kinds_of
from .model.kinds import Catalog, kind_of
from .model.unmarshal import UnmarshalError, unmarshal, unmarshal_metadata

_DEFINITION: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def stored_check(catalog: Catalog) -> Callable[[Mapping[str, Any]], None]:
    """Return the check of stored objects: it raises ValueError for one that the server would stumble over."""
    builtin = {kind.resource: kind for kind in catalog if kind.custom is None}

    def check(obj: Mapping[str, Any]) -> None:
        found = kind_of(obj)
        kind = catalog.by_object(*found)
        try:
            if kind is not None and kind.resource in builtin:
                unmarshal(kind, obj, [])
            else:
                unmarshal_metadata(obj["metadata"], [])
        except UnmarshalError as error:
            raise ValueError(str(error)) from None
        if found == _DEFINITION:
            _check_definition(obj)

    return check


def _check_definition(obj: Mapping[str, Any]) -> None:
    try:
        kinds_of(obj)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it
        raise ValueError(f"it defines no kinds: {type(error).__name__}: {error}") from None
