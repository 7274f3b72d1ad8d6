"""Functions of patches, applied to the newest state of an object, and each only once.

A conditional patch either does what was meant or meets a conflict, and then the functions are applied again. But a
response can be lost: then the newest state tells whether what was meant is there already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from trioperator.backoff import Backoff
from trioperator.errors import ApiError, ServerError, UserCodeError
from trioperator.handling import guard
from trioperator.logs import Logger
from trioperator.model.patch import PatchFn, json_patch
from trioperator.runtime.cache import Kind
from trioperator.runtime.patching.pending import Contribution, SentPatch
from trioperator.runtime.patching.requests import PatchRequests, StaleError

__all__ = ["Functions"]

# Attempts at the same patch, and the delays between them, as of client-go's retry.DefaultBackoff.
_ATTEMPTS: Final = 5
_BACKOFF: Final = Backoff(initial=0.01, maximum=1.0, factor=5.0, jitter=0.1)

_MISSING: Final = object()

Ops = Sequence[Mapping[str, Any]]


class Functions:
    """Functions applied to one object. ``body`` is its newest state; ``sent`` is what has had no response yet."""

    def __init__(self, requests: PatchRequests, kind: Kind, body: Mapping[str, Any], logger: Logger) -> None:
        self.body = body
        self.sent: SentPatch | None = None
        self._requests = requests
        self._kind = kind
        self._logger = logger

    def reset(self, body: Mapping[str, Any]) -> None:
        """Begin again with another state, as what was sent is surely not applied."""
        self.body = body
        self.sent = None

    async def apply(self, contributions: list[Contribution], sent: SentPatch | None) -> None:
        """Apply functions to the object, again after a conflict; remove the *contributions* that are applied.

        *sent* is what an earlier call has left without a response. Raises what the requests raise, and ConflictError
        after too many conflicts in a row: then it is for the reconciler to try again later.
        """
        self.sent = sent
        for conflicts in range(_ATTEMPTS):
            if conflicts:
                await trio.sleep(_BACKOFF.delay(conflicts))
            groups = self._resume()
            begun = groups is not None
            if groups is None:
                wanted = self._change(contributions)
                groups = self._group(json_patch(self.body, wanted))
                self.sent = SentPatch(wanted, groups)
            if await self._send(groups, begun=begun):
                self.sent = None
                contributions.clear()
                return
        name = self.body["metadata"]["name"]
        raise ApiError.of(f"{name} was changed {_ATTEMPTS} times in a row meanwhile", status=409, reason="Conflict")

    async def _send(self, groups: Mapping[str | None, Ops], *, begun: bool) -> bool:
        """Send JSON patches, and return whether they were applied: not after a conflict.

        They are the rest of what was applied in part if they are *begun*.
        """
        try:
            for subresource, ops in groups.items():
                if ops:
                    self.body = await self._requests.patch_conditionally(self._kind, self.body, ops, subresource)
                    begun = True
        except StaleError as stale:
            self.body = stale.body
            if not begun and not stale.may_be_ours:
                self.sent = None
            return False
        except ApiError as error:
            if not (begun or error.repeated or isinstance(error, ServerError)):
                self.sent = None  # it was surely not applied
            raise
        return True

    def _change(self, contributions: Sequence[Contribution]) -> Mapping[str, Any]:
        """Return the object as the functions want it. Those that fail are reported, and change nothing."""
        wanted: Any = self.body
        for contribution in contributions:
            for fn in contribution.fns:
                try:
                    wanted = guard.call("A function in the patch of {}", contribution.by, _apply, fn, wanted)
                except UserCodeError as error:
                    self._logger.error("%s: it is dropped.", error, exc_info=error.__cause__)
        result: Mapping[str, Any] = wanted
        return result

    def _group(self, ops: Ops) -> dict[str | None, Ops]:
        """Split operations by subresource: those of the status go there, where it is one."""
        if not self._kind.has_status:
            return {None: ops}
        in_status = [op for op in ops if op["path"].split("/")[1:2] == ["status"]]
        return {None: [op for op in ops if op not in in_status], "status": in_status}

    def _resume(self) -> dict[str | None, Ops] | None:
        """Return what is left to be sent of what was sent before; None if nothing of that was applied."""
        if self.sent is None:
            return None
        left: dict[str | None, Ops] = {}
        for subresource, ops in self.sent.ops.items():
            left[subresource] = list(self._missing(ops)) if ops else []
        sent = sum(bool(ops) for ops in self.sent.ops.values())
        missing = sum(bool(ops) for ops in left.values())
        return left if missing < sent else None

    def _missing(self, ops: Ops) -> Iterator[Mapping[str, Any]]:
        """Yield operations that make the object what it was to become, where these operations change it."""
        import jsonpointer  # for lost responses only

        assert self.sent is not None
        for path in dict.fromkeys(_touched(op["path"], self.sent.wanted) for op in ops):
            wanted, present = _resolve(self.sent.wanted, path), _resolve(self.body, path)
            if wanted == present:
                continue
            pointer = jsonpointer.JsonPointer.from_parts(path).path
            if wanted is _MISSING:
                yield {"op": "remove", "path": pointer}
            else:
                yield {"op": "add", "path": pointer, "value": wanted}  # which replaces what is there


def _touched(pointer: str, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the field that an operation changes: down to the first list on its path, which counts as a whole."""
    import jsonpointer

    path: list[str] = []
    value: Any = wanted
    for key in jsonpointer.JsonPointer(pointer).parts:
        if not isinstance(value, Mapping):
            break
        path.append(key)
        value = value.get(key)
    return tuple(path)


def _resolve(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _apply(fn: PatchFn, body: Mapping[str, Any]) -> Any:
    changed = msgspec.json.decode(msgspec.json.encode(body))
    fn(changed)
    return msgspec.json.decode(msgspec.json.encode(changed))
