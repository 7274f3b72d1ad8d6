"""YAML as the API takes it: what JSON can say, with the complaints of the real server about what it cannot. Pure."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["YamlError", "load_documents", "load_yaml"]


class YamlError(ValueError):
    """The text is not YAML; says so in the words of the real server."""


def load_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Decode the one document in the body; return it, and what is wrong with it strictly speaking: repeated keys.

    The last one of repeated keys counts. JSON is YAML.
    """
    if body.lstrip()[:1] in {b"{", b"["}:
        try:
            return json.loads(body, object_pairs_hook=_without_repetition), []
        except ValueError:
            pass  # then it is YAML that looks like JSON, or repeats itself, or is wrong
    documents = _decode(body)
    if len(documents) > 1:
        raise YamlError("yaml: expected a single document")
    return documents[0] if documents else (None, [])


def load_documents(text: str) -> list[Any]:
    """Decode all documents in the text."""
    return [document for document, _ in _decode(text)]


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is repeated")
    return result


def _decode(text: bytes | str) -> list[tuple[Any, list[str]]]:
    import yaml

    documents = []
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        while loader.check_node():
            node = loader.get_node()
            documents.append((_as_json(_without_times(loader, node)), list(_repeated_keys(node))))
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"yaml: {_line(error)}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlError(f"yaml: {error}") from None
    return documents


def _line(error: Any) -> str:
    """Tell in which line the real server would see the error: where its context begins, counted from zero or one."""
    lines = [mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None and mark.line]
    if not lines:
        return ""
    is_scanner = type(error).__name__ == "ScannerError"
    return f"line {lines[0] + is_scanner}: "


def _without_times(loader: Any, node: Any) -> Any:
    """Construct the document; what looks like a time is a text in JSON."""
    for below in _nodes(node):
        if below.tag == "tag:yaml.org,2002:timestamp":
            below.tag = "tag:yaml.org,2002:str"
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


def _repeated_keys(node: Any) -> Any:
    for below in _nodes(node):
        if below.id == "mapping":
            seen = set[str]()
            for key, _ in below.value:
                if key.id == "scalar" and key.value in seen:
                    yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
                if key.id == "scalar":
                    seen.add(key.value)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key_text(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


def _key_text(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)
