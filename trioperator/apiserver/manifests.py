"""Manifests as they are given to the methods of a cluster: objects, lists of them, YAML, and the paths of files."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from trioperator.errors import ConfigError

__all__ = ["Manifest", "load_objects", "metadata_of"]

Manifest = str | pathlib.Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]


def metadata_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata, of which the namespace is looked at here; the API looks at all of them more closely.

    Raises ConfigError for what can be no metadata.
    """
    meta = manifest.get("metadata")
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        text = f"has a {type(meta).__name__} in the place of its metadata"
    elif not isinstance(meta.get("namespace") or "", str):
        text = f"has a {type(meta['namespace']).__name__} in the place of its namespace"
    else:
        return meta
    raise ConfigError(f"The manifest of a {manifest.get('kind')} {text}.")


def load_objects(manifest: Manifest) -> list[Mapping[str, Any]]:
    """Return the objects of a manifest. Raises ConfigError for what is no YAML, or no object."""
    if isinstance(manifest, Mapping):
        return [manifest] if manifest.get("kind") != "List" else load_objects(manifest.get("items") or ())
    if not isinstance(manifest, (str, pathlib.Path)):
        if not isinstance(manifest, Iterable):
            raise ConfigError(f"The manifest has a {type(manifest).__name__} in the place of an object.")
        return [obj for item in manifest for obj in load_objects(item)]
    import yaml

    text = manifest.read_text(encoding="utf-8") if isinstance(manifest, pathlib.Path) else manifest
    try:
        documents = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        raise ConfigError(f"The manifest is not YAML: {error}") from None
    for document in documents:
        if document is not None and not isinstance(document, dict):
            raise ConfigError(f"The manifest has a {type(document).__name__} in the place of an object.")
    return [obj for document in documents if document for obj in load_objects(document)]
