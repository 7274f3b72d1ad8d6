"""Managed conversions: ``spec.conversion`` of CRDs, written when it differs from what is stored.

It is never removed: without it, the API server would relabel objects in place of converting them. But an operator at
a URL, such as on somebody's machine, leaves CRDs to the Service that they had before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trioperator._handling.reviews.webhook_configuration import build_conversion_strategy
from trioperator._kube.api_client import ApiClient
from trioperator._model.jsontypes import JsonObject
from trioperator._webhooks.managed import ManagedObjects
from trioperator.errors import ApiError, ForbiddenError, NotFoundError, TrioperatorError

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ConversionDefinitions(ManagedObjects):
    """The CRDs whose objects the operator converts."""

    def __init__(self, client: ApiClient) -> None:
        super().__init__(client, "conversions of CRDs")
        self._names: tuple[str, ...] | None = None
        self._address: Mapping[str, Any] | None = None
        self._written: dict[str, JsonObject] = {}
        self._replaced: dict[str, JsonObject] = {}  # conversions by Services, which are put back at the end

    def update(
        self, *, definitions: Iterable[tuple[str, str]] | None = None, address: Mapping[str, Any] | None = None
    ) -> None:
        """Take the groups and plurals of the CRDs, or the address of the server; both must be known to write."""
        if definitions is not None:
            self._names = tuple(f"{plural}.{group}".rstrip(".") for group, plural in definitions)
        self._address = self._address if address is None else address
        if self._names is not None and self._address is not None:
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
            if self._written.get(name) != wanted:
                try:
                    await self._write_one(name, wanted)
                    self._written[name] = wanted
                except ApiError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def _write_one(self, name: str, wanted: JsonObject) -> None:
        try:
            before = await self._read(name)
            if before == wanted:
                return
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


def _has(conversion: JsonObject | None, address: str) -> bool:
    """Return whether a conversion is by a webhook with an address of this sort."""
    return address in (((conversion or {}).get("webhook") or {}).get("clientConfig") or {})
