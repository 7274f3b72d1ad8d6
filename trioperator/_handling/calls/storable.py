"""Check of a handler's patch and result, as a part of its attempt: they must be JSON-serializable.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trioperator._model.jsontypes import encode_json
from trioperator._model.patch import Patch
from trioperator.errors import PermanentError

# Levels of nesting in which to search for a value that cannot be stored.
_MAX_DEPTH = 50


def check_storable(patch: Patch, result: Any) -> None:
    """Raise PermanentError if the patch or the result of a call is not JSON-serializable. Such a patch is cleared.

    The error names the field. Functions of the patch are kept: they are called later.
    """
    if patch and not _is_json(patch):
        problem = describe_unserializable(patch)
        dict.clear(patch)
        raise PermanentError(f"The patch is not JSON-serializable: {problem}.")
    if result is not None:
        try:
            plain = dict(result) if isinstance(result, Mapping) else result  # which is how it is stored
        except Exception as error:
            raise PermanentError(f"The result cannot be read: {error!r}.") from error
        if not _is_json(plain):
            raise PermanentError(f"The result is not JSON-serializable: {describe_unserializable(plain)}.")


def _is_json(value: Any) -> bool:
    try:
        encode_json(value)
    except Exception:  # noqa: BLE001 -- the values are the user's, and so may be their methods
        return False
    return True


def describe_unserializable(value: Any) -> str:
    """Return the path and the type of the first value that is not JSON-serializable; of a float, the value."""
    try:
        return _search(value)
    except Exception as error:  # noqa: BLE001 -- any mapping of the user's
        return f"it cannot be read: {error!r}"


def _search(value: Any) -> str:
    path = ""
    for _ in range(_MAX_DEPTH):
        for step, item in _items(value):
            if not _is_json(item):
                path, value = f"{path}{step}" if path or step.startswith("[") else step.removeprefix("."), item
                break
        else:
            break
    else:
        return f"{path[:100]}… is nested too deeply, or contains itself"
    if isinstance(value, float):
        return f"{path or 'it'} is {value}"
    kind = type(value).__qualname__
    if isinstance(value, dict):
        bad = [key for key in value if not _is_json({key: None})]
        if bad:
            return f"{path or 'it'} has a key of the type {type(bad[0]).__qualname__}"
    return f"{path or 'it'} is of the type {kind}"


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f".{key}", item
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield f"[{index}]", item
