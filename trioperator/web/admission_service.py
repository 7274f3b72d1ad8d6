"""Admission control of an operator: the webhook server, the reviews by handlers, and the managed configurations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import trio

from trioperator.errors import ConfigError
from trioperator.handling.webhook_configuration import is_webhook_suffix
from trioperator.kube.client import Client
from trioperator.logs import get_logger
from trioperator.model.resource import Resource
from trioperator.settings import AdmissionSettings
from trioperator.web.admission import Reviewer
from trioperator.web.admission_configurations import WebhookConfigurations

__all__ = ["Admission", "check_admission"]

# Seconds for clearing the managed configurations when the operator stops.
_RELEASE_TIMEOUT: Final = 5.0


def check_admission(settings: AdmissionSettings) -> None:
    """Check the settings of an operator with admission handlers. Raises ConfigError."""
    if settings.server is None:
        raise ConfigError(
            "Admission handlers exist, but no admission server/tunnel is configured: set settings.admission.server in a"
            " startup handler, for example to trioperator.WebhookServer()."
        )
    if settings.managed is not None and not is_webhook_suffix(settings.managed):
        raise ConfigError(
            f"settings.admission.managed is {settings.managed!r}: it must be a domain name with a dot, such as"
            " 'hooks.example.com', as the names of webhooks end with it."
        )


class Admission:
    """The webhook server of an operator, with its managed configurations if there are any."""

    def __init__(self, client: Client, settings: AdmissionSettings, reviewer: Reviewer) -> None:
        self._client = client
        self._server = settings.server
        self._reviewer = reviewer
        self._logger = get_logger("trioperator.web.admission")
        self._configurations = None if settings.managed is None else WebhookConfigurations(client, settings.managed)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve reviews until cancelled. Started when the server has its first address. Raises what the server does."""
        async with trio.open_nursery() as nursery:
            if self._configurations is not None:
                nursery.start_soon(self._configurations.serve, name="webhook configurations")
            await self._serve_reviews(task_status.started)

    async def _serve_reviews(self, started: Callable[[], None]) -> None:
        has_started = False
        async with contextlib.AsyncExitStack() as stack:
            if hasattr(self._server, "__aenter__"):
                await stack.enter_async_context(self._server)
            if hasattr(self._server, "inspect_cluster"):
                await self._server.inspect_cluster(self._client)
            addresses = self._server(self._reviewer)
            if not hasattr(addresses, "__aiter__"):
                text = "must be an async generator function, or a callable that returns an async iterator"
                raise ConfigError(f"settings.admission.server {text}, not {self._server!r}.")
            if hasattr(addresses, "aclose"):
                await stack.enter_async_context(contextlib.aclosing(addresses))
            async for address in addresses:
                self._take_address(address)
                if not has_started:
                    has_started = True
                    started()
        raise ConfigError("The admission server has ended: it must serve, or sleep, until it is cancelled.")

    def _take_address(self, address: Mapping[str, Any]) -> None:
        where = address.get("url") or address.get("service")
        self._logger.info("Serving admission webhooks at %s", where)
        if self._configurations is not None:
            self._configurations.update(address=address)

    def update_resources(self, resources: Collection[Resource]) -> None:
        """Take the resource kinds of the cluster, whenever they change."""
        changed = self._reviewer.update_resources(resources)
        if changed and self._configurations is not None:
            self._configurations.update(handlers=self._reviewer.by_handler)

    async def wait_configured(self) -> None:
        """Wait until the managed configurations have been written once, or could not be."""
        if self._configurations is not None and self._reviewer.by_handler:
            await self._configurations.tried.wait()

    @property
    def problems(self) -> tuple[str, ...]:
        """What does not work for now, in one sentence each."""
        problem = None if self._configurations is None else self._configurations.problem
        return () if problem is None else (problem,)

    async def release(self) -> None:
        """Remove the webhooks of the operator from the managed configurations, within seconds."""
        if self._configurations is not None:
            with trio.move_on_after(_RELEASE_TIMEOUT, shield=True) as scope:
                await self._configurations.release()
            if scope.cancelled_caught:
                self._logger.error("The webhook configurations could not be cleared in time.")
