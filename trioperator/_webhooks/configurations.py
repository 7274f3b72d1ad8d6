"""Managed webhook configurations: written when they differ from what is stored, and cleared when the operator stops.

What is stored is watched, and written again whoever has changed it: an administrator by mistake, or another replica
that has stopped. Two operators that want different things change it in turn: each repairs less and less often. One that
is stopping leaves it to the others. Only in their CAs may replicas differ for a while: see :mod:`.trust`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.reviews.admission import WebhookType
from trioperator._handling.reviews.webhook_configuration import HandlersOfResources, build_webhooks
from trioperator._kube.api_client import ApiClient
from trioperator._kube.objects import RawObject
from trioperator._model.jsontypes import JsonObject
from trioperator._runtime.watching.reflector import Reflector
from trioperator._runtime.watching.scope import ObservedItems
from trioperator._webhooks.managed import ManagedObjects
from trioperator._webhooks.trust import Trust
from trioperator.errors import ConflictError, ForbiddenError, NotFoundError, TrioperatorError

__all__ = ["WebhookConfigurations"]

_GROUP: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = {
    WebhookType.VALIDATING: "ValidatingWebhookConfiguration",
    WebhookType.MUTATING: "MutatingWebhookConfiguration",
}


# Before what others have changed is written again: at once, and later if they have changed it again within a while.
_REPAIR_BACKOFF: Final = Backoff(initial=1.0, maximum=30.0, jitter=0.25)
_CALM: Final = 600.0  # seconds
# Writes of a configuration that others are changing, too, until it counts as an error.
_ATTEMPTS: Final = 5

_CONSEQUENCE: Final = "What others change in it, or another replica that stops, is not repaired."
_TRUST: Final = (
    "The %s %r trusts CAs of other replicas: they are removed now. Replicas behind one address that run side by side"
    " need one CA, such as that of WebhookServer(ca_secret=...)."
)
_REMOVED: Final = (
    "Removed %d of %d webhooks from the %s %r, as the operator stops: writes are not reviewed by them any more."
    " Handlers with persistent=True keep theirs."
)


class _Configuration(msgspec.Struct):
    webhooks: list[JsonObject] = []


_decode: Final = msgspec.json.Decoder(_Configuration).decode


def _decode_webhooks(obj: RawObject) -> list[JsonObject]:
    return _decode(obj.raw).webhooks


class WebhookConfigurations(ManagedObjects):
    """The validating and the mutating configuration of one name, as far as the operator manages them.

    Nothing is repaired once *stopping* is set. *persistent* is whether webhooks outlive the operator whose handlers do
    not say.
    """

    def __init__(self, client: ApiClient, name: str, *, stopping: trio.Event, persistent: bool = False) -> None:
        super().__init__(client, "webhook configurations")
        self._name = name
        self._persistent = persistent
        self._handlers: HandlersOfResources | None = None
        self._address: Mapping[str, Any] | None = None
        self._written: dict[WebhookType, list[JsonObject]] = {}
        self._sent: dict[WebhookType, list[JsonObject]] = {}  # what may be stored, though it is not known to be written
        self._stored = {kind: ObservedItems(_decode_webhooks, self._compare) for kind in WebhookType}
        self._trust = {kind: Trust() for kind in WebhookType}
        self._differs = Pulse()
        self._observed = Pulse()
        self._stopping = stopping

    async def serve(self) -> None:
        """Write the configurations whenever they are not as they should be, until cancelled."""
        named = self._client.selecting({"fieldSelector": f"metadata.name={self._name}"}, forms=(None, None))
        async with trio.open_nursery() as nursery:
            for kind in WebhookType:
                reflector = Reflector(
                    named,
                    self._path(kind, name=False),
                    self._stored[kind],
                    consequence=_CONSEQUENCE,
                    can_do_without=True,
                )
                nursery.start_soon(keep, f"{kind} webhooks", reflector.serve, name=f"watch {kind} webhooks")
            nursery.start_soon(keep, "repair webhooks", self._repair, name="repair webhooks")
            nursery.start_soon(keep, "CAs of others", self._drop_foreign, name="CAs of others")
            await super().serve()

    def update(self, *, handlers: HandlersOfResources | None = None, address: Mapping[str, Any] | None = None) -> None:
        """Take the handlers with their resources, or the address of the server; both must be known to write."""
        self._handlers = self._handlers if handlers is None else handlers
        self._address = self._address if address is None else address
        if self._handlers is not None and self._address is not None:
            self._changed.set()

    async def _undo(self) -> None:
        """Remove all webhooks but the persistent ones from the configurations, unless others have changed them."""
        for kind in list(self._sent):
            try:
                await self._clear(kind)
            except NotFoundError:
                pass
            except TrioperatorError as error:
                self._logger.error("The %s %r cannot be cleared: %s", _KINDS[kind], self._name, error)
            del self._sent[kind]
        self._written.clear()

    async def _clear(self, type: WebhookType) -> None:
        assert self._handlers is not None
        assert self._address is not None
        kept = build_webhooks(self._handlers, self._address, type=type, suffix=self._name, persistent=self._persistent)
        stored = await self._read(type)
        webhooks = self._written.get(type) if stored is None else stored
        if webhooks is None or webhooks == kept or not self._is_own(type, webhooks):
            return
        await self._patch(type, kept)
        self._logger.info(_REMOVED, len(webhooks) - len(kept), len(webhooks), _KINDS[type], self._name)

    def _is_own(self, type: WebhookType, stored: list[JsonObject]) -> bool:
        """Return whether others have left a configuration as it was written, or may have been."""
        trust = self._trust[type]
        own = [trust.join(each, stored) for each in (self._written.get(type), self._sent[type]) if each is not None]
        return stored in own and not trust.has_successors

    def _compare(self) -> None:
        """Notice what others have changed. Echoes of earlier writes of our own are found to be stored already."""
        self._observed.set()
        if not self._released and not self._stopping.is_set() and self._find_changed():
            self.problem = f"The {self._title} are not up to date."
            self._differs.set()

    def _find_changed(self) -> list[WebhookType]:
        """Return which of the configurations that were written are not stored so."""
        found = []
        for kind, webhooks in self._written.items():
            stored = next(iter(self._stored[kind]), [])
            if self._stored[kind].complete and stored != self._trust[kind].join(webhooks, stored):
                found.append(kind)
        return found

    async def _repair(self) -> None:
        """Write what others have changed again, until cancelled."""
        attempts, last = 0, -_CALM
        while True:
            await self._differs.wait()
            attempts = attempts + 1 if trio.current_time() - last < _CALM else 0
            await trio.sleep(_REPAIR_BACKOFF.delay(attempts))
            last = trio.current_time()
            for kind in () if self._stopping.is_set() else self._find_changed():
                del self._written[kind]
                self._logger.warning("The %s %r was changed by others: writing it again.", _KINDS[kind], self._name)
            self._changed.set()

    async def _drop_foreign(self) -> None:
        """Remove the CAs of other replicas when their time is over, until cancelled."""
        while True:
            expiries = [expiry for trust in self._trust.values() if (expiry := trust.find_expiry()) is not None]
            with trio.move_on_at(min(expiries, default=math.inf)) as waiting:
                await self._observed.wait()
            if not waiting.cancelled_caught:
                continue
            for kind in () if self._stopping.is_set() else self._find_changed():
                del self._written[kind]
                self._logger.warning(_TRUST, _KINDS[kind], self._name)
                self._changed.set()
            await self._observed.wait()  # until it is written

    async def _write(self) -> None:
        assert self._handlers is not None
        assert self._address is not None
        for kind in WebhookType:
            if self._released:
                return
            webhooks = build_webhooks(self._handlers, self._address, type=kind, suffix=self._name)
            if webhooks == self._written.get(kind):
                continue
            self._sent[kind] = webhooks
            await self._write_one(kind, webhooks)
            self._written[kind] = webhooks

    async def _write_one(self, type: WebhookType, webhooks: list[JsonObject]) -> None:
        """Write one configuration, unless it is stored already. One that would be empty is not created.

        What another replica writes at the same time is read again, so that neither loses the CA of the other.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._try_to_write(type, webhooks)
            except ConflictError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    async def _try_to_write(self, type: WebhookType, webhooks: list[JsonObject]) -> None:
        try:
            found = await self._find(type)
            stored = None if found is None else found.get("webhooks") or []
            version = None if found is None else found["metadata"]["resourceVersion"]
            wanted = self._trust[type].join(webhooks, stored, writes=True)
            if stored != wanted:
                await self._patch(type, wanted, version=version)
                self._logger.info("Updated the %s %r: %d webhooks.", _KINDS[type], self._name, len(webhooks))
        except NotFoundError:
            if webhooks:
                await self._create(type, webhooks)

    async def _create(self, type: WebhookType, webhooks: list[JsonObject]) -> None:
        manifest = {
            "apiVersion": _GROUP,
            "kind": _KINDS[type],
            "metadata": {"name": self._name},
            "webhooks": webhooks,
        }
        await self._client.post(self._path(type, name=False), manifest)
        self._logger.info("Created the %s %r: %d webhooks.", _KINDS[type], self._name, len(webhooks))

    async def _patch(self, type: WebhookType, webhooks: list[JsonObject], *, version: str | None = None) -> None:
        metadata = {} if version is None else {"metadata": {"resourceVersion": version}}
        await self._client.patch(self._path(type), {**metadata, "webhooks": webhooks})

    async def _read(self, type: WebhookType) -> list[JsonObject] | None:
        """Return the stored webhooks; None if they may not be read. Raises NotFoundError."""
        found = await self._find(type)
        return None if found is None else found.get("webhooks") or []

    async def _find(self, type: WebhookType) -> JsonObject | None:
        """Return the stored configuration; None if it may not be read. Raises NotFoundError."""
        try:
            return await self._client.get(self._path(type))
        except ForbiddenError:
            return None

    def _path(self, type: WebhookType, *, name: bool = True) -> str:
        return f"/apis/{_GROUP}/{type}webhookconfigurations{f'/{self._name}' if name else ''}"
