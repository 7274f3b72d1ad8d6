"""YAML that the API accepts: the subset that JSON can represent, with the error messages of the real server. Pure.

The parser yields events, from which the values are built without recursion: deep nesting and aliases that expand to
more than the real server accepts are errors before they cost anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from ..model.json_text import has_too_many_commas, parse_float, parse_integer
from ..model.nesting import BODY_DEPTH_LIMIT, TOO_DEEP, TOO_MANY_VALUES, VALUES_LIMIT, is_too_deep
from .yaml_builder import DocumentBuilder
from .yaml_scalars import UnsupportedError

_FILE_LIMIT: Final = 10 * VALUES_LIMIT


class YamlError(ValueError):
    """Raised when the document is not valid YAML, with the message of the real server."""


def load_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Decode the first document in the body; return it, and the errors of strict decoding: duplicate keys.

    The last of duplicate keys wins. JSON is YAML. Like the real server, it does not even parse further documents.
    """
    if body.lstrip()[:1] in {b"{", b"["}:
        if has_too_many_commas(body):
            raise YamlError(f"yaml: {TOO_MANY_VALUES}")
        try:
            return _load_json(body), []
        except RecursionError:
            raise YamlError(f"yaml: {TOO_DEEP}") from None
        except ValueError:
            pass  # flow-style YAML, duplicate keys, or invalid
    return next(_decode(body), (None, []))


def load_documents(text: str) -> list[Any]:
    """Decode all documents of a file, which may be larger than those in requests."""
    return [document for document, _ in _decode(text, _FILE_LIMIT)]


def _load_json(body: bytes) -> Any:
    value = json.loads(
        body,
        object_pairs_hook=_unique_keys,
        parse_float=parse_float,
        parse_int=parse_integer,
        parse_constant=_reject_constant,
    )
    if is_too_deep(value, BODY_DEPTH_LIMIT):
        raise RecursionError
    if b"\\u" in body:
        msgspec.json.encode(value)  # raises ValueError for halves of surrogate pairs
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("duplicate key")
    return result


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decode(text: bytes | str, limit: int = VALUES_LIMIT) -> Iterator[tuple[Any, list[str]]]:
    import yaml

    try:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                builder = DocumentBuilder(loader, limit)
                yield builder.build(), builder.duplicates
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"yaml: {_line(error)}{error.problem}") from None
    except UnsupportedError as error:
        raise YamlError(str(error)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlError(f"yaml: {error}") from None


def _line(error: Any) -> str:
    """Return the line that the real server reports: the start of the context, zero- or one-based."""
    lines = [mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None and mark.line]
    if not lines:
        return ""
    is_scanner = type(error).__name__ == "ScannerError"
    return f"line {lines[0] + is_scanner}: "
