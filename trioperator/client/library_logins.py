"""The operator's login for client libraries whose clients take a default configuration that nothing else has set."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator.client.connection import make_kubeconfig, read_authorization

#: Libraries that find no configuration by themselves. Others, such as kr8s, read $KUBECONFIG, as the operator does.
LIBRARIES: Final = ("kubernetes", "kubernetes.aio", "kubernetes_asyncio")

_logger = get_logger(__name__)

# Those of all operators that run in this process: the first one has configured the libraries.
_all: Final[list[LibraryLogins]] = []


class LibraryLogins:
    """Default configurations of client libraries, with the current credentials of the operator.

    A library is configured only if it has been imported, and has no default configuration yet: what a login handler or
    ``load_kube_config()`` in the operator's files has set is kept. Nothing is imported for this.
    """

    def __init__(self, kube: ApiClient) -> None:
        self._kube = kube
        self._set: dict[str, object] = {}
        self._thread = trio.CapacityLimiter(1)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Configure the libraries now and whenever the credentials are renewed, for clients that are made after that.

        Started when they have been configured for the first time.
        """
        _all.append(self)
        await self._log_in()
        task_status.started()
        while True:
            await self._kube.credentials.renewed.wait()
            await self._log_in()

    async def _log_in(self) -> None:
        names = [name for name in LIBRARIES if self._is_open(name)]
        if names and self._kube.settings.networking.login_libraries:
            await run_in_thread(lambda: self._configure(names), limiter=self._thread)

    def log_out(self) -> None:
        """Remove the default configurations that were set here, or leave them to another operator of the process."""
        own = [name for name, default in self._set.items() if _find_default(name) is default]
        self._set.clear()
        if self in _all:
            _all.remove(self)
        for name in own:
            _configuration(name).set_default(None)
        if _all and _all[0]._kube.settings.networking.login_libraries:
            _all[0]._configure(own)

    def _is_open(self, name: str) -> bool:
        if f"{name}.client" not in sys.modules:
            return False
        default = _find_default(name)
        return default is None or default is self._set.get(name)

    def _configure(self, names: list[str]) -> None:
        for name in names:
            try:
                _configuration(name).set_default(self._make(name))
            except Exception as error:  # noqa: BLE001 -- whatever another library, or another version of it, raises
                _logger.warning("The library %s is not logged in: %s", name, error)
            else:
                self._set[name] = _find_default(name)
                _logger.debug("The library %s is logged in with the operator's credentials.", name)

    def _make(self, name: str) -> Any:
        kube = self._kube

        def refresh(configuration: Any) -> None:  # a function: configurations are copied deeply with it
            if authorization := read_authorization(kube):
                configuration.api_key.update(BearerToken=authorization, authorization=authorization)  # until version 36

        configuration, module = _configuration(name)(), importlib.import_module(f"{name}.config")
        load_kubeconfig(module, make_kubeconfig(kube.credentials.current.info), client_configuration=configuration)
        configuration.refresh_api_key_hook = refresh
        return configuration


def load_kubeconfig(module: Any, kubeconfig: Mapping[str, Any], **options: Any) -> None:
    """Load a kubeconfig with a library's configuration module, whose function may be sync or async."""
    _finish(module.load_kube_config_from_dict(kubeconfig, **options))


def _configuration(name: str) -> Any:
    return sys.modules[f"{name}.client"].Configuration


def _find_default(name: str) -> object:
    """Return the default configuration of a library itself: its public function returns only a copy."""
    return getattr(_configuration(name), "_default", None)


def _finish(result: object) -> None:
    """Run a coroutine that never waits: kubeconfigs without plugins need no event loop."""
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        except StopIteration:
            return
        result.close()
        raise RuntimeError("it waits while it reads a kubeconfig")
