"""Managed conversions: ``spec.conversion`` of CRDs, written when it differs from what is stored.

It is never removed: without it, the API server would relabel objects in place of converting them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trioperator.errors import ApiError, ForbiddenError, NotFoundError
from trioperator.handling.webhook_configuration import build_conversion_strategy
from trioperator.kube.client import Client
from trioperator.model.jsontypes import JsonObject
from trioperator.web.managed import ManagedObjects

__all__ = ["ConversionDefinitions"]

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ConversionDefinitions(ManagedObjects):
    """The CRDs whose objects the operator converts."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, "conversions of CRDs")
        self._names: tuple[str, ...] | None = None
        self._address: Mapping[str, Any] | None = None
        self._written: dict[str, JsonObject] = {}

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
            if self._written.get(name) != wanted:
                try:
                    await self._write_one(name, wanted)
                    self._written[name] = wanted
                except ApiError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def _write_one(self, name: str, wanted: JsonObject) -> None:
        path = f"{_CRDS}/{name}"
        # In a merge patch, fields of an earlier address must be removed by name.
        client_config = {"url": None, "service": None, "caBundle": None, **wanted["webhook"]["clientConfig"]}
        patch = {**wanted, "webhook": {**wanted["webhook"], "clientConfig": client_config}}
        try:
            if await self._read(path) == wanted:
                return
            await self._client.patch(path, {"spec": {"conversion": patch}})
        except NotFoundError:
            self._logger.warning("There is no CRD %s: its objects cannot be converted by webhooks.", name)
        else:
            self._logger.info("Updated the conversion of the CRD %s.", name)

    async def _read(self, path: str) -> JsonObject | None:
        """Return the stored conversion; None if it may not be read. Raises NotFoundError."""
        try:
            stored: JsonObject | None = (await self._client.get(path))["spec"].get("conversion")
        except ForbiddenError:
            return None
        return stored
