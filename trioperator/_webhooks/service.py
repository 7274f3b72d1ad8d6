"""Webhooks of an operator: their server, the reviews by handlers, and what is managed in the cluster for them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.core_tasks import keep
from trioperator._handling.reviews.admission import Headers, SSLPeer
from trioperator._handling.reviews.conversion_review import is_conversion
from trioperator._handling.reviews.webhook_configuration import (
    CONVERSION_PATH,
    ServedKinds,
    WebhookFn,
    is_webhook_suffix,
)
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource
from trioperator._webhooks.configurations import WebhookConfigurations
from trioperator._webhooks.converter import Converter
from trioperator._webhooks.definitions import ConversionDefinitions
from trioperator._webhooks.managed import ManagedObjects
from trioperator._webhooks.other_versions import OtherVersion
from trioperator._webhooks.reviewer import Reviewer
from trioperator.errors import ConfigError
from trioperator.settings import AdmissionSettings, OperatorSettings

_logger = get_logger("trioperator.webhooks")

# Seconds for clearing the managed configurations when the operator stops, and the share of what is left of the grace.
_RELEASE_TIMEOUT: Final = 5.0
_RELEASE_SHARE: Final = 0.5
# Seconds for which webhooks are served after a stop has begun, where others take over: Services drop pods by then.
_SHUTDOWN_DELAY: Final = 5.0
# Seconds without a review after which no more are expected, and the share of the grace that is waited for that.
_QUIET: Final = 1.0
_DELAY_SHARE: Final = 0.5


def check_admission(settings: AdmissionSettings, *, what: str = "Admission") -> None:
    """Check the settings of an operator with admission or conversion handlers. Raises ConfigError."""
    if settings.server is None:
        raise ConfigError(
            f"{what} handlers exist, but no admission server/tunnel is configured: set settings.admission.server in a"
            " startup handler, for example to trioperator.WebhookServer()."
        )
    if settings.managed is not None and not is_webhook_suffix(settings.managed):
        raise ConfigError(
            f"settings.admission.managed is {settings.managed!r}: it must be a domain name with a dot, such as"
            " 'hooks.example.com', as the names of webhooks end with it."
        )


class Admission:
    """The webhook server of an operator, with its managed configurations and conversions if there are any.

    The ``server``, of the settings or another one, calls ``fn`` for each review: the object itself, or what counts
    its calls. *stopping* is set when the operator stops. Where replicas are expected, webhooks are left to the others
    at the end, unless their handlers say otherwise.
    """

    def __init__(
        self,
        client: ApiClient,
        settings: OperatorSettings,
        reviewer: Reviewer,
        converter: Converter,
        *,
        stopping: trio.Event,
    ) -> None:
        own = settings.admission
        self._client = client
        self.fn: WebhookFn = self
        self.server = own.server
        self._reviewer = reviewer
        self._converter = converter
        self._address: Mapping[str, Any] = {}
        self._has_replicas = settings.leadership.expects_replicas
        self._stopping = stopping
        self._delay = own.shutdown_delay
        self._reviewed_at = -math.inf
        self._configurations: WebhookConfigurations | None = None
        if own.managed is not None:
            self._configurations = WebhookConfigurations(
                client, own.managed, stopping=stopping, persistent=self._has_replicas
            )
        self._definitions = ConversionDefinitions(client, stopping=stopping) if own.managed_conversions else None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve reviews until cancelled. Started when the server has its first address. Raises what the server does."""
        async with trio.open_nursery() as nursery:
            if self._configurations is not None:
                name = "webhook configurations"
                nursery.start_soon(keep, name, self._configurations.serve, name=name)
            if self._definitions is not None:
                nursery.start_soon(keep, "conversions of CRDs", self._definitions.serve, name="conversions of CRDs")
            await self._serve_reviews(task_status.started)

    async def __call__(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
    ) -> JsonObject:
        """Answer a review; a :class:`WebhookFn`."""
        self._reviewed_at = trio.current_time()
        if is_conversion(request):
            return await self._converter(request, headers=headers, sslpeer=sslpeer)
        other = self._find_other(webhook)
        return await self._reviewer(request, webhook=webhook, headers=headers, sslpeer=sslpeer, other=other)

    def handles(self, webhook: str | None) -> bool:
        """Return whether there are handlers for the id of a webhook: others are refused before they are read."""
        if webhook == CONVERSION_PATH and self._converter.handles_any:
            return True
        return self._find_other(webhook) is not None or self._reviewer.handles(webhook)

    def _find_other(self, webhook: str | None) -> OtherVersion | None:
        if webhook is None or self._configurations is None:
            return None
        return self._configurations.find_other(webhook)

    async def _serve_reviews(self, started: Callable[[], None]) -> None:
        has_started, server = False, self.server
        async with contextlib.AsyncExitStack() as stack:
            if hasattr(server, "__aenter__"):
                entered = await stack.enter_async_context(server)
                server = server if entered is None else entered  # it may be a factory of servers, as in Kopf
            if hasattr(server, "inspect_cluster"):
                await server.inspect_cluster(self._client)
            if hasattr(server, "replace_authority"):
                server.replace_authority = self._replace_authority
            if hasattr(server, "is_draining"):
                server.is_draining = self._stopping.is_set
            addresses = server(self.fn)
            if not hasattr(addresses, "__aiter__"):
                text = "must be an async generator function, or a callable that returns an async iterator"
                raise ConfigError(f"settings.admission.server {text}, not {server!r}.")
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
        _logger.info("Serving admission webhooks at %s", where)
        self._publish(address)

    def _publish(self, address: Mapping[str, Any]) -> None:
        self._address = address
        if self._configurations is not None:
            self._configurations.update(address=address)
        if self._definitions is not None:
            self._definitions.update(address=address)

    async def _replace_authority(self, old: str, new: str) -> None:
        """Replace the CA in the address, and return when that is written. A server may have an address without it."""
        if self._address.get("caBundle") != old:
            return
        self._publish({**self._address, "caBundle": new})
        expected: list[trio.Event] = []
        if self._configurations is not None and self._reviewer.reviewed.by_handler:
            expected.append(self._configurations.expect_written())
        if self._definitions is not None and self._converter.by_definition:
            expected.append(self._definitions.expect_written())
        for written in expected:
            await written.wait()

    def update_resources(
        self,
        resources: Collection[Resource],
        conversions: Mapping[tuple[str, str], JsonObject | None] | None = None,
        *,
        undiscovered: frozenset[str] = frozenset(),
    ) -> None:
        """Take the resource kinds of the cluster, and the webhooks for conversions of CRDs, whenever they change.

        There may be others in the API groups that are *undiscovered*.
        """
        changed = self._reviewer.reviewed.update(resources, undiscovered)
        if self._configurations is not None:
            served = ServedKinds(frozenset((each.group, each.plural) for each in resources), undiscovered)
            handlers = self._reviewer.reviewed.by_handler if changed else None
            self._configurations.update(handlers=handlers, served=served)
        if self._converter.update_resources(resources) and self._definitions is not None:
            self._definitions.update(definitions=self._converter.by_definition)
        if self._definitions is not None:
            self._definitions.notice(conversions or {})

    async def wait_configured(self) -> None:
        """Wait until all that is managed has been written once, or could not be."""
        if self._configurations is not None and self._reviewer.reviewed.by_handler:
            await self._configurations.tried.wait()
        if self._definitions is not None and self._converter.by_definition:
            await self._definitions.tried.wait()

    @property
    def managed_problems(self) -> tuple[str, ...]:
        """The configurations that are not as they should be, in one sentence each: writes may pass unreviewed."""
        managed: tuple[ManagedObjects | None, ...] = (self._configurations, self._definitions)
        return tuple(each.problem for each in managed if each is not None and each.problem is not None)

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems for now, in one sentence each."""
        return (*self.managed_problems, *self._reviewer.reviewed.problems, *self._converter.problems)

    async def linger(self, since: float, remaining: float) -> None:
        """Serve on after a stop that was requested at a time, as reviews still come here: Services learn of it late.

        Return after the delay, and when no reviews have come for a moment; at the latest after a share of the
        *remaining* seconds.
        """
        quiet_at = since + self._find_delay()
        if trio.current_time() < quiet_at:
            _logger.info("Webhooks are served for %g s more.", round(quiet_at - trio.current_time(), 1))
        with trio.move_on_after(remaining * _DELAY_SHARE):
            while trio.current_time() < quiet_at:
                await trio.sleep_until(quiet_at)
                quiet_at = max(quiet_at, self._reviewed_at + _QUIET)

    def _find_delay(self) -> float:
        if self._delay is not None:
            return self._delay
        return _SHUTDOWN_DELAY if self._has_replicas or "service" in self._address else 0.0

    async def release(self, remaining: float) -> None:
        """Remove the webhooks of the operator from the managed configurations, within a share of *remaining* seconds.

        A conversion by a Service, which this operator has replaced, is put back, unless there are replicas.
        """
        with trio.move_on_after(min(_RELEASE_TIMEOUT, _RELEASE_SHARE * remaining), shield=True) as scope:
            if self._configurations is not None:
                await self._configurations.release()
            if self._definitions is not None and not self._has_replicas:
                await self._definitions.release()
        if scope.cancelled_caught:
            _logger.error("The webhook configurations could not be cleared in time.")
