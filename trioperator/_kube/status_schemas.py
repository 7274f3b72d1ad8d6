"""Schemas of the status of kinds, as the API server publishes them: whether it has conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._kube.api_client import ApiClient
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._logs import get_logger
from trioperator._model.resource import Resource
from trioperator.errors import ApiError, NotFoundError

#: The fields of conditions that operators write.
_WRITTEN: Final = frozenset({"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"})
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
# Seconds after which a kind without conditions is asked for again: its definition may have got them.
_PERIOD: Final = 600.0
# Seconds after which conditions are written again where that was forbidden: rights that are granted are no event.
_DENIAL: Final = 60.0
# Seconds for which all other objects wait for what comes of that, as one of them tries it.
_TRIAL: Final = 5.0
# Seconds after which the schema of a kind is asked for again that is served, but not described: it is a second later.
_UNDESCRIBED: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)

_logger = get_logger("trioperator.discovery")


class StatusSchemas:
    """Which custom kinds have conditions in their schemas. Each is asked for when it is needed.

    Built-in kinds count as kinds without: their conditions belong to their own controllers.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._without: dict[Resource, float] = {}
        self._with: dict[Resource, bool] = {}  # whether there is status.observedGeneration, too
        self._undescribed: dict[Resource, tuple[int, float]] = {}  # how often, and when they are asked for again
        self._denied: dict[Resource, float] = {}  # kinds whose conditions may not be written, and until when none are

    async def has_conditions(self, resource: Resource) -> bool:
        """Check whether a kind has ``status.conditions``, and a subresource for its status.

        It must be a list whose schema keeps all fields of conditions, and requires no others: what the API server drops
        or rejects would be written again and again. As long as it is forbidden to write them, a kind has none.

        Raises TrioperatorError if the API server does not respond; where it refuses, the kind counts as one without.
        """
        now = trio.current_time()
        if now < self._denied.get(resource, now):
            return False
        if resource in self._with:
            return True
        if not is_custom(resource) or now - self._without.get(resource, -_PERIOD) < _PERIOD:
            return False
        attempts, until = self._undescribed.get(resource, (0, now))
        if now < until:
            return False
        if 0 < attempts < len(_UNDESCRIBED):
            self._undescribed[resource] = attempts, now + _UNDESCRIBED[attempts]  # one object asks, the others wait
        fields = await self._ask(resource)
        if fields is None and attempts < len(_UNDESCRIBED):
            self._undescribed[resource] = attempts + 1, now + _UNDESCRIBED[attempts]
            return False
        self._undescribed.pop(resource, None)
        if fields is not None and _has_conditions(fields):
            self._with[resource] = "observedGeneration" in fields
            return True
        self._without[resource] = now
        return False

    def is_known(self, resource: Resource) -> bool:
        """Check whether a kind has conditions, as far as that was asked for, which may be written for all one knows."""
        now = trio.current_time()
        return resource in self._with and now >= self._denied.get(resource, now)

    def has_observed_generation(self, resource: Resource) -> bool:
        """Check whether a kind that has conditions has ``status.observedGeneration``, too."""
        return self._with.get(resource, False)

    def deny(self, resource: Resource) -> bool:
        """Take a kind for one without conditions for a while, as the operator may not write them.

        Returns whether that is new: it was allowed before.
        """
        is_new = resource not in self._denied
        self._denied[resource] = trio.current_time() + _DENIAL
        return is_new

    def claim(self, resource: Resource) -> None:
        """Let all others wait for what comes of the conditions that are about to be written, if that was forbidden."""
        if resource in self._denied:
            self._denied[resource] = trio.current_time() + _TRIAL

    def permit(self, resource: Resource) -> None:
        """Note that the operator may write the conditions of a kind."""
        self._denied.pop(resource, None)

    def find_retry(self, resource: Resource) -> float | None:
        """Return when to try again to write the conditions of a kind, on Trio's clock; None if there are none."""
        _, asked_at = self._undescribed.get(resource, (0, None))
        return self._denied.get(resource, asked_at)

    async def _ask(self, resource: Resource) -> Mapping[str, Any] | None:
        """Return the schemas of the fields in the status of a kind; None if the server does not describe it."""
        path = f"/openapi/v3/apis/{resource.group}/{resource.version}"
        try:
            document = msgspec.json.decode(await self._client.request("GET", path))
        except ApiError as error:
            if error.status >= 500:
                raise
            if isinstance(error, NotFoundError):
                return None
            _logger.debug("%s counts as a kind without conditions, as its schema cannot be read: %s", resource, error)
            return {}
        except DECODE_ERRORS as error:
            _logger.debug("%s counts as a kind without conditions: its schema cannot be decoded: %s", resource, error)
            return {}
        return _find_status(document, resource)


def is_custom(resource: Resource) -> bool:
    """Check whether operators maintain the status of a kind: those of built-in kinds belong to Kubernetes."""
    group = resource.group
    return "status" in resource.subresources and "." in group and not group.endswith(".k8s.io")


def _find_status(document: Any, resource: Resource) -> Mapping[str, Any] | None:
    wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    for schema in _get(document, "components", "schemas").values():
        kinds = _get(schema).get("x-kubernetes-group-version-kind")
        if isinstance(kinds, list) and wanted in kinds:
            return _get(schema, "properties", "status", "properties")
    return None


def _has_conditions(fields: Mapping[str, Any]) -> bool:
    conditions = _get(fields, "conditions")
    items = _get(conditions, "items")
    known, required = _get(items, "properties"), items.get("required")
    if conditions.get("type") != "array" or any("enum" in _get(known, name) for name in ("type", "reason")):
        return False
    if isinstance(required, list) and not _WRITTEN.issuperset(required):
        return False
    return items.get(_PRESERVES) is True or known.keys() >= _WRITTEN


def _get(value: Any, *keys: str) -> Mapping[str, Any]:
    """Return the mapping at a path in what the server has sent, empty where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
