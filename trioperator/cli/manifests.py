"""Manifests: read from files, folders and the standard input, and applied in the order in which they can exist."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ConfigError
from trioperator.logs import get_logger

__all__ = ["Manifest", "apply_manifests", "load_manifests"]

_logger = get_logger(__name__)

_INPUT: Final = "-"
_SUFFIXES: Final = (".yaml", ".yml", ".json")  # of what is taken from a folder, as kubectl does


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Be an object to be applied, and say where it comes from: the file, and which of its documents."""

    path: str
    content: Mapping[str, Any]
    document: int = 1

    @property
    def is_definition(self) -> bool:
        """Tell whether it has to be there before other objects can be."""
        return self.content["kind"] in {"CustomResourceDefinition", "Namespace"}

    def __str__(self) -> str:
        metadata = self.content["metadata"]
        name = metadata.get("name") or metadata.get("generateName")
        return f"{self.content['kind']} {name} (document {self.document} of {self.path})"


def load_manifests(paths: Sequence[str]) -> Sequence[Manifest]:
    """Read YAML with any number of objects from files, from the files of folders, and from the standard input (``-``).

    Raises ConfigError for what cannot be read, or is no object, and says in which document of which file.
    """
    return [manifest for path in paths for file in _files(path) for manifest in _load_file(file)]


def _files(path: str) -> Iterable[str]:
    folder = pathlib.Path(path)
    if path == _INPUT or not folder.is_dir():
        return [path]
    files = sorted(str(file) for file in folder.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise ConfigError(f"The folder {path} has no manifests: files that end in {', '.join(_SUFFIXES)}.")
    return files


def _load_file(path: str) -> Iterator[Manifest]:
    import yaml

    shown = "the standard input" if path == _INPUT else path
    try:
        content = sys.stdin.buffer.read() if path == _INPUT else pathlib.Path(path).read_bytes()
        documents = list(yaml.load_all(content.decode(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except OSError as error:
        raise ConfigError(f"The manifests of {shown} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The manifests of {shown} cannot be read: they are not in UTF-8.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"The manifests of {shown} are not YAML: {' '.join(str(error).split())}") from None
    for number, document in enumerate(documents, 1):
        yield from _iterate_objects(shown, number, document)


def _iterate_objects(path: str, number: int, document: Any) -> Iterator[Manifest]:
    if document is None:
        return
    where = f"Document {number} of {path}"
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where} has a {type(document).__name__} in the place of an object.")
    if document.get("kind") == "List":
        items = document.get("items")
        if not isinstance(items, list):
            raise ConfigError(f"{where} is a List whose items are {items!r}.")
        for item in items:
            yield from _iterate_objects(path, number, item)
        return
    for key, kind in (("apiVersion", str), ("kind", str), ("metadata", Mapping)):
        if not isinstance(document.get(key), kind):
            raise ConfigError(f"{where} has an object whose {key} is {document.get(key)!r}.")
    yield Manifest(path=path, content=document, document=number)


async def apply_manifests(cluster: Cluster, manifests: Iterable[Manifest]) -> None:
    """Apply the objects: definitions of resource kinds and namespaces first. Raises ConfigError for what is refused."""
    for manifest in sorted(manifests, key=lambda manifest: not manifest.is_definition):
        try:
            await cluster.apply(manifest.content)
        except ApiError as error:
            raise ConfigError(f"The API server refuses {manifest}: {error.message}") from error
        except ConfigError as error:
            raise ConfigError(f"The API server refuses {manifest}: {error}") from error
        _logger.info("Applied: %s.", manifest)
