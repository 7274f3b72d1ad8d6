"""Configuration of client libraries in tests: whatever they look for, they find the API server of the test.

``$KUBECONFIG`` names it, as do the default path and the service account of the libraries of the Kubernetes project,
which the operator's files load, mostly where they are imported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec

from trioperator._kube.connection_info import ConnectionInfo
from trioperator.client.connection import make_kubeconfig
from trioperator.client.library_logins import load_kubeconfig
from trioperator.testing.library_routes import HOST, Change


@contextlib.contextmanager
def configured_environment() -> Iterator[None]:
    """Set ``$KUBECONFIG`` in the context."""
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = _write_kubeconfig()
    try:
        yield
    finally:
        del os.environ["KUBECONFIG"]
        if before is not None:
            os.environ["KUBECONFIG"] = before


def change_default_path(module: ModuleType) -> Iterator[Change]:
    """Yield the default path, which is read from the environment when a library is imported."""
    yield module, "KUBE_CONFIG_DEFAULT_LOCATION", _write_kubeconfig()


def change_service_account(module: ModuleType) -> Iterator[Change]:
    """Yield what loads the configuration in a Pod."""

    def load(client_configuration: Any = None, try_refresh_token: bool = True, **_: Any) -> None:
        load_kubeconfig(module, _make_kubeconfig(), client_configuration=client_configuration)

    yield module, "load_incluster_config", load


@functools.cache  # libraries remember paths
def _write_kubeconfig() -> str:
    folder = tempfile.TemporaryDirectory(prefix="trioperator-")
    atexit.register(folder.cleanup)
    path = os.path.join(folder.name, "kubeconfig")
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(_make_kubeconfig()))  # which is YAML, too
    return path


def _make_kubeconfig() -> dict[str, Any]:
    return make_kubeconfig(ConnectionInfo(server=f"http://{HOST}"))
