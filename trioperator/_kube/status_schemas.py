"""Schemas of the status of kinds, as the API server publishes them: whether it has conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._model.resource import Resource
from trioperator.errors import ApiError

# Seconds after which a kind without conditions is asked for again: its definition may have got them.
_PERIOD: Final = 600.0

_logger = get_logger("trioperator.discovery")


class StatusSchemas:
    """Which custom kinds have conditions in their schemas. Each is asked for when it is needed.

    Built-in kinds count as kinds without: their conditions belong to their own controllers.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._without: dict[Resource, float] = {}
        self._with: set[Resource] = set()

    async def has_conditions(self, resource: Resource) -> bool:
        """Check whether a kind has ``status.conditions``, which is a list, and a subresource for its status.

        Raises TrioperatorError if the API server does not respond; where it refuses, the kind counts as one without.
        """
        if resource in self._with:
            return True
        now = trio.current_time()
        if not is_custom(resource) or now - self._without.get(resource, -_PERIOD) < _PERIOD:
            return False
        if await self._ask(resource):
            self._with.add(resource)
            return True
        self._without[resource] = now
        return False

    def deny(self, resource: Resource) -> None:
        """Take a kind for one without conditions for a while, as the operator may not write them."""
        self._with.discard(resource)
        self._without[resource] = trio.current_time()

    async def _ask(self, resource: Resource) -> bool:
        path = f"/openapi/v3/apis/{resource.group}/{resource.version}"
        try:
            document = msgspec.json.decode(await self._client.request("GET", path))
        except ApiError as error:
            if error.status >= 500:
                raise
            _logger.debug("%s counts as a kind without conditions, as its schema cannot be read: %s", resource, error)
            return False
        except msgspec.MsgspecError as error:
            _logger.debug("%s counts as a kind without conditions: its schema is no JSON: %s", resource, error)
            return False
        return _find_conditions(document, resource)


def is_custom(resource: Resource) -> bool:
    """Check whether a kind has a status of its own, which operators maintain: it is none of Kubernetes' own."""
    group = resource.group
    return "status" in resource.subresources and "." in group and not group.endswith(".k8s.io")


def _find_conditions(document: Any, resource: Resource) -> bool:
    schemas = _get(_get(document, "components"), "schemas")
    wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    for schema in schemas.values():
        kinds = _get(schema).get("x-kubernetes-group-version-kind")
        if isinstance(kinds, list) and wanted in kinds:
            status = _get(_get(schema, "properties"), "status")
            return bool(_get(_get(status, "properties"), "conditions").get("type") == "array")
    return False


def _get(value: Any, *keys: str) -> Mapping[str, Any]:
    """Return the mapping at a path in what the server has sent, empty where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
