"""Manifests: loaded from files, directories and stdin, and applied with definitions and namespaces first."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from trioperator._logs import get_logger
from trioperator.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from trioperator.apiserver import Cluster

_logger = get_logger(__name__)

_STDIN: Final = "-"
_SUFFIXES: Final = (".yaml", ".yml", ".json")  # of the files in a directory, as for kubectl


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Object to apply, with its source: the file and the number of the document in it."""

    path: str
    content: Mapping[str, Any]
    document: int = 1

    @property
    def is_definition(self) -> bool:
        """Return whether other objects may need it to exist first."""
        return self.content["kind"] in {"CustomResourceDefinition", "Namespace"}

    def __str__(self) -> str:
        metadata = self.content["metadata"]
        name = metadata.get("name") or metadata.get("generateName")
        return f"{self.content['kind']} {name} (document {self.document} of {self.path})"


def load_manifests(paths: Sequence[str]) -> Sequence[Manifest]:
    """Load YAML with any number of objects from files, from the files in directories, and from stdin (``-``).

    Raises ConfigError, which names the file and the document, for what cannot be read and for what is not an object.
    """
    return [manifest for path in paths for file in _files(path) for manifest in _load_file(file)]


def find_declared(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the CRDs of the kinds that loaded classes declare, without those that the manifests have already.

    Raises ConfigError for classes that make no valid definition.
    """
    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator.crds.definitions import collect_definitions

    given = {str(manifest.content["metadata"].get("name")) for manifest in manifests if manifest.is_definition}
    made = collect_definitions(get_default_registry())
    return [Manifest(path="the classes", content=each) for each in made if each["metadata"]["name"] not in given]


def _files(path: str) -> Iterable[str]:
    directory = pathlib.Path(path)
    if path == _STDIN or not directory.is_dir():
        return [path]
    files = sorted(str(file) for file in directory.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise ConfigError(f"The directory {path} contains no manifests (files ending in {', '.join(_SUFFIXES)}).")
    return files


def _load_file(path: str) -> Iterator[Manifest]:
    from trioperator.apiserver.bodies.yaml import YamlError, load_documents

    shown = "stdin" if path == _STDIN else path
    try:
        content = sys.stdin.buffer.read() if path == _STDIN else pathlib.Path(path).read_bytes()
        documents = load_documents(content.decode())
    except OSError as error:
        raise ConfigError(f"Cannot read the manifests in {shown}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"Cannot read the manifests in {shown}: they are not UTF-8.") from None
    except YamlError as error:
        text = " ".join(str(error).removeprefix("yaml: ").split())
        raise ConfigError(f"The manifests in {shown} are not valid YAML: {text}") from None
    for number, document in enumerate(documents, 1):
        yield from _iterate_objects(shown, number, document)


def _iterate_objects(path: str, number: int, document: Any) -> Iterator[Manifest]:
    if document is None:
        return
    where = f"Document {number} of {path}"
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where} contains {type(document).__name__} instead of an object.")
    if document.get("kind") == "List":
        items = document.get("items")
        if not isinstance(items, list):
            raise ConfigError(f"{where} is a List with invalid items: {items!r}.")
        for item in items:
            yield from _iterate_objects(path, number, item)
        return
    for key, kind in (("apiVersion", str), ("kind", str), ("metadata", Mapping)):
        if not isinstance(document.get(key), kind):
            raise ConfigError(f"{where} contains an object with an invalid {key}: {document.get(key)!r}.")
    yield Manifest(path=path, content=document, document=number)


async def apply_manifests(cluster: Cluster, manifests: Iterable[Manifest]) -> None:
    """Apply the objects, CRDs and namespaces first. Raises ConfigError for an object that the API server rejects."""
    for manifest in sorted(manifests, key=lambda manifest: not manifest.is_definition):
        try:
            await cluster.apply(manifest.content)
        except ApiError as error:
            raise ConfigError(f"The API server rejected {manifest}: {error.message}") from error
        except ConfigError as error:
            raise ConfigError(f"The API server rejected {manifest}: {error}") from error
        _logger.info("Applied %s.", manifest)
