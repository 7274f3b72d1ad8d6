"""Managed webhook configurations: written when they differ from what is stored, and cleared when the operator stops.

What is stored is watched, and written again whoever has changed it: an administrator by mistake, or another replica
that has stopped. Two operators that want different things change it in turn: each repairs less and less often. One that
is stopping leaves it to the others. Replicas may differ for a while in their CAs (see :mod:`.trust`), and in what they
call their webhooks (:mod:`.other_versions`). Amendments by others than replicas are the matter of :mod:`.amendments`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.reviews.admission import WebhookType
from trioperator._handling.reviews.webhook_configuration import HandlersOfResources, ServedKinds, build_webhooks
from trioperator._kube.api_client import ApiClient
from trioperator._model.jsontypes import JsonObject
from trioperator._runtime.watching.reflector import Reflector
from trioperator._webhooks.amendments import StoredConfiguration, list_differences
from trioperator._webhooks.configuration import Configuration, decode_stored
from trioperator._webhooks.managed import ManagedObjects
from trioperator._webhooks.other_versions import OtherVersion
from trioperator._webhooks.trust import trusts_part
from trioperator.errors import ConflictError, ForbiddenError, NotFoundError, TrioperatorError

_GROUP: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = {
    WebhookType.VALIDATING: "ValidatingWebhookConfiguration",
    WebhookType.MUTATING: "MutatingWebhookConfiguration",
}


# Writes of a configuration that others are changing, too, until it counts as an error.
_ATTEMPTS: Final = 5

_CONSEQUENCE: Final = "What others change in it, or another replica that stops, is not repaired."
_TRUST: Final = (
    "The %s %r trusts CAs of other replicas: they are removed now. Replicas behind one address that run side by side"
    " need one CA: pass WebhookServer(ca_secret=...)."
)
_OLDER: Final = "The %s %r has webhooks of an older version of this operator: they are removed now."
_CHANGED: Final = "The %s %r was changed by others: writing it again."
_FIGHT: Final = (
    "The %s %r is changed again and again by %s, in %s, and written again each time: less and less often, and silently"
    " from now on. Give operators names of their own; tell other controllers to leave it alone."
)
_AMENDED: Final = (
    "The API server stores the %s %r in another form than the one that was sent, which differs in %s: it is left so."
)
# Seconds for which new webhooks have no rules beside older replicas' webhooks, which get to know them meanwhile.
_NOTICE: Final = 2.0
_REMOVED: Final = (
    "Removed %d of %d webhooks from the %s %r, as the operator stops: they no longer review writes."
    " Handlers with persistent=True keep theirs."
)


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
        self._address: Mapping[str, Any] = {}
        self._known = {kind: Configuration(self._compare) for kind in WebhookType}
        self._observed = Pulse()
        self._stopping = stopping

    async def serve(self) -> None:
        """Write the configurations whenever they are not as they should be, until cancelled."""
        named = self._client.selecting({"fieldSelector": f"metadata.name={self._name}"}, forms=(None, None))
        async with trio.open_nursery() as nursery:
            for kind, known in self._known.items():
                reflector = Reflector(
                    named,
                    self._path(kind, name=False),
                    known.stored,
                    consequence=_CONSEQUENCE,
                    can_do_without=True,
                )
                nursery.start_soon(keep, f"{kind} webhooks", reflector.serve, name=f"watch {kind} webhooks")
                repair = functools.partial(self._repair, kind, known)
                nursery.start_soon(keep, f"repair {kind} webhooks", repair, name=f"repair {kind} webhooks")
            nursery.start_soon(keep, "other replicas", self._drop_others, name="other replicas")
            await super().serve()

    def update(
        self,
        *,
        handlers: HandlersOfResources | None = None,
        served: ServedKinds | None = None,
        address: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the handlers with their resources, or the address of the server; both must be known to write.

        What is stored of kinds that are not among those *served* is left as it is.
        """
        self._handlers = self._handlers if handlers is None else handlers
        self._address = self._address if address is None else address
        for known in self._known.values():
            known.served = known.served if served is None else served
            known.written = known.written if handlers is None else None
        if handlers is None and address is None:
            self._compare()
        elif self._handlers is not None and self._address:
            self._changed.set()

    def find_other(self, webhook: str) -> OtherVersion | None:
        """Return the webhook of another version of the operator that is served beside this one, by its id."""
        found = {kind: known.others.find(webhook) for kind, known in self._known.items()}
        return next((OtherVersion(kind, is_newer) for kind, is_newer in found.items() if is_newer is not None), None)

    async def _undo(self) -> None:
        """Remove all webhooks but the persistent ones from the configurations, unless others have changed them."""
        for kind, known in self._known.items():
            if known.sent is None:
                continue
            try:
                await self._clear(kind, known)
            except NotFoundError:
                pass
            except TrioperatorError as error:
                self._logger.error("The %s %r cannot be cleared: %s", _KINDS[kind], self._name, error)
            known.sent = known.written = None

    async def _clear(self, type: WebhookType, known: Configuration) -> None:
        assert self._handlers is not None
        found = await self._find(type)
        stored = StoredConfiguration(webhooks=known.written or []) if found is None else found
        if (found is not None and not known.is_own(found, self._address)) or not stored.webhooks:
            return
        own, kept = (
            {hook["name"] for hook in self._build(type, persistent=persistent)}
            for persistent in (None, self._persistent)
        )
        left = [hook for hook in stored.webhooks if hook["name"] not in own - kept]
        if left != stored.webhooks:
            await self._patch(type, left)
            count = len(stored.webhooks)
            self._logger.info(_REMOVED, count - len(left), count, _KINDS[type], self._name)

    def _compare(self) -> None:
        """Notice what others have changed. Echoes of earlier writes of our own are found to be stored already."""
        self._observed.set()
        if self._released or self._stopping.is_set():
            return
        for known in self._known.values():
            if (change := known.find_change(self._address)) is not None:
                wanted, stored = change
                if not known.repairs.tolerates(wanted, stored.webhooks):
                    self.problem = f"The {self._title} are not up to date."
                known.differs.set()

    async def _repair(self, type: WebhookType, known: Configuration) -> None:
        """Write what others have changed again, until cancelled. If others have repaired it, only make sure of that."""
        while True:
            await known.differs.wait()
            while not self._stopping.is_set() and (change := known.find_change(self._address)) is not None:
                with trio.move_on_at(known.repairs.schedule(change[0], change[1].webhooks)) as waiting:
                    await known.differs.wait()
                if waiting.cancelled_caught:
                    if (change := known.find_change(self._address)) is not None:
                        self._report(type, known, *change)
                    break
            if not self._stopping.is_set():
                known.written = None
                self._changed.set()

    def _report(
        self, type: WebhookType, known: Configuration, wanted: list[JsonObject], stored: StoredConfiguration
    ) -> None:
        """Log what is repaired; a fight only once, and no CA that another replica has dropped earlier than this one."""
        before = known.repairs.is_fought(stored.webhooks)
        known.repairs.note(wanted, stored.webhooks)
        if trusts_part(known.written or [], wanted, stored.webhooks):
            return
        if not known.repairs.is_fought(stored.webhooks):
            self._logger.warning(_CHANGED, _KINDS[type], self._name)
        elif not before:
            fields = list_differences(wanted, stored.webhooks)
            self._logger.warning(_FIGHT, _KINDS[type], self._name, stored.manager, fields)

    async def _drop_others(self) -> None:
        """Remove the CAs and webhooks of other replicas when their time is over, until cancelled."""
        while True:
            with trio.move_on_at(min(known.find_expiry() for known in self._known.values())) as waiting:
                await self._observed.wait()
            if not waiting.cancelled_caught:
                continue
            for kind, known in () if self._stopping.is_set() else self._known.items():
                if (change := known.find_change(self._address)) is not None:
                    wanted, stored = change
                    known.written = None
                    text = _TRUST if len(wanted) == len(stored.webhooks) else _OLDER
                    self._logger.warning(text, _KINDS[kind], self._name)
                    self._changed.set()
            await self._observed.wait()  # until it is written

    async def _write(self) -> None:
        for kind, known in self._known.items():
            if self._released:
                return
            webhooks = self._build(kind)
            if webhooks == known.written:
                continue
            known.sent, seen = webhooks, known.watched
            version = await self._write_one(kind, known, webhooks)
            known.written = webhooks
            if known.is_overtaken(version, seen):
                self._compare()

    def _build(self, type: WebhookType, *, persistent: bool | None = None) -> list[JsonObject]:
        assert self._handlers is not None
        return build_webhooks(
            self._handlers,
            self._address,
            type=type,
            suffix=self._name,
            persistent=persistent,
            without_rules=True,
        )

    async def _write_one(self, type: WebhookType, known: Configuration, webhooks: list[JsonObject]) -> str:
        """Write one configuration, unless it is stored already. One that would be empty is not created.

        Returns the resource version in which it is stored, empty if it is not. What another replica writes at the same
        time is read again, so that neither loses the CA of the other.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                stored = await self._try_to_write(type, known, webhooks)
            except ConflictError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return "" if stored is None else stored.metadata.resource_version
        return ""

    async def _try_to_write(
        self, type: WebhookType, known: Configuration, webhooks: list[JsonObject]
    ) -> StoredConfiguration | None:
        try:
            stored = await self._find(type)
            wanted = known.join(webhooks, stored, self._address, writes=True)
            if stored is None:
                written = await self._patch(type, wanted)
            elif stored.webhooks == wanted:
                return stored
            else:
                if known.others.hooks:
                    stored = await self._announce(type, known, wanted, stored)
                written = await self._patch(type, wanted, version=stored.metadata.resource_version)
                self._note_written(type, known, wanted, written)
        except NotFoundError:
            wanted = known.join(webhooks, None, self._address)
            return await self._create(type, known, wanted) if wanted else None
        self._logger.info("Updated the %s %r: %d webhooks.", _KINDS[type], self._name, len(webhooks))
        return written

    async def _announce(
        self, type: WebhookType, known: Configuration, wanted: list[JsonObject], stored: StoredConfiguration
    ) -> StoredConfiguration:
        """Store new webhooks without rules at first: replicas of an older version know them when they are called."""
        called = {hook.get("name") for hook in stored.webhooks if hook.get("rules")}
        quiet = [hook if hook["name"] in called else {**hook, "rules": []} for hook in wanted]
        if quiet == wanted:
            return stored
        known_to_all = {hook.get("name") for hook in stored.webhooks} >= {hook["name"] for hook in wanted}
        if not known_to_all:
            stored = await self._patch(type, quiet, version=stored.metadata.resource_version)
        await trio.sleep(_NOTICE)
        return stored

    async def _create(self, type: WebhookType, known: Configuration, webhooks: list[JsonObject]) -> StoredConfiguration:
        manifest = {
            "apiVersion": _GROUP,
            "kind": _KINDS[type],
            "metadata": {"name": self._name},
            "webhooks": webhooks,
        }
        path = self._path(type, name=False)
        written = decode_stored(await self._client.request("POST", path, body=msgspec.json.encode(manifest)))
        self._note_written(type, known, webhooks, written)
        self._logger.info("Created the %s %r: %d webhooks.", _KINDS[type], self._name, len(webhooks))
        return written

    def _note_written(
        self, type: WebhookType, known: Configuration, wanted: list[JsonObject], stored: StoredConfiguration
    ) -> None:
        if known.note_written(wanted, stored):
            fields = list_differences(wanted, stored.webhooks)
            self._logger.warning(_AMENDED, _KINDS[type], self._name, fields)

    async def _patch(
        self, type: WebhookType, webhooks: list[JsonObject], *, version: str | None = None
    ) -> StoredConfiguration:
        metadata = {"metadata": {"resourceVersion": version}} if version else {}
        return decode_stored(await self._client.patch(self._path(type), {**metadata, "webhooks": webhooks}))

    async def _find(self, type: WebhookType) -> StoredConfiguration | None:
        """Return the stored configuration; None if it may not be read. Raises NotFoundError."""
        try:
            return decode_stored(await self._client.request("GET", self._path(type)))
        except ForbiddenError:
            return None

    def _path(self, type: WebhookType, *, name: bool = True) -> str:
        return f"/apis/{_GROUP}/{type}webhookconfigurations{f'/{self._name}' if name else ''}"
