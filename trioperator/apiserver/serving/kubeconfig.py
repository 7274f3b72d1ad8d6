"""Kubeconfig files of embedded clusters: private, replaced atomically, and never written over other files."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator.errors import ConfigError

__all__ = ["EXTENSION", "write_kubeconfig"]

#: The cluster extension that marks kubeconfigs of embedded clusters.
EXTENSION: Final[Mapping[str, Any]] = {"name": "trioperator.dev", "extension": {"embedded": True}}


def write_kubeconfig(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write the kubeconfig atomically, with permissions for its owner only.

    Raises ConfigError if it cannot be written, or if the file exists and is not from an embedded cluster.
    """
    target = pathlib.Path(os.path.realpath(path))
    copy = target.with_name(f".{target.name}.new")
    try:
        if not _is_ours(target):
            raise ConfigError(
                f"The file {target} is not the kubeconfig of an embedded cluster, and is not overwritten: "
                "choose another name, or remove it."
            )
        descriptor = os.open(copy, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        os.replace(copy, target)
    except OSError as error:
        raise ConfigError(f"The kubeconfig {target} cannot be written: {error.strerror}.") from None


def _is_ours(path: pathlib.Path) -> bool:
    """Return whether the file does not exist, or has the extension. Only JSON is read: it is what is written here."""
    try:
        content = msgspec.json.decode(path.read_bytes())
        return any(EXTENSION in cluster["cluster"]["extensions"] for cluster in content["clusters"])
    except FileNotFoundError:
        return True
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError):
        return False
