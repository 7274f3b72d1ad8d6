"""JSON patches of mutating webhooks and policies. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..bodies import patching
from ..model.errors import internal_error


def apply_operations(obj: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return the object with the patch applied. Raises 500 if that fails."""
    try:
        return patching.apply_operations(msgspec.json.encode(obj), operations)
    except ValueError as error:
        raise internal_error(str(error)) from None
