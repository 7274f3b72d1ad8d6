"""Managed conversions: ``spec.conversion`` of CRDs, written when it differs from what is stored.

It is never removed: without it, the API server would relabel objects in place of converting them. So it is written
again where others have removed it, less and less often if they go on, or when the CRD was deleted and created again.
Another webhook that others have set is left: what cannot be converted there is refused, and so not lost. An operator at
a URL, such as on somebody's machine, leaves CRDs to the Service that they had before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.reviews.webhook_configuration import build_conversion_strategy
from trioperator._kube.api_client import ApiClient
from trioperator._model.jsontypes import JsonObject
from trioperator._webhooks.amendments import CALM
from trioperator._webhooks.managed import ManagedObjects
from trioperator.errors import ApiError, ForbiddenError, NotFoundError, TrioperatorError

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Before a conversion that others have removed is written again: at once, and later if they remove it again.
_BACKOFF: Final = Backoff(initial=1.0, maximum=30.0, jitter=0.25)
_REMOVED: Final = (
    "Others have removed the conversion of the CRD %s: writing it again."
    " Objects that were written meanwhile may have lost the fields in which their versions differ."
)


class ConversionDefinitions(ManagedObjects):
    """The CRDs whose objects the operator converts. Nothing is repaired once *stopping* is set."""

    def __init__(self, client: ApiClient, *, stopping: trio.Event) -> None:
        super().__init__(client, "conversions of CRDs")
        self._stopping = stopping
        self._names: tuple[str, ...] | None = None
        self._address: Mapping[str, Any] | None = None
        self._written: dict[str, JsonObject] = {}
        self._replaced: dict[str, JsonObject] = {}  # conversions by Services, which are put back at the end
        self._unconverted: Collection[str] = ()  # CRDs without a webhook, as they were seen last
        self._removed: frozenset[str] = frozenset()  # those of them that were written, which are written again
        self._noticed = Pulse()
        self._repairs, self._repaired_at = 0, -CALM

    async def serve(self) -> None:
        """Write the CRDs whenever their conversions are not as they should be, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, "repair conversions", self._repair, name="repair conversions")
            await super().serve()

    def update(
        self, *, definitions: Iterable[tuple[str, str]] | None = None, address: Mapping[str, Any] | None = None
    ) -> None:
        """Take the groups and plurals of the CRDs, or the address of the server; both must be known to write."""
        if definitions is not None:
            self._names = tuple(map(_name_crd, definitions))
            self._written = {name: self._written[name] for name in self._names if name in self._written}
        self._address = self._address if address is None else address
        if self._names is not None and self._address is not None:
            self._changed.set()

    def notice(self, unconverted: Iterable[tuple[str, str]]) -> None:
        """Take the groups and plurals of the CRDs that have no webhook, which may be those of a moment ago."""
        self._unconverted = frozenset(map(_name_crd, unconverted))
        if self._find_removed():
            self._noticed.set()

    def _find_removed(self) -> frozenset[str]:
        return frozenset(self._written.keys() & self._unconverted)

    async def _repair(self) -> None:
        """Write conversions again that others have removed, until cancelled."""
        while True:
            await self._noticed.wait()
            if trio.current_time() - self._repaired_at >= CALM:
                self._repairs = 0
            await trio.sleep(_BACKOFF.delay(self._repairs))
            if (removed := self._find_removed()) and not self._stopping.is_set():
                self._removed = removed
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
            if self._written.get(name) != wanted or name in self._removed:
                try:
                    await self._write_one(name, wanted)
                    self._written[name] = wanted
                    self._removed -= {name}
                except ApiError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def _write_one(self, name: str, wanted: JsonObject) -> None:
        try:
            before = await self._read(name)
            is_repair = self._written.get(name) == wanted
            if before == wanted or (is_repair and (before is None or before.get("strategy") == "Webhook")):
                return  # what was seen of the CRD may have been outdated
            if is_repair:
                self._logger.warning(_REMOVED, name)
                self._repairs, self._repaired_at = self._repairs + 1, trio.current_time()
            if _has(before, "service") and _has(wanted, "url"):
                assert before is not None
                self._replaced[name] = before
            await self._patch(name, wanted)
        except NotFoundError:
            self._logger.warning("There is no CRD %s: its objects cannot be converted by webhooks.", name)
        else:
            self._logger.info("Updated the conversion of the CRD %s.", name)

    async def _undo(self) -> None:
        """Put back the Services that URLs of this operator have replaced, unless others have changed them since."""
        for name, before in self._replaced.items():
            try:
                if self._is_own(name, await self._read(name)):
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
        """Return whether a conversion is what was written last, or may have been when the writing was cancelled."""
        assert self._address is not None
        return stored is not None and stored in (self._written.get(name), build_conversion_strategy(self._address))

    async def _patch(self, name: str, wanted: JsonObject) -> None:
        # In a merge patch, fields of an earlier address must be removed by name.
        client_config = {"url": None, "service": None, "caBundle": None, **wanted["webhook"]["clientConfig"]}
        patch = {**wanted, "webhook": {**wanted["webhook"], "clientConfig": client_config}}
        await self._client.patch(f"{_CRDS}/{name}", {"spec": {"conversion": patch}})

    async def _read(self, name: str) -> JsonObject | None:
        """Return the stored conversion; None if it may not be read. Raises NotFoundError."""
        try:
            stored: JsonObject | None = (await self._client.get(f"{_CRDS}/{name}"))["spec"].get("conversion")
        except ForbiddenError:
            return None
        return stored


def _name_crd(definition: tuple[str, str]) -> str:
    group, plural = definition
    return f"{plural}.{group}".rstrip(".")


def _has(conversion: JsonObject | None, address: str) -> bool:
    """Return whether a conversion is by a webhook with an address of this sort."""
    return address in (((conversion or {}).get("webhook") or {}).get("clientConfig") or {})
