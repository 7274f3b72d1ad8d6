"""Kubeconfig files of embedded clusters: private, replaced atomically, and never written over other files."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
import tempfile
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator.errors import ConfigError

#: The cluster extension that marks kubeconfigs of embedded clusters.
EXTENSION: Final[Mapping[str, Any]] = {"name": "trioperator.dev", "extension": {"embedded": True}}


def make_kubeconfig(url: str, credentials: Mapping[str, Any], *, authority: str | None) -> dict[str, Any]:
    """Return a kubeconfig for the server at the URL, with its CA certificate, if any, as PEM in base64."""
    server: dict[str, Any] = {"server": url, "extensions": [EXTENSION]}
    if authority:
        server["certificate-authority-data"] = authority
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "embedded", "cluster": server}],
        "users": [{"name": "embedded", "user": credentials}],
        "contexts": [
            {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded", "namespace": "default"}}
        ],
        "current-context": "embedded",
    }


def write_kubeconfig(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write the kubeconfig atomically, with permissions for its owner only.

    Raises ConfigError if it cannot be written, or if the path exists and is not a kubeconfig of an embedded cluster;
    symbolic links are not followed.
    """
    target = pathlib.Path(os.path.abspath(path))
    try:
        if not _is_ours(target):
            raise ConfigError(
                f"The file {target} is not the kubeconfig of an embedded cluster, and is not overwritten: "
                "choose another name, or remove it."
            )
        _replace(target, msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    except OSError as error:
        raise ConfigError(f"The kubeconfig {target} cannot be written: {error.strerror}.") from None


def _replace(target: pathlib.Path, content: bytes) -> None:
    """Write a new file, which nobody else can read or has prepared, and move it to the path."""
    descriptor, copy = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(copy, target)
    except OSError:
        os.unlink(copy)
        raise


def _is_ours(path: pathlib.Path) -> bool:
    """Return whether the file does not exist, or has the extension. Only JSON is read: it is what is written here."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed")
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return False
        content = msgspec.json.decode(path.read_bytes())  # raises OSError for directories
        return any(EXTENSION in cluster["cluster"]["extensions"] for cluster in content["clusters"])
    except FileNotFoundError:
        return True
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError):
        return False
