"""Manifests: objects, lists of objects, YAML text, and paths of YAML files."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trioperator.errors import ConfigError

from .bodies.yaml import YamlError, load_documents
from .model.json_text import decode_json
from .model.kinds import Catalog, Kind, kind_of
from .model.nesting import TOO_DEEP

Manifest = str | pathlib.Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]


def metadata_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of the manifest.

    Raises ConfigError if they are not a mapping, or their namespace is not a string; the API validates the rest.
    """
    meta = manifest.get("metadata")
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        text = f"has a {type(meta).__name__} as its metadata"
    elif not isinstance(meta.get("namespace") or "", str):
        text = f"has a {type(meta['namespace']).__name__} as its namespace"
    else:
        return meta
    raise ConfigError(f"The manifest of a {manifest.get('kind')} {text}.")


def find_kind(catalog: Catalog, manifest: Mapping[str, Any]) -> Kind:
    """Return the kind of the manifest's object. Raises ConfigError if the cluster does not serve it."""
    api_version, name = kind_of(manifest)
    kind = catalog.by_object(api_version, name)
    if kind is not None:
        return kind
    text = f"The cluster has no kind {name!r} in {api_version!r}"
    group = api_version.rpartition("/")[0]
    served = [each.version for each in catalog if each.group == group and each.kind == name]
    if served:
        raise ConfigError(f"{text}, but in {' and '.join(f'{group}/{each}'.lstrip('/') for each in served)}.")
    raise ConfigError(f"{text}: apply its CustomResourceDefinition first.")


def to_plain(manifest: Mapping[str, Any]) -> Any:
    """Return the manifest with types of JSON only. Raises ConfigError if it has others, or is nested too deeply."""
    try:
        return decode_json(msgspec.json.encode(manifest))
    except (ValueError, RecursionError) as error:
        reason = TOO_DEEP if isinstance(error, RecursionError) else error
        raise ConfigError(f"The manifest cannot be used: {reason}.") from None


def load_objects(manifest: Manifest) -> list[Mapping[str, Any]]:
    """Return the objects of a manifest. Raises ConfigError if it is not YAML, or has something else than objects."""
    if isinstance(manifest, Mapping):
        return [manifest] if manifest.get("kind") != "List" else load_objects(manifest.get("items") or ())
    if not isinstance(manifest, (str, pathlib.Path)):
        if not isinstance(manifest, Iterable):
            raise ConfigError(f"The manifest has a {type(manifest).__name__} where an object is expected.")
        return [obj for item in manifest for obj in load_objects(item)]
    text = manifest.read_text(encoding="utf-8") if isinstance(manifest, pathlib.Path) else manifest
    try:
        documents = load_documents(text)
    except YamlError as error:
        raise ConfigError(f"The manifest is not YAML: {str(error).removeprefix('yaml: ')}") from None
    for document in documents:
        if document is not None and not isinstance(document, dict):
            raise ConfigError(f"The manifest has a {type(document).__name__} where an object is expected.")
    return [obj for document in documents if document for obj in load_objects(document)]
