"""Managed webhook configurations: written when they differ from what is stored, and cleared when the operator stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trioperator.errors import ConflictError, ForbiddenError, NotFoundError, TrioperatorError
from trioperator.handling.admission import WebhookType
from trioperator.handling.webhook_configuration import HandlersOfResources, build_webhooks
from trioperator.kube.client import Client
from trioperator.model.jsontypes import JsonObject
from trioperator.web.managed import ManagedObjects

__all__ = ["WebhookConfigurations"]

_GROUP: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = {
    WebhookType.VALIDATING: "ValidatingWebhookConfiguration",
    WebhookType.MUTATING: "MutatingWebhookConfiguration",
}


class WebhookConfigurations(ManagedObjects):
    """The validating and the mutating configuration of one name, as far as the operator manages them."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(client, "webhook configurations")
        self._name = name
        self._handlers: HandlersOfResources | None = None
        self._address: Mapping[str, Any] | None = None
        self._written: dict[WebhookType, list[JsonObject]] = {}

    def update(self, *, handlers: HandlersOfResources | None = None, address: Mapping[str, Any] | None = None) -> None:
        """Take the handlers with their resources, or the address of the server; both must be known to write."""
        self._handlers = self._handlers if handlers is None else handlers
        self._address = self._address if address is None else address
        if self._handlers is not None and self._address is not None:
            self._changed.set()

    async def release(self) -> None:
        """Remove all webhooks but the persistent ones from the configurations, unless others have changed them."""
        if not self._written or self._handlers is None or self._address is None:
            return
        for kind, webhooks in list(self._written.items()):
            kept = build_webhooks(self._handlers, self._address, type=kind, suffix=self._name, persistent=True)
            try:
                if kept != webhooks and await self._read(kind) in (webhooks, None):
                    await self._patch(kind, kept)
                    self._logger.debug("The %s %r is left with %d webhooks.", _KINDS[kind], self._name, len(kept))
            except NotFoundError:
                continue
            except TrioperatorError as error:
                self._logger.error("The %s %r cannot be cleared: %s", _KINDS[kind], self._name, error)
        self._written.clear()

    async def _write(self) -> None:
        assert self._handlers is not None
        assert self._address is not None
        for kind in WebhookType:
            webhooks = build_webhooks(self._handlers, self._address, type=kind, suffix=self._name)
            if webhooks == self._written.get(kind):
                continue
            await self._write_one(kind, webhooks)
            self._written[kind] = webhooks

    async def _write_one(self, type: WebhookType, webhooks: list[JsonObject]) -> None:
        """Write one configuration, unless it is stored already. One that would be empty is not created."""
        try:
            if await self._read(type) == webhooks:
                return
            await self._patch(type, webhooks)
        except NotFoundError:
            if webhooks:
                await self._create(type, webhooks)
            return
        self._logger.info("Updated the %s %r: %d webhooks.", _KINDS[type], self._name, len(webhooks))

    async def _create(self, type: WebhookType, webhooks: list[JsonObject]) -> None:
        manifest = {
            "apiVersion": _GROUP,
            "kind": _KINDS[type],
            "metadata": {"name": self._name},
            "webhooks": webhooks,
        }
        try:
            await self._client.post(self._path(type, name=False), manifest)
        except ConflictError:  # created by another operator in the meantime
            await self._patch(type, webhooks)
        self._logger.info("Created the %s %r: %d webhooks.", _KINDS[type], self._name, len(webhooks))

    async def _patch(self, type: WebhookType, webhooks: list[JsonObject]) -> None:
        await self._client.patch(self._path(type), {"webhooks": webhooks})

    async def _read(self, type: WebhookType) -> list[JsonObject] | None:
        """Return the stored webhooks; None if they may not be read. Raises NotFoundError."""
        try:
            stored: list[JsonObject] = (await self._client.get(self._path(type))).get("webhooks") or []
        except ForbiddenError:
            return None
        return stored

    def _path(self, type: WebhookType, *, name: bool = True) -> str:
        return f"/apis/{_GROUP}/{type}webhookconfigurations{f'/{self._name}' if name else ''}"
