"""YAML that the API accepts: the subset that JSON can represent, with the error messages of the real server. Pure."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["YamlError", "load_documents", "load_yaml"]


class YamlError(ValueError):
    """Raised when the document is not valid YAML, with the message of the real server."""


def load_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Decode the only document in the body; return it, and the errors of strict decoding: duplicate keys.

    The last of duplicate keys wins. JSON is YAML.
    """
    if body.lstrip()[:1] in {b"{", b"["}:
        try:
            return json.loads(body, object_pairs_hook=_unique_keys), []
        except ValueError:
            pass  # flow-style YAML, duplicate keys, or invalid
    documents = _decode(body)
    if len(documents) > 1:
        raise YamlError("yaml: expected a single document")
    return documents[0] if documents else (None, [])


def load_documents(text: str) -> list[Any]:
    """Decode all documents."""
    return [document for document, _ in _decode(text)]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("duplicate key")
    return result


def _decode(text: bytes | str) -> list[tuple[Any, list[str]]]:
    import yaml

    documents = []
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        while loader.check_node():
            node = loader.get_node()
            documents.append((_to_json(_construct(loader, node)), list(_duplicate_keys(node))))
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"yaml: {_line(error)}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlError(f"yaml: {error}") from None
    return documents


def _line(error: Any) -> str:
    """Return the line that the real server reports: the start of the context, zero- or one-based."""
    lines = [mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None and mark.line]
    if not lines:
        return ""
    is_scanner = type(error).__name__ == "ScannerError"
    return f"line {lines[0] + is_scanner}: "


def _construct(loader: Any, node: Any) -> Any:
    """Construct the document; timestamps stay strings, as in JSON."""
    for descendant in _nodes(node):
        if descendant.tag == "tag:yaml.org,2002:timestamp":
            descendant.tag = "tag:yaml.org,2002:str"
    return loader.construct_document(node)


def _nodes(node: Any) -> Any:
    yield node
    if node.id == "mapping":
        for key, value in node.value:
            yield from _nodes(key)
            yield from _nodes(value)
    elif node.id == "sequence":
        for item in node.value:
            yield from _nodes(item)


def _duplicate_keys(node: Any) -> Any:
    for descendant in _nodes(node):
        if descendant.id == "mapping":
            seen = set[str]()
            for key, _ in descendant.value:
                if key.id == "scalar" and key.value in seen:
                    yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
                if key.id == "scalar":
                    seen.add(key.value)


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key_string(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


def _key_string(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)
