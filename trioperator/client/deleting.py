"""Deletions that hit the object that was meant, though their responses may be lost and other objects get its name."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.clock import wall_now
from trioperator._http.transport import Headers, TransportError, find_date
from trioperator._kube.api_client import Params
from trioperator._kube.retry import adjust_delay, iterate_backoffs
from trioperator._model.jsontypes import JsonObject
from trioperator.client.locating import Target
from trioperator.errors import ApiError, ConflictError, ConnectionLostError, NotFoundError, ServerError

# Seconds: an object that was created so long before it was to be deleted is the one that was meant, as far as the
# clocks of the API servers of one cluster agree. The clock of this machine is not asked what time it is.
_CLEARLY_OLDER: Final = 30.0


class Deletion:
    """The deletion of one object, which may take several requests: by *uid*, or by its name if that is None.

    A request without a uid is not repeated blindly, as its first attempt may have succeeded, and somebody may have
    created another object of the name since.
    """

    def __init__(self, target: Target, options: JsonObject, params: Params, *, uid: str | None) -> None:
        self._target = target
        self._options = options
        self._params = params
        self._uid = uid
        self._is_repeated = False
        self._begun = (wall_now(), trio.current_time())
        self._server_now: datetime.datetime | None = None

    async def send(self) -> JsonObject:
        """Delete the object. Raises as requests do, and NotFoundError if it is gone, even if another has its name."""
        if self._uid is not None:
            return await self._send(self._uid)
        try:
            return await self._send(None)
        except (ConnectionLostError, ServerError) as error:
            delay = self._find_delay(error)
            if delay is None:
                raise
            self._target.kube.report_retry("DELETE", self._target.get_path(), error, delay=delay)
            await trio.sleep(delay)
            self._is_repeated = True
            self._uid = await self._find_uid(error)
        return await self._send(self._uid)

    async def _send(self, uid: str | None) -> JsonObject:
        body = self._options if uid is None else {**self._options, "preconditions": {"uid": uid}}
        try:
            return await self._target.kube.delete(self._target.get_path(), body=body or None, params=self._params)
        except ConflictError as error:
            if uid is None or not await is_replaced(self._target, uid):
                raise
            raise replaced_error(self._target, repeated=error.repeated or self._is_repeated) from error
        except NotFoundError as error:
            error.repeated = error.repeated or self._is_repeated
            raise

    def _find_delay(self, error: ConnectionLostError | ServerError) -> float | None:
        """Return the seconds until another attempt; None if that cannot help, or nothing is to be retried."""
        if isinstance(error, TransportError) and (error.final or not error.reached):
            return None  # what has not reached the server was retried already
        networking = self._target.kube.settings.networking
        delay = next(iterate_backoffs(networking.error_backoffs), None)
        return None if delay is None else adjust_delay(delay, error, enforce=networking.enforce_retry_after)

    async def _find_uid(self, error: ConnectionLostError | ServerError) -> str:
        """Return the uid of the object, if it is certainly the one that was meant. Raises NotFoundError, or *error*."""
        try:
            found = await self._target.kube.noting_headers(self._note_date).get(self._target.get_path())
        except NotFoundError as missing:
            missing.repeated = True
            raise
        except (ApiError, ConnectionLostError):
            raise error from None  # perhaps it may not be read
        metadata = found.get("metadata") or {}
        if not metadata.get("uid") or not (metadata.get("deletionTimestamp") or self._is_older(metadata)):
            raise error
        return str(metadata["uid"])

    def _note_date(self, headers: Headers) -> None:
        """Note the time on the server's clock."""
        self._server_now = find_date(headers)

    def _is_older(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether the object is clearly older than the deletion by the server's clock; False if unknown."""
        wall, steady = self._begun
        # Time passes on both clocks of this machine; one of them stands still while it is suspended.
        elapsed = max(wall_now() - wall, datetime.timedelta(seconds=trio.current_time() - steady))
        try:
            created = datetime.datetime.fromisoformat(str(metadata.get("creationTimestamp")))
            begun = None if self._server_now is None else self._server_now - elapsed
            return begun is not None and (begun - created).total_seconds() > _CLEARLY_OLDER
        except (ValueError, TypeError):  # TypeError: without a zone
            return False


async def is_replaced(target: Target, uid: str) -> bool:
    """Return whether the object with that uid is gone, even if another one has its name; False if that is unknown."""
    try:
        found = await target.kube.get(target.get_path())
    except NotFoundError:
        return True
    except (ApiError, ConnectionLostError):
        return False
    return (found.get("metadata") or {}).get("uid") != uid


def replaced_error(target: Target, *, repeated: bool = False) -> ApiError:
    """Return the error about an object that is gone, while another one has its name."""
    error = ApiError.of(f'"{target.name}" was replaced by another object', status=404, reason="NotFound")
    error.repeated = repeated
    return error
