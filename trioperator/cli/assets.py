"""The command ``trioperator cluster assets``: stand-ins for kube-apiserver, etcd and kubectl, in one folder.

They are shell scripts, which start the embedded API server with the Python that wrote them. Test environments such as
envtest find the folder by the environment variable ``KUBEBUILDER_ASSETS``.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shlex
import sys
from typing import Final

import typer

from trioperator.errors import ConfigError

VARIABLE: Final = "KUBEBUILDER_ASSETS"
# --help is for envtest, which looks there for flags that old versions need; it starts no Python.
_SERVER: Final = """#!/bin/sh
# kube-apiserver, played by the embedded API server of trioperator
if [ "$1" = --help ]; then
  echo "Serves the embedded API server of trioperator. Flags that it does not know are reported, and ignored."
  exit
fi
exec {python} -P -m trioperator.cli.kube_apiserver "$@"
"""
_ETCD: Final = """#!/bin/sh
# etcd, played by trioperator: it is healthy, and stores nothing
if [ "$1" = --help ]; then
  echo "Answers health checks for the embedded API server of trioperator, and ignores all flags but its URLs."
  exit
fi
exec {python} -IS {etcd} "$@"
"""
_KUBECTL: Final = """#!/bin/sh
# kubectl of trioperator: starts the first one in PATH that is not one of these scripts
IFS=:
for folder in $PATH; do
  if [ -x "$folder/kubectl" ] && ! head -c 40 "$folder/kubectl" | grep -aq "kubectl of trioperator"; then
    exec "$folder/kubectl" "$@"
  fi
done
echo "kubectl: there is none in PATH. Install it; what does not call kubectl works without." >&2
exit 127
"""


def assets() -> None:
    """Write stand-ins for the programs of envtest, and print the export of KUBEBUILDER_ASSETS, for eval."""
    folder = write_assets(find_folder())
    typer.echo(f"export {VARIABLE}={shlex.quote(str(folder))}")


def find_folder() -> pathlib.Path:
    """Return the folder for the programs in the user's cache: one for each Python."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache, "trioperator", "assets", hashlib.sha256(sys.executable.encode()).hexdigest()[:12])


def write_assets(folder: pathlib.Path) -> pathlib.Path:
    """Write the programs to the folder, and return its absolute path. Raises ConfigError if it cannot be written."""
    folder = folder.absolute()
    names = {
        "python": shlex.quote(sys.executable),
        "etcd": shlex.quote(str(pathlib.Path(__file__).with_name("etcd.py"))),
    }
    scripts = {"kube-apiserver": _SERVER.format(**names), "etcd": _ETCD.format(**names), "kubectl": _KUBECTL}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, script in scripts.items():
            new = folder / f".{name}.{os.getpid()}"  # replaced at once: another process may be starting it
            new.write_text(script)
            new.chmod(0o755)
            new.replace(folder / name)
    except OSError as error:
        raise ConfigError(f"The programs cannot be written to {folder}: {error.strerror or error}.") from error
    return folder
