"""Managed conversions: ``spec.conversion`` of CRDs, written when it differs from what is stored.

It is never removed: without it, the API server would relabel objects in place of converting them. So it is written
again where others have removed it, less and less often if they go on, or when the CRD was deleted and created again.
Another webhook that others have set is left: what cannot be converted there is refused, and so not lost. An operator at
a URL, such as on somebody's machine, leaves CRDs to the Service that they had before. CAs of other replicas are kept
for a while (see :mod:`.trust`): they may still serve behind the same address. A replica whose CA was dropped adds it
again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.reviews.webhook_configuration import build_conversion_strategy
from trioperator._kube.api_client import ApiClient
from trioperator._model.jsontypes import JsonObject
from trioperator._webhooks.amendments import CALM, asks_for_injection
from trioperator._webhooks.managed import ManagedObjects
from trioperator._webhooks.trust import Trust, find_address, trusts_none
from trioperator.errors import ApiError, ConflictError, ForbiddenError, NotFoundError, TrioperatorError

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Before a conversion that others have removed is written again: at once, and later if they remove it again.
_BACKOFF: Final = Backoff(initial=1.0, maximum=30.0, jitter=0.25)
# Writes of a CRD that others are changing, too, until that counts as an error.
_ATTEMPTS: Final = 5
_REMOVED: Final = (
    "Others have removed the conversion of the CRD %s: writing it again."
    " Objects that were written meanwhile may have lost the fields in which their versions differ."
)
_DROPPED: Final = (
    "Another replica has dropped the CA of this one from the conversion of the CRD %s: adding it again. Replicas behind"
    " one address that run side by side need one CA: pass WebhookServer(ca_secret=...)."
)


class ConversionDefinitions(ManagedObjects):
    """The CRDs whose objects the operator converts. Nothing is repaired once *stopping* is set."""

    def __init__(self, client: ApiClient, *, stopping: trio.Event) -> None:
        super().__init__(client, "conversions of CRDs")
        self._stopping = stopping
        self._names: tuple[str, ...] | None = None
        self._address: Mapping[str, Any] | None = None
        self._written: dict[str, JsonObject] = {}
        self._trust: dict[str, Trust] = {}
        self._replaced: dict[str, JsonObject] = {}  # conversions by Services, which are put back at the end
        self._seen: Mapping[str, JsonObject | None] = {}  # the webhooks of CRDs, as they were seen last
        self._again: frozenset[str] = frozenset()  # those that are written again
        self._noticed, self._tried = Pulse(), Pulse()
        self._repairs, self._repaired_at = 0, -CALM

    async def serve(self) -> None:
        """Write the CRDs whenever their conversions are not as they should be, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, "repair conversions", self._repair, name="repair conversions")
            nursery.start_soon(keep, "CAs of other replicas", self._drop_others, name="CAs of other replicas")
            await super().serve()

    def update(
        self, *, definitions: Iterable[tuple[str, str]] | None = None, address: Mapping[str, Any] | None = None
    ) -> None:
        """Take the groups and plurals of the CRDs, or the address of the server; both must be known to write."""
        if definitions is not None:
            self._names = tuple(map(_name_crd, definitions))
            self._written = {name: self._written[name] for name in self._names if name in self._written}
            self._trust = {name: self._trust[name] for name in self._names if name in self._trust}
        self._address = self._address if address is None else address
        if self._names is not None and self._address is not None:
            self._changed.set()

    def notice(self, conversions: Mapping[tuple[str, str], JsonObject | None]) -> None:
        """Take the webhooks of CRDs by their groups and plurals, which may be those of a moment ago."""
        self._seen = {_name_crd(definition): webhook for definition, webhook in conversions.items()}
        if self._find_removed():
            self._noticed.set()

    def _find_removed(self) -> frozenset[str]:
        return frozenset(
            name
            for name, written in self._written.items()
            if name in self._seen and _is_removed(written, self._seen[name])
        )

    async def _repair(self) -> None:
        """Write conversions again that others have removed, until cancelled."""
        while True:
            await self._noticed.wait()
            if trio.current_time() - self._repaired_at >= CALM:
                self._repairs = 0
            await trio.sleep(_BACKOFF.delay(self._repairs))
            if (removed := self._find_removed()) and not self._stopping.is_set():
                self._again |= removed
                self._changed.set()

    async def _drop_others(self) -> None:
        """Remove the CAs of other replicas when their time is over, until cancelled.

        They stay where CRDs are not watched: those who need them would not notice.
        """
        while True:
            trusts = {name: trust for name, trust in self._trust.items() if name in self._seen.keys() - self._again}
            expiries = {name: trust.find_expiry() or math.inf for name, trust in trusts.items()}
            due = min(expiries.values(), default=math.inf)
            with trio.move_on_at(due) as waiting:
                await self._tried.wait()
            if waiting.cancelled_caught:
                self._again |= {name for name, expiry in expiries.items() if expiry <= due}
                if not self._stopping.is_set():
                    self._changed.set()

    async def _write(self) -> None:
        """Write all CRDs that differ, and raise the first error."""
        assert self._names is not None
        assert self._address is not None
        wanted = build_conversion_strategy(self._address)
        errors: list[ApiError] = []
        for name in self._names:
            if self._released:
                return
            if self._written.get(name) != wanted or name in self._again:
                try:
                    await self._write_one(name, wanted)
                    self._written[name] = wanted
                    self._again -= {name}
                except ApiError as error:
                    errors.append(error)
        self._tried.set()
        if errors:
            raise errors[0]

    async def _write_one(self, name: str, wanted: JsonObject) -> None:
        """Write the conversion of one CRD, unless it is stored already.

        What another replica writes at the same time is read again, so that neither loses the CA of the other.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._try_to_write(name, wanted)
            except NotFoundError:
                self._trust.pop(name, None)
                self._logger.warning("There is no CRD %s: its objects cannot be converted by webhooks.", name)
            except ConflictError:
                if attempt == _ATTEMPTS:
                    raise
                continue
            return

    async def _try_to_write(self, name: str, wanted: JsonObject) -> None:
        before, metadata = await self._read(name)
        if trusts_none(wanted["webhook"], (before or {}).get("webhook") or {}):
            self._trust.pop(name, None)  # others are at work just now: their CAs are not dropped in turn
        joined = self._join(name, _inject(wanted, before, metadata), before)
        is_again = self._written.get(name) == wanted
        if before == joined or (is_again and not self._is_repairable(name, wanted, before)):
            return  # what was seen of the CRD may have been outdated
        if _has(before, "service") and _has(wanted, "url"):
            assert before is not None
            self._replaced[name] = before
        await self._patch(name, joined, version=metadata.get("resourceVersion"))
        self._join(name, wanted, joined)
        self._logger.info("Updated the conversion of the CRD %s.", name)

    def _join(self, name: str, wanted: JsonObject, stored: JsonObject | None) -> JsonObject:
        """Return the wanted conversion with the CAs of others that are stored."""
        found = (stored or {}).get("webhook")
        trust = self._trust.setdefault(name, Trust())
        [webhook] = trust.join([wanted["webhook"]], [] if found is None else [found], writes=True)
        return {**wanted, "webhook": webhook}

    def _is_repairable(self, name: str, wanted: JsonObject, stored: JsonObject | None) -> bool:
        """Return whether what was written before is to be written again; note and log what others have removed."""
        if stored is None:
            return False
        if stored.get("strategy") == "Webhook":
            webhook = stored.get("webhook") or {}
            if not trusts_none(wanted["webhook"], webhook):
                is_here: bool = _find_address(stored) == _find_address(wanted)
                return is_here
            self._logger.warning(_DROPPED, name)
        else:
            self._logger.warning(_REMOVED, name)
        self._repairs, self._repaired_at = self._repairs + 1, trio.current_time()
        return True

    async def _undo(self) -> None:
        """Put back the Services that URLs of this operator have replaced, unless others have changed them since."""
        for name, before in self._replaced.items():
            try:
                if self._is_own(name, (await self._read(name))[0]):
                    await self._patch(name, before)
                    self._logger.info("The conversion of the CRD %s is left to the Service of before.", name)
            except NotFoundError:
                continue
            except TrioperatorError as error:
                self._logger.error("The conversion of the CRD %s cannot be put back: %s", name, error)
        kept = [name for name, written in self._written.items() if name not in self._replaced and _has(written, "url")]
        if kept:
            text = "The URL of this operator stays in %s: objects can be read in their storage version only."
            self._logger.info(text, ", ".join(f"the CRD {name}" for name in kept))
        self._replaced.clear()

    def _is_own(self, name: str, stored: JsonObject | None) -> bool:
        """Return whether a conversion is by what was written last, or may have been when the writing was cancelled."""
        assert self._address is not None
        known = (self._written.get(name) or {}, build_conversion_strategy(self._address))
        return bool(stored) and _find_address(stored) in map(_find_address, known)

    async def _patch(self, name: str, wanted: JsonObject, *, version: str | None = None) -> None:
        # In a merge patch, fields of an earlier address must be removed by name.
        client_config = {"url": None, "service": None, "caBundle": None, **wanted["webhook"]["clientConfig"]}
        conversion = {**wanted, "webhook": {**wanted["webhook"], "clientConfig": client_config}}
        metadata = {"metadata": {"resourceVersion": version}} if version else {}
        await self._client.patch(f"{_CRDS}/{name}", {**metadata, "spec": {"conversion": conversion}})

    async def _read(self, name: str) -> tuple[JsonObject | None, JsonObject]:
        """Return the stored conversion and the CRD's metadata; nothing if it may not be read. Raises NotFoundError."""
        try:
            crd = await self._client.get(f"{_CRDS}/{name}")
        except ForbiddenError:
            return None, {}
        return crd["spec"].get("conversion"), crd["metadata"]


def _name_crd(definition: tuple[str, str]) -> str:
    group, plural = definition
    return f"{plural}.{group}".rstrip(".")


def _inject(wanted: JsonObject, stored: JsonObject | None, metadata: JsonObject) -> JsonObject:
    """Return the wanted conversion with the CA that another controller was asked to set, if it has none."""
    webhook = wanted["webhook"]
    bundle = (((stored or {}).get("webhook") or {}).get("clientConfig") or {}).get("caBundle")
    if (
        not bundle
        or webhook["clientConfig"].get("caBundle")
        or not asks_for_injection(metadata.get("annotations") or ())
    ):
        return wanted
    return {**wanted, "webhook": {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}}}


def _find_address(conversion: JsonObject | None) -> Any:
    return find_address((conversion or {}).get("webhook") or {})


def _is_removed(written: JsonObject, webhook: JsonObject | None) -> bool:
    """Return whether others have removed the webhook that was written, or this server's CA from it."""
    return webhook is None or trusts_none(written["webhook"], webhook)


def _has(conversion: JsonObject | None, address: str) -> bool:
    """Return whether a conversion is by a webhook with an address of this kind."""
    return address in (((conversion or {}).get("webhook") or {}).get("clientConfig") or {})
